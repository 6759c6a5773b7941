//! Where a server's requests go: its address, and its values opened and expanded.

use std::collections::HashMap;

use domain::{
    Code, Error, builtin,
    delegation::Subject,
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
use store::{
    servers::{SealedValue, SealedValues, SealedVariable},
    vault::{Purpose, RowName, Sealed, Vault},
};
use url::Url;

use crate::{
    Ctx,
    delegation::{self, Delegation},
};

/// A server as it is stored, as far as its requests depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub tenant: TenantId,
    /// Who asks. `None`: nobody does, as in a discovery.
    pub who: Option<Subject>,
    pub server: &'a ServerId,
    pub transport: &'a str,
    pub url: &'a str,
    pub revision: i64,
    pub auth_mode: &'a str,
    pub values: &'a SealedValues,
}

/// The one place that opens what goes to a server.
///
/// `CREDENTIALS_UNREADABLE` where no key opens a value; `SERVER_MISCONFIGURED` where a variable is
/// missing or not for this destination, a program is not permitted (any more), or what is stored cannot
/// be sent.
pub(crate) fn target(ctx: &Ctx, stored: &Stored<'_>) -> Result<Target, Error> {
    if builtin::find(stored.server).is_some() {
        // Code says where it is and as whom it is called; what else stands in its row is not read.
        return delegated(ctx, stored);
    }
    let identity = match stored.auth_mode.parse()? {
        AuthMode::None => Identity::Anonymous,
        AuthMode::SharedHeaders => Identity::Shared,
        AuthMode::Delegation => {
            return Err(misconfigured("delegation is for built-in servers alone"));
        }
        _ => return Err(misconfigured("the server's auth mode is not supported yet")),
    };
    let key = ClientKey {
        tenant: stored.tenant,
        server: stored.server.clone(),
        revision: stored.revision,
        identity,
        session: None,
    };
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
    Ok(Target { key, reach, resume: None, parts, authority: None })
}

/// A server of ours, on this process's own listener. `DENIED` where nobody asks.
fn delegated(ctx: &Ctx, stored: &Stored<'_>) -> Result<Target, Error> {
    let who = stored.who.ok_or_else(delegation::nobody)?;
    let delegation = Delegation::new(ctx, stored.server)?;
    let here = ctx.built_in.ok_or_else(|| {
        Error::new(Code::Unavailable, "this process does not serve the built-in servers")
    })?;
    let url = Url::parse(&format!("http://{here}/{}", stored.server)).map_err(Error::internal)?;
    let key = ClientKey {
        tenant: stored.tenant,
        server: stored.server.clone(),
        revision: stored.revision,
        identity: Identity::User { user: who.user, generation: 0 },
        session: None,
    };
    let authority = Some(delegation.acting_for(who));
    Ok(Target { key, reach: Reach::Own { url }, resume: None, parts: Vec::new(), authority })
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
