//! The JSON API: one file per noun. A handler parses, calls one use case, renders.

pub mod authorizations;
pub mod body;
pub mod epochs;
pub mod events;
pub mod health;
pub mod id;
pub mod invocations;
pub mod me;
pub mod page;
pub mod permission_grants;
pub mod permission_requests;
pub mod projects;
pub mod servers;
pub mod sessions;
pub mod tenant;
pub mod tokens;
pub mod tools;
pub mod users;

use utoipa::{
    Modify,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use crate::Api;

/// Says in the OpenAPI document that routes take a bearer token.
pub(crate) struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        openapi
            .components
            .get_or_insert_default()
            .add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// All routes of the JSON API.
pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(health::routes())
        .merge(sessions::routes())
        .merge(projects::routes())
        .merge(permission_requests::routes())
        .merge(permission_grants::routes())
        .merge(events::routes())
        .merge(epochs::routes())
        .merge(authorizations::routes())
        .merge(servers::routes())
        .merge(tools::routes())
        .merge(tokens::routes())
        .merge(users::routes())
        .merge(tenant::routes())
        .merge(me::routes())
        .merge(invocations::routes())
}
