//! Who the caller is.

use app::Ctx;
use axum::{Json, extract::State};
use domain::{
    Caller,
    ids::{TenantId, UserId},
};
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::terms,
    paths,
    problem::{Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(me))
}

/// The caller, as far as this token or session reaches.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Me {
    pub user: Person,
    pub tenant: Company,
    #[schema(value_type = terms::Role)]
    pub role: String,
    /// Of the token or session.
    #[schema(value_type = Vec<terms::Scope>)]
    pub scopes: Vec<String>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Person {
    #[schema(value_type = uuid::Uuid)]
    pub id: UserId,
    pub email: String,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Company {
    #[schema(value_type = uuid::Uuid)]
    pub id: TenantId,
    pub slug: String,
}

/// Who holds this token, or is signed in.
#[utoipa::path(get, path = paths::ME, tag = "people",
    responses((status = 200, body = Me), Refused))]
async fn me(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<Me>, Problem> {
    let me = app::users::me(&ctx, &caller).await?;
    Ok(Json(Me::of(&caller, me)))
}

impl Me {
    pub(super) fn of(caller: &Caller, me: app::users::Me) -> Self {
        Self {
            user: Person { id: me.user.id, email: me.user.email },
            tenant: Company { id: me.tenant.id, slug: me.tenant.slug },
            role: caller.role.as_str().to_owned(),
            scopes: caller.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        }
    }
}
