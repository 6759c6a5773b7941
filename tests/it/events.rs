//! What happened in a session, replayed exactly.

use std::time::Duration;

use domain::{Role, ids::SessionId};
use futures::StreamExt;
use reqwest::Response;
use serde_json::{Value, json};
use store::Tx;
use tests::world::{Person, World, eventually};

struct Room {
    world: World,
    ann: Person,
    token: String,
    session: SessionId,
}

impl Room {
    async fn new() -> Self {
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        let ann = world.user(&acme, "ann@acme.test", Role::Member).await;
        let token = world.token(&ann, "api:read,api:write").await;
        let (_, session) = world.post(&token, "/api/sessions", json!({})).await;
        let session = session["id"].as_str().unwrap().parse().unwrap();
        Self { world, ann, token, session }
    }

    async fn begin(&self) -> Tx {
        self.world.ctx.db.begin(self.ann.tenant.id).await.unwrap()
    }

    async fn write(&self, tx: &mut Tx, kind: &str) {
        let data = json!({ "kind": kind });
        store::events::append(tx, self.session, kind, &data, self.world.ctx.now()).await.unwrap();
    }

    /// One event in a transaction of its own, with its hint.
    async fn happen(&self, kind: &str) {
        let mut tx = self.begin().await;
        self.write(&mut tx, kind).await;
        tx.commit().await.unwrap();
        self.world.ctx.signals.hint(app::signals::Hint::Events(self.session));
    }

    async fn page(&self, query: &str) -> Value {
        let path = format!("/api/sessions/{}/events{query}", self.session);
        let (status, page) = self.world.get(&self.token, &path).await;
        assert_eq!(status, 200, "{page}");
        page
    }

    /// The events as they stand once there are `count`: others' transactions may hold them back.
    async fn settled(&self, count: usize) -> Vec<Value> {
        eventually("the events can be read", async || {
            let page = self.page("?limit=200").await;
            let items = page["items"].as_array().unwrap();
            (items.len() >= count).then(|| items.clone())
        })
        .await
    }

    async fn stream(&self, query: &str, last_event_id: Option<&str>) -> Feed {
        let path = format!("/api/sessions/{}/events{query}", self.session);
        let mut request = self
            .world
            .client()
            .get(self.world.url.join(&path).unwrap())
            .bearer_auth(&self.token)
            .header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Feed::of(response)
    }
}

/// A stream of events as a client reads it.
struct Feed {
    bytes: futures::stream::BoxStream<'static, String>,
    read: String,
}

impl Feed {
    fn of(response: Response) -> Self {
        let bytes = response
            .bytes_stream()
            .map(|bytes| String::from_utf8(bytes.unwrap().to_vec()).unwrap())
            .boxed();
        Self { bytes, read: String::new() }
    }

    /// The next event (comments are passed over); `None`: the stream ended.
    async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(Duration::from_secs(20), self.next_ever()).await.unwrap()
    }

    async fn next_ever(&mut self) -> Option<Value> {
        loop {
            while let Some((block, rest)) = self.read.split_once("\n\n") {
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                };
                let event = field("data: ").map(|data| {
                    let event: Value = serde_json::from_str(&data).unwrap();
                    assert_eq!(event["id"].as_str(), field("id: ").as_deref());
                    event
                });
                let rest = rest.to_owned();
                self.read = rest;
                if event.is_some() {
                    return event;
                }
            }
            self.read.push_str(&self.bytes.next().await?);
        }
    }

    async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(kind(&self.next().await.unwrap()));
        }
        kinds
    }
}

fn kind(event: &Value) -> String {
    event["type"].as_str().unwrap().to_owned()
}

fn kinds(events: &[Value]) -> Vec<String> {
    events.iter().map(kind).collect()
}

#[tokio::test]
async fn events_are_paged_oldest_first() {
    let room = Room::new().await;
    for name in ["a", "b", "c"] {
        room.happen(name).await;
    }
    let all = room.settled(3).await;
    assert_eq!(kinds(&all), ["a", "b", "c"]);
    assert_eq!(all[0]["data"], json!({ "kind": "a" }));
    assert!(all[0]["at"].is_string());
    let first = room.page("?limit=2").await;
    assert_eq!(kinds(first["items"].as_array().unwrap()), ["a", "b"]);
    let second = room.page(&format!("?limit=2&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!(kinds(second["items"].as_array().unwrap()), ["c"]);
    assert!(second["next"].is_null());
    let nothing = room.page(&format!("?after={}", all[2]["id"].as_str().unwrap())).await;
    assert_eq!(nothing, json!({ "items": [], "next": null }));
}

#[tokio::test]
async fn what_was_never_an_id_is_refused() {
    let room = Room::new().await;
    for after in ["x", "1", "1-", "-1-2", "01-2", "1-2-3", "99999999999999999999-1"] {
        let path = format!("/api/sessions/{}/events?after={after}", room.session);
        let (status, problem) = room.world.get(&room.token, &path).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("INVALID_INPUT")), "{after}");
    }
}

#[tokio::test]
async fn a_later_transaction_is_not_read_past_an_earlier_one_that_still_runs() {
    let room = Room::new().await;
    let (mut earlier, mut later) = (room.begin().await, room.begin().await);
    room.write(&mut earlier, "earlier").await;
    room.write(&mut later, "later").await;
    later.commit().await.unwrap();
    assert_eq!(room.page("").await["items"], json!([]), "it would hide what comes before it");
    room.write(&mut earlier, "earlier still").await;
    earlier.commit().await.unwrap();
    assert_eq!(kinds(&room.settled(3).await), ["earlier", "earlier still", "later"]);
}

#[tokio::test]
async fn an_earlier_transaction_is_read_as_soon_as_it_is_the_oldest() {
    let room = Room::new().await;
    let (mut earlier, mut later) = (room.begin().await, room.begin().await);
    room.write(&mut earlier, "earlier").await;
    room.write(&mut later, "later").await;
    earlier.commit().await.unwrap();
    let seen = room.settled(1).await;
    assert_eq!(kinds(&seen), ["earlier"]);
    later.commit().await.unwrap();
    let after = format!("?after={}", seen[0]["id"].as_str().unwrap());
    room.settled(2).await;
    assert_eq!(kinds(room.page(&after).await["items"].as_array().unwrap()), ["later"]);
}

#[tokio::test]
async fn what_rolled_back_never_happened() {
    let room = Room::new().await;
    let mut tx = room.begin().await;
    room.write(&mut tx, "never").await;
    drop(tx);
    room.happen("real").await;
    assert_eq!(kinds(&room.settled(1).await), ["real"]);
}

#[tokio::test]
async fn a_stream_replays_and_goes_on() {
    let room = Room::new().await;
    room.happen("a").await;
    room.happen("b").await;
    let mut feed = room.stream("", None).await;
    assert_eq!(feed.kinds(2).await, ["a", "b"]);
    room.happen("c").await;
    let third = feed.next().await.unwrap();
    assert_eq!(kind(&third), "c");
    drop(feed);
    room.happen("d").await;
    // Last-Event-ID goes before `after`.
    let last = third["id"].as_str().unwrap();
    let mut feed = room.stream("?after=0-0", Some(last)).await;
    assert_eq!(feed.kinds(1).await, ["d"]);
    let mut feed = room.stream(&format!("?after={last}"), None).await;
    assert_eq!(feed.kinds(1).await, ["d"]);
}

#[tokio::test]
async fn a_stream_has_no_gap_and_no_duplicate_whatever_the_order_of_commits() {
    let room = Room::new().await;
    let mut from_the_start = room.stream("", None).await;
    let mut expected = Vec::new();
    let mut last: Option<String> = None;
    for round in 0..4 {
        let (mut one, mut two) = (room.begin().await, room.begin().await);
        let names = [format!("{round}-one"), format!("{round}-two")];
        room.write(&mut one, &names[0]).await;
        room.write(&mut two, &names[1]).await;
        let (first, second) = if round % 2 == 0 { (two, one) } else { (one, two) };
        first.commit().await.unwrap();
        // A reader that has looked between the two commits, when its answer begins.
        let mut between = room.stream("", last.as_deref()).await;
        // No hint of the second: the timer finds it.
        second.commit().await.unwrap();
        let events = [between.next().await.unwrap(), between.next().await.unwrap()];
        assert_eq!(kinds(&events), names);
        last = events[1]["id"].as_str().map(str::to_owned);
        expected.extend(names);
    }
    assert_eq!(from_the_start.kinds(8).await, expected);
}

#[tokio::test]
async fn a_session_tells_of_its_questions_and_their_answers() {
    let room = Room::new().await;
    let approve = room.world.token(&room.ann, "approve").await;
    let asked = tests::questions::question(&room.ann, room.session, "forecast", "{}");
    let id = tests::questions::ask(&room.world, &room.ann, &asked).await;
    let path = format!("/api/permission-requests/{id}/decision");
    let body = json!({ "decision": "allow_matching" });
    let (status, answer) = room.world.post(&approve, &path, body).await;
    assert_eq!(status, 200, "{answer}");
    let events = room.settled(3).await;
    assert_eq!(kinds(&events), ["permission.requested", "grant.created", "permission.resolved"]);
    assert_eq!(events[0]["data"]["permissionRequestId"], id.to_string());
    assert_eq!(events[2]["data"]["state"], "allowed");
    assert_eq!(events[2]["data"]["source"], "user_grant");
    let authorization = &answer["authorization"]["id"];
    assert_eq!(&events[2]["data"]["permissionAuthorizationId"], authorization);
}

#[tokio::test]
async fn a_stream_ends_when_the_node_drains() {
    let room = Room::new().await;
    let mut feed = room.stream("", None).await;
    room.world.ctx.draining.cancel();
    assert_eq!(feed.next().await, None);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let room = Room::new().await;
    let mut feed = room.stream("", None).await;
    room.happen("a").await;
    assert_eq!(feed.kinds(1).await, ["a"]);
    sqlx::query("UPDATE api_tokens SET revoked_at = now()")
        .execute(&room.world.owner().await)
        .await
        .unwrap();
    // Seen with the next check of the caller, 15 s after the stream began.
    assert_eq!(feed.next().await, None);
}
