//! What stands in the rows of the tenants: who may configure, what is sealed, which servers fail.

use std::collections::BTreeMap;

use domain::{Error, ids::TenantId, limits};
use store::{
    StoreError, Tx,
    doctor::EnabledServer,
    nodes::NodeKeys,
    sealed::{self, COLUMNS, Column},
};

use super::{Examined, Finding, Patient, Unseen, ask, counted, named};
use crate::keys;

const TENANTS: &str = "tenants";
const SECRETS: &str = "stored secrets";
const SERVERS: &str = "servers";

/// What was counted over all tenants.
#[derive(Debug, Default)]
struct Seen {
    /// Rows by the key that sealed them.
    by_key: BTreeMap<String, u64>,
    /// Rows that no key opens, by what they are.
    unreadable: BTreeMap<&'static str, u64>,
    without_superadmin: Vec<String>,
    troubled: Vec<String>,
    withheld: Vec<String>,
    switched_on: usize,
    stdio: Vec<String>,
    unseen: Vec<String>,
}

pub(super) async fn look(patient: &Patient<'_>, examined: &mut Examined) {
    let findings = &mut examined.findings;
    let tenants = ask(TENANTS, findings, store::doctor::tenants(patient.db)).await;
    let nodes = ask(SECRETS, findings, store::nodes::keys(patient.db)).await;
    let (Some(tenants), Some(nodes)) = (tenants, nodes) else { return };
    let mut seen = Seen::default();
    for (tenant, slug) in &tenants {
        if let Err(unseen) = look_at(patient, *tenant, slug, &mut seen).await {
            seen.unseen.push(format!("{slug}: {unseen}"));
        }
    }
    if !seen.unseen.is_empty() {
        let found = format!("cannot be looked at: {}", named(&seen.unseen));
        findings.push(Finding::fail(TENANTS, found, "see the log of the database"));
    }
    findings.push(people(tenants.len(), &seen));
    secrets(patient, &seen, &nodes, findings);
    servers(patient, &seen, findings);
    examined.stdio_servers = seen.stdio.len();
}

async fn look_at(
    patient: &Patient<'_>,
    tenant: TenantId,
    slug: &str,
    seen: &mut Seen,
) -> Result<(), Unseen> {
    super::look(async {
        let mut tx = patient.db.begin(tenant).await?;
        if store::doctor::superadmins(&mut tx).await? == 0 {
            seen.without_superadmin.push(slug.to_owned());
        }
        for column in COLUMNS {
            seen.sealed(patient, &mut tx, column).await?;
        }
        for server in store::doctor::enabled_servers(&mut tx).await? {
            seen.note(slug, &server);
        }
        tx.commit().await?;
        Ok::<_, Error>(())
    })
    .await
}

impl Seen {
    async fn sealed(
        &mut self,
        patient: &Patient<'_>,
        tx: &mut Tx,
        column: &Column,
    ) -> Result<(), StoreError> {
        let most = i64::try_from(limits::RESEAL_BATCH.default).unwrap_or(i64::MAX);
        let mut after = None;
        loop {
            let values = sealed::page(tx, column, after.as_ref(), most).await?;
            let Some(last) = values.last() else { return Ok(()) };
            after = Some(last.cursor());
            for value in values {
                if !sealed::opens(tx, patient.vault, column, &value) {
                    *self.unreadable.entry(column.what).or_default() += 1;
                }
                *self.by_key.entry(value.key_id().to_owned()).or_default() += 1;
            }
        }
    }

    fn note(&mut self, tenant: &str, server: &EnabledServer) {
        let name = format!("{tenant}/{}", server.name);
        self.switched_on += 1;
        if server.status == "error" {
            let words = server.status_error.as_deref().unwrap_or("no reason was noted");
            self.troubled.push(format!("{name} ({words})"));
        }
        if server.withheld_tools > 0 {
            self.withheld.push(format!("{name} ({})", counted(server.withheld_tools, "tool")));
        }
        if server.transport == "stdio" {
            self.stdio.push(name);
        }
    }
}

fn people(tenants: usize, seen: &Seen) -> Finding {
    if tenants == 0 {
        let mend = "make one: `bailiwick tenant create NAME`, then `bailiwick user create`";
        return Finding::warn(TENANTS, "there is none", mend);
    }
    if seen.without_superadmin.is_empty() {
        let found = format!("{}, each with a superadmin", counted(tenants, "tenant"));
        return Finding::ok(TENANTS, found);
    }
    let found = format!("no active superadmin in {}", named(&seen.without_superadmin));
    let mend = "add one: `bailiwick user create EMAIL --role superadmin --tenant NAME`";
    Finding::fail(TENANTS, found, mend)
}

fn secrets(patient: &Patient<'_>, seen: &Seen, nodes: &[NodeKeys], findings: &mut Vec<Finding>) {
    let ring = patient.vault.key_ids();
    let counts: Vec<String> = seen
        .by_key
        .iter()
        .map(|(key, rows)| {
            let place = match ring.iter().position(|known| known == key) {
                Some(0) => "primary",
                Some(_) => "older",
                None => "not in the keyring",
            };
            format!("{} by key {key} ({place})", counted(*rows, "value"))
        })
        .collect();
    if !seen.unreadable.is_empty() {
        let rows: Vec<String> =
            seen.unreadable.iter().map(|(what, rows)| format!("{rows} {what}")).collect();
        let found = format!("no key opens {}; sealed: {}", named(&rows), named(&counts));
        let mend = "put the missing key back into encryption_keys, behind the primary one; where it is \
                    lost, enter the secrets of the servers anew, and let people connect again";
        findings.push(Finding::fail(SECRETS, found, mend));
        return;
    }
    // A version that did not say may have it; `keys rotate` is stricter.
    let said: Vec<NodeKeys> = nodes.iter().filter(|node| node.key_ids.is_some()).cloned().collect();
    let ignorant = ring.first().map(|primary| keys::ignorant(&said, primary)).unwrap_or_default();
    if !ignorant.is_empty() {
        let found = format!("running without the primary key: {}", named(&ignorant));
        let mend = "start these processes again with the keyring of this command, before \
                    `bailiwick keys rotate`";
        findings.push(Finding::fail(SECRETS, found, mend));
    }
    let found = if counts.is_empty() { "none".to_owned() } else { named(&counts) };
    findings.push(Finding::ok(SECRETS, found));
}

fn servers(patient: &Patient<'_>, seen: &Seen, findings: &mut Vec<Finding>) {
    if !seen.troubled.is_empty() {
        let found = format!("in error: {}", named(&seen.troubled));
        let mend = "see the page of the code in docs/errors, mend it, then POST \
                    /api/mcp/servers/{id}/test";
        findings.push(Finding::warn(SERVERS, found, mend));
    }
    if !seen.withheld.is_empty() {
        let found = format!("tools withheld from agents: {}", named(&seen.withheld));
        let mend =
            "look at GET /api/mcp/servers/{id}/tools: pin, problem and diff; release what is right";
        findings.push(Finding::warn(SERVERS, found, mend));
    }
    if !seen.stdio.is_empty() && !patient.stdio {
        let found = format!("switched on, but programs are off here: {}", named(&seen.stdio));
        let mend = "allow their programs (BAILIWICK_STDIO), or switch the servers off";
        findings.push(Finding::fail(SERVERS, found, mend));
    }
    if seen.troubled.is_empty()
        && (seen.stdio.is_empty() || patient.stdio)
        && seen.withheld.is_empty()
    {
        let found = format!("{} switched on, none in error", counted(seen.switched_on, "server"));
        findings.push(Finding::ok(SERVERS, found));
    }
}
