//! A process that runs a stdio server until it is killed: `stdio-host PEER MARKER SANDBOX`. Says
//! `ready` when the server has answered.

use std::path::PathBuf;

use outbound::stdio::Sandbox;
use tests::{
    children::{clients, target},
    upstream::{call, tool_call},
};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, marker, sandbox] = arguments.as_slice() else { panic!("three arguments") };
    let sandbox = match sandbox.as_str() {
        "bubblewrap" => Sandbox::Bubblewrap,
        "account" => Sandbox::Account { uid: 61_184, gid: 65_534 },
        _ => Sandbox::None,
    };
    let peer = PathBuf::from(peer);
    let clients = clients(&peer, sandbox);
    let target = target(&peer, &[marker, "stubborn"]);
    call(&clients, &target, tool_call("echo", "{}")).await.expect("the peer answers");
    println!("ready");
    std::future::pending::<()>().await;
}
