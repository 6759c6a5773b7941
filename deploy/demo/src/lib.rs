//! A small MCP server to try the service with: tools that are harmless, slow, random, and one that
//! sounds dangerous and only pretends.

mod tools;

use std::{net::SocketAddr, process::ExitCode};

use clap::Parser;
use rmcp::{
    ServiceExt,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use tools::Tools;

#[derive(Debug, Parser)]
#[command(name = "bailiwick-demo", version, about)]
struct Args {
    /// Address to serve on; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Speak on standard input and output instead, as a program that a client starts
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
}

/// Serves until SIGTERM or SIGINT; prints `ready http://HOST:PORT/mcp` when it can be called. With
/// `--stdio` it serves until its input ends.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    let served = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let served = if args.stdio {
            runtime.block_on(serve_stdio())
        } else {
            runtime.block_on(serve(args.listen))
        };
        // A read of standard input that nobody ends must not hold us.
        runtime.shutdown_background();
        served
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bailiwick-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_stdio() -> anyhow::Result<()> {
    let service = Tools::new().serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}

async fn serve(listen: SocketAddr) -> anyhow::Result<()> {
    // Before the first word on stdout: whoever reads it may end us at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stopping = CancellationToken::new();
    // Both eras on one URL: clients of 2026-07-28 are served without a session, older ones with one.
    let mcp = StreamableHttpService::new(
        || Ok(Tools::new()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default()
            .enforce_origin_validation()
            .with_cancellation_token(stopping.clone()),
    );
    let router = axum::Router::new().nest_service("/mcp", mcp);
    let listener = TcpListener::bind(listen).await?;
    println!("ready http://{}/mcp", listener.local_addr()?);

    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            // Streams of older clients never end by themselves.
            stopping.cancel();
        })
        .await?;
    Ok(())
}
