//! `conformance-peer [HOST:PORT]`: the MCP server that `make conformance` puts behind the gateway. It prints
//! `ready http://HOST:PORT/mcp` and serves until it is ended.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let listen = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let Ok(listen) = listen.parse() else {
        eprintln!("conformance-peer: {listen:?} is not HOST:PORT");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a machine that runs tests has threads");
    runtime.block_on(async {
        let (url, serving) = tests::conformance::serve(listen).await;
        println!("ready {url}");
        serving.await.expect("it serves until it is ended");
    });
    ExitCode::SUCCESS
}
