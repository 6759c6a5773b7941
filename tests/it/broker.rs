//! The one path of every tool call, on a real database against a server written by hand.

mod death;
mod limits;
mod permits;
mod pseudo;
mod record;
mod rounds;
mod withdrawn;

use app::{
    broker::{self, Asked, Asking, CallRequest, Called, Outcome, Running},
    through::Upstream,
};
use bytes::Bytes;
use domain::{
    Caller, Error,
    ids::{ExecutionId, ServerId},
    invocation::Origin,
    json::{self, Sha256Digest},
    permission::ApprovalMode,
};
use serde_json::{Value, json, value::RawValue};
use tests::peer::{Peer, Setup};

use crate::gateway::{Gateway, caller};

/// A governed world and the person whose agent calls.
pub(crate) struct Calls {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Caller,
}

impl Calls {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::modern(), ApprovalMode::AlwaysAllow, json!({})).await
    }

    /// With the server's limits as a form has them.
    pub(crate) async fn with(setup: Setup, mode: ApprovalMode, governance: Value) -> Self {
        let gateway = Gateway::new(setup).await;
        let agent = caller(&gateway.world, &gateway.token).await;
        let calls = Self { gateway, agent };
        calls.configure(json!({ "governance": governance })).await;
        if mode == ApprovalMode::AskForDangerous {
            calls.gateway.ask_first().await;
        }
        calls
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.gateway.peer
    }

    pub(crate) fn server(&self) -> &ServerId {
        &self.gateway.server
    }

    /// Saves the server with these fields instead of the ones it was made with.
    pub(crate) async fn configure(&self, fields: Value) {
        let world = &self.gateway.world;
        let shown = app::servers::get(&world.ctx, &self.gateway.owner, "demo").await.unwrap();
        let app::servers::Shown::Configured(configured) = shown else { panic!("not configured") };
        let mut form = json!({
            "name": "demo", "slug": "demo", "transport": "http", "url": self.peer().url(),
            "authMode": "none", "enabled": true, "revision": configured.server.form_revision,
        });
        for (name, value) in fields.as_object().unwrap() {
            form[name] = value.clone();
        }
        let form = serde_json::from_value(form).unwrap();
        app::servers::update(&world.ctx, &self.gateway.owner, "demo", form).await.unwrap();
    }

    pub(crate) fn request(&self, tool: &str, arguments: &str) -> CallRequest {
        CallRequest {
            session: self.gateway.session,
            asked: Asked::Agent(format!("mcp__demo__{tool}")),
            arguments: RawValue::from_string(arguments.to_owned()).unwrap(),
            execution: self.gateway.world.ctx.mint::<ExecutionId>(),
            call_id: "1".to_owned(),
            origin: Origin::Gateway,
            allowed_source_ids: None,
            asking: Asking::Hold { attach: true },
            fits: None,
            upstream: Upstream::default(),
            responses: None,
            cancel_on_hang_up: false,
        }
    }

    pub(crate) fn start(&self, tool: &str, arguments: &str) -> Running {
        broker::start(&self.gateway.world.ctx, &self.agent, self.request(tool, arguments))
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &str) -> Called {
        self.start(tool, arguments).finished().await.unwrap()
    }

    /// What the digest of a request must be.
    pub(crate) fn request_digest(&self, tool: &str, arguments: &str) -> Sha256Digest {
        let input = json::canonical(arguments).unwrap();
        let document = format!(
            r#"{{"input":{},"sourceId":"{}","toolId":"{tool}"}}"#,
            String::from_utf8(input).unwrap(),
            self.server(),
        );
        Sha256Digest::of(document.as_bytes())
    }
}

/// What the server answered.
pub(crate) fn raw(called: Called) -> Bytes {
    match called.outcome.expect("the call was to succeed") {
        Outcome::Done(result) => result.raw,
        waiting => panic!("it waits: {waiting:?}"),
    }
}

pub(crate) fn error(called: Called) -> Error {
    called.outcome.expect_err("the call was to fail")
}
