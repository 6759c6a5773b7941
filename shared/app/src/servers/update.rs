//! A server's form, submitted again.

use domain::{
    Caller, Code, Error, Role,
    connection::ReconnectReason,
    server::{ServerForm, ServerStatus, ValidServer, reach, reach_changed},
};
use serde_json::json;
use store::servers::Server;

use super::{
    Around, Configured, create, enqueue_discovery, forget_clients, lock, one_configured, secrets,
};
use crate::{Ctx, audit, connections};

/// Replaces the whole configuration of a custom server. For superadmins.
///
/// `REVISION_CONFLICT` where the form was made from another revision, `BUILT_IN` for a server that
/// is no custom one, `INVALID_INPUT` and `CONFLICT` as for a new server.
pub async fn update(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    mut form: ServerForm,
) -> Result<Configured, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let around = Around::load(&mut tx).await?;
    let mut server = lock(&mut tx, caller, server).await?;
    if !server.is_custom() {
        return Err(Error::new(Code::BuiltIn, "a built-in server cannot be changed"));
    }
    check_revision(&server, form.revision)?;
    // The slug that it has may be one that no form can ask for: its own id.
    form.slug = form.slug.filter(|slug| *slug != server.slug);
    let known = secrets::known(&mut tx, &server).await?;
    let form = form.validate(&around.rules(ctx), &known)?;
    create::programs_need_approval(ctx, caller, &form)?;
    if form.slug.is_some() {
        let errors = json!([{ "path": "/slug", "message": "cannot be changed" }]);
        return Err(Error::new(Code::InvalidInput, "the slug of a server cannot be changed")
            .with_details(json!({ "errors": errors })));
    }

    let reach_changed = reach_changed(&server.reach, &reach(&form), form.changes_secrets());
    let enabled = server.enabled;
    apply(ctx, &mut server, &form, reach_changed);
    store::servers::save(&mut tx, &server).await.map_err(create::taken)?;
    secrets::save(ctx, &mut tx, &server.id, &form).await?;
    if reach_changed {
        let reason = ReconnectReason::ConfigurationChanged;
        connections::clear_everybody(ctx, &mut tx, &server.id, reason).await?;
    }
    enqueue_discovery(&mut tx, &server).await?;
    let details = json!({
        "revision": server.form_revision,
        "configRevision": server.config_revision,
        "reachChanged": reach_changed,
        "enabled": server.enabled,
    });
    audit::record(ctx, &mut tx, caller, "server.updated", server.id.as_str(), details).await?;
    let configured = one_configured(&mut tx, server).await?;
    tx.commit().await?;
    if reach_changed || (enabled && !configured.server.enabled) {
        forget_clients(ctx, caller.tenant, &configured.server.id).await;
    }
    Ok(configured)
}

fn check_revision(server: &Server, seen: Option<i64>) -> Result<(), Error> {
    if seen.is_none_or(|seen| seen == server.form_revision) {
        return Ok(());
    }
    let words = "the server was changed since this form was loaded";
    Err(Error::new(Code::RevisionConflict, words)
        .with_details(json!({ "revision": server.form_revision })))
}

fn apply(ctx: &Ctx, server: &mut Server, form: &ValidServer, reach_changed: bool) {
    server.name.clone_from(&form.name);
    server.description.clone_from(&form.description);
    server.icon.clone_from(&form.icon);
    server.tags.clone_from(&form.tags);
    server.reach = reach(form);
    server.timeout = form.timeout;
    server.enabled = form.enabled;
    server.governance = form.governance;
    server.form_revision += 1;
    server.updated_at = ctx.now();
    // Whoever leaves it switched on has decided to contact it. What was agreed to is what was shown: an
    // imported server that contacts another now is shown anew.
    server.unconfirmed |= server.imported && reach_changed;
    server.unconfirmed &= !form.enabled;
    if reach_changed {
        server.config_revision += 1;
        // What was found out is about another configuration.
        server.status = ServerStatus::Untested;
        server.status_error = None;
        server.checked_at = None;
    }
}
