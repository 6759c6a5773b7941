//! Servers as clients write them down, many at once.

use std::collections::HashSet;

use domain::{
    Caller, Code, Error, limits,
    server::{Contact, GovernanceForm, ImportEntry, ValidServer, read_import},
};
use serde_json::{Value, json};
use store::Tx;

use super::{
    Around, Configured,
    create::{add, adds_servers, new_server, programs_need_approval},
};
use crate::Ctx;

/// What an entry of an import would become.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    /// JSON pointer to it in the body.
    pub pointer: String,
    pub contact: Contact,
    /// Limits that it would have instead of the usual ones.
    pub governance: Option<GovernanceForm>,
    /// Members that only a client can mean.
    pub ignored: Vec<String>,
    /// `{path, message}` each.
    pub mistakes: Vec<Value>,
}

/// Adds all servers of an import, switched off, or none. For superadmins.
///
/// Nothing is contacted, queued or granted. `INVALID_INPUT` with every mistake of every entry.
pub async fn import(ctx: &Ctx, caller: &Caller, body: &str) -> Result<Vec<Configured>, Error> {
    adds_servers(caller)?;
    let entries = read_import(body)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let around = Around::load(&mut tx).await?;
    // Whoever adds servers holds the tenant, so that two cannot both be the last one.
    store::tenants::lock(&mut tx).await?.ok_or_else(|| Error::not_found("tenant"))?;
    let judged = judge(ctx, &mut tx, &around, &entries).await?;
    let mistakes: Vec<&Value> =
        judged.iter().filter_map(|one| one.as_ref().err()).flatten().collect();
    if !mistakes.is_empty() {
        let words = format!("nothing was imported: {} mistakes", mistakes.len());
        return Err(
            Error::new(Code::InvalidInput, words).with_details(json!({ "errors": mistakes }))
        );
    }
    let mut imported = Vec::with_capacity(entries.len());
    for form in judged.into_iter().flatten() {
        programs_need_approval(ctx, caller, &form)?;
        let mut server = new_server(ctx, &form)?;
        (server.imported, server.unconfirmed) = (true, true);
        imported.push(add(ctx, &mut tx, caller, server, &form, "server.imported").await?);
    }
    tx.commit().await?;
    Ok(imported)
}

/// The same checks, and what each entry would make us contact. For superadmins; nothing is saved.
pub async fn preview(ctx: &Ctx, caller: &Caller, body: &str) -> Result<Vec<Entry>, Error> {
    adds_servers(caller)?;
    let entries = read_import(body)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let around = Around::load(&mut tx).await?;
    let judged = judge(ctx, &mut tx, &around, &entries).await?;
    let shown = entries.into_iter().zip(judged).map(|(entry, judged)| Entry {
        contact: Contact::of_form(&entry.form),
        governance: entry.form.governance,
        name: entry.name,
        pointer: entry.pointer,
        ignored: entry.ignored,
        mistakes: judged.err().unwrap_or_default(),
    });
    Ok(shown.collect())
}

/// Each entry by itself, beside the others, and beside what the tenant has.
async fn judge(
    ctx: &Ctx,
    tx: &mut Tx,
    around: &Around,
    entries: &[ImportEntry],
) -> Result<Vec<Result<ValidServer, Vec<Value>>>, Error> {
    let rules = around.rules(ctx);
    let labels = store::servers::labels(tx).await?;
    let mut names: HashSet<String> = labels.iter().map(|(name, _)| name.to_lowercase()).collect();
    let mut slugs: HashSet<String> = labels.into_iter().map(|(_, slug)| slug).collect();
    let most = limits::SERVERS_PER_TENANT.default;
    let mut room = most.saturating_sub(store::servers::count_custom(tx).await?);
    let mut judged = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut taken = Vec::new();
        if !names.insert(entry.form.name.trim().to_lowercase()) {
            taken.push(entry.mistake("/name", "another server has this name"));
        }
        if let Some(slug) = &entry.form.slug
            && !slugs.insert(slug.clone())
        {
            taken.push(entry.mistake("/slug", "another server has this slug"));
        }
        if room == 0 {
            let words = format!("a tenant has at most {most} servers");
            taken.push(entry.mistake("/name", &words));
        }
        room = room.saturating_sub(1);
        judged.push(match entry.validate(&rules) {
            Ok(valid) if taken.is_empty() => Ok(valid),
            Ok(_) => Err(taken),
            Err(mistakes) => Err(mistakes.into_iter().chain(taken).collect()),
        });
    }
    Ok(judged)
}
