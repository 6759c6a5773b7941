//! Every allow and every deny, for ever: appended with its leaf, never changed.

use domain::{
    Timestamp,
    audit::{AuthorizationRecord, authorization_leaf},
    ids::{
        AuthorizationId, ExecutionId, PermissionEpochId, PermissionGrantId, PermissionRequestId,
        SessionId, TenantId, UserId,
    },
    json::Sha256Digest,
    permission::ApprovalMode,
};
use uuid::Uuid;

use crate::{CorruptRow, StoreError, Tx};

/// Appends the authorization and its leaf: one statement.
pub async fn insert(tx: &mut Tx, record: &AuthorizationRecord) -> Result<(), StoreError> {
    let leaf = authorization_leaf(record);
    sqlx::query!(
        "WITH authorized AS (
             INSERT INTO permission_authorizations (
                 tenant_id, authorization_id, session_id, user_id, action, resource, approval_mode,
                 outcome, source, permission_epoch_id, permission_grant_id, permission_request_id,
                 execution_id, tool_call_id, definition_hash, input_digest, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17))
         INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256)
         VALUES ($1, 'authorization', $2, $18)",
        tx.tenant().0,
        record.authorization.0,
        record.session.0,
        record.user.0,
        record.action,
        record.resource,
        record.mode.as_str(),
        record.outcome.as_str(),
        record.source.as_str(),
        record.epoch.0,
        record.grant.map(|id| id.0),
        record.request.map(|id| id.0),
        record.execution.map(|id| id.0),
        record.tool_call_id,
        record.definition_hash.as_ref().map(Sha256Digest::as_bytes),
        record.input_digest.as_ref().map(Sha256Digest::as_bytes),
        record.created_at,
        leaf.as_bytes(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The authorizations of a session (of one execution, if named), newest first, those before `after`.
pub async fn list(
    tx: &mut Tx,
    session: SessionId,
    execution: Option<ExecutionId>,
    after: Option<AuthorizationId>,
    rows: i64,
) -> Result<Vec<AuthorizationRecord>, StoreError> {
    let tenant = tx.tenant();
    let rows = sqlx::query_as!(
        Row,
        "SELECT authorization_id, session_id, user_id, action, resource, approval_mode, source,
                permission_epoch_id, permission_grant_id, permission_request_id, execution_id,
                tool_call_id, definition_hash, input_digest, created_at
         FROM permission_authorizations
         WHERE tenant_id = $1 AND session_id = $2
           AND ($3::uuid IS NULL OR execution_id = $3)
           AND ($4::uuid IS NULL OR authorization_id < $4)
         ORDER BY authorization_id DESC LIMIT $5",
        tenant.0,
        session.0,
        execution.map(|id| id.0),
        after.map(|id| id.0),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.read(tenant)?)).collect()
}

struct Row {
    authorization_id: Uuid,
    session_id: Uuid,
    user_id: Uuid,
    action: String,
    resource: String,
    approval_mode: String,
    source: String,
    permission_epoch_id: Uuid,
    permission_grant_id: Option<Uuid>,
    permission_request_id: Option<Uuid>,
    execution_id: Option<Uuid>,
    tool_call_id: Option<String>,
    definition_hash: Option<Vec<u8>>,
    input_digest: Option<Vec<u8>>,
    created_at: Timestamp,
}

impl Row {
    fn read(self, tenant: TenantId) -> Result<AuthorizationRecord, CorruptRow> {
        let corrupt =
            |problem| CorruptRow::new("permission_authorizations", self.authorization_id, problem);
        let digest = |bytes: Option<&[u8]>| {
            let digest = bytes.map(Sha256Digest::try_from).transpose();
            digest.map_err(|_| corrupt("digest of another length"))
        };
        let source: domain::permission::AuthorizationSource =
            self.source.parse().map_err(|_| corrupt("unknown source"))?;
        Ok(AuthorizationRecord {
            tenant,
            authorization: AuthorizationId(self.authorization_id),
            session: SessionId(self.session_id),
            user: UserId(self.user_id),
            mode: ApprovalMode::parse(&self.approval_mode)
                .ok_or_else(|| corrupt("unknown approval mode"))?,
            outcome: source.into(),
            source,
            epoch: PermissionEpochId(self.permission_epoch_id),
            grant: self.permission_grant_id.map(PermissionGrantId),
            request: self.permission_request_id.map(PermissionRequestId),
            execution: self.execution_id.map(ExecutionId),
            definition_hash: digest(self.definition_hash.as_deref())?,
            input_digest: digest(self.input_digest.as_deref())?,
            action: self.action,
            resource: self.resource,
            tool_call_id: self.tool_call_id,
            created_at: self.created_at,
        })
    }
}
