//! Names that lead elsewhere than they should: a resolver of ours answers, and nothing is reached that the rules forbid.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, atomic::AtomicU32},
};

use bytes::Bytes;
use domain::Code;
use futures::future::BoxFuture;
use http::{HeaderMap, Method};
use outbound::{
    egress::{AllowRule, Destination, EgressRules},
    http::{GuardedHttp, HttpOptions, Names},
    mcp::{McpClients, Ran},
    oauth::{DiscoverOptions, OAuthClient, OAuthFailure},
    stdio::Stdio,
};
use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    peer::{Peer, Setup},
    upstream::{call, target, tool_call},
};
use url::Url;

/// Answers from a list for each name; its last entry goes on for ever.
#[derive(Debug, Default)]
struct Answers {
    of: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    fn with(self: &Arc<Self>, name: &str, answers: &[&[&str]]) -> Arc<Self> {
        let parsed =
            answers.iter().map(|answer| answer.iter().map(|ip| ip.parse().unwrap()).collect());
        self.of.lock().unwrap().insert(name.to_owned(), parsed.collect());
        Arc::clone(self)
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Names for Answers {
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(host.to_owned());
            let mut all = self.of.lock().unwrap();
            let answers = all.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
            let next =
                if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            Ok(next.into_iter().flatten().map(|ip| SocketAddr::new(ip, port)).collect())
        })
    }
}

/// A listener that nobody may reach.
struct Trap(TcpListener);

impl Trap {
    /// At another of this machine's addresses, on the port of `peer`.
    fn beside(peer: &Peer) -> Self {
        let listener = TcpListener::bind(("127.0.0.2", peer.address().port())).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    /// A connection that was made waits here to be accepted, whoever made it and went away.
    fn is_untouched(&self) -> bool {
        matches!(self.0.accept(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn guarded(names: &Arc<Answers>, own: &[SocketAddr]) -> GuardedHttp {
    let allow = vec![AllowRule::Network("127.0.0.1/32".parse().unwrap())];
    let names: Arc<dyn Names> = Arc::<Answers>::clone(names);
    let options = HttpOptions { names, ..HttpOptions::default() };
    GuardedHttp::new(EgressRules { allow, own: own.to_vec() }, &options).unwrap()
}

fn at(name: &str, peer: &Peer) -> Url {
    format!("http://{name}:{}/mcp", peer.address().port()).parse().unwrap()
}

/// A call by a client that knows no connection yet.
async fn called(http: &GuardedHttp, url: &Url) -> Result<(), (Code, Ran)> {
    let clients = McpClients::new(http.clone(), Stdio::off());
    let answer = call(&clients, &target(url), tool_call("echo", "{}")).await;
    answer.map(drop).map_err(|failure| (failure.error.code, failure.ran))
}

const REFUSED: Result<(), (Code, Ran)> = Err((Code::ServerMisconfigured, Ran::No));

#[tokio::test]
async fn a_name_is_looked_up_once_for_a_connection_and_judged_again_for_the_next() {
    let peer = Peer::start(Setup::modern()).await;
    let trap = Trap::beside(&peer);
    // Whoever judged one look-up and connected by another would be in the trap.
    let names = Arc::<Answers>::default().with("rebind.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let (http, url) = (guarded(&names, &[]), at("rebind.test", &peer));
    assert_eq!(called(&http, &url).await, Ok(()));
    assert_eq!((names.asked(), peer.calls().len()), (1, 1));
    for _ in 0..3 {
        assert_eq!(called(&http, &url).await, REFUSED);
    }
    assert_eq!((names.asked(), peer.calls().len()), (4, 1));
    assert!(trap.is_untouched());
}

#[tokio::test]
async fn of_several_addresses_only_permitted_ones_are_tried() {
    let peer = Peer::start(Setup::modern()).await;
    let trap = Trap::beside(&peer);
    let names = Arc::<Answers>::default().with("mixed.test", &[&["127.0.0.2", "127.0.0.1"]]);
    let http = guarded(&names, &[]);
    assert_eq!(called(&http, &at("mixed.test", &peer)).await, Ok(()));
    // One that nobody may reach speaks against all of them.
    let with_metadata: [&[&str]; 1] = [&["127.0.0.1", "169.254.169.254"]];
    names.with("meta.test", &with_metadata);
    assert_eq!(called(&http, &at("meta.test", &peer)).await, REFUSED);
    assert_eq!(peer.calls().len(), 1);
    assert!(trap.is_untouched());
}

#[tokio::test]
async fn a_private_address_is_known_in_every_form() {
    let peer = Peer::start(Setup::modern()).await;
    let trap = Trap::beside(&peer);
    for address in [
        "127.0.0.2",
        "::ffff:127.0.0.2",
        "::127.0.0.2",
        "::ffff:0:7f00:2",
        "64:ff9b::7f00:2",
        "64:ff9b:1::7f00:2",
        "2002:7f00:2::1",
        "2001:0:1::80ff:fffd",
        "::1",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "fc00::1",
        "fe80::1",
        "224.0.0.1",
    ] {
        let names = Arc::<Answers>::default().with("any.test", &[&[address]]);
        assert_eq!(
            called(&guarded(&names, &[]), &at("any.test", &peer)).await,
            REFUSED,
            "{address}"
        );
    }
    assert!(trap.is_untouched());
    assert!(peer.journal().is_empty());
}

#[tokio::test]
async fn a_name_does_not_lead_to_ourselves() {
    let peer = Peer::start(Setup::modern()).await;
    let names = Arc::<Answers>::default()
        .with("us.test", &[&["127.0.0.1"]])
        .with("also.test", &[&["::ffff:127.0.0.1"]]);
    let http = guarded(&names, &[peer.address()]);
    for name in ["us.test", "also.test", "127.0.0.1"] {
        assert_eq!(called(&http, &at(name, &peer)).await, REFUSED, "{name}");
    }
    assert!(peer.journal().is_empty());
}

#[tokio::test]
async fn the_operators_list_is_worth_nothing_for_a_name_that_a_peer_named() {
    let peer = Peer::start(Setup::modern()).await;
    let names = Arc::<Answers>::default()
        .with("mcp.test", &[&["127.0.0.1"]])
        .with("elsewhere.test", &[&["127.0.0.1"]]);
    let http = guarded(&names, &[]);
    let reached = async |name: &str| {
        let learned = Destination::Learned { configured_host: "mcp.test".to_owned() };
        let url = at(name, &peer);
        let origin = http.open(&url, learned).unwrap();
        let (headers, body, sent) = (HeaderMap::new(), Bytes::new(), AtomicU32::new(0));
        let reply = origin.send(&Method::GET, &url, &headers, &body, &sent).await;
        reply.map(drop).map_err(|failure| (failure.error.code, failure.ran))
    };
    assert_eq!(reached("mcp.test").await, Ok(()));
    assert_eq!(reached("elsewhere.test").await, REFUSED);
    assert_eq!(peer.journal().len(), 1);
}

#[tokio::test]
async fn an_authorization_server_with_a_private_name_hears_nothing_at_any_step() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedPeer::start(&provider).await;
    let trap = Trap::beside(&server.peer);
    let names = Arc::<Answers>::default().with("as.test", &[&["127.0.0.2"], &["127.0.0.1"]]);
    let oauth = OAuthClient::new(guarded(&names, &[]));
    let issuer = format!("https://as.test:{}", server.peer.address().port());
    let discover = async || oauth.discover(&server.url(), &DiscoverOptions::default()).await;

    server.set(|gate| gate.patch_prm = members(json!({ "authorization_servers": [issuer] })));
    assert!(matches!(discover().await, Err(OAuthFailure::Egress(_))));
    server.set(|gate| gate.patch_prm = members(json!({})));

    // Names of endpoints are judged when they are used.
    provider.set(|knobs| {
        knobs.patch_metadata = members(json!({ "registration_endpoint": format!("{issuer}/r") }));
    });
    let found = discover().await.unwrap();
    let callback = "http://127.0.0.1:9/callback".parse().unwrap();
    let registered = oauth.register(&found.server, &callback, "Bailiwick", &[]).await;
    assert!(matches!(registered, Err(OAuthFailure::Egress(_))));
    assert!(trap.is_untouched());
    assert_eq!(names.asked(), 2);
}

fn members(value: Value) -> serde_json::Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}
