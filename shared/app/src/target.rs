//! Where a server's requests go: its address, and its values opened and expanded.

use std::{collections::HashMap, sync::Arc};

use domain::{
    Code, Error, builtin,
    connection::{self, ConnectionState},
    ids::{ServerId, TenantId},
    limits,
    server::{
        AuthMode, Destination, Transport, expand, missing_variable,
        stdio::{Asked, StdioMode},
        variable_elsewhere,
    },
};
use http::{HeaderName, HeaderValue};
use outbound::mcp::{ClientKey, Identity, Program, Reach, Target};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{
    calls::OwnConnection,
    servers::{SealedValue, SealedValues, SealedVariable},
    vault::{Purpose, RowName, Sealed, Vault},
};
use url::Url;

use crate::{
    Ctx,
    authority::{Personal, Right, Who},
    delegation::{self, Delegation},
};

/// A server as it is stored, as far as its requests depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub tenant: TenantId,
    /// Who asks. `None`: nobody does, as in a discovery.
    pub server: &'a ServerId,
    pub transport: &'a str,
    pub url: &'a str,
    pub revision: i64,
    pub auth_mode: &'a str,
    pub values: &'a SealedValues,
    /// Of a server with API keys: the header that they go in; else blank.
    pub api_key_header: &'a str,
    /// How far the person that asks is connected; `None`: nobody asks, or they never were.
    pub own: Option<OwnConnection>,
}

/// For whom and what for a server is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// `None`: nobody. Then what is personal is refused.
    pub who: Option<Who>,
    /// To try it out, whether or not it is switched on.
    pub even_disabled: bool,
}

/// The one place that opens what goes to a server.
///
/// `CREDENTIALS_UNREADABLE` where no key opens a value; `SERVER_MISCONFIGURED` where a variable is
/// missing or not for this destination, a program is not permitted (any more), or what is stored cannot
/// be sent. `CONNECTION_REQUIRED` and `RECONNECT_REQUIRED` where the server is used with a person's own
/// account and that is not connected, or nobody asks. `DENIED` for a server of ours where nobody asks.
pub(crate) fn target(ctx: &Ctx, stored: &Stored<'_>, aim: Aim) -> Result<Target, Error> {
    let mode: AuthMode = stored.auth_mode.parse()?;
    if builtin::find(stored.server).is_some() {
        // Code says where it is and as whom it is called; what else stands in its row is not read.
        return delegated(ctx, stored, aim, mode);
    }
    let personal = personal(stored, aim, mode)?;
    let identity = match (mode, &personal, aim.who) {
        (AuthMode::None, ..) => Identity::Anonymous,
        (AuthMode::SharedHeaders, ..) => Identity::Shared,
        (_, Some(personal), Some(who)) => {
            Identity::User { user: who.user, generation: personal.generation }
        }
        _ => return Err(misconfigured("delegation is for built-in servers alone")),
    };
    let right = right(ctx, stored, aim, mode, personal);
    let key = key(stored, identity);
    let mut parts = Vec::new();
    let reach = match stored.transport.parse()? {
        Transport::Http => {
            let (url, headers) = remote(ctx, stored, &mut parts)?;
            Reach::Http { url, headers }
        }
        Transport::Sse => {
            let (url, headers) = remote(ctx, stored, &mut parts)?;
            Reach::Sse { url, headers }
        }
        Transport::Stdio => Reach::Stdio(program(ctx, stored, &mut parts)?),
    };
    Ok(Target { key, reach, resume: None, parts, authority: Some(Arc::new(right)) })
}

/// Whether whoever asks is connected, where the server is used with a person's own account: what
/// [`target`] looks at first.
pub(crate) fn connected(stored: &Stored<'_>, aim: Aim) -> Result<(), Error> {
    if builtin::find(stored.server).is_some() {
        return Ok(());
    }
    personal(stored, aim, stored.auth_mode.parse()?).map(|_| ())
}

/// How the person's own credential goes out, in a mode that has one.
fn personal(stored: &Stored<'_>, aim: Aim, mode: AuthMode) -> Result<Option<Personal>, Error> {
    if !mode.is_personal() {
        return Ok(None);
    }
    let refused = |state, reason| {
        let error = connection::not_connected(state, reason);
        Err(error.with_details(json!({ "serverId": stored.server })))
    };
    let own = match (aim.who, stored.own) {
        (Some(_), Some(own)) if own.state == ConnectionState::Connected => own,
        (Some(_), Some(own)) => return refused(own.state, own.reason),
        _ => return refused(ConnectionState::Disconnected, None),
    };
    let header = match mode {
        AuthMode::ApiKey => {
            let name = HeaderName::from_bytes(stored.api_key_header.as_bytes());
            Some(name.map_err(|_| misconfigured("the API key's header has no legal name"))?)
        }
        _ => None,
    };
    Ok(Some(Personal { generation: own.generation, header }))
}

/// A server of ours, on this process's own listener. `DENIED` where nobody asks.
fn delegated(ctx: &Ctx, stored: &Stored<'_>, aim: Aim, mode: AuthMode) -> Result<Target, Error> {
    let who = aim.who.ok_or_else(delegation::nobody)?;
    let delegation = Delegation::new(ctx, stored.server)?;
    let here = ctx.built_in.ok_or_else(|| {
        Error::new(Code::Unavailable, "this process does not serve the built-in servers")
    })?;
    let url = Url::parse(&format!("http://{here}/{}", stored.server)).map_err(Error::internal)?;
    let identity = Identity::User { user: who.user, generation: 0 };
    let right =
        Right { delegation: Some(Arc::new(delegation)), ..right(ctx, stored, aim, mode, None) };
    Ok(Target {
        key: key(stored, identity),
        reach: Reach::Own { url },
        resume: None,
        parts: Vec::new(),
        authority: Some(Arc::new(right)),
    })
}

fn key(stored: &Stored<'_>, identity: Identity) -> ClientKey {
    ClientKey {
        tenant: stored.tenant,
        server: stored.server.clone(),
        revision: stored.revision,
        identity,
        session: None,
    }
}

fn right(
    ctx: &Ctx,
    stored: &Stored<'_>,
    aim: Aim,
    mode: AuthMode,
    personal: Option<Personal>,
) -> Right {
    Right {
        parts: ctx.downgrade(),
        tenant: stored.tenant,
        server: stored.server.clone(),
        revision: stored.revision,
        mode,
        who: aim.who,
        personal,
        delegation: None,
        even_disabled: aim.even_disabled,
    }
}

/// Address and headers.
fn remote(
    ctx: &Ctx,
    stored: &Stored<'_>,
    parts: &mut Vec<SecretString>,
) -> Result<(Url, Vec<(HeaderName, SecretString)>), Error> {
    let url =
        Url::parse(stored.url).map_err(|_| misconfigured("the server's address is no URL"))?;
    let to = Destination::of_url(&url)
        .ok_or_else(|| misconfigured("the server's address has no host"))?;
    let mut opener = Opener::new(&ctx.vault, stored, &to, parts);
    let mut headers = Vec::with_capacity(stored.values.headers.len());
    for header in &stored.values.headers {
        let value = opener.open(Purpose::ServerHeader, header)?;
        let name = HeaderName::from_bytes(header.0.as_bytes())
            .map_err(|_| misconfigured("a header of the server has no legal name"))?;
        if HeaderValue::from_str(value.expose_secret()).is_err() {
            return Err(misconfigured("a header of the server cannot be sent"));
        }
        headers.push((name, value));
    }
    Ok((url, headers))
}

/// A program that the operator permits at this moment, with its environment.
fn program(
    ctx: &Ctx,
    stored: &Stored<'_>,
    parts: &mut Vec<SecretString>,
) -> Result<Program, Error> {
    let values = stored.values;
    if matches!(ctx.stdio, StdioMode::Any) && !values.only_tenant {
        let words = "any program may run only while there is one tenant";
        return Err(misconfigured(words));
    }
    let names: Vec<&str> = values.env.iter().map(|(name, ..)| name.as_str()).collect();
    ctx.stdio.require(&Asked {
        command: &values.command,
        args: &values.args,
        cwd: &values.cwd,
        env: &names,
    })?;
    let mut opener = Opener::new(&ctx.vault, stored, &Destination::Program, parts);
    let open = |value: &SealedValue| Ok((value.0.clone(), opener.open(Purpose::ServerEnv, value)?));
    Ok(Program {
        command: values.command.clone().into(),
        args: values.args.clone(),
        cwd: (!values.cwd.is_empty()).then(|| values.cwd.clone().into()),
        env: values.env.iter().map(open).collect::<Result<_, Error>>()?,
    })
}

/// Opens values, and the variables that they refer to, for one destination.
struct Opener<'a> {
    /// The values of the variables that were used.
    parts: &'a mut Vec<SecretString>,
    vault: &'a Vault,
    tenant: TenantId,
    server: &'a str,
    variables: HashMap<&'a str, &'a SealedVariable>,
    to: Destination,
    bytes: usize,
}

impl<'a> Opener<'a> {
    fn new(
        vault: &'a Vault,
        stored: &Stored<'a>,
        to: &Destination,
        parts: &'a mut Vec<SecretString>,
    ) -> Self {
        let variables = stored.values.variables.iter();
        Self {
            parts,
            vault,
            tenant: stored.tenant,
            server: stored.server.as_str(),
            variables: variables.map(|variable| (variable.0.as_str(), variable)).collect(),
            to: to.clone(),
            bytes: 0,
        }
    }

    fn open(&mut self, purpose: Purpose, value: &SealedValue) -> Result<SecretString, Error> {
        let (name, token, key_id) = value;
        let row = RowName { tenant: self.tenant, server: self.server, name };
        let stored = self.vault.open(purpose, row, &sealed(token, key_id))?;
        let expanded = expand(stored.expose_secret(), |name| self.variable(name))?;
        self.bytes += expanded.len();
        if self.bytes > limits::HEADER_TOTAL_BYTES.size() {
            let most = limits::HEADER_TOTAL_BYTES.default;
            return Err(misconfigured(&format!("the values have more than {most} bytes together")));
        }
        Ok(SecretString::from(expanded))
    }

    fn variable(&mut self, name: &str) -> Result<String, Error> {
        let (name, token, key_id, hosts) =
            self.variables.get(name).ok_or_else(|| missing_variable(name))?;
        if !self.to.is_among(hosts) {
            return Err(variable_elsewhere(name));
        }
        let row = RowName { tenant: self.tenant, server: "", name };
        let value = self.vault.open(Purpose::TenantVariable, row, &sealed(token, key_id))?;
        let text = value.expose_secret().to_owned();
        self.parts.push(value);
        Ok(text)
    }
}

fn sealed(token: &str, key_id: &str) -> Sealed {
    Sealed { token: token.to_owned(), key_id: key_id.to_owned() }
}

fn misconfigured(words: &str) -> Error {
    Error::new(Code::ServerMisconfigured, words)
}
