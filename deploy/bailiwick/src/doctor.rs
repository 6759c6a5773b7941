//! Tells what is wrong with an installation, and what mends it. Changes nothing.
//!
//! What is broken hides nothing else: wrong settings are read as far as they are right, and a database
//! that does not answer costs what stands in it, no more.

mod local;
mod network;
mod programs;

use std::{path::PathBuf, process::ExitCode};

use app::{
    Clock, Db, Vault,
    doctor::{self, Examined, Finding, Patient, Verdict, egress::egress},
};
use domain::limits;
use outbound::blobs::Blobs;
use runtime::{
    config::{Reading, Settings},
    postgres,
    terminal::escape,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use url::Url;

use crate::{
    assemble,
    cli::Output,
    failure::Failure,
    installation::{self, Installation},
    up,
};

/// Connections that the looking takes: one, and one for a look that hangs.
const CONNECTIONS: u32 = 2;

/// Where an installation keeps what it is.
struct Place {
    /// Made by `up`; `None`: a database that others run.
    installation: Option<Installation>,
    database_url: Option<SecretString>,
    object_store: Option<Url>,
    encryption_keys: Option<SecretString>,
}

/// Exit code 0: nothing failed. 1: something did.
pub(crate) async fn run(reading: &Reading, output: &Output) -> Result<ExitCode, Failure> {
    let settings = &reading.settings;
    let mut findings = local::settings(reading);
    let place = Place::find(settings, &mut findings).await?;
    findings.extend(egress(&assemble::allow_rules(settings), is_public(settings)));
    local::disks(&place.directories(), &mut findings);
    // As the service has them.
    let settings = &match &place.installation {
        Some(_) => up::with_demo(settings, settings.listen),
        None => settings.clone(),
    };
    let vault = place.vault(settings, &mut findings);
    let examined = place.examine(settings, &vault, &mut findings).await;
    network::look(settings, place.installation.as_ref(), &examined, &mut findings).await;
    programs::look(settings, place.object_store.as_ref(), examined.stdio_servers, &mut findings)
        .await;

    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    if output.json {
        let object = json!({ "ok": !failed, "checks": findings });
        println!("{}", escape(&object.to_string()));
    } else {
        show(&findings);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One line each, and how many were not fine.
fn show(findings: &[Finding]) {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or_default();
    for Finding { verdict, what, found, mend } in findings {
        let mend = mend.as_ref().map(|mend| format!("  → {}", escape(mend))).unwrap_or_default();
        println!("{:<5} {what:<width$}  {}{mend}", verdict.as_str(), escape(found));
    }
    let count = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    println!("{} checks: {failed} failed, {warned} warned", findings.len());
}

/// Others than this machine reach the service.
fn is_public(settings: &Settings) -> bool {
    !settings.listen.ip().is_loopback() || settings.public_url.is_some()
}

impl Place {
    /// As the operator's commands find it: a data directory that is named, else a database that is,
    /// else the default data directory.
    async fn find(settings: &Settings, findings: &mut Vec<Finding>) -> Result<Self, Failure> {
        if let (None, Some(url)) = (&settings.data_dir, &settings.database_url) {
            return Ok(Self::of_settings(settings, url, findings));
        }
        let installation = Installation::of(settings)?;
        if !local::installation(settings, &installation, findings) {
            let nothing = Self {
                installation: None,
                database_url: None,
                object_store: None,
                encryption_keys: None,
            };
            return Ok(nothing);
        }
        let object_store = match &settings.object_store_url {
            Some(url) => Some(url.clone()),
            None => installation.object_store().ok(),
        };
        let encryption_keys = match &settings.encryption_keys {
            Some(keys) => Some(keys.clone()),
            None => installation.read(installation::ENCRYPTION_KEYS).ok().flatten(),
        };
        let database_url = Self::private_postgres(&installation, findings).await;
        Ok(Self { installation: Some(installation), database_url, object_store, encryption_keys })
    }

    /// What `api` and `worker` refuse to start without.
    fn of_settings(settings: &Settings, url: &SecretString, findings: &mut Vec<Finding>) -> Self {
        for (name, missing) in [
            ("encryption_keys", settings.encryption_keys.is_none()),
            ("object_store_url", settings.object_store_url.is_none()),
        ] {
            if missing {
                let found =
                    format!("{name} is not set: `api` and `worker` do not start without it");
                let mend = format!("set BAILIWICK_{}", name.to_ascii_uppercase());
                findings.push(Finding::fail(local::SETTINGS, found, mend));
            }
        }
        if settings.seal_key.is_none() {
            let mend = "make 32 random bytes, in URL-safe base64, and set BAILIWICK_SEAL_KEY_FILE";
            findings.push(Finding::warn(
                local::SEAL_KEY,
                "seal_key is not set: nothing can seal the audit",
                mend,
            ));
        }
        Self {
            installation: None,
            database_url: Some(url.clone()),
            object_store: settings.object_store_url.clone(),
            encryption_keys: settings.encryption_keys.clone(),
        }
    }

    async fn private_postgres(
        installation: &Installation,
        findings: &mut Vec<Finding>,
    ) -> Option<SecretString> {
        let dir = installation.dir().display();
        let start = format!("start `bailiwick up --data-dir {dir}`; its log says why it ends");
        let found = match postgres::locate(&installation.postgres_dir()) {
            Ok(address) if address.answers().await => return Some(address.app_url().into()),
            Ok(_) => "the private postgres does not run, or this account may not reach its socket"
                .to_owned(),
            Err(error) => error.to_string(),
        };
        findings.push(Finding::fail(
            "database",
            format!("{found}; what needs it was not looked at"),
            start,
        ));
        None
    }

    fn vault(&self, settings: &Settings, findings: &mut Vec<Finding>) -> Vault {
        const WHAT: &str = "encryption keys";
        let mend = match &self.installation {
            Some(installation) => format!(
                "put the file {} back from your backup: a new key opens nothing",
                installation.dir().join(installation::ENCRYPTION_KEYS).display()
            ),
            None => "set BAILIWICK_ENCRYPTION_KEYS_FILE to the file with the keys".to_owned(),
        };
        let Some(keys) = &self.encryption_keys else {
            // That a setting is missing was said.
            if self.installation.is_some() && settings.encryption_keys.is_none() {
                findings.push(Finding::fail(WHAT, "there are none", mend));
            }
            return Vault::without_keys();
        };
        match Vault::new(keys) {
            Ok(vault) => {
                let ids = vault.key_ids().join(", ");
                findings.push(Finding::ok(WHAT, format!("{ids}, the primary first")));
                vault
            }
            Err(error) => {
                findings.push(Finding::fail(WHAT, error.to_string(), mend));
                Vault::without_keys()
            }
        }
    }

    /// Where the installation's files lie, for the space on their disks.
    fn directories(&self) -> Vec<PathBuf> {
        let store = self.object_store.as_ref().and_then(|url| url.to_file_path().ok());
        let data = self.installation.as_ref().map(|place| place.dir().to_owned());
        data.into_iter().chain(store).collect()
    }

    async fn examine(
        &self,
        settings: &Settings,
        vault: &Vault,
        findings: &mut Vec<Finding>,
    ) -> Examined {
        let clock = Clock::System;
        if let Some(url) = &self.object_store {
            findings.push(doctor::object_store(Blobs::at(url), &clock).await);
        }
        let Some(url) = &self.database_url else { return Examined::default() };
        let Ok(db) = Db::connect_lazy(url.expose_secret(), CONNECTIONS) else {
            let found = "database_url is not one that a driver reads";
            let mend = "write it as postgres://bailiwick_app:PASSWORD@HOST:PORT/DATABASE";
            findings.push(Finding::fail("database", found, mend));
            return Examined::default();
        };
        let stdio = programs::allowed(settings);
        let patient = Patient { db: &db, vault, clock: &clock, stdio };
        let mut examined = doctor::database(&patient).await;
        findings.append(&mut examined.findings);
        if let (true, Some(installation)) = (examined.reached, &self.installation) {
            for name in [installation::ADMIN_TOKEN, installation::AGENT_TOKEN] {
                // One that is not there was said.
                if let Ok(Some(token)) = installation.read(name) {
                    let token = token.expose_secret();
                    findings.push(doctor::token(&patient, local::TOKENS, name, token).await);
                }
            }
        }
        // A connection that hangs is not waited for.
        let _ = tokio::time::timeout(limits::NODE_FAREWELL_MS.millis(), db.close()).await;
        examined
    }
}
