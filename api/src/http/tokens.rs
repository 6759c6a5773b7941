//! API tokens of the caller, and of people below an admin.

use app::{Ctx, tokens::NewToken};
use axum::{
    Extension, Json,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
};
use domain::{
    Code, Error, Reach, Scope, Scopes, Timestamp,
    ids::{ServerId, SessionId, TokenId, UserId},
};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::Body,
        id::Id,
        idempotency::GivenOnce,
        page::{List, Page, PageQuery},
        terms,
    },
    paths,
    problem::{BadBody, BadQuery, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// A token; what it is limited to is left out where it is not.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    #[schema(value_type = uuid::Uuid)]
    pub id: TokenId,
    #[schema(value_type = uuid::Uuid)]
    pub user_id: UserId,
    pub name: String,
    #[schema(value_type = Vec<terms::Scope>)]
    pub scopes: Scopes,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub sources: Option<Vec<ServerId>>,
    /// Names as agents call them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<uuid::Uuid>>)]
    pub sessions: Option<Vec<SessionId>>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub revoked_at: Option<Timestamp>,
}

impl From<app::tokens::Token> for Token {
    fn from(token: app::tokens::Token) -> Self {
        Self {
            id: token.id,
            user_id: token.user,
            name: token.name,
            scopes: token.scopes,
            sources: token.reach.sources,
            tools: token.reach.tools,
            sessions: token.reach.sessions,
            created_at: token.created_at,
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
        }
    }
}

/// A new token, and its text, this once.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MintedToken {
    /// Goes into `Authorization: Bearer`.
    #[schema(example = "blw_…")]
    pub token: String,
    #[serde(flatten)]
    pub properties: Token,
}

/// A token to be made. `sources`, `tools` and `sessions` that are left out are as the maker's.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenForm {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// A subset of the maker's; `approve` never with `mcp:call`.
    #[schema(value_type = Vec<terms::Scope>, example = json!(["mcp:call", "api:read"]), min_items = 1)]
    pub scopes: Vec<Scope>,
    #[schema(value_type = Option<Vec<String>>)]
    pub sources: Option<Vec<ServerId>>,
    pub tools: Option<Vec<String>>,
    #[schema(value_type = Option<Vec<uuid::Uuid>>)]
    pub sessions: Option<Vec<SessionId>>,
    /// Not after the end of the token that makes it; left out: in 90 days, or with that token.
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whose {
    user_id: Option<UserId>,
}

/// The caller's tokens, newest first, spent ones too; an admin names somebody below them.
#[utoipa::path(get, path = paths::TOKENS, tag = "people",
    params(("userId" = Option<uuid::Uuid>, Query), PageQuery),
    responses((status = 200, body = List<Token>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    whose: Result<Query<Whose>, QueryRejection>,
    page: Page,
) -> Result<Json<List<Token>>, Problem> {
    // As in a path: what is no id names nobody.
    let Query(whose) = whose.map_err(|_| Error::not_found("person"))?;
    let (after, rows) = (page.after()?, page.rows());
    let tokens = app::tokens::list(&ctx, &caller, whose.user_id, after, rows).await?;
    Ok(Json(List::of(&page, tokens, |token| token.id.to_string())))
}

/// Makes a token for the caller; its text is in this answer and never again.
#[utoipa::path(post, path = paths::TOKENS, tag = "people", request_body = TokenForm,
    responses((status = 201, body = MintedToken), Refused, BadBody))]
async fn create(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(form): Body<TokenForm>,
) -> Result<(StatusCode, Extension<GivenOnce>, Json<MintedToken>), Problem> {
    let new = NewToken {
        name: form.name,
        scopes: Scopes::new(form.scopes)?,
        reach: Reach { sources: form.sources, tools: form.tools, sessions: form.sessions },
        expires_at: form.expires_at.map(whole_micros).transpose()?,
    };
    let minted = app::tokens::create(&ctx, &caller, new).await?;
    let body = MintedToken {
        token: minted.secret.expose_secret().to_owned(),
        properties: minted.token.into(),
    };
    Ok((StatusCode::CREATED, Extension(GivenOnce), Json(body)))
}

/// Ends a token: the caller's own, or for admins one of somebody below them. Idempotent.
#[utoipa::path(delete, path = paths::TOKEN, tag = "people",
    params(("token" = uuid::Uuid, Path)),
    responses((status = 200, body = Token), Refused, Missing))]
async fn revoke(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(token): Id<TokenId>,
) -> Result<Json<Token>, Problem> {
    Ok(Json(app::tokens::revoke(&ctx, &caller, token).await?.into()))
}

/// What the database keeps is what the answer says.
fn whole_micros(at: Timestamp) -> Result<Timestamp, Error> {
    Timestamp::from_timestamp_micros(at.timestamp_micros())
        .ok_or_else(|| Error::new(Code::InvalidInput, "expiresAt is not a time"))
}
