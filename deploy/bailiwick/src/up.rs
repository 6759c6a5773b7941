//! Everything on this machine, with a Postgres of its own.

use std::{net::SocketAddr, path::PathBuf};

use app::{Ctx, nodes, setup::Setup, tokens, users::NewUser};
use domain::{
    Code, Role, Scope, Scopes, limits,
    server::stdio::{AllowedProgram, ArgPattern, StdioMode},
};
use runtime::{
    config::{self, Settings},
    lifecycle::Lifecycle,
    postgres::{self, PostgresOptions, PrivatePostgres},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;

use crate::{
    assemble::{self, Needs},
    failure::Failure,
    installation::{self, Installation},
    serve::{self, Node},
};

const TENANT: &str = "default";
const ADMIN: &str = "admin@localhost";

/// Serves until a signal ends it. The private Postgres ends with it.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    if settings.database_url.is_some() {
        return Err(Failure::usage(
            "`up` has a database of its own: unset database_url, or use `api` and `worker`",
        ));
    }
    let lifecycle = serve::lifecycle_on_signals();
    let installation = Installation::of(settings)?;
    installation.create()?;
    // Before Postgres: an address that is taken is found out at once.
    let listener = serve::listen(settings.listen).await?;

    let stopping = lifecycle.stopping();
    let (postgres_dir, options) = (installation.postgres_dir(), postgres_options());
    let postgres = tokio::select! {
        started = postgres::start(&postgres_dir, &options) => started?,
        () = stopping.cancelled() => return Ok(()),
    };
    postgres.supervise(&lifecycle);
    let outcome = serve_on(settings, &lifecycle, &installation, &postgres, listener).await;
    lifecycle.stop();
    let stopped = postgres.stop().await;
    outcome.and(stopped.map_err(Failure::from))
}

async fn serve_on(
    settings: &Settings,
    lifecycle: &Lifecycle,
    installation: &Installation,
    postgres: &PrivatePostgres,
    listener: TcpListener,
) -> Result<(), Failure> {
    let draining = lifecycle.draining();
    let address = serve::local_address(&listener)?;
    let (built_in, here) = serve::listen_to_ourselves().await?;
    let prepared = tokio::select! {
        prepared = prepare(settings, lifecycle, installation, postgres, (address, here)) => prepared?,
        () = draining.cancelled() => return Ok(()),
    };
    // The database is this installation's alone, and the lock on its directory is ours: whatever
    // stood here before is dead.
    let mut node =
        Node::start(prepared, lifecycle.clone(), nodes::Kind::Up, "up", built_in).await?;
    node.serve_http(listener, serve::node_settings(settings, address)?);
    node.work();

    let url = serve::public_url(settings, address)?;
    let said = async {
        until_ready(address, &url).await?;
        let url = url.as_str().trim_end_matches('/');
        installation.set_url(url)?;
        println!("ready {url}");
        // Serving goes on; this is never the end.
        std::future::pending().await
    };
    tokio::select! {
        outcome = node.run() => outcome,
        failed = said => failed,
    }
}

/// Keys, schema, and at the first start the tenant and its superadmin.
async fn prepare(
    settings: &Settings,
    lifecycle: &Lifecycle,
    installation: &Installation,
    postgres: &PrivatePostgres,
    (address, built_in): (SocketAddr, SocketAddr),
) -> Result<Ctx, Failure> {
    let encryption_keys = encryption_keys(settings, installation)?;
    let setup = Setup {
        admin_url: Some(&postgres.admin_url()),
        owner_url: &postgres.owner_url(),
        // The file system decides who reaches this database.
        owner_password: None,
        app_password: None,
    };
    app::setup::migrate(&setup).await?;

    let object_store = match &settings.object_store_url {
        Some(url) => url.clone(),
        None => installation.object_store()?,
    };
    let needs = Needs {
        database_url: &postgres.app_url().into(),
        encryption_keys: encryption_keys.as_ref(),
        object_store: &object_store,
        public: Some(address),
        built_in: Some(built_in),
    };
    // The default directory too: programs must not see into it.
    let dir = Some(installation.dir().to_owned());
    let settings = Settings { data_dir: dir, ..with_demo(settings, address) };
    let ctx = assemble::ctx(&settings, lifecycle, needs)?;
    app::servers::check_programs(&ctx).await?;
    app::builtin::sync(&ctx).await?;
    if !installation.is_installed() {
        first_start(&ctx, installation).await?;
        installation.set_installed()?;
    }
    Ok(ctx)
}

/// Where nobody but this machine reaches us and nobody said otherwise, the demo server beside our own
/// program may be added and tried.
pub(crate) fn with_demo(settings: &Settings, address: SocketAddr) -> Settings {
    let mut settings = settings.clone();
    if settings.stdio.is_none() && address.ip().is_loopback() {
        let demo = demo_program();
        // It may lie where a sandbox hides everything else.
        settings.stdio_readable.extend(demo.iter().map(|demo| PathBuf::from(&demo.command)));
        settings.stdio = Some(StdioMode::Allowlist(demo.into_iter().collect()));
    }
    settings
}

fn demo_program() -> Option<AllowedProgram> {
    let beside =
        std::env::current_exe().ok()?.canonicalize().ok()?.with_file_name("bailiwick-demo");
    let command = beside.to_str().filter(|_| beside.is_file())?;
    Some(AllowedProgram {
        name: "demo".to_owned(),
        command: command.to_owned(),
        args: vec![ArgPattern::Literal("--stdio".to_owned())],
        cwd: None,
        env: Vec::new(),
        writable: Vec::new(),
    })
}

/// Those of the settings, else the installation's own. A key that was lost is not made anew: it could
/// open nothing, and hide the loss.
fn encryption_keys(
    settings: &Settings,
    installation: &Installation,
) -> Result<Option<SecretString>, Failure> {
    let new = !installation.is_installed();
    if new && settings.seal_key.is_none() {
        installation.read_or_make(installation::SEAL_KEY, installation::new_seal_key)?;
    }
    if let Some(keys) = &settings.encryption_keys {
        return Ok(Some(keys.clone()));
    }
    let name = installation::ENCRYPTION_KEYS;
    if new {
        return installation.read_or_make(name, installation::new_encryption_key).map(Some);
    }
    let keys = installation.read(name)?;
    if keys.is_none() {
        tracing::error!("the file {name} is gone: stored credentials cannot be read");
    }
    Ok(keys)
}

/// Each step finds what an interrupted first start has done.
async fn first_start(ctx: &Ctx, installation: &Installation) -> Result<(), Failure> {
    let tenant = match app::tenants::find(ctx, TENANT).await {
        Err(error) if error.code == Code::NotFound => app::tenants::create(ctx, TENANT).await?,
        found => found?,
    };
    // Written before the person exists, so that no password is lost.
    let password =
        installation.read_or_make(installation::ADMIN_PASSWORD, installation::new_password)?;
    match app::users::find(ctx, tenant.id, ADMIN).await {
        Err(error) if error.code == Code::NotFound => {
            let new = NewUser {
                email: ADMIN.to_owned(),
                role: Role::Superadmin,
                password: Some(password),
            };
            app::users::create(ctx, TENANT, new).await?;
        }
        found => drop(found?),
    }
    let admin = [Scope::ApiRead, Scope::ApiWrite, Scope::Approve, Scope::Admin];
    token(ctx, installation, installation::ADMIN_TOKEN, Scopes::new(admin)?).await?;
    let agent = [Scope::McpCall, Scope::ApiRead];
    token(ctx, installation, installation::AGENT_TOKEN, Scopes::new(agent)?).await
}

/// A token that was made and could not be written is known to nobody.
async fn token(
    ctx: &Ctx,
    installation: &Installation,
    name: &str,
    scopes: Scopes,
) -> Result<(), Failure> {
    if installation.read(name)?.is_none() {
        let minted = tokens::create_for(ctx, TENANT, ADMIN, scopes, None).await?;
        installation.write(name, minted.secret.expose_secret())?;
    }
    Ok(())
}

/// Asks as anybody else would, until the answer is 200.
async fn until_ready(address: SocketAddr, public_url: &url::Url) -> Result<(), Failure> {
    // A listener on all addresses is reached on this machine's own.
    let mut here = address;
    if here.ip().is_unspecified() {
        here.set_ip(match here {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .map_err(|error| Failure::because("no client for /readyz", error))?;
    let host = &public_url[url::Position::BeforeHost..url::Position::AfterPort];
    loop {
        let asked = client.get(format!("http://{here}/readyz")).header("host", host).send().await;
        if asked.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        tokio::time::sleep(limits::READY_POLL_MS.millis()).await;
    }
}

fn postgres_options() -> PostgresOptions {
    let named = config::environment().find(|(name, _)| name == "BAILIWICK_PG_BIN");
    let binaries = named.map(|(_, dir)| dir).filter(|dir| !dir.is_empty()).map(Into::into);
    PostgresOptions { binaries, ..PostgresOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(settings: &Settings, address: &str) -> Option<StdioMode> {
        with_demo(settings, address.parse().unwrap()).stdio
    }

    #[test]
    fn the_demo_may_be_run_where_nobody_else_reaches_us_and_nobody_said_otherwise() {
        let nothing = Settings::default();
        assert!(matches!(mode(&nothing, "127.0.0.1:0"), Some(StdioMode::Allowlist(_))));
        assert!(matches!(mode(&nothing, "[::1]:0"), Some(StdioMode::Allowlist(_))));
        assert!(mode(&nothing, "0.0.0.0:0").is_none());
        let off = Settings { stdio: Some(StdioMode::Off), ..Settings::default() };
        assert!(matches!(mode(&off, "127.0.0.1:0"), Some(StdioMode::Off)));
    }
}
