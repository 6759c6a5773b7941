//! Who comes in, and what is turned away before a message is read.

use std::sync::Arc;

use api::{Api, NodeSettings};
use app::{Ctx, Parts};
use axum::{Router, body::Body};
use domain::Role;
use http::{Method, Request, StatusCode, header};
use serde_json::json;
use store::vault::Vault;
use tests::{peer::Setup, world::World};
use tower::ServiceExt;
use uuid::Uuid;

use super::{Gateway, as_pairs, initialize, modern};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn a_401_names_the_endpoints_own_document() {
    let gateway = Gateway::new(Setup::modern()).await;
    let document = |endpoint: &str| {
        format!("{}.well-known/oauth-protected-resource{endpoint}", gateway.world.url)
    };
    for (token, said) in [("", ""), ("blw_unknown", r#"error="invalid_token", "#)] {
        for endpoint in ["/mcp", &gateway.path()] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                let reply = gateway.send(method, token, endpoint, &[], PING).await;
                assert_eq!(reply.status, 401);
                assert_eq!(reply.json()["code"], "UNAUTHENTICATED");
                let document = document(endpoint);
                assert_eq!(
                    reply.header("www-authenticate"),
                    format!(r#"Bearer {said}resource_metadata="{document}""#)
                );
            }
        }
    }
}

#[tokio::test]
async fn each_endpoint_has_its_document() {
    let gateway = Gateway::new(Setup::modern()).await;
    let origin = gateway.world.url.as_str().trim_end_matches('/').to_owned();
    for endpoint in ["", "/mcp", &gateway.path()] {
        let path = format!("/.well-known/oauth-protected-resource{endpoint}");
        let (status, document) = gateway.world.get("", &path).await;
        assert_eq!(status, 200);
        assert_eq!(
            document,
            json!({
                "resource": format!("{origin}{endpoint}"),
                "resource_name": "Bailiwick",
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["mcp:call"],
            })
        );
    }
    let (status, _) = gateway.world.get("", "/.well-known/oauth-protected-resource/mcp/x").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_token_without_the_scope_is_403() {
    let gateway = Gateway::new(Setup::modern()).await;
    let token = gateway.world.full_token(&gateway.person).await;
    let reply = gateway.post_as(&token, &gateway.path(), &[], PING).await;
    assert_eq!((reply.status, &reply.json()["code"]), (403, &json!("DENIED")));
    assert!(
        reply
            .header("www-authenticate")
            .contains(r#"error="insufficient_scope", scope="mcp:call""#)
    );
}

#[tokio::test]
async fn a_foreign_or_unknown_session_is_404() {
    let gateway = Gateway::new(Setup::modern()).await;
    let acme = &gateway.person.tenant;
    let bob = gateway.world.user(acme, "bob@acme.test", Role::Superadmin).await;
    let globex = gateway.world.tenant("globex").await;
    let eve = gateway.world.user(&globex, "eve@globex.test", Role::Superadmin).await;
    let requests = [
        modern("server/discover", "{}"),
        modern("tools/list", "{}"),
        modern("tools/call", r#"{"name":"mcp__demo__echo"}"#),
        (Vec::new(), initialize("2025-11-25")),
    ];
    let unknown = format!("/mcp/{}", Uuid::new_v4());
    let (own, bobs, eves) = (
        gateway.token.clone(),
        gateway.world.token(&bob, "mcp:call").await,
        gateway.world.token(&eve, "mcp:call").await,
    );
    let own_path = gateway.path();
    for (token, path) in
        [(&own, unknown.as_str()), (&own, "/mcp/x"), (&bobs, &own_path), (&eves, &own_path)]
    {
        for (headers, body) in &requests {
            let reply = gateway.post_as(token, path, &as_pairs(headers), body.clone()).await;
            assert_eq!((reply.status, &reply.json()["code"]), (404, &json!("NOT_FOUND")), "{body}");
        }
    }
    assert!(gateway.invocations().await.is_empty());
    for (headers, body) in &requests {
        let reply = gateway.post_as(&own, &own_path, &as_pairs(headers), body.clone()).await;
        assert_eq!(reply.status, 200);
    }
}

#[tokio::test]
async fn a_body_of_another_kind_or_size_is_refused() {
    let gateway = Gateway::new(Setup::modern()).await;
    for (headers, status) in [
        (&[("content-type", "text/plain")][..], 415),
        (&[("accept", "text/html")], 406),
        (&[("accept", "application/json")], 406),
    ] {
        let reply = gateway.post(headers, PING).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("content-type"), "application/problem+json");
    }
    let (headers, body) = modern("server/discover", "{}");
    let mut headers = as_pairs(&headers);
    headers.push(("accept", "*/*"));
    assert_eq!(gateway.post(&headers, body).await.status, 200);

    let reply = gateway.post(&[], format!("\"{}\"", "x".repeat(4_000_000))).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn a_node_without_keys_begins_no_older_session_and_says_so() {
    let gateway = Gateway::new(Setup::modern()).await;
    let router = without_keys(&gateway.world);
    let sent = async |headers: &[(&str, &str)], body: String| {
        let mut request = Request::post(gateway.path())
            .header(header::HOST, gateway.world.url.authority())
            .header(header::AUTHORIZATION, format!("Bearer {}", gateway.token))
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap().status()
    };
    assert_eq!(sent(&[], initialize("2025-11-25")).await, StatusCode::SERVICE_UNAVAILABLE);
    let session = [("mcp-session-id", "sealed-elsewhere")];
    assert_eq!(sent(&session, PING.to_owned()).await, StatusCode::SERVICE_UNAVAILABLE);
    let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
    assert_eq!(sent(&as_pairs(&headers), body).await, StatusCode::OK);
}

/// The same node, started without encryption keys.
fn without_keys(world: &World) -> Router {
    let ctx = Ctx::from(Parts {
        db: world.ctx.db.clone(),
        clock: world.ctx.clock.clone(),
        vault: Vault::without_keys(),
        mcp: world.ctx.mcp.clone(),
        oauth: world.ctx.oauth.clone(),
        built_in: None,
        blobs: world.ctx.blobs.clone(),
        admission: world.ctx.admission.clone(),
        node: world.ctx.node,
        signals: world.ctx.signals.clone(),
        definitions: world.ctx.definitions.clone(),
        url_rules: world.ctx.url_rules.clone(),
        stdio: world.ctx.stdio.clone(),
        permission_wait: world.ctx.permission_wait,
        draining: world.ctx.draining.clone(),
        stopping: world.ctx.stopping.clone(),
        tasks: world.ctx.tasks.clone(),
    });
    let node = NodeSettings {
        public_url: world.url.clone(),
        allowed_hosts: Vec::new(),
        trusted_proxies: Vec::new(),
    };
    api::router(Api { ctx, node: Arc::new(node) })
}
