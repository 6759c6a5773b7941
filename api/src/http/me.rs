//! Who the caller is, and their password.

use app::{Ctx, users::Change};
use axum::{Json, extract::State, http::StatusCode};
use domain::{
    Caller,
    ids::{TenantId, UserId},
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    guard::Client,
    http::{body::Body, terms},
    paths,
    problem::{BadBody, Problem, Refused, TooMany},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(me)).routes(routes!(change_password))
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

/// Another password.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PasswordForm {
    #[schema(value_type = String, format = Password)]
    pub current: SecretString,
    /// 8 to 1024 characters.
    #[schema(value_type = String, format = Password, min_length = 8, max_length = 1024)]
    pub new: SecretString,
}

/// Changes the password of whoever is signed in; no token may. Every other browser session of theirs
/// ends, tokens stay.
///
/// A `current` that is not theirs counts as an attempt to sign in: too many make one wait.
#[utoipa::path(put, path = paths::MY_PASSWORD, tag = "people", security(("session" = [])),
    request_body = PasswordForm,
    responses((status = 204, description = "It is changed."), Refused, BadBody, TooMany))]
async fn change_password(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    client: Client,
    Body(form): Body<PasswordForm>,
) -> Result<StatusCode, Problem> {
    let change = Change { current: form.current, new: form.new, network: client.network };
    app::users::change_password(&ctx, &caller, change).await?;
    Ok(StatusCode::NO_CONTENT)
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
