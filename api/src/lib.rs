//! The HTTP node: parse, call one use case, render.

pub mod caller;
pub mod gateway;
pub mod guard;
pub mod http;
pub mod paths;
pub mod problem;

use std::sync::Arc;

use app::Ctx;
use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware,
    serve::ListenerExt,
};
use tokio::net::TcpListener;
use tower_http::{catch_panic::CatchPanicLayer, trace::TraceLayer};
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
    security(("bearer" = []))
)]
struct Document;

/// The JSON API with its OpenAPI document.
fn json_api() -> (Router<Api>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi()).merge(http::routes()).split_for_parts()
}

/// The OpenAPI 3.1 document of this version.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    json_api().1
}

/// Everything that this node answers. The tests use it too.
pub fn router(api: Api) -> Router {
    let (json, _) = json_api();
    json.merge(gateway::routes())
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::no_such_route)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(middleware::from_fn_with_state(api.clone(), guard::check_host_and_origin))
        .layer(middleware::from_fn(guard::stamp))
        .layer(TraceLayer::new_for_http().make_span_with(span))
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
) -> std::io::Result<()> {
    // Else an event waits until the one before it was acknowledged, 40 ms on Linux. A connection that
    // cannot be set so still works.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, router(api)).with_graceful_shutdown(draining).await
}
