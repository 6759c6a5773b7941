//! Nodes: what `up`, `api` and `worker` have in common, and the latter two.

use std::{net::SocketAddr, sync::Arc};

use api::{Api, NodeSettings};
use app::{Ctx, list_changes, nodes};
use domain::limits;
use runtime::{config::Settings, lifecycle::Lifecycle};
use secrecy::SecretString;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time,
};
use url::Url;

use crate::{
    assemble::{self, Needs},
    failure::Failure,
};

/// Serves HTTP on a database that others run.
pub(crate) async fn api(settings: &Settings) -> Result<(), Failure> {
    let lifecycle = lifecycle_on_signals();
    let listener = listen(settings.listen).await?;
    let address = local_address(&listener)?;
    let (built_in, here) = listen_to_ourselves().await?;
    let ctx = of_settings(settings, &lifecycle, Some(address), here)?;
    app::setup::check(&ctx).await?;
    app::servers::check_programs(&ctx).await?;
    app::builtin::sync(&ctx).await?;
    let place = format!("{}:{address}", host_name());
    let mut node = Node::start(ctx, lifecycle, nodes::Kind::Api, &place, built_in).await?;
    node.serve_http(listener, node_settings(settings, address)?);
    println!("ready {}", public_url(settings, address)?.as_str().trim_end_matches('/'));
    node.run().await
}

/// Runs ticks and jobs on a database that others run.
pub(crate) async fn worker(settings: &Settings) -> Result<(), Failure> {
    let lifecycle = lifecycle_on_signals();
    let (built_in, here) = listen_to_ourselves().await?;
    let ctx = of_settings(settings, &lifecycle, None, here)?;
    app::setup::check(&ctx).await?;
    app::servers::check_programs(&ctx).await?;
    app::builtin::sync(&ctx).await?;
    // Several may run on one host; one that died is noticed by its lease.
    let place = format!("{}:worker:{}", host_name(), std::process::id());
    let mut node = Node::start(ctx, lifecycle, nodes::Kind::Worker, &place, built_in).await?;
    node.work();
    node.run().await
}

fn of_settings(
    settings: &Settings,
    lifecycle: &Lifecycle,
    public: Option<SocketAddr>,
    built_in: SocketAddr,
) -> Result<Ctx, Failure> {
    let needed = |setting| Failure::usage(format!("{setting} must be set (only `up` has its own)"));
    let database_url = settings.database_url.as_ref().ok_or_else(|| needed("database_url"))?;
    let object_store =
        settings.object_store_url.as_ref().ok_or_else(|| needed("object_store_url"))?;
    let encryption_keys: Option<&SecretString> = settings.encryption_keys.as_ref();
    if encryption_keys.is_none() {
        return Err(needed("encryption_keys"));
    }
    let built_in = Some(built_in);
    let needs = Needs { database_url, encryption_keys, object_store, public, built_in };
    assemble::ctx(settings, lifecycle, needs)
}

/// From here on signals end this process in order.
pub(crate) fn lifecycle_on_signals() -> Lifecycle {
    let lifecycle = Lifecycle::new();
    let listened = lifecycle.clone();
    tokio::spawn(async move {
        if let Err(error) = listened.on_signals().await {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "signals cannot be listened to");
        }
    });
    lifecycle
}

/// A registered process and its main tasks.
pub(crate) struct Node {
    ctx: Ctx,
    lifecycle: Lifecycle,
    lease: JoinHandle<()>,
    /// Calls need them until the end.
    built_in: JoinHandle<()>,
    tasks: JoinSet<Result<(), Failure>>,
}

impl Node {
    /// Registers the process, keeps its lease from now on, and serves the built-in servers to itself.
    pub(crate) async fn start(
        ctx: Ctx,
        lifecycle: Lifecycle,
        kind: nodes::Kind,
        place: &str,
        built_in: TcpListener,
    ) -> Result<Self, Failure> {
        nodes::register(&ctx, kind, place).await?;
        let stopping = lifecycle.stopping().cancelled_owned();
        let built_in = tokio::spawn(api::builtin::serve(built_in, ctx.clone(), stopping));
        let lease = tokio::spawn(nodes::keep(ctx.clone()));
        let mut tasks = JoinSet::new();
        let changes = list_changes::watch(ctx.clone());
        tasks.spawn(async move {
            changes.await;
            Ok(())
        });
        Ok(Self { ctx, lifecycle, lease, built_in, tasks })
    }

    pub(crate) fn serve_http(&mut self, listener: TcpListener, node: NodeSettings) {
        let (draining, stopping) = (self.lifecycle.draining(), self.lifecycle.stopping());
        let api = Api { ctx: self.ctx.clone(), node: Arc::new(node) };
        self.tasks.spawn(async move {
            tokio::select! {
                () = api::serve(listener, api, draining.cancelled_owned()) => {}
                // Whoever is still connected is cut.
                () = stopping.cancelled() => {}
            }
            Ok(())
        });
    }

    pub(crate) fn work(&mut self) {
        let ctx = self.ctx.clone();
        self.tasks.spawn(async move {
            worker::run(ctx).await;
            Ok(())
        });
    }

    /// Until a signal ends the process, or a main task ends without being asked to.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        let draining = self.lifecycle.draining();
        let mut outcome = tokio::select! {
            () = draining.cancelled() => Ok(()),
            ended = self.tasks.join_next() => match ended {
                Some(Ok(Err(failure))) => Err(failure),
                Some(Err(panic)) => Err(Failure::because("a main task ended", panic)),
                Some(Ok(Ok(()))) | None if draining.is_cancelled() => Ok(()),
                Some(Ok(Ok(()))) | None => Err(Failure::new("a main task ended")),
            },
        };
        self.lifecycle.drain();
        self.finish(&mut outcome).await;
        outcome
    }

    /// Waits for what runs, at most until the lifecycle stops; then takes the node out.
    async fn finish(mut self, outcome: &mut Result<(), Failure>) {
        let stopping = self.lifecycle.stopping();
        let tracker = self.lifecycle.tracker();
        let work = async {
            tracker.wait().await;
            while let Some(ended) = self.tasks.join_next().await {
                if let (Ok(Err(failure)), true) = (ended, outcome.is_ok()) {
                    *outcome = Err(failure);
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stopping.cancelled() => {}
        }
        self.lifecycle.stop();
        self.lease.abort();
        self.built_in.abort();
        // A database that does not answer must not hold up the end; the lease ends the node then.
        let farewell = async {
            // Calls that were just cut off write down how they ended.
            let _ = time::timeout(limits::NODE_FAREWELL_MS.millis() / 2, tracker.wait()).await;
            if let Err(error) = nodes::end(&self.ctx).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the node could not be ended"
                );
            }
            self.ctx.db.close().await;
        };
        let _ = time::timeout(limits::NODE_FAREWELL_MS.millis(), farewell).await;
    }
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Failure::because(format!("cannot listen on {address}"), error))
}

/// For the built-in servers, on a port that nobody else is told.
pub(crate) async fn listen_to_ourselves() -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = api::builtin::listener().await;
    let listener =
        listener.map_err(|error| Failure::because("no port of loopback is free", error))?;
    let address = local_address(&listener)?;
    Ok((listener, address))
}

/// With the real port where 0 was asked for.
pub(crate) fn local_address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::because("the listener has no address", error))
}

/// Where people and clients reach this node.
pub(crate) fn public_url(settings: &Settings, address: SocketAddr) -> Result<Url, Failure> {
    match &settings.public_url {
        Some(url) => Ok(url.clone()),
        None => Url::parse(&format!("http://{address}"))
            .map_err(|error| Failure::because("the address is no URL", error)),
    }
}

pub(crate) fn node_settings(
    settings: &Settings,
    address: SocketAddr,
) -> Result<NodeSettings, Failure> {
    let mut allowed_hosts = settings.allowed_hosts.clone();
    if address.ip().is_loopback() {
        // On this machine the name means the same, and only it.
        allowed_hosts.extend([address.to_string(), format!("localhost:{}", address.port())]);
    }
    Ok(NodeSettings {
        public_url: public_url(settings, address)?,
        allowed_hosts,
        trusted_proxies: settings.trusted_proxies.clone(),
    })
}

/// Names the machine among those that share a database.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
