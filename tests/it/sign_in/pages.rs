//! The pages: who sees what, and what cannot get into them.

use domain::Role;
use http::Method;
use serde_json::{Value, json};
use tests::{
    browser::{Browser, Seen},
    peer::{Peer, Setup, tool},
    world::World,
};

use super::{PASSWORD, browser_of, person, signed_in};

#[tokio::test]
async fn without_a_session_every_page_leads_to_signing_in_and_back() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let ann = person(&world, &acme, "ann@acme.test", Role::Member).await;
    let mut browser = Browser::at(&world.url);
    for (page, place) in [
        ("/", "/t/acme/sign-in"),
        ("/sign-in", "/t/acme/sign-in"),
        ("/sign-in?next=%2Fquestions", "/t/acme/sign-in?next=%2Fquestions"),
        ("/servers", "/t/acme/sign-in?next=%2Fservers"),
        ("/questions?after=x", "/t/acme/sign-in?next=%2Fquestions%3Fafter%3Dx"),
        ("/connections?server=a", "/t/acme/sign-in?next=%2Fconnections%3Fserver%3Da"),
        ("/questions/1", "/t/acme/sign-in?next=%2Fquestions%2F1"),
    ] {
        let seen = browser.get(page).await;
        assert_eq!((seen.status.as_u16(), seen.header("location")), (303, place), "{page}");
    }
    let page = browser.get("/t/acme/sign-in?next=%2Fquestions%3Fafter%3D1").await;
    assert!(page.text.contains(r#"name="next" value="/questions?after=1""#), "{}", page.text);
    let fields =
        [("email", ann.email.as_str()), ("password", PASSWORD), ("next", "/questions?a=1")];
    let seen = browser.submit("/t/acme/sign-in", &fields).await;
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, "/questions?a=1"));
    assert_eq!(browser.get("/").await.header("location"), "/servers");

    // With a second tenant somebody has to say which.
    world.tenant("globex").await;
    let mut stranger = Browser::at(&world.url);
    let seen = stranger.get("/questions").await;
    assert_eq!(seen.header("location"), "/sign-in?next=%2Fquestions");
    let seen = stranger.get("/sign-in?next=%2Fquestions").await;
    assert!(seen.status == 200 && seen.text.contains(r#"name="tenant""#), "{seen:?}");
    let seen = stranger.get("/sign-in?tenant=a%2F..%2Fb+c&next=%2Fquestions").await;
    assert_eq!(seen.header("location"), "/t/a%2F..%2Fb%20c/sign-in?next=%2Fquestions");
    assert_eq!(stranger.get(seen.header("location")).await.status, 200);
}

#[tokio::test]
async fn next_cannot_leave() {
    let world = World::new().await;
    let (ann, _) = signed_in(&world).await;
    for next in
        ["//evil.test", "/\\evil.test", "https://evil.test", "javascript:alert(1)", "/\t/evil.test"]
    {
        let mut browser = Browser::at(&world.url);
        let encoded: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        for page in [format!("/sign-in?next={encoded}"), format!("/t/acme/sign-in?next={encoded}")]
        {
            let seen = browser.get(&page).await;
            assert!(!format!("{seen:?}").contains("evil"), "{seen:?}");
        }
        let fields = [("email", ann.email.as_str()), ("password", PASSWORD), ("next", next)];
        let seen = browser.submit("/t/acme/sign-in", &fields).await;
        assert_eq!((seen.status.as_u16(), seen.header("location")), (303, "/servers"), "{next}");
        let again = browser.get(&format!("/t/acme/sign-in?next={encoded}")).await;
        assert_eq!(again.header("location"), "/servers");
    }
}

#[tokio::test]
async fn a_superadmin_sees_the_state_of_servers_and_a_member_what_they_may_use() {
    let world = World::new().await;
    let (ann, mut hers) = signed_in(&world).await;
    let mia = person(&world, &ann.tenant, "mia@acme.test", Role::Member).await;
    let mut members = browser_of(&world, &mia).await;
    assert!(members.get("/servers").await.text.contains("There is no server that you may"));
    // Those of the service are there from the start, for whoever can switch them on.
    assert!(hers.get("/servers").await.text.contains("<bdi>Who am I</bdi>"));

    let peer =
        Peer::start(Setup { tools: vec![tool("echo"), tool("other")], ..Setup::modern() }).await;
    server(&mut hers, "Weather", peer.url().as_str(), true).await;
    refresh(&mut hers, "weather").await;
    let changed =
        r#"{"name":"echo","description":"something else","inputSchema":{"type":"object"}}"#;
    peer.change(|setup| setup.tools = vec![changed.to_owned(), tool("other")]);
    refresh(&mut hers, "weather").await;
    server(&mut hers, "Broken", "http://127.0.0.1:9/mcp", true).await;
    hers.fetch(Method::POST, "/api/mcp/servers/broken/tools/refresh", None).await;
    server(&mut hers, "Hidden", "http://127.0.0.1:9/mcp", false).await;

    let page = hers.get("/servers").await;
    for words in [
        "<bdi>Weather</bdi>",
        "Ready",
        "In quarantine: 1.",
        "<dt>Tools</dt><dd>2</dd>",
        "<bdi>Broken</bdi>",
        "Error",
        "<bdi>Hidden</bdi>",
        "Switched off",
        "<dt>Revision</dt>",
    ] {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
    let page = members.get("/servers").await;
    assert!(page.text.contains("<bdi>Weather</bdi>") && page.text.contains("Switched on"));
    for words in ["Hidden", "quarantine", "Revision", "127.0.0.1:9", "<dt>Tools</dt>"] {
        assert!(!page.text.contains(words), "{words}: {}", page.text);
    }
}

#[tokio::test]
async fn hostile_names_stay_text() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let name = "<img src=x onerror=alert(1)>\u{202e}\"'&amp;";
    let form = json!({
        "name": name, "slug": "hostile", "description": "</main><script>alert(1)</script>",
        "tags": ["<b>tag</b>"], "transport": "http", "url": "http://127.0.0.1:9/mcp", "authMode": "none",
    });
    let made = browser.fetch(Method::POST, "/api/mcp/servers", Some(form)).await;
    let page = browser.get("/servers").await;
    // Whether such a name may be given is the servers' to say; whatever was taken is only shown.
    if made.status == 201 {
        assert!(page.text.contains("\\u{202e}"), "{}", page.text);
    }
    let person_name = "<script>alert(1)</script>@acme.test";
    let mallory = person(&world, &ann.tenant, person_name, Role::Member).await;
    let hers = browser_of(&world, &mallory).await.get("/servers").await;
    let tenant = "<script>alert(1)</script>";
    let path = format!(
        "/t/{}/sign-in",
        tenant.replace('<', "%3C").replace('>', "%3E").replace('/', "%2F")
    );
    let mut stranger = Browser::at(&world.url);
    let odd = stranger.get(&path).await;
    let tried = stranger
        .submit(&path, &[("email", "\"><script>alert(1)</script>"), ("password", "x")])
        .await;
    assert_eq!((odd.status.as_u16(), tried.status.as_u16()), (200, 401));
    let missing = browser.get("/%3Cscript%3Ealert(1)%3C/script%3E").await;
    for seen in [&page, &hers, &odd, &tried, &missing] {
        for markup in ["<script", "<img src=x", "<b>", "\u{202e}"] {
            assert!(!seen.text.contains(markup), "{markup}: {}", seen.text);
        }
    }
    // A link puts no words of its own on the page.
    assert!(odd.text.contains("<h1>Sign in</h1>") && !odd.text.contains("alert"), "{}", odd.text);
    assert!(hers.text.contains("&#60;script"), "{}", hers.text);
}

#[tokio::test]
async fn every_page_is_closed_to_scripts_frames_and_caches() {
    let world = World::new().await;
    let (_, mut browser) = signed_in(&world).await;
    let mut stranger = Browser::at(&world.url);
    let pages = [
        stranger.get("/t/acme/sign-in").await,
        stranger.sign_in("acme", "ann@acme.test", "wrong").await,
        stranger.get("/nowhere").await,
        browser.get("/servers").await,
        browser.get("/questions").await,
        browser.get("/questions/x").await,
    ];
    for page in pages {
        let policy = page.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "style-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("referrer-policy"), "same-origin");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("x-frame-options"), "DENY");
        // What it loads is ours and there; nothing stands in attributes that could run.
        for piece in page.text.split('"').filter(|piece| piece.starts_with("/assets/")) {
            assert_eq!(stranger.get(piece).await.status, 200, "{piece}");
        }
        for not_there in ["<script", " style=", " onclick", "http://", "https://"] {
            assert!(!page.text.contains(not_there), "{not_there}: {}", page.text);
        }
    }
}

#[tokio::test]
async fn an_error_is_a_page_for_people_and_a_problem_for_programs() {
    let world = World::new().await;
    let (_, mut browser) = signed_in(&world).await;
    for path in ["/nowhere", "/questions/x", "/questions/00000000-0000-7000-8000-000000000001"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(page.text.contains("Not found") && page.text.contains(page.header("x-request-id")));
    }
    let foreign =
        browser.request(Method::POST, "/questions/x").header("origin", "https://evil.test");
    let page = browser.send(foreign).await;
    assert!(page.status == 403 && page.text.contains("<h1>Refused</h1>"), "{page:?}");
    let wrong = browser.fetch(Method::PUT, "/servers", None).await;
    assert_eq!(wrong.status, 405);
    for (path, accept) in
        [("/nowhere", "*/*"), ("/api/nowhere", "text/html"), ("/mcp/x", "text/html")]
    {
        let request = world.client().get(world.url.join(path).unwrap()).header("accept", accept);
        let response = request.send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("application/"), "{path} {accept}: {kind}");
    }
}

async fn server(browser: &mut Browser, name: &str, url: &str, enabled: bool) {
    let form: Value = json!({
        "name": name, "slug": name.to_lowercase(), "transport": "http", "url": url,
        "authMode": "none", "enabled": enabled,
    });
    let made: Seen = browser.fetch(Method::POST, "/api/mcp/servers", Some(form)).await;
    assert_eq!(made.status, 201, "{made:?}");
}

async fn refresh(browser: &mut Browser, slug: &str) {
    let path = format!("/api/mcp/servers/{slug}/tools/refresh");
    let seen = browser.fetch(Method::POST, &path, None).await;
    assert_eq!(seen.status, 200, "{seen:?}");
}
