//! What people read about the API.

use std::collections::BTreeSet;

use domain::Code;
use serde_json::Value;
use tests::world::World;

#[tokio::test]
async fn the_document_is_a_page_that_loads_nothing_from_elsewhere() {
    let world = World::new().await;
    let page = world.client().get(world.url.join("/api/docs").unwrap()).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{policy}");
    let html = page.text().await.unwrap();
    // An address in a text of ours loads nothing.
    for loading in ["src=", "href=\"http", "href=\"//", "<script", "style=\"", "@import", "url("] {
        assert!(!html.contains(loading), "the page has {loading}");
    }

    let style = world.client().get(world.url.join("/api/docs.css").unwrap()).send().await.unwrap();
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
    let style = style.text().await.unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"), "{style}");
}

#[tokio::test]
async fn the_page_has_every_operation_and_schema_with_its_anchor() {
    let world = World::new().await;
    let (status, html) = world.get("", "/api/docs").await;
    assert_eq!(status, 200);
    let html = html.as_str().unwrap();
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut anchors = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        assert!(html.contains(&format!("</span> {path}</a>")), "{path}");
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(anchors.insert(id.to_owned()), "{id} names two operations");
            assert!(html.contains(&format!("id=\"{id}\"")), "{id}");
            for status in operation["responses"].as_object().unwrap().keys() {
                assert!(html.contains(&format!("<th scope=\"row\">{status}</th>")), "{status}");
            }
        }
    }
    for schema in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(html.contains(&format!("id=\"schema-{schema}\"")), "{schema}");
    }
    // Each link within the page leads somewhere.
    for rest in html.split("href=\"#").skip(1) {
        let anchor = rest.split('"').next().unwrap();
        assert!(html.contains(&format!("id=\"{anchor}\"")), "#{anchor} leads nowhere");
    }
}

#[tokio::test]
async fn the_type_of_a_problem_is_the_address_of_its_page() {
    let world = World::new().await;
    let (status, problem) = world.get("", "/api/me").await;
    assert_eq!((status.as_u16(), &problem["code"]), (401, &Value::from("UNAUTHENTICATED")));
    let address = problem["type"].as_str().unwrap();
    let page = world.client().get(world.url.join(address).unwrap()).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["content-type"], "text/plain; charset=utf-8");
    assert!(page.text().await.unwrap().starts_with("# UNAUTHENTICATED\n"));

    for code in Code::ALL {
        let (status, page) = world.get("", &format!("/docs/errors/{code}.md")).await;
        assert_eq!(status, 200, "{code}");
        assert!(page.as_str().unwrap().contains("**What the caller can do.**"), "{code}");
    }
    for nothing in ["NOTHING.md", "INTERNAL", "internal.md", "%00", "..%2FINTERNAL.md"] {
        let (status, _) = world.get("", &format!("/docs/errors/{nothing}")).await;
        assert_eq!(status, 404, "{nothing}");
    }
}
