//! The JSON API: one file per noun. A handler parses, calls one use case, renders.

pub mod access;
pub mod authorizations;
pub mod body;
pub mod company;
pub mod connections;
pub mod epochs;
pub mod events;
pub mod health;
pub mod id;
pub mod idempotency;
pub mod inspect;
pub mod invocations;
pub mod login;
pub mod me;
pub mod oauth;
pub mod page;
pub mod permission_grants;
pub mod permission_requests;
pub mod projects;
pub mod servers;
pub mod sessions;
pub mod tenant;
pub mod terms;
pub mod tokens;
pub mod tools;
pub mod users;
pub mod variables;

use utoipa::{
    Modify,
    openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use crate::Api;

/// Says in the OpenAPI document that routes take a bearer token, or a browser session.
pub(crate) struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let cookie = ApiKeyValue::with_description(
            "__Host-blw-session",
            "A browser session; `blw-session` on plain http. Unsafe requests must come from our Origin.",
        );
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
        components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    }
}

/// Gives each operation an id of its own, of its handler's name and its path's words: in the document
/// they must not repeat.
pub(crate) fn name_operations(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let words = path.split('/').filter(|part| !part.starts_with('{') && *part != "api");
        let words: Vec<&str> = words.filter(|part| !part.is_empty()).collect();
        let noun = words.join("_").replace(['-', '.'], "_");
        let operations =
            [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            let verb = operation.operation_id.take().unwrap_or_default();
            operation.operation_id = Some(format!("{verb}_{noun}"));
        }
    }
}

/// All routes of the JSON API.
pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(health::routes())
        .merge(access::routes())
        .merge(sessions::routes())
        .merge(projects::routes())
        .merge(permission_requests::routes())
        .merge(permission_grants::routes())
        .merge(events::routes())
        .merge(epochs::routes())
        .merge(authorizations::routes())
        .merge(servers::routes())
        .merge(tools::routes())
        .merge(connections::routes())
        .merge(oauth::routes())
        .merge(tokens::routes())
        .merge(users::routes())
        .merge(tenant::routes())
        .merge(company::routes())
        .merge(variables::routes())
        .merge(login::routes())
        .merge(me::routes())
        .merge(invocations::routes())
        .merge(inspect::routes())
}
