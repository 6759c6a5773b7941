//! What superadmins set for the whole tenant.

use app::{Ctx, tenants::TenantChange};
use axum::{Json, extract::State};
use domain::{
    Timestamp,
    ids::{ServerId, TenantId},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::body::Body,
    paths,
    problem::{BadBody, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get, update))
}

/// The tenant and its settings.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    #[schema(value_type = uuid::Uuid)]
    pub id: TenantId,
    pub slug: String,
    /// Servers used in all sessions that have no selection of their own.
    #[schema(value_type = Vec<String>)]
    pub enabled_source_ids: Vec<ServerId>,
    /// Whether tools that a server offers for the first time need no release.
    pub auto_approve_new_tools: bool,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<app::tenants::Tenant> for Tenant {
    fn from(tenant: app::tenants::Tenant) -> Self {
        Self {
            id: tenant.id,
            slug: tenant.slug,
            enabled_source_ids: tenant.enabled_source_ids,
            auto_approve_new_tools: tenant.auto_approve_new_tools,
            created_at: tenant.created_at,
        }
    }
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantPatch {
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_source_ids: Option<Vec<ServerId>>,
    pub auto_approve_new_tools: Option<bool>,
}

/// The caller's tenant. For superadmins.
#[utoipa::path(get, path = paths::TENANT, tag = "tenant",
    responses((status = 200, body = Tenant), Refused))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<Tenant>, Problem> {
    Ok(Json(app::tenants::get(&ctx, &caller).await?.into()))
}

/// Changes the tenant's settings. For superadmins; `enabledSourceIds`, and switching
/// `autoApproveNewTools` on, need the scope `approve` besides.
#[utoipa::path(patch, path = paths::TENANT, tag = "tenant", request_body = TenantPatch,
    responses((status = 200, body = Tenant), Refused, BadBody))]
async fn update(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(patch): Body<TenantPatch>,
) -> Result<Json<Tenant>, Problem> {
    let change = TenantChange {
        enabled_source_ids: patch.enabled_source_ids,
        auto_approve_new_tools: patch.auto_approve_new_tools,
    };
    Ok(Json(app::tenants::update(&ctx, &caller, change).await?.into()))
}
