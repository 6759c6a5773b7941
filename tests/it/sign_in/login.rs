//! What fits and what does not.

use domain::Role;
use http::Method;
use serde_json::json;
use tests::{browser::Browser, world::World};

use super::{PASSWORD, browser_of, person, signed_in};

#[tokio::test]
async fn who_signs_in_is_known_by_the_cookie_and_permits_but_never_calls() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let mia = person(&world, &acme, "mia@acme.test", Role::Member).await;
    let ann = person(&world, &acme, "ann@acme.test", Role::Superadmin).await;
    let own = json!(["api:read", "api:write", "approve"]);
    let all = json!(["api:read", "api:write", "approve", "admin"]);
    for (who, role, scopes) in [(&mia, "member", own), (&ann, "superadmin", all)] {
        let mut browser = Browser::at(&world.url);
        let form = json!({ "email": who.email.to_uppercase(), "password": PASSWORD });
        let seen = browser.fetch(Method::POST, "/api/t/acme/login", Some(form)).await;
        let expected = json!({
            "user": { "id": who.id, "email": who.email },
            "tenant": { "id": acme.id, "slug": "acme" },
            "role": role,
            "scopes": scopes,
        });
        assert_eq!((seen.status.as_u16(), seen.json()), (200, expected.clone()));
        let cookie = seen.header("set-cookie");
        let rest = "; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax";
        assert!(cookie.starts_with("blw-session=") && cookie.ends_with(rest), "{cookie}");
        assert_eq!(cookie.len(), "blw-session=".len() + 43 + rest.len(), "256 bits");
        assert_eq!(browser.get("/api/me").await.json(), expected);

        // The REST API is theirs; the gateway is not.
        let made = browser.fetch(Method::POST, "/api/sessions", Some(json!({}))).await;
        assert_eq!(made.status, 201, "{made:?}");
        let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        for path in ["/mcp", &format!("/mcp/{}", made.json()["id"].as_str().unwrap())] {
            let called = browser.fetch(Method::POST, path, Some(rpc.clone())).await;
            assert_eq!(called.status, 401, "{called:?}");
        }
        let token = json!({ "name": "agent", "scopes": ["mcp:call"] });
        let minted = browser.fetch(Method::POST, "/api/tokens", Some(token)).await;
        assert_eq!(minted.status, 403, "{minted:?}");
    }
}

#[tokio::test]
async fn whatever_does_not_fit_fails_in_the_same_words_and_leaves_nothing() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let globex = world.tenant("globex").await;
    let ann = person(&world, &acme, "ann@acme.test", Role::Superadmin).await;
    person(&world, &globex, "gus@globex.test", Role::Member).await;
    world.user(&acme, "without@acme.test", Role::Member).await;
    let off = person(&world, &acme, "off@acme.test", Role::Member).await;
    let admin = world.full_token(&ann).await;
    let path = format!("/api/users/{}", off.id);
    world.patch(&admin, &path, json!({ "status": "disabled" })).await;

    for (tenant, email, password) in [
        ("acme", "ann@acme.test", "wrong horse battery"),
        ("acme", "ann@acme.test", ""),
        ("acme", "nobody@acme.test", PASSWORD),
        ("acme", "without@acme.test", PASSWORD),
        ("acme", "off@acme.test", PASSWORD),
        ("acme", "gus@globex.test", PASSWORD),
        ("globex", "ann@acme.test", PASSWORD),
        ("nowhere", "ann@acme.test", PASSWORD),
        ("ACME", "ann@acme.test", PASSWORD),
        ("acme", "", PASSWORD),
        ("acme", "\0", "\0"),
        ("acme", "' OR true --", PASSWORD),
    ] {
        let mut browser = Browser::at(&world.url);
        let form = json!({ "email": email, "password": password });
        let login = format!("/api/t/{tenant}/login");
        let seen = browser.fetch(Method::POST, &login, Some(form)).await;
        let problem = seen.json();
        assert_eq!(
            (seen.status.as_u16(), &problem["code"], &problem["detail"]),
            (401, &json!("UNAUTHENTICATED"), &json!("email or password is not right")),
            "{tenant} {email:?}"
        );
        let page = browser.sign_in(tenant, email, password).await;
        assert_eq!(page.status, 401, "{page:?}");
        assert!(page.text.contains("Email or password is not right."), "{}", page.text);
        assert!(!page.text.contains(PASSWORD));
        for seen in [&seen, &page] {
            assert_eq!(seen.header("set-cookie"), "");
        }
    }
    let owner = world.owner().await;
    let sessions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM web_sessions").fetch_one(&owner).await.unwrap();
    assert_eq!(sessions, 0);
}

#[tokio::test]
async fn an_unknown_account_costs_the_same() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    person(&world, &acme, "ann@acme.test", Role::Member).await;
    world.user(&acme, "without@acme.test", Role::Member).await;
    let mut costs = Vec::new();
    for (tenant, email) in [
        ("acme", "ann@acme.test"),
        ("acme", "nobody@acme.test"),
        ("acme", "without@acme.test"),
        ("nowhere", "ann@acme.test"),
    ] {
        let before = ticks_of_work();
        for _ in 0..4 {
            let seen = Browser::at(&world.url).sign_in(tenant, email, "wrong").await;
            assert_eq!(seen.status, 401);
        }
        costs.push(ticks_of_work() - before);
    }
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    // Without the hash an answer takes a small part of this.
    assert!(*most < *least * 2, "{costs:?}");
}

/// What this process has worked, and nobody else on the machine: utime and stime of `proc_pid_stat(5)`.
fn ticks_of_work() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_bearer_token_beside_the_cookie_stands_alone() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let mia = person(&world, &ann.tenant, "mia@acme.test", Role::Member).await;
    let narrow = world.token(&mia, "api:read").await;
    let request = browser.request(Method::GET, "/api/me").bearer_auth(&narrow);
    let me = browser.send(request).await.json();
    assert_eq!(
        (&me["user"]["email"], &me["scopes"]),
        (&json!("mia@acme.test"), &json!(["api:read"]))
    );
    let request = browser.request(Method::GET, "/api/me").bearer_auth("blw_unknown");
    assert_eq!(browser.send(request).await.status, 401);
    // No page by a token, nor beside one.
    let request = browser.request(Method::GET, "/servers").bearer_auth(&narrow);
    assert_eq!(browser.send(request).await.status, 303);
    // And it ends no session.
    let request = browser.request(Method::POST, "/api/logout").bearer_auth(&narrow);
    assert_eq!(browser.send(request).await.status, 204);
    assert_eq!(browser.get("/api/me").await.status, 200);
}

#[tokio::test]
async fn two_people_in_two_browsers_are_two() {
    let world = World::new().await;
    let (ann, mut hers) = signed_in(&world).await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Member).await;
    let mut his = browser_of(&world, &bob).await;
    assert_ne!(hers.cookie, his.cookie);
    assert_eq!(hers.get("/api/me").await.json()["user"]["id"], json!(ann.id));
    assert_eq!(his.get("/api/me").await.json()["user"]["id"], json!(bob.id));
    let session = hers.fetch(Method::POST, "/api/sessions", Some(json!({}))).await.json();
    let path = format!("/api/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(hers.get(&path).await.status, 200);
    assert_eq!(his.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_cookie_of_one_tenant_is_nothing_at_another() {
    let world = World::new().await;
    let (_, mut hers) = signed_in(&world).await;
    let globex = world.tenant("globex").await;
    let gus = person(&world, &globex, "gus@globex.test", Role::Superadmin).await;
    let his = world.full_token(&gus).await;
    let (_, session) = world.post(&his, "/api/sessions", json!({})).await;
    let path = format!("/api/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(hers.get(&path).await.status, 404);
    // The other tenant's page is one to sign in on; her own sends her on.
    let page = hers.get("/t/globex/sign-in").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("Sign in to globex"));
    assert_eq!(hers.get("/t/acme/sign-in").await.header("location"), "/servers");
}
