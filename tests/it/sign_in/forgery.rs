//! Another site's page does nothing with the cookie, at any route that changes something.

use http::Method;
use reqwest::RequestBuilder;
use serde_json::json;
use tests::{
    browser::Browser,
    world::{World, rows},
};

use super::{PASSWORD, signed_in};

/// What other sites' pages, and browsers that do not say, send along.
const FOREIGN: [&[(&str, &str)]; 8] = [
    &[],
    &[("origin", "https://evil.test")],
    &[("origin", "null")],
    &[("origin", "https://evil.test"), ("sec-fetch-site", "same-origin")],
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("sec-fetch-site", "none")],
    &[("origin", "$OURS"), ("sec-fetch-site", "cross-site")],
];

#[tokio::test]
async fn no_unsafe_route_takes_the_cookie_from_another_site() {
    let world = World::new().await;
    let (_, mut browser) = signed_in(&world).await;
    let owner = world.owner().await;
    let before = rows::digest(&owner, None).await;
    let mut tried = 0;
    for (method, path) in unsafe_routes() {
        for foreign in FOREIGN {
            let request = browser.request(method.clone(), &path).json(&json!({}));
            let seen = browser.send(with(request, &world, foreign)).await;
            let code = (seen.status.as_u16(), seen.text.contains("DENIED"));
            assert_eq!(code, (403, true), "{method} {path} {foreign:?}: {seen:?}");
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
    assert_eq!(rows::digest(&owner, None).await, before, "and nothing changed");

    // It is this alone that was wrong.
    for ours in [
        &[("origin", "$OURS")][..],
        &[("sec-fetch-site", "same-origin")],
        &[("origin", "$OURS"), ("sec-fetch-site", "same-origin")],
    ] {
        let request = browser.request(Method::POST, "/api/sessions").json(&json!({}));
        let seen = browser.send(with(request, &world, ours)).await;
        assert_eq!(seen.status, 201, "{ours:?}: {seen:?}");
    }
}

#[tokio::test]
async fn nobody_is_signed_in_by_another_sites_form() {
    let world = World::new().await;
    let (ann, _) = signed_in(&world).await;
    for foreign in FOREIGN {
        // Without a session too: a form could sign a victim in as its author.
        let mut browser = Browser::at(&world.url);
        let body = format!("email={}&password={}", ann.email, PASSWORD.replace(' ', "+"));
        let request = browser
            .request(Method::POST, "/t/acme/sign-in")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let seen = browser.send(with(request, &world, foreign)).await;
        assert_eq!((seen.status.as_u16(), seen.header("set-cookie")), (403, ""), "{foreign:?}");
    }
    // A form cannot send JSON, and a script would have to ask first.
    let mut browser = Browser::at(&world.url);
    let text = format!(r#"{{"email":"{}","password":"{PASSWORD}"}}"#, ann.email);
    let request = browser.request(Method::POST, "/api/t/acme/login");
    let seen = browser.send(request.header("content-type", "text/plain").body(text)).await;
    assert_eq!(seen.status, 415);
    let asked = browser
        .request(Method::OPTIONS, "/api/t/acme/login")
        .header("origin", "https://evil.test")
        .header("access-control-request-method", "POST");
    assert_eq!(browser.send(asked).await.status, 403);
}

#[tokio::test]
async fn reading_by_a_link_of_another_site_is_allowed() {
    let world = World::new().await;
    let (_, mut browser) = signed_in(&world).await;
    for site in ["none", "cross-site", "same-site", "same-origin"] {
        let request = browser.request(Method::GET, "/servers").header("sec-fetch-site", site);
        assert_eq!(browser.send(request).await.status, 200, "{site}");
    }
}

fn with(mut request: RequestBuilder, world: &World, headers: &[(&str, &str)]) -> RequestBuilder {
    let ours = world.url.origin().ascii_serialization();
    for (name, value) in headers {
        request = request.header(*name, value.replace("$OURS", &ours));
    }
    request
}

/// Of the OpenAPI document, and the forms of the pages.
fn unsafe_routes() -> Vec<(Method, String)> {
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            if ["POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str()) {
                routes.push((method, filled(path)));
            }
        }
    }
    assert!(routes.len() > 20, "{routes:?}");
    for path in [api::paths::TENANT_SIGN_IN, api::paths::SIGN_OUT, api::paths::QUESTION_PAGE] {
        routes.push((Method::POST, filled(path)));
    }
    // One that is none, and the gateway.
    for path in ["/nowhere", "/mcp"] {
        routes.push((Method::POST, path.to_owned()));
    }
    routes
}

fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "acme" } else { part });
    parts.collect::<Vec<_>>().join("/")
}
