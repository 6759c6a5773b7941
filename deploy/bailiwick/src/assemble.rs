//! Puts a process together from its settings.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use app::{Admission, Clock, Ctx, Db, Parts, Signals, Vault};
use domain::{limits, server::UrlRules};
use outbound::{
    blobs::Blobs,
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    mcp::McpClients,
    oauth::OAuthClient,
    stdio::{Sandbox, Stdio, StdioRules},
};
use runtime::{
    config::{EgressAllow, Settings, StdioSandbox},
    lifecycle::Lifecycle,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::failure::Failure;

/// What differs from command to command.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    pub database_url: &'a SecretString,
    pub encryption_keys: Option<&'a SecretString>,
    pub object_store: &'a Url,
    /// Where others reach us, which upstream URLs may not name.
    pub public: Option<SocketAddr>,
    /// Where this process serves the built-in servers; `None`: it makes no calls.
    pub built_in: Option<SocketAddr>,
}

pub(crate) fn ctx(
    settings: &Settings,
    lifecycle: &Lifecycle,
    needs: Needs<'_>,
) -> Result<Ctx, Failure> {
    let clock = Clock::System;
    let connections = u32::try_from(limits::DATABASE_CONNECTIONS.default).unwrap_or(u32::MAX);
    let db = Db::connect_lazy(needs.database_url.expose_secret(), connections)
        .map_err(|error| Failure::because("the database's URL is not usable", error))?;
    let vault = match needs.encryption_keys {
        Some(keys) => Vault::new(keys)
            .map_err(|error| Failure::because("the encryption keys are not usable", error))?,
        None => Vault::without_keys(),
    };
    let own = needs.public.into_iter().chain(needs.built_in).collect();
    let rules = EgressRules { allow: allow_rules(settings), own };
    let options = HttpOptions {
        extra_ca: settings.extra_ca.clone(),
        contact: settings.contact.clone(),
        ..HttpOptions::default()
    };
    let http = GuardedHttp::new(rules, &options)?;
    Ok(Ctx::from(Parts {
        db,
        vault,
        oauth: OAuthClient::new(http.clone()),
        mcp: McpClients::new(http, Stdio::new(stdio_rules(settings, needs.object_store))),
        built_in: needs.built_in,
        blobs: Blobs::at(needs.object_store)?,
        admission: Admission::local(),
        node: clock.mint(),
        signals: Signals::default(),
        definitions: app::definitions::DefinitionCache::default(),
        url_rules: url_rules(settings),
        stdio: settings.stdio.clone().unwrap_or_default(),
        permission_wait: Duration::from_secs(settings.permission_wait_seconds),
        draining: lifecycle.draining(),
        stopping: lifecycle.stopping(),
        tasks: lifecycle.tracker(),
        clock,
    }))
}

/// Programs see nothing of what is ours: state, settings and keys, stored results.
pub(crate) fn stdio_rules(settings: &Settings, object_store: &Url) -> StdioRules {
    let mut hidden: Vec<PathBuf> =
        settings.data_dir.iter().chain(&settings.files).cloned().collect();
    hidden.extend(object_store.to_file_path().ok());
    StdioRules {
        mode: settings.stdio.clone().unwrap_or_default(),
        sandbox: match settings.stdio_sandbox {
            StdioSandbox::Strongest => Sandbox::Strongest,
            StdioSandbox::Bubblewrap => Sandbox::Bubblewrap,
            StdioSandbox::None => Sandbox::None,
        },
        hidden_paths: hidden,
        readable_paths: settings.stdio_readable.clone(),
    }
}

pub(crate) fn allow_rules(settings: &Settings) -> Vec<AllowRule> {
    let rule = |rule: &EgressAllow| match rule {
        EgressAllow::Network(network) => AllowRule::Network(*network),
        EgressAllow::Host(name) => AllowRule::Host(name.clone()),
    };
    settings.egress_allow.iter().map(rule).collect()
}

fn url_rules(settings: &Settings) -> UrlRules {
    let mut rules = UrlRules { hosts: Vec::new(), networks: Vec::new() };
    for rule in &settings.egress_allow {
        match rule {
            EgressAllow::Network(network) => rules.networks.push(*network),
            EgressAllow::Host(name) => rules.hosts.push(name.clone()),
        }
    }
    rules
}
