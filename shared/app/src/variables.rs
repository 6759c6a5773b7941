//! Variables of a tenant: values that headers and environments refer to as `$NAME`.

use domain::{
    Caller, Code, Error, Role, Timestamp,
    connection::ReconnectReason,
    ids::ServerId,
    jobs::DiscoverTools,
    limits,
    server::{Destination, Transport, VariableForm},
};
use secrecy::SecretString;
use serde_json::json;
use store::{
    Tx,
    variables::Use,
    vault::{Purpose, RowName},
};
use url::Url;

use crate::{Ctx, audit, connections};

/// A variable; its value never comes back.
#[derive(Debug, Clone)]
pub struct Variable {
    pub name: String,
    pub hosts: Vec<String>,
    pub updated_at: Timestamp,
    pub used_by: Vec<User>,
}

/// A server that refers to a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub server: ServerId,
    pub name: String,
    /// False: the variable may not go where the server is, and its calls end in
    /// `SERVER_MISCONFIGURED`.
    pub allowed: bool,
}

/// All variables, by name. For superadmins.
pub async fn list(ctx: &Ctx, caller: &Caller) -> Result<Vec<Variable>, Error> {
    sets_variables(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let variables = store::variables::list(&mut tx).await?;
    let uses = store::variables::uses(&mut tx, None).await?;
    tx.commit().await?;
    let listed = variables.into_iter().map(|variable| {
        let uses = uses.iter().filter(|one| one.variable == variable.name);
        Variable {
            used_by: uses.map(|one| user(one, &variable.hosts)).collect(),
            name: variable.name,
            hosts: variable.hosts,
            updated_at: variable.updated_at,
        }
    });
    Ok(listed.collect())
}

/// Makes a variable, or replaces its value and hosts as a whole. For superadmins.
///
/// Each server that refers to it has a new configuration from then on: what was called under the old one
/// is not sent any more. `INVALID_INPUT` with every mistake, `CONFLICT` for one variable too many.
pub async fn put(
    ctx: &Ctx,
    caller: &Caller,
    name: &str,
    form: VariableForm,
) -> Result<Variable, Error> {
    sets_variables(caller)?;
    let valid = form.validate(name)?;
    let now = ctx.now();
    let mut tx = ctx.begin(caller.tenant).await?;
    store::variables::lock(&mut tx).await?;
    let known = store::variables::known(&mut tx).await?;
    let most = limits::VARIABLES_PER_TENANT;
    if !known.0.contains_key(name) && known.0.len() >= most.size() {
        let words = format!("a tenant has at most {} variables", most.default);
        return Err(Error::new(Code::Conflict, words));
    }
    let row = RowName { tenant: caller.tenant, server: "", name };
    let value = SecretString::from(valid.value.expose());
    let sealed = ctx.vault.seal(Purpose::TenantVariable, row, &value)?;
    store::variables::put(&mut tx, name, &sealed, &valid.hosts, now).await?;
    let uses = advance_users(ctx, &mut tx, name).await?;
    let details = json!({ "hosts": valid.hosts, "servers": ids(&uses) });
    audit::record(ctx, &mut tx, caller, "variable.set", name, details).await?;
    tx.commit().await?;
    forget(ctx, caller, &uses).await;
    Ok(Variable {
        name: valid.name,
        used_by: uses.iter().map(|one| user(one, &valid.hosts)).collect(),
        hosts: valid.hosts,
        updated_at: now,
    })
}

/// Deletes a variable, also one that servers refer to: a secret that leaked must be gone at once. Their
/// calls end in `SERVER_MISCONFIGURED` from then on; answers which they are. For superadmins.
pub async fn delete(ctx: &Ctx, caller: &Caller, name: &str) -> Result<Vec<User>, Error> {
    sets_variables(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    store::variables::lock(&mut tx).await?;
    if !store::variables::delete(&mut tx, name).await? {
        return Err(Error::not_found("variable"));
    }
    let uses = advance_users(ctx, &mut tx, name).await?;
    let details = json!({ "servers": ids(&uses) });
    audit::record(ctx, &mut tx, caller, "variable.deleted", name, details).await?;
    tx.commit().await?;
    forget(ctx, caller, &uses).await;
    Ok(uses.iter().map(|one| user(one, &[])).collect())
}

/// A variable concerns every server that refers to it: not for tokens that reach only some.
fn sets_variables(caller: &Caller) -> Result<(), Error> {
    caller.require_role(Role::Superadmin)?;
    if caller.reach.sources.is_some() {
        let words = "this token is limited to certain servers and has no part in variables";
        return Err(Error::new(Code::Denied, words));
    }
    Ok(())
}

/// A new configuration of each server that refers to it; enabled ones are asked for their tools anew.
async fn advance_users(ctx: &Ctx, tx: &mut Tx, name: &str) -> Result<Vec<Use>, Error> {
    let uses = store::variables::uses(tx, Some(name)).await?;
    let servers: Vec<ServerId> = uses.iter().map(|one| one.server.clone()).collect();
    let enabled = store::variables::advance(tx, &servers).await?;
    for server in &servers {
        let reason = ReconnectReason::ConfigurationChanged;
        connections::clear_everybody(ctx, tx, server, reason).await?;
    }
    for server_id in enabled {
        let job = DiscoverTools { tenant_id: tx.tenant(), server_id, user_id: None, attempt: 0 };
        store::jobs::push(tx, &job).await?;
    }
    Ok(uses)
}

/// Closes the clients that still hold the old value.
async fn forget(ctx: &Ctx, caller: &Caller, uses: &[Use]) {
    for one in uses {
        ctx.mcp.forget(caller.tenant, &one.server).await;
    }
}

fn ids(uses: &[Use]) -> Vec<&ServerId> {
    uses.iter().map(|one| &one.server).collect()
}

fn user(one: &Use, hosts: &[String]) -> User {
    let to = if one.transport == Transport::Stdio.as_str() {
        Some(Destination::Program)
    } else {
        Url::parse(&one.url).ok().as_ref().and_then(Destination::of_url)
    };
    User {
        server: one.server.clone(),
        name: one.server_name.clone(),
        allowed: to.is_some_and(|to| to.is_among(hosts)),
    }
}
