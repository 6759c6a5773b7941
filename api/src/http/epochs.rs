//! The present state of a session's permissions.

use app::{Ctx, epochs};
use axum::{Json, extract::State, http::StatusCode};
use domain::{Timestamp, ids::SessionId, permission::EpochReason};
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{id::Id, terms};
use crate::{
    Api,
    caller::{Approving, Authenticated},
    paths,
    problem::{Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get, rotate))
}

/// What the decisions of a while bind to.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionEpoch {
    pub id: Uuid,
    pub session_id: Uuid,
    /// `session_created`, `decision`, `mode_changed`, `grant_revoked` or `rotated`.
    #[schema(value_type = terms::Reason)]
    pub reason: EpochReason,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<epochs::Epoch> for PermissionEpoch {
    fn from(epoch: epochs::Epoch) -> Self {
        Self {
            id: epoch.id.0,
            session_id: epoch.session.0,
            reason: epoch.reason,
            created_at: epoch.created_at,
        }
    }
}

/// The present epoch of one's own session.
#[utoipa::path(get, path = paths::EPOCH, tag = "permissions", params(("session" = Uuid, Path)),
    responses((status = 200, body = PermissionEpoch), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(session): Id<SessionId>,
) -> Result<Json<PermissionEpoch>, Problem> {
    Ok(Json(epochs::current(&ctx, &caller, session).await?.into()))
}

/// Begins a new epoch. With scope `approve`.
#[utoipa::path(post, path = paths::EPOCH, tag = "permissions", params(("session" = Uuid, Path)),
    responses((status = 201, body = PermissionEpoch), Refused, Missing, Conflicting))]
async fn rotate(
    State(ctx): State<Ctx>,
    Approving(caller): Approving,
    Id(session): Id<SessionId>,
) -> Result<(StatusCode, Json<PermissionEpoch>), Problem> {
    let epoch = epochs::rotate(&ctx, &caller, session).await?;
    Ok((StatusCode::CREATED, Json(epoch.into())))
}
