//! Whether this node lives, and whether it can serve; and the OpenAPI document.

use app::Ctx;
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{Api, paths};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .route(paths::OPENAPI, get(openapi))
}

/// What is missing, if anything.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    pub ok: bool,
    pub missing: Vec<String>,
}

/// The process lives.
#[utoipa::path(get, path = paths::HEALTHZ, tag = "operations", security(()),
    responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { ok: true, missing: Vec::new() })
}

/// The node can serve: its database answers, and it is not shutting down.
#[utoipa::path(get, path = paths::READYZ, tag = "operations", security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn readyz(State(ctx): State<Ctx>) -> Response {
    let missing = app::health::missing(&ctx).await;
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Health { ok: missing.is_empty(), missing })).into_response()
}

async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::openapi())
}
