//! Questions decided on their page.

use chrono::TimeDelta;
use domain::{Role, limits};
use http::Method;
use serde_json::json;
use tests::{
    browser::{Browser, Seen},
    questions::{SERVER, ask, question},
    world::{Person, World},
};

use super::{browser_of, noon, person, signed_in};

/// A session of the browser's person.
async fn session(browser: &mut Browser, title: &str) -> domain::ids::SessionId {
    let made = browser.fetch(Method::POST, "/api/sessions", Some(json!({ "title": title }))).await;
    made.json()["id"].as_str().unwrap().parse().unwrap()
}

/// The page of a new question.
async fn asked(
    world: &World,
    person: &Person,
    browser: &mut Browser,
    tool: &str,
    input: &str,
) -> String {
    let session = session(browser, "Monday").await;
    let id = ask(world, person, &question(person, session, tool, input)).await;
    format!("/questions/{id}")
}

async fn decide(browser: &mut Browser, path: &str, decision: &str) -> Seen {
    browser.submit(path, &[("decision", decision)]).await
}

async fn state(browser: &mut Browser, path: &str) -> String {
    let path = path.replace("/questions/", "/api/permission-requests/");
    browser.get(&path).await.json()["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_question_says_what_is_asked_and_hides_nothing() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let input = "{\"a\":12345678901234567890123,\"b\":\"</pre><script>x\u{202e}\u{200b}\"}";
    let path = asked(&world, &ann, &mut browser, "echo", input).await;
    let page = browser.get(&path).await;
    assert_eq!(page.status, 200);
    for words in [
        "<h1>May this call happen?</h1>",
        "Waiting for you",
        &format!("{SERVER} (gone since then)"),
        "<bdi>Monday</bdi>",
        "  &#34;a&#34;: 12345678901234567890123,\n",
        "&#60;/pre&#62;&#60;script&#62;x\\u{202e}\\u{200b}",
        "Call echo of Weather.",
        "echo of Weather with any other input",
        "value=\"allow_once\"",
        "value=\"allow_matching\"",
        "value=\"deny\"",
        "<dt>Expires</dt>",
    ] {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
    assert!(!page.text.contains("beginning only"));
    let list = browser.get("/questions").await;
    assert!(list.text.contains(&format!("href=\"{path}\"")), "{}", list.text);

    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(limits::QUESTION_INPUT_BYTES.size()));
    let path = asked(&world, &ann, &mut browser, "echo", &long).await;
    assert!(browser.get(&path).await.text.contains("beginning only"));
}

#[tokio::test]
async fn each_answer_is_carried_out_and_told() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    for (decision, became, words) in [
        ("allow_once", "allowed", "You allowed this call, once."),
        ("allow_matching", "allowed", "every further one of its type"),
        ("deny", "denied", "You denied this call."),
    ] {
        let path = asked(&world, &ann, &mut browser, "echo", "{}").await;
        let seen = decide(&mut browser, &path, decision).await;
        assert_eq!(
            (seen.status.as_u16(), seen.header("location")),
            (303, path.as_str()),
            "{seen:?}"
        );
        assert_eq!(state(&mut browser, &path).await, became);
        let page = browser.get(&path).await;
        assert!(page.text.contains(words), "{decision}: {}", page.text);
        assert!(!page.text.contains("name=\"decision\""), "nothing is left to decide");
        assert!(!browser.get("/questions").await.text.contains(&path));
    }
    let grants = browser.get("/api/permission-grants").await.json();
    assert_eq!(grants["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_late_or_lost_answer_is_told_as_what_it_is() {
    let world = World::with_fixed_clock(noon()).await;
    let (ann, mut browser) = signed_in(&world).await;
    let path = asked(&world, &ann, &mut browser, "echo", "{}").await;
    decide(&mut browser, &path, "deny").await;
    let lost = decide(&mut browser, &path, "allow_once").await;
    assert_eq!(lost.status, 409);
    for words in ["Your answer came too late and changed nothing.", "You denied this call."] {
        assert!(lost.text.contains(words), "{}", lost.text);
    }
    assert_eq!(state(&mut browser, &path).await, "denied");

    let path = asked(&world, &ann, &mut browser, "echo", "{}").await;
    world.ctx.clock.advance(TimeDelta::from_std(limits::QUESTION_EXPIRES_MS.millis()).unwrap());
    let late = decide(&mut browser, &path, "allow_once").await;
    assert_eq!(late.status, 409);
    for words in ["came too late", "Nothing was allowed."] {
        assert!(late.text.contains(words), "{}", late.text);
    }

    let session = session(&mut browser, "Tuesday").await;
    let id = ask(&world, &ann, &question(&ann, session, "echo", "{}")).await;
    browser.fetch(Method::DELETE, &format!("/api/sessions/{session}"), None).await;
    let archived = decide(&mut browser, &format!("/questions/{id}"), "allow_once").await;
    assert_eq!(archived.status, 409, "{archived:?}");
    assert!(archived.text.contains("changed nothing"), "{}", archived.text);

    let path = asked(&world, &ann, &mut browser, "echo", "{}").await;
    for odd in ["", "allow", "ALLOW_ONCE"] {
        assert_eq!(decide(&mut browser, &path, odd).await.status, 422, "{odd}");
    }
    assert_eq!(state(&mut browser, &path).await, "pending");
}

#[tokio::test]
async fn of_two_who_answer_at_once_one_is_told_that_they_lost() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let path = asked(&world, &ann, &mut browser, "echo", "{}").await;
    let mut other = browser.clone();
    let (one, two) =
        tokio::join!(decide(&mut browser, &path, "allow_once"), decide(&mut other, &path, "deny"));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 409], "{one:?} {two:?}");
    let (became, lost) = if one.status == 303 { ("allowed", two) } else { ("denied", one) };
    assert_eq!(state(&mut browser, &path).await, became);
    assert!(lost.text.contains("came too late"));
}

#[tokio::test]
async fn somebody_elses_question_is_not_there() {
    let world = World::new().await;
    let (ann, mut hers) = signed_in(&world).await;
    let path = asked(&world, &ann, &mut hers, "echo", "{}").await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Superadmin).await;
    let globex = world.tenant("globex").await;
    let gus = person(&world, &globex, "gus@globex.test", Role::Superadmin).await;
    let mut pages = Vec::new();
    for other in [&bob, &gus] {
        let mut theirs = browser_of(&world, other).await;
        let seen = theirs.get(&path).await;
        let tried = decide(&mut theirs, &path, "allow_once").await;
        assert_eq!((seen.status.as_u16(), tried.status.as_u16()), (404, 404));
        assert!(!theirs.get("/questions").await.text.contains(&path));
        pages.extend([seen, tried]);
    }
    for page in pages {
        for told in ["echo", "Weather", "Monday", "ann@"] {
            assert!(!page.text.contains(told), "{told}: {}", page.text);
        }
    }
    assert_eq!(state(&mut hers, &path).await, "pending");
    // Without a session: to sign in, and back.
    let mut nobody = Browser::at(&world.url);
    let seen = decide(&mut nobody, &path, "allow_once").await;
    let next = format!("/sign-in?next={}", path.replace('/', "%2F"));
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, next.as_str()));
    assert_eq!(state(&mut hers, &path).await, "pending");
}

#[tokio::test]
async fn many_questions_are_paged() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let session = session(&mut browser, "Busy").await;
    let most = limits::PAGE_ITEMS.size();
    for number in 0..=most {
        ask(&world, &ann, &question(&ann, session, &format!("tool{number}"), "{}")).await;
    }
    let first = browser.get("/questions").await;
    assert_eq!(first.text.matches("class=\"card\"").count(), most);
    let (_, older) = first.text.split_once("href=\"/questions?").unwrap();
    let older = format!("/questions?{}", older.split('"').next().unwrap());
    let second = browser.get(&older).await;
    assert_eq!(second.text.matches("class=\"card\"").count(), 1);
    assert!(second.text.contains("tool0 ") && !second.text.contains("/questions?after"));
}
