//! Clients' connections: how many, and how long one may take to say what it wants.
//!
//! By hyper and not by `axum::serve`, which knows no time-outs: a client that never finishes its head would
//! keep its connection for ever.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    serve::Listener,
};
use domain::limits;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tower::{ServiceExt, service_fn};

/// What one process bears of its clients.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a whole request head for this long, a connection is closed, also between two requests.
    pub head: Duration,
    /// More connections than these wait to be accepted.
    pub connections: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: limits::CLIENT_HEADER_MS.millis(),
            connections: limits::CLIENT_CONNECTIONS.size(),
        }
    }
}

/// Answers on `listener` until `draining` ends, then until the requests that run are answered.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    patience: Patience,
    draining: impl Future<Output = ()>,
) {
    let mut draining = std::pin::pin!(draining);
    let connections = Arc::new(Semaphore::new(patience.connections));
    let watched = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.head);
    loop {
        let accepted = async {
            let place = Arc::clone(&connections).acquire_owned().await;
            // Errors of one connection are not ours; when there are no descriptors left, it waits a second.
            let (stream, peer) = Listener::accept(&mut listener).await;
            (place, stream, peer)
        };
        let (place, stream, peer) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut draining => break,
        };
        let connection = http.serve_connection(prepared(stream), service(router.clone(), peer));
        let connection = watched.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                let error: &dyn std::error::Error = &error;
                tracing::debug!(error, "a connection ended early");
            }
            drop(place);
        });
    }
    drop(listener);
    watched.shutdown().await;
}

fn prepared(stream: TcpStream) -> TokioIo<TcpStream> {
    // Else an event waits until the one before it was acknowledged, 40 ms on Linux. A connection that
    // cannot be set so still works.
    _ = stream.set_nodelay(true);
    TokioIo::new(stream)
}

fn service(
    router: Router,
    peer: SocketAddr,
) -> impl hyper::service::Service<
    hyper::Request<Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send + 'static,
> {
    let answer = move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    };
    TowerToHyperService::new(service_fn(answer))
}
