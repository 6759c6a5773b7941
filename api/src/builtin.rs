//! The built-in servers: MCP servers like any other, on a listener that this process alone calls.
//!
//! They are reached through the same client and broker as everybody's, and each request brings a token
//! that says for whom it is made (docs/decisions/0017-delegation.md). Without one nothing is answered.

mod whoami;

use std::{io, net::Ipv4Addr, sync::Arc};

use app::{Ctx, delegation};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::header,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use domain::{Code, Error, builtin::BuiltIn, limits};
use rmcp::{
    ServerHandler,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::never::NeverSessionManager,
    },
};
use tokio::net::TcpListener;

use crate::{listen, problem::Problem};

/// A port of this machine's own, whichever is free.
pub async fn listener() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

/// Answers on `listener` until `stopping`: calls that still run may need it.
pub async fn serve(listener: TcpListener, ctx: Ctx, stopping: impl Future<Output = ()>) {
    listen::serve(listener, router(&ctx), listen::Patience::default(), stopping).await;
}

fn router(ctx: &Ctx) -> Router {
    server(ctx, &domain::builtin::WHOAMI, || whoami::WhoAmI)
}

/// One server at its path, behind its door.
///
/// Both eras without sessions: nothing of one request is there in the next, which may be another
/// person's.
fn server<S: ServerHandler + Send + 'static>(
    ctx: &Ctx,
    built_in: &'static BuiltIn,
    new: fn() -> S,
) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(limits::GATEWAY_BODY_BYTES.size())
        .enforce_origin_validation();
    let mcp = StreamableHttpService::new(
        move || Ok(new()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let door = Door { ctx: ctx.clone(), built_in };
    Router::new()
        .route_service(&format!("/{}", built_in.id), mcp)
        .route_layer(middleware::from_fn_with_state(door, enter))
}

#[derive(Debug, Clone)]
struct Door {
    ctx: Ctx,
    built_in: &'static BuiltIn,
}

/// Lets a request in whose token is good for it, once; the server then finds for whom it is made
/// ([`delegation::Delegate`]) and no token.
async fn enter(State(door): State<Door>, request: Request, next: Next) -> Response {
    match admitted(&door, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => Problem(error).into_response(),
    }
}

async fn admitted(door: &Door, request: Request) -> Result<Request, Error> {
    let (mut parts, body) = request.into_parts();
    let given = parts.headers.remove(header::AUTHORIZATION);
    let token = given.as_ref().and_then(|value| value.to_str().ok());
    let token = token
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or_else(|| Error::new(Code::Unauthenticated, "a delegation token is needed"))?;
    let body = to_bytes(body, limits::GATEWAY_BODY_BYTES.size()).await.map_err(|error| {
        let words = format!("at most {} bytes are read", limits::GATEWAY_BODY_BYTES.default);
        Error::new(Code::InvalidInput, words).because(error)
    })?;
    let server = door.built_in.server_id();
    let delegate = delegation::verify(&door.ctx, &server, token, &parts.method, &body).await?;
    parts.extensions.insert(delegate);
    Ok(Request::from_parts(parts, Body::from(body)))
}
