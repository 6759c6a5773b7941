//! The HTTP node: parse, call one use case, render.

pub mod builtin;
pub mod caller;
pub mod console;
mod docs;
pub mod gateway;
pub mod guard;
pub mod http;
pub mod listen;
pub mod paths;
pub mod problem;

use std::sync::Arc;

use app::Ctx;
use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware,
    routing::get,
};
use domain::limits;
use ipnet::IpNet;
use tokio::net::TcpListener;
use tower_http::{
    catch_panic::CatchPanicLayer, timeout::RequestBodyTimeoutLayer, trace::TraceLayer,
};
use tracing::Span;
use url::Url;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::http::Bearer;

/// What a handler gets: the use cases' context and what this node knows of its own address.
#[derive(Debug, Clone)]
pub struct Api {
    pub ctx: Ctx,
    pub node: Arc<NodeSettings>,
}

/// How this node is reached.
#[derive(Debug)]
pub struct NodeSettings {
    /// Where people and clients reach us; every link is built from it, never from Host.
    pub public_url: Url,
    /// `host[:port]` values of Host besides the public URL's that are ours too.
    pub allowed_hosts: Vec<String>,
    /// Networks whose `X-Forwarded-For` says who asks.
    pub trusted_proxies: Vec<IpNet>,
}

impl axum::extract::FromRef<Api> for Ctx {
    fn from_ref(api: &Api) -> Ctx {
        api.ctx.clone()
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bailiwick",
        description = "Governed, audited, durable MCP tool calls, as the person they are made for.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&Bearer),
    // The sets of refusals refer to it by name, and bring no schema along.
    components(schemas(problem::ProblemBody)),
    security(("bearer" = []), ("session" = []))
)]
struct Document;

/// The JSON API with its OpenAPI document.
fn json_api() -> (Router<Api>, utoipa::openapi::OpenApi) {
    let (routes, mut document) =
        OpenApiRouter::with_openapi(Document::openapi()).merge(http::routes()).split_for_parts();
    http::idempotency::describe(&mut document);
    http::name_operations(&mut document);
    (routes, document)
}

/// The OpenAPI 3.1 document of this version.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    json_api().1
}

/// Everything that this node answers. The tests use it too.
pub fn router(api: Api) -> Router {
    let (json, _) = json_api();
    // How a request ended is said by `guard::stamp`, which knows its id.
    let trace = TraceLayer::new_for_http()
        .make_span_with(span)
        .on_request(())
        .on_response(())
        .on_failure(());
    let once = middleware::from_fn_with_state(api.clone(), http::idempotency::once);
    json.route_layer(once)
        .route(paths::CLIENT_DOCUMENT, get(http::oauth::document))
        .merge(docs::routes())
        .merge(gateway::routes())
        .merge(console::routes())
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::no_such_route)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(RequestBodyTimeoutLayer::new(limits::CLIENT_BODY_MS.millis()))
        .layer(middleware::from_fn_with_state(api.clone(), guard::check_host_and_origin))
        .layer(middleware::from_fn(console::in_words))
        .layer(middleware::from_fn(guard::stamp))
        .layer(trace)
        .with_state(api)
}

/// What the log says of a request. Its route and not its path or query: a confused client puts its
/// token there.
fn span(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    tracing::debug_span!("request", method = %request.method(), route)
}

/// Answers on `listener` until `draining` ends, then until the requests that run are answered.
pub async fn serve(
    listener: TcpListener,
    api: Api,
    draining: impl Future<Output = ()> + Send + 'static,
) {
    listen::serve(listener, router(api), listen::Patience::default(), draining).await;
}
