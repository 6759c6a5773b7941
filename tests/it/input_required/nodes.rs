//! More than one process: rows and the sealed state are all that they share.

use std::{sync::Arc, time::Duration};

use api::{Api, NodeSettings};
use app::{Ctx, nodes::Kind};
use domain::{invocation::Status, limits, permission::Decision};
use serde_json::{Value, json};
use tests::world::eventually;
use tokio::{net::TcpListener, task::JoinHandle};
use url::Url;

use super::{Asking, says, told};
use crate::{gateway::Reply, nodes::patient};

/// Another process that serves the gateway, on the world's database.
pub(crate) struct Node {
    ctx: Ctx,
    url: Url,
    serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(asking: &Asking, permission_wait: Duration) -> Self {
        let world = &asking.gateway.world;
        let ctx = patient(world, permission_wait);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let node = NodeSettings {
            public_url: url.clone(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
        };
        let api = Api { ctx: ctx.clone(), node: Arc::new(node) };
        let serving =
            tokio::spawn(api::serve(listener, api, ctx.stopping.clone().cancelled_owned()));
        Self { ctx, url, serving }
    }

    async fn waiting(asking: &Asking) -> Self {
        Self::start(asking, limits::PERMISSION_WAIT_SECONDS.seconds()).await
    }

    fn request(&self, asking: &Asking, params: &Value) -> reqwest::RequestBuilder {
        let url = self.url.join(&asking.gateway.path()).unwrap();
        asking.request(&asking.gateway.token, &url, params)
    }

    pub(crate) async fn send(&self, asking: &Asking, params: &Value) -> Reply {
        Reply::of(self.request(asking, params).send().await.unwrap()).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ctx.stopping.cancel();
        self.serving.abort();
    }
}

#[tokio::test]
async fn any_node_goes_on_with_the_call() {
    let asking = Asking::new().await;
    let other = Node::waiting(&asking).await;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let answer = other.send(&asking, &params).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
    assert_eq!(answer["result"]["_meta"]["bailiwick/invocationId"], first.invocation);
    let used = asking.again(1, &first, "accept").await;
    assert_eq!(used["error"]["code"], -32602);
    assert_eq!(asking.gateway.peer.calls().len(), 1);
}

#[tokio::test]
async fn a_call_that_a_living_node_holds_is_not_taken_from_it() {
    let asking = Asking::new().await;
    let (one, two) = (Node::waiting(&asking).await, Node::waiting(&asking).await);
    app::nodes::register(&one.ctx, Kind::Api, "one").await.unwrap();
    let first = asking.begin(1).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let held = one.request(&asking, &params).send().await.unwrap();
    let refused = two.send(&asking, &params).await.json();
    assert_eq!(refused["error"]["data"]["code"], "CONFLICT", "{refused}");
    assert_eq!(refused["error"]["data"]["retryable"], true);
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = Reply::of(held).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
    assert_eq!(asking.gateway.peer.calls().len(), 1);
}

#[tokio::test]
async fn a_call_that_a_dead_node_held_waits_on_for_its_client() {
    let asking = Asking::new().await;
    let (one, two) = (Node::waiting(&asking).await, Node::waiting(&asking).await);
    let first = asking.begin(1).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    // The node is in no table: it is as dead as one whose lease is over. Its reaper-to-be finds
    // nothing to close, since the client can still come back.
    let held = one.request(&asking, &params).send().await.unwrap();
    assert_eq!(app::broker::reap(&two.ctx, 10).await.unwrap(), 0);
    let taken = two.request(&asking, &params).send().await.unwrap();
    let owner = asking.gateway.world.owner().await;
    eventually("the other node has it", async || {
        let holder: uuid::Uuid =
            sqlx::query_scalar("SELECT node_id FROM tool_calls").fetch_one(&owner).await.unwrap();
        (holder == two.ctx.node.0).then_some(())
    })
    .await;
    // The first one is not dead after all: that its client hangs up ends nothing of the other's.
    drop(held);
    one.ctx.stopping.cancel();
    one.ctx.tasks.close();
    one.ctx.tasks.wait().await;
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = Reply::of(taken).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
    let [record] = &asking.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.status, Status::Succeeded);
    assert_eq!(asking.gateway.peer.calls().len(), 1);
}

#[tokio::test]
async fn a_node_that_shuts_down_sends_the_client_on() {
    let asking = Asking::new().await;
    let (one, two) = (Node::waiting(&asking).await, Node::waiting(&asking).await);
    let first = asking.begin(1).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let held = one.request(&asking, &params).send().await.unwrap();
    one.ctx.draining.cancel();
    let again = told(&Reply::of(held).await);
    assert_eq!(again.invocation, first.invocation);
    asking.decide(&first, Decision::AllowOnce).await;
    let params = Asking::params(1, Some(&again.state), None);
    let answer = two.send(&asking, &params).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
}
