//! The encryption keys and what each of them sealed; sealing everything by the first one.

use std::collections::BTreeMap;

use domain::{Code, Error, ids::TenantId, limits};
use serde::Serialize;
use serde_json::json;
use store::{
    nodes::NodeKeys,
    sealed::{self, COLUMNS, Column, Cursor},
};

use crate::{Ctx, audit};

/// What one key sealed, over all tenants, as the rows say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyCount {
    pub key_id: String,
    /// It seals what is saved from now on.
    pub primary: bool,
    /// It is in the keyring.
    pub known: bool,
    /// Rows.
    pub sealed: u64,
    /// The same by what it is.
    pub columns: BTreeMap<&'static str, u64>,
}

/// The keys of the ring in its order, then those that only rows know.
pub async fn status(ctx: &Ctx) -> Result<Vec<KeyCount>, Error> {
    let key = |(at, id): (usize, &str)| KeyCount {
        key_id: id.to_owned(),
        primary: at == 0,
        known: true,
        sealed: 0,
        columns: BTreeMap::new(),
    };
    let mut counts: Vec<KeyCount> = ctx.vault.key_ids().into_iter().enumerate().map(key).collect();
    let mut strange: BTreeMap<String, KeyCount> = BTreeMap::new();
    for tenant in store::tenants::ids(&ctx.db).await? {
        let mut tx = ctx.db.begin(tenant).await?;
        for column in COLUMNS {
            for (id, rows) in sealed::count(&mut tx, column).await? {
                let count = match counts.iter_mut().find(|count| count.key_id == id) {
                    Some(count) => count,
                    None => strange.entry(id.clone()).or_insert_with(|| KeyCount {
                        key_id: id,
                        primary: false,
                        known: false,
                        sealed: 0,
                        columns: BTreeMap::new(),
                    }),
                };
                count.sealed += rows;
                *count.columns.entry(column.what).or_default() += rows;
            }
        }
        tx.commit().await?;
    }
    counts.extend(strange.into_values());
    Ok(counts)
}

/// How far a rotation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub looked_at: u64,
    /// As many as there were when it began.
    pub of: u64,
    pub resealed: u64,
}

/// What a rotation came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    pub primary: String,
    pub resealed: u64,
    /// Rows that no key opens, by what they are. They stand as they stood.
    pub unreadable: BTreeMap<&'static str, u64>,
    /// Rows that changed, or were held, up to the last time they were to be sealed anew.
    pub busy: u64,
    /// A last look at everything found nothing more to do.
    pub complete: bool,
    /// Keys of the ring that nothing needs any more.
    pub removable: Vec<String>,
    /// Processes that still seal by another key, by their kind: what they save needs it.
    pub behind: Vec<String>,
}

/// Seals everything by the first key, in batches, each a transaction of its own; what is done already
/// stays done, so that it may be cut off and begun again at any moment, beside whatever serves.
///
/// `CREDENTIALS_UNREADABLE` without a keyring; `CONFLICT` while a living process does not know the first
/// key, and so could not read what is sealed by it.
pub async fn rotate(ctx: &Ctx, mut told: impl FnMut(Progress)) -> Result<Rotation, Error> {
    let Some(primary) = ctx.vault.key_ids().first().map(|id| (*id).to_owned()) else {
        return Err(Error::new(Code::CredentialsUnreadable, "no encryption key is configured"));
    };
    all_know(&store::nodes::keys(&ctx.db).await?, &primary)?;
    let of = status(ctx).await?.iter().map(|count| count.sealed).sum();
    let mut progress = Progress { of, ..Progress::default() };
    let mut rotation = Rotation { primary: primary.clone(), ..Rotation::default() };
    for pass in 1..=limits::RESEAL_PASSES.default {
        let mut seen = Pass::default();
        progress.looked_at = 0;
        for tenant in store::tenants::ids(&ctx.db).await? {
            for column in COLUMNS {
                walk(ctx, tenant, column, &mut seen, |looked_at, resealed| {
                    progress.looked_at += looked_at;
                    progress.resealed += resealed;
                    told(progress);
                })
                .await?;
            }
        }
        rotation.resealed += seen.resealed;
        (rotation.unreadable, rotation.busy) = (seen.unreadable, seen.busy);
        // Only a pass that found nothing to do has seen that nothing is left.
        if seen.resealed + seen.busy == 0 {
            rotation.complete = true;
            break;
        }
        if seen.busy > 0 && pass < limits::RESEAL_PASSES.default {
            tokio::time::sleep(limits::RESEAL_PAUSE_MS.millis()).await;
        }
    }
    let nodes = store::nodes::keys(&ctx.db).await?;
    let seals_by_another =
        |node: &&NodeKeys| node.key_ids.as_ref().and_then(|ids| ids.first()) != Some(&primary);
    rotation.behind = nodes.iter().filter(seals_by_another).map(|node| node.kind.clone()).collect();
    if rotation.complete && rotation.behind.is_empty() {
        // Counted after the processes were looked at: one that is another by now may have sealed behind us.
        let counted = status(ctx).await?;
        let needed = |id: &str| counted.iter().any(|count| count.key_id == id && count.sealed > 0);
        let older = ctx.vault.key_ids().into_iter().skip(1);
        rotation.removable = older.filter(|id| !needed(id)).map(str::to_owned).collect();
    }
    Ok(rotation)
}

/// The kinds of the living processes that could not read what is sealed by `primary`.
pub(crate) fn ignorant(nodes: &[NodeKeys], primary: &str) -> Vec<String> {
    let knows = |node: &NodeKeys| {
        node.key_ids.as_ref().is_some_and(|ids| ids.iter().any(|id| id == primary))
    };
    nodes.iter().filter(|node| !knows(node)).map(|node| node.kind.clone()).collect()
}

fn all_know(nodes: &[NodeKeys], primary: &str) -> Result<(), Error> {
    let ignorant = ignorant(nodes, primary);
    if ignorant.is_empty() {
        return Ok(());
    }
    let words = format!(
        "these running processes do not know the key {primary}, and could not read what is sealed by \
         it: {}; start them again with the new keyring first (one that died is forgotten after {} s)",
        ignorant.join(", "),
        limits::NODE_LEASE_MS.millis().as_secs(),
    );
    Err(Error::new(Code::Conflict, words))
}

/// What one look at everything came to.
#[derive(Debug, Default)]
struct Pass {
    resealed: u64,
    busy: u64,
    unreadable: BTreeMap<&'static str, u64>,
}

async fn walk(
    ctx: &Ctx,
    tenant: TenantId,
    column: &Column,
    seen: &mut Pass,
    mut told: impl FnMut(u64, u64),
) -> Result<(), Error> {
    let mut after: Option<Cursor> = None;
    let most = i64::try_from(limits::RESEAL_BATCH.default).unwrap_or(i64::MAX);
    loop {
        let mut tx = ctx.db.begin(tenant).await?;
        let values = sealed::page(&mut tx, column, after.as_ref(), most).await?;
        let Some(last) = values.last() else { return Ok(tx.commit().await?) };
        after = Some(last.cursor());
        let looked_at = u64::try_from(values.len()).unwrap_or(u64::MAX);
        let mut anew = Vec::new();
        for value in values {
            match sealed::renew(&tx, &ctx.vault, column, &value) {
                Ok(None) => {}
                Ok(Some(new)) => anew.push((value, new)),
                Err(_) => *seen.unreadable.entry(column.what).or_default() += 1,
            }
        }
        let mut resealed = 0;
        if !anew.is_empty() {
            resealed = sealed::replace(&mut tx, column, &anew).await?;
            seen.resealed += resealed;
            seen.busy += u64::try_from(anew.len()).unwrap_or(u64::MAX).saturating_sub(resealed);
        }
        if resealed > 0 {
            let primary = ctx.vault.key_ids().first().copied().unwrap_or_default();
            let details = json!({ "values": column.purpose.as_str(), "resealed": resealed });
            audit::record_operator(ctx, &mut tx, "key.rotated", primary, details).await?;
        }
        tx.commit().await?;
        told(looked_at, resealed);
    }
}
