//! Company sign-in: the tenant's issuer, and who its people are there.

use app::{Ctx, company};
use axum::{Json, extract::State};
use domain::{Role, Timestamp, company::CompanyIssuerForm, ids::UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api, NodeSettings,
    caller::Authenticated,
    http::{body::Body, id::Id, page::List, terms},
    paths,
    problem::{BadBody, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(get, put, delete))
        .routes(routes!(test))
        .routes(routes!(account, link, unlink))
}

/// What PUT takes: a full replacement. Documentation of [`CompanyIssuerForm`], which reads it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the form, which is read elsewhere")]
#[schema(as = CompanyIssuerForm, rename_all = "camelCase")]
struct CompanyIssuerBody {
    /// Whether people may sign in by it.
    enabled: Option<bool>,
    /// On the button of the sign-in page.
    #[schema(example = "Acme", max_length = 60)]
    name: String,
    /// Exactly as the issuer writes it in its metadata.
    #[schema(example = "https://login.example.com/acme")]
    issuer: String,
    client_id: String,
    /// Left out: none, or deleted; `null`: kept; a string: replaced.
    client_secret: Option<String>,
    /// `openid`, `email` and `profile` unless said; `openid` always.
    scopes: Option<Vec<String>>,
    /// Where one issuer serves many companies: the claim that tells this one's people.
    tenant_claim: Option<TenantClaim>,
    /// Whoever signs in for the first time becomes a member. Off: an admin makes people and links them.
    adds_people: Option<bool>,
    /// The claim whose values give roles at each sign-in; whoever has none of them is a member.
    role_claim: Option<RoleClaim>,
    /// Whether passwords are taken, too; on unless said.
    local_sign_in: Option<bool>,
    /// Whether the gateway takes access tokens of the issuer.
    gateway_tokens: Option<bool>,
    /// That these tokens may be for, besides the address of the endpoint.
    gateway_audiences: Option<Vec<String>>,
    /// Of the settings as the form saw them; left out where there were none.
    revision: Option<i64>,
}

/// A claim that has to have this value.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TenantClaim {
    #[schema(example = "tid")]
    pub name: String,
    pub value: String,
}

/// A claim whose values give roles: a text, or a list of texts.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RoleClaim {
    #[schema(example = "groups")]
    pub name: String,
    /// By value: `member`, `admin` or `superadmin`.
    #[schema(value_type = std::collections::HashMap<String, terms::Role>)]
    pub roles: std::collections::BTreeMap<String, Role>,
}

/// The settings without the secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "switches that mean nothing together")]
pub struct CompanyIssuer {
    pub enabled: bool,
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    /// Null: there is one. Absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub client_secret: Option<()>,
    pub scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_claim: Option<TenantClaim>,
    pub adds_people: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_claim: Option<RoleClaim>,
    pub local_sign_in: bool,
    pub gateway_tokens: bool,
    pub gateway_audiences: Vec<String>,
    pub revision: i64,
    /// To be registered with the issuer.
    pub redirect_uri: String,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub updated_at: Timestamp,
}

impl CompanyIssuer {
    fn of(settings: company::Settings, redirect_uri: &Url) -> Self {
        let issuer = settings.issuer;
        Self {
            enabled: issuer.enabled,
            name: issuer.name,
            issuer: issuer.issuer,
            client_id: issuer.client_id,
            client_secret: settings.secret.map(|_| ()),
            scopes: issuer.scopes,
            tenant_claim: issuer
                .tenant_claim
                .map(|claim| TenantClaim { name: claim.name, value: claim.value }),
            adds_people: issuer.adds_people,
            role_claim: issuer.roles.map(|claim| RoleClaim {
                name: claim.name,
                roles: claim.roles.into_iter().collect(),
            }),
            local_sign_in: issuer.local_sign_in,
            gateway_tokens: issuer.gateway_tokens,
            gateway_audiences: issuer.gateway_audiences,
            revision: settings.revision,
            redirect_uri: redirect_uri.to_string(),
            updated_at: settings.updated_at,
        }
    }
}

/// That there is no company sign-in any more.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CompanyIssuerDeleted {
    pub deleted: bool,
}

/// What the issuer answered just now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CompanyTest {
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CompanyTestError>,
}

/// What is wrong with it, in fixed words.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CompanyTestError {
    #[schema(example = "OAUTH_DISCOVERY_FAILED")]
    pub code: &'static str,
    pub message: String,
    /// `step`: where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
}

/// Who somebody is at an issuer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompanyAccount {
    pub issuer: String,
    pub subject: String,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub signed_in_at: Option<Timestamp>,
}

impl From<company::Account> for CompanyAccount {
    fn from(account: company::Account) -> Self {
        Self {
            issuer: account.issuer,
            subject: account.subject,
            created_at: account.created_at,
            signed_in_at: account.signed_in_at,
        }
    }
}

/// The subject that the issuer knows a person by.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectBody {
    #[schema(min_length = 1, max_length = 255)]
    pub subject: String,
}

/// Where the issuer of a tenant sends the browser back to.
pub(crate) fn callback_url(node: &NodeSettings, tenant: &str) -> Result<Url, domain::Error> {
    let path = paths::COMPANY_CALLBACK.replace("{tenant}", tenant);
    node.public_url.join(&path).map_err(domain::Error::internal)
}

async fn redirect_uri(api: &Api, caller: &domain::Caller) -> Result<Url, domain::Error> {
    let tenant = app::tenants::get(&api.ctx, caller).await?;
    callback_url(&api.node, &tenant.slug)
}

/// How the tenant's people sign in at their company. For superadmins; 404 where it is not set up.
#[utoipa::path(get, path = paths::COMPANY_SIGN_IN, tag = "tenant",
    responses((status = 200, body = CompanyIssuer), Refused, Missing))]
async fn get(
    State(api): State<Api>,
    Authenticated(caller): Authenticated,
) -> Result<Json<CompanyIssuer>, Problem> {
    let redirect = redirect_uri(&api, &caller).await?;
    let settings = company::settings(&api.ctx, &caller).await?;
    let settings = settings.ok_or_else(|| domain::Error::not_found("company sign-in"))?;
    Ok(Json(CompanyIssuer::of(settings, &redirect)))
}

/// Sets company sign-in up, or replaces how it is. For superadmins; needs the scope `approve` besides.
/// Sign-ins that are under way end.
#[utoipa::path(put, path = paths::COMPANY_SIGN_IN, tag = "tenant", request_body = CompanyIssuerBody,
    responses((status = 200, body = CompanyIssuer), Refused, Conflicting, BadBody))]
async fn put(
    State(api): State<Api>,
    Authenticated(caller): Authenticated,
    Body(form): Body<CompanyIssuerForm>,
) -> Result<Json<CompanyIssuer>, Problem> {
    let redirect = redirect_uri(&api, &caller).await?;
    let settings = company::put(&api.ctx, &caller, form).await?;
    Ok(Json(CompanyIssuer::of(settings, &redirect)))
}

/// Takes company sign-in out: passwords are taken again. For superadmins; needs the scope `approve`
/// besides. Idempotent.
#[utoipa::path(delete, path = paths::COMPANY_SIGN_IN, tag = "tenant",
    responses((status = 200, body = CompanyIssuerDeleted), Refused))]
async fn delete(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<CompanyIssuerDeleted>, Problem> {
    company::delete(&ctx, &caller).await?;
    Ok(Json(CompanyIssuerDeleted { deleted: true }))
}

/// Asks the issuer for its metadata and keys, and answers what came of it. For superadmins; needs the
/// scope `approve` besides.
#[utoipa::path(post, path = paths::COMPANY_SIGN_IN_TEST, tag = "tenant",
    responses((status = 200, body = CompanyTest), Refused, Missing))]
async fn test(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<CompanyTest>, Problem> {
    let error = company::test(&ctx, &caller).await?.err();
    let error = error.map(|error| CompanyTestError {
        code: error.code.as_str(),
        message: error.public,
        details: error.details,
    });
    Ok(Json(CompanyTest { ok: error.is_none(), error }))
}

/// The company accounts of a person. For admins, and for oneself.
#[utoipa::path(get, path = paths::USER_COMPANY_ACCOUNT, tag = "people",
    params(("user" = uuid::Uuid, Path)),
    responses((status = 200, body = List<CompanyAccount>), Refused, Missing))]
async fn account(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(user): Id<UserId>,
) -> Result<Json<List<CompanyAccount>>, Problem> {
    let accounts = company::accounts_of(&ctx, &caller, user).await?;
    Ok(Json(List { items: accounts.into_iter().map(Into::into).collect(), next: None }))
}

/// Links somebody else to the account that they have at the company's issuer. For admins; needs the scope
/// `approve` besides. Idempotent.
#[utoipa::path(put, path = paths::USER_COMPANY_ACCOUNT, tag = "people",
    params(("user" = uuid::Uuid, Path)), request_body = SubjectBody,
    responses((status = 200, body = CompanyAccount), Refused, Missing, Conflicting, BadBody))]
async fn link(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(user): Id<UserId>,
    Body(form): Body<SubjectBody>,
) -> Result<Json<CompanyAccount>, Problem> {
    Ok(Json(company::link(&ctx, &caller, user, &form.subject).await?.into()))
}

/// Takes the link of somebody else out; their browser sessions end. For admins; needs the scope `approve`
/// besides. Idempotent.
#[utoipa::path(delete, path = paths::USER_COMPANY_ACCOUNT, tag = "people",
    params(("user" = uuid::Uuid, Path)),
    responses((status = 200, body = List<CompanyAccount>), Refused, Missing, Conflicting))]
async fn unlink(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(user): Id<UserId>,
) -> Result<Json<List<CompanyAccount>>, Problem> {
    company::unlink(&ctx, &caller, user).await?;
    let accounts = company::accounts_of(&ctx, &caller, user).await?;
    Ok(Json(List { items: accounts.into_iter().map(Into::into).collect(), next: None }))
}
