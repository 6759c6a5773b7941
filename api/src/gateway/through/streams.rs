//! Streams of what a server says by itself: GET for older clients, `subscriptions/listen` for newer
//! ones. Every fifteen seconds a stream looks whether its caller may still hear it.

use std::time::Duration;

use app::through::{self, FromServer, Heard, Source, Wishes};
use axum::response::{IntoResponse, Response};
use domain::{Error, json::Sha256Digest, limits};
use rmcp::model::ErrorCode;
use serde_json::{Value, json, value::RawValue};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    ears::{Ears, notification},
    source,
    wish::Wish,
};
use crate::gateway::{
    Scene, about,
    answer::{self, Answer},
    fault::Fault,
    message::{Message, RequestId},
    raw::{self, Members, Object},
    voice::Voice,
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// The standing stream of an older client's upstream session. An error of
/// [`is_not_offered`](through::is_not_offered) where the server has none.
pub(in crate::gateway) async fn get(scene: &Scene) -> Result<Response, Error> {
    let source = source(scene).await?;
    let Some(own) = &scene.own else { return Err(Error::not_found("MCP session")) };
    let heard = through::listen(&scene.api.ctx, &scene.caller, &source, own).await?;
    let pins = Pins::of(scene, &source).await?;
    let (voice, said) = Voice::channel();
    let scene = Scene { voice, ..scene.clone() };
    let wish = Wish::standing(own.askable);
    let work = Box::pin(async move {
        let ears = Ears::standing(&scene, &source, &wish);
        follow(&scene, &source, heard, ears, pins, Form::Everything).await;
        Answer::Silent
    });
    Ok(answer::open(work, said))
}

/// `subscriptions/listen` of a newer client.
pub(in crate::gateway) async fn subscribe(
    scene: &Scene,
    message: &Message<'_>,
    id: &RequestId,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    let (tools, wishes) = match wanted(message) {
        Ok(wanted) => wanted,
        Err(fault) => return fault.into_response(),
    };
    match subscribed(scene, id, tools, wishes).await {
        Ok(response) => response,
        Err(error) => {
            let failed: answer::Work = {
                let id = id.clone();
                Box::pin(std::future::ready(Answer::Refused(id, error)))
            };
            answer::respond(vec![failed], Voice::channel().1, answer::Form::One, refuse).await
        }
    }
}

async fn subscribed(
    scene: &Scene,
    id: &RequestId,
    tools: bool,
    wishes: Wishes,
) -> Result<Response, Error> {
    let source = source(scene).await?;
    let (heard, honoured) =
        through::subscribe(&scene.api.ctx, &scene.caller, &source, tools, wishes).await?;
    let pins = Pins::of(scene, &source).await?;
    let (voice, said) = Voice::channel();
    let scene = Scene { voice, ..scene.clone() };
    let id = id.clone();
    let acknowledged = json!({ "notifications": filter(tools, &honoured) }).to_string();
    let form = Form::Subscription { id: id.clone(), tools, honoured };
    let first = notification(
        "notifications/subscriptions/acknowledged",
        &tagged(&acknowledged, &id).unwrap_or(acknowledged),
    );
    scene.voice.say(first).await;
    let work = Box::pin(async move {
        let wish = Wish::default();
        let ears = Ears::standing(&scene, &source, &wish);
        follow(&scene, &source, heard, ears, pins, form).await;
        // The end of a subscription is its answer (MCP 2026-07-28: Subscriptions, "Graceful Closure").
        let mut meta = about::meta();
        meta[SUBSCRIPTION] = serde_json::from_str(id.json()).unwrap_or(Value::Null);
        let result = json!({ "resultType": "complete", "_meta": meta });
        Answer::result(&id, &result.to_string())
    });
    Ok(answer::open(work, said))
}

/// What a client wants to hear of: changes of tools, which are ours to tell, and the rest.
fn wanted(message: &Message<'_>) -> Result<(bool, Wishes), Fault> {
    let invalid = |words: &str| message.fault(ErrorCode::INVALID_PARAMS, words);
    let Some(wanted) = message.params.object("notifications") else {
        return Err(invalid("params.notifications must be an object"));
    };
    let flag = |name: &str| match wanted.get(name).map(RawValue::get) {
        None | Some("null" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid(&format!("params.notifications.{name} must be a boolean"))),
    };
    let uris: Vec<String> = match wanted.get("resourceSubscriptions") {
        None => Vec::new(),
        Some(uris) => serde_json::from_str(uris.get()).map_err(|_| {
            invalid("params.notifications.resourceSubscriptions must be a list of strings")
        })?,
    };
    let most = limits::SUBSCRIBED_RESOURCES.size();
    if uris.len() > most {
        return Err(invalid(&format!("at most {most} resources can be subscribed to at once")));
    }
    let wishes = Wishes {
        prompts: flag("promptsListChanged")?,
        resources: flag("resourcesListChanged")?,
        uris,
    };
    Ok((flag("toolsListChanged")?, wishes))
}

/// The filter that is honoured.
fn filter(tools: bool, honoured: &Wishes) -> Value {
    let mut filter = json!({});
    for (name, on) in [
        ("toolsListChanged", tools),
        ("promptsListChanged", honoured.prompts),
        ("resourcesListChanged", honoured.resources),
    ] {
        if on {
            filter[name] = json!(true);
        }
    }
    if !honoured.uris.is_empty() {
        filter["resourceSubscriptions"] = json!(honoured.uris);
    }
    filter
}

/// What of the server's words goes into a stream.
enum Form {
    Everything,
    Subscription { id: RequestId, tools: bool, honoured: Wishes },
}

impl Form {
    /// The notification, if it is one of this stream.
    fn of(&self, method: &str, params: Option<&RawValue>) -> Option<String> {
        let Self::Subscription { id, tools, honoured } = self else { return None };
        let wanted = match method {
            TOOLS_CHANGED => *tools,
            "notifications/prompts/list_changed" => honoured.prompts,
            "notifications/resources/list_changed" => honoured.resources,
            "notifications/resources/updated" => !honoured.uris.is_empty(),
            _ => false,
        };
        let params = params.map_or("{}", RawValue::get);
        wanted.then(|| tagged(params, id)).flatten().map(|params| notification(method, &params))
    }
}

/// The params with the subscription that they belong to.
fn tagged(params: &str, id: &RequestId) -> Option<String> {
    let members = Members::parse(params)?;
    let meta = members.object("_meta").unwrap_or_default();
    let mut tagged = Object::with_capacity(96);
    for (key, value) in meta.iter() {
        if !raw::is_named(key, SUBSCRIPTION) {
            tagged.member(key.get(), value.get());
        }
    }
    tagged.member(&format!("\"{SUBSCRIPTION}\""), id.json());
    let mut object = Object::with_capacity(params.len() + 96);
    object.member("\"_meta\"", &tagged.end());
    for (key, value) in members.iter() {
        if !raw::is_named(key, "_meta") {
            object.member(key.get(), value.get());
        }
    }
    Some(object.end())
}

/// Passes on what comes until the server ends it, the node stops, or the caller may hear it no more.
async fn follow(
    scene: &Scene,
    source: &Source,
    mut heard: Heard,
    mut ears: Ears<'_>,
    mut pins: Pins,
    form: Form,
) {
    enum Event {
        Said(FromServer),
        Answered,
        Tick,
    }
    let ctx = &scene.api.ctx;
    let mut tick = interval(Duration::from_millis(limits::PINS_LOOK_MS.default));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut checked_at = Instant::now();
    loop {
        let event = tokio::select! {
            biased;
            () = ctx.draining.cancelled() => return,
            // Before what the server says: a stream that never pauses is looked after all the same.
            _ = tick.tick() => Event::Tick,
            said = heard.next() => match said {
                Some(said) => Event::Said(said),
                None => return,
            },
            () = ears.answered() => Event::Answered,
        };
        match event {
            Event::Answered => {}
            Event::Said(FromServer::Notification { method, params }) => {
                if method == TOOLS_CHANGED {
                    pins.expect_change();
                }
                match &form {
                    Form::Everything => {
                        ears.hear(FromServer::Notification { method, params }).await;
                    }
                    Form::Subscription { .. } => {
                        if let Some(json) = form.of(&method, params.as_deref()) {
                            scene.voice.say(json).await;
                        }
                    }
                }
            }
            Event::Said(question) => ears.hear(question).await,
            Event::Tick => {
                if checked_at.elapsed() >= limits::SSE_COMMENT_MS.millis() {
                    if source.recheck(ctx, &scene.caller).await.is_err() {
                        return;
                    }
                    checked_at = Instant::now();
                }
                if pins.changed(scene, source).await {
                    let json = match &form {
                        Form::Everything => Some(notification(TOOLS_CHANGED, "{}")),
                        Form::Subscription { .. } => form.of(TOOLS_CHANGED, None),
                    };
                    if let Some(json) = json {
                        scene.voice.say(json).await;
                    }
                }
            }
        }
    }
}

/// The tools that the client may have listed. They are our pins, which follow a while after the server's
/// own word: that is passed on at once, and once more when the pins have changed, for a client that was
/// faster than they.
struct Pins {
    digest: Sha256Digest,
    looked_at: Instant,
    expected_until: Option<Instant>,
}

impl Pins {
    async fn of(scene: &Scene, source: &Source) -> Result<Self, Error> {
        let digest = through::tools_digest(&scene.api.ctx, &scene.caller, source).await?;
        Ok(Self { digest, looked_at: Instant::now(), expected_until: None })
    }

    fn expect_change(&mut self) {
        self.expected_until = Some(Instant::now() + limits::DISCOVERY_TIMEOUT_MS.millis());
    }

    /// Looks often while a change is expected, else as often as a stream looks at anything.
    async fn changed(&mut self, scene: &Scene, source: &Source) -> bool {
        let expected = self.expected_until.is_some_and(|until| until > Instant::now());
        if !expected && self.looked_at.elapsed() < limits::SSE_COMMENT_MS.millis() {
            return false;
        }
        self.looked_at = Instant::now();
        let Ok(now) = through::tools_digest(&scene.api.ctx, &scene.caller, source).await else {
            return false;
        };
        if now == self.digest {
            return false;
        }
        self.digest = now;
        self.expected_until = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(json: &str) -> RequestId {
        RequestId::of(serde_json::from_str::<&RawValue>(json).unwrap()).unwrap()
    }

    #[test]
    fn a_subscription_hears_what_it_asked_for_under_its_own_id() {
        let honoured = Wishes { prompts: true, ..Wishes::default() };
        let form = Form::Subscription { id: id("\"s\""), tools: false, honoured };
        let params = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"k":1},"n":1.0}"#;
        let params: &RawValue = serde_json::from_str(params).unwrap();
        assert_eq!(
            form.of("notifications/prompts/list_changed", Some(params)).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"k":1,"io.modelcontextprotocol/subscriptionId":"s"},"n":1.0}}"#
        );
        for other in [TOOLS_CHANGED, "notifications/resources/updated", "notifications/message"] {
            assert!(form.of(other, Some(params)).is_none(), "{other}");
        }
    }
}
