//! Tenants: made by the operator, set up by their superadmins.

use domain::{
    Caller, Code, Error, Role, Scope,
    ids::{ServerId, TenantId},
};
use serde_json::json;
use store::Tx;
pub use store::tenants::Tenant;

use crate::{Ctx, audit, builtin};

/// What a superadmin changes; `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantChange {
    pub enabled_source_ids: Option<Vec<ServerId>>,
    pub auto_approve_new_tools: Option<bool>,
}

/// The operator makes a tenant, with the built-in servers.
///
/// `INVALID_INPUT` for a slug that is no label, `CONFLICT` for one that is taken.
pub async fn create(ctx: &Ctx, slug: &str) -> Result<Tenant, Error> {
    check_slug(slug)?;
    let id: TenantId = ctx.mint();
    let now = ctx.now();
    let mut tx = ctx.begin(id).await?;
    store::tenants::insert(&mut tx, slug, now).await.map_err(|error| match error.constraint() {
        Some("tenants_slug_key") => {
            Error::new(Code::Conflict, "there is a tenant of this name").because(error)
        }
        _ => error.into(),
    })?;
    audit::record_operator(ctx, &mut tx, "tenant.created", &id.to_string(), json!({})).await?;
    builtin::add_all(ctx, &mut tx).await?;
    tx.commit().await?;
    Ok(Tenant {
        id,
        slug: slug.to_owned(),
        enabled_source_ids: Vec::new(),
        auto_approve_new_tools: false,
        created_at: now,
    })
}

/// The tenant that the operator names.
pub async fn find(ctx: &Ctx, slug: &str) -> Result<Tenant, Error> {
    let tenant = store::tenants::find(&ctx.db, slug).await?;
    tenant.ok_or_else(|| Error::not_found("tenant"))
}

/// The slug of the only tenant, for whoever did not say which; `None` where there are several.
pub async fn only_slug(ctx: &Ctx) -> Result<Option<String>, Error> {
    Ok(store::tenants::only_slug(&ctx.db).await?)
}

/// The caller's tenant as a whole.
pub async fn get(ctx: &Ctx, caller: &Caller) -> Result<Tenant, Error> {
    caller.require_role(Role::Superadmin)?;
    own(ctx, caller).await
}

/// The caller's tenant, for those parts that everybody in it may know.
pub(crate) async fn own(ctx: &Ctx, caller: &Caller) -> Result<Tenant, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let tenant = store::tenants::get(&mut tx).await?;
    tx.commit().await?;
    tenant.ok_or_else(|| Error::not_found("tenant"))
}

/// Changes what holds for all sessions of the tenant.
///
/// The selection of servers and the approval of new tools need the scope `approve`: both widen what
/// agents may call. `INVALID_INPUT` for an id that names no server of the tenant.
pub async fn update(ctx: &Ctx, caller: &Caller, change: TenantChange) -> Result<Tenant, Error> {
    caller.require_role(Role::Superadmin)?;
    if change.enabled_source_ids.is_some() || change.auto_approve_new_tools == Some(true) {
        caller.require_scope(Scope::Approve)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let selection = match change.enabled_source_ids {
        Some(ids) => Some(checked_selection(&mut tx, ids).await?),
        None => None,
    };
    let tenant = store::tenants::lock(&mut tx).await?;
    let mut tenant = tenant.ok_or_else(|| Error::not_found("tenant"))?;
    let before = tenant.clone();
    if let Some(selection) = selection {
        tenant.enabled_source_ids = selection;
    }
    if let Some(auto_approve) = change.auto_approve_new_tools {
        tenant.auto_approve_new_tools = auto_approve;
    }
    if tenant != before {
        store::tenants::save(&mut tx, &tenant).await?;
        let details = json!({
            "enabledSourceIds": tenant.enabled_source_ids,
            "autoApproveNewTools": tenant.auto_approve_new_tools,
        });
        audit::record(ctx, &mut tx, caller, "tenant.updated", &tenant.id.to_string(), details)
            .await?;
    }
    tx.commit().await?;
    Ok(tenant)
}

/// `ids` without repetitions, each of them a server of the tenant and held until commit, so that
/// none can be deleted meanwhile; `INVALID_INPUT` names those that are not.
///
/// Takes locks on servers: call it before tenant, project or session are locked.
pub(crate) async fn checked_selection(
    tx: &mut Tx,
    ids: Vec<ServerId>,
) -> Result<Vec<ServerId>, Error> {
    let mut selection: Vec<ServerId> = Vec::with_capacity(ids.len());
    for id in ids {
        if !selection.contains(&id) {
            selection.push(id);
        }
    }
    // The database takes no NUL, and no server has one in its id.
    let storable: Vec<ServerId> =
        selection.iter().filter(|id| !id.as_str().contains('\0')).cloned().collect();
    let found = store::tenants::hold_servers(tx, &storable).await?;
    let unknown: Vec<&ServerId> = selection.iter().filter(|id| !found.contains(id)).collect();
    if unknown.is_empty() {
        return Ok(selection);
    }
    Err(Error::new(Code::InvalidInput, "a selection may name servers of this tenant only")
        .with_details(json!({ "unknown": unknown })))
}

/// As the schema has it: a label in URLs.
fn check_slug(slug: &str) -> Result<(), Error> {
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=63).contains(&slug.len()) && slug.bytes().all(label) && !slug.starts_with('-') {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidInput,
        "a tenant's name has 1 to 63 characters of a-z, 0-9 and - and does not begin with -",
    ))
}
