//! What a server says while its answer is waited for, and how its client gets to hear it.

use app::through::{Clocks, FromServer, Reply, Source};
use domain::Error;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::{mpsc, oneshot};

use super::{asker, wish::Wish};
use crate::gateway::{
    Scene,
    eras::Era,
    raw::{self, Members, Object},
};

/// Listens to one server for one client.
pub(in crate::gateway) struct Ears<'a> {
    scene: &'a Scene,
    /// As the person knows it.
    /// `None`: whoever speaks is heard, and asks nothing.
    source: Option<&'a Source>,
    wish: &'a Wish,
    what: What,
    /// Questions that the client has not answered yet.
    asked: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// What is listened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// All that belongs to one request.
    Request,
    /// All that belongs to none.
    Rest,
    /// How far a call is: where many servers are behind one endpoint, nothing else is anybody's.
    Progress,
}

impl<'a> Ears<'a> {
    pub(super) fn new(scene: &'a Scene, source: &'a Source, wish: &'a Wish) -> Self {
        let (what, asked) = (What::Request, FuturesUnordered::new());
        Self { scene, source: Some(source), wish, what, asked }
    }

    /// For the words that belong to no request.
    pub(super) fn standing(scene: &'a Scene, source: &'a Source, wish: &'a Wish) -> Self {
        Self { what: What::Rest, ..Self::new(scene, source, wish) }
    }

    /// For a call of the form with all servers.
    pub(in crate::gateway) fn progress_alone(scene: &'a Scene, wish: &'a Wish) -> Self {
        Self { scene, source: None, wish, what: What::Progress, asked: FuturesUnordered::new() }
    }

    /// Passes on what comes, and never ends.
    pub(in crate::gateway) async fn attend(&mut self, heard: &mut mpsc::Receiver<FromServer>) {
        loop {
            tokio::select! {
                biased;
                Some(()) = self.asked.next() => {}
                said = heard.recv() => match said {
                    Some(said) => self.hear(said).await,
                    None => self.only_questions().await,
                },
            }
        }
    }

    /// Passes on what had come before the answer. Questions are too late by now.
    pub(in crate::gateway) async fn rest(&mut self, heard: &mut mpsc::Receiver<FromServer>) {
        while let Ok(said) = heard.try_recv() {
            if let FromServer::Notification { method, params } = said {
                self.notification(&method, params.as_deref()).await;
            }
        }
    }

    async fn only_questions(&mut self) {
        while self.asked.next().await.is_some() {}
        std::future::pending::<()>().await;
    }

    /// Waits for the client's next answer to a question; pending while there is none.
    pub(super) async fn answered(&mut self) {
        if self.asked.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) async fn hear(&mut self, said: FromServer) {
        match said {
            FromServer::Notification { method, params } => {
                self.notification(&method, params.as_deref()).await;
            }
            FromServer::Request { method, params, reply, clocks } => {
                self.question(&method, params.as_deref(), reply, &clocks).await;
            }
        }
    }

    async fn notification(&mut self, method: &str, params: Option<&RawValue>) {
        let params = match method {
            "notifications/progress" => self.progress(params),
            _ if self.what == What::Progress => None,
            "notifications/message" => self.message(params),
            _ if self.scene.era == Era::Legacy && is_passed_on(method) => {
                Some(params.map_or_else(|| "{}".to_owned(), |params| params.get().to_owned()))
            }
            _ => None,
        };
        if let Some(params) = params {
            self.scene.voice.say(notification(method, &params)).await;
        }
    }

    /// Under the client's own token; nothing without one.
    fn progress(&self, params: Option<&RawValue>) -> Option<String> {
        progress(self.wish.progress.as_deref()?, params?)
    }

    /// Newer clients hear them beside a request that asked for them (MCP 2026-07-28: Logging).
    fn message(&self, params: Option<&RawValue>) -> Option<String> {
        let params = params?;
        if self.scene.era == Era::Modern {
            let least = self.wish.level.filter(|_| self.what == What::Request)?;
            let level = Members::parse(params.get())?.string("level")?;
            if super::wish::Level::of(&level)? < least {
                return None;
            }
        }
        Some(params.get().to_owned())
    }

    async fn question(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        reply: oneshot::Sender<Reply>,
        clocks: &Clocks,
    ) {
        // Dropped, it is refused.
        let Some(source) = self.source else { return };
        match asker(self.scene, source, self.wish).screen(method, params) {
            Ok(params) => self.ask(method, params.as_deref(), reply, clocks).await,
            Err(error) => {
                // The server may have given up: then nobody needs the refusal.
                let _ = reply.send(refusal(&error));
            }
        }
    }

    /// Asks the client. The answer goes straight to who waits for it; meanwhile the clocks stand still.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Option<&str>,
        mut reply: oneshot::Sender<Reply>,
        clocks: &Clocks,
    ) {
        // Newer clients are never sent a request; that is why they declare none to a shared session.
        let Some(session) = self.scene.mcp_session else { return };
        let mut question = self.scene.memory.questions.open(session);
        let pause = clocks.pause();
        if !self.scene.voice.say(request(&question.id(), method, params)).await {
            return;
        }
        let voice = self.scene.voice.clone();
        self.asked.push(Box::pin(async move {
            let _pause = pause;
            tokio::select! {
                answer = question.answered() => {
                    // Taken back at this moment.
                    let _ = reply.send(answer);
                }
                () = reply.closed() => {
                    let params = format!(
                        r#"{{"requestId":{},"reason":"the server needs no answer any more"}}"#,
                        question.id()
                    );
                    voice.say(notification("notifications/cancelled", &params)).await;
                }
            }
        }));
    }
}

/// What an older client may be told besides.
fn is_passed_on(method: &str) -> bool {
    matches!(
        method,
        "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/elicitation/complete"
    )
}

/// The params under another token; `None` for what is no progress.
pub(in crate::gateway) fn progress(token: &str, params: &RawValue) -> Option<String> {
    let members = Members::parse(params.get())?;
    members.get("progressToken")?;
    let mut object = Object::with_capacity(params.get().len() + token.len());
    for (key, value) in members.iter() {
        let value = if raw::is_named(key, "progressToken") { token } else { value.get() };
        object.member(key.get(), value);
    }
    Some(object.end())
}

/// `params` is JSON.
pub(in crate::gateway) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, Value::from(method))
}

fn request(id: &str, method: &str, params: Option<&str>) -> String {
    let method = Value::from(method);
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#),
    }
}

/// A refusal of ours, as the server gets it: -32600 for a request that we do not pass on.
fn refusal(error: &Error) -> Reply {
    let error = json!({ "code": -32_600, "message": error.public });
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Reply::Error(error),
        Err(_) => Reply::Error(RawValue::NULL.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(params: &str) -> Option<String> {
        progress("\"mine\"", serde_json::from_str(params).unwrap())
    }

    #[test]
    fn progress_comes_under_the_clients_own_token() {
        assert_eq!(
            renamed(r#"{"progressToken":7,"progress":0.50,"total":1e2,"message":"\u00e4"}"#)
                .unwrap(),
            r#"{"progressToken":"mine","progress":0.50,"total":1e2,"message":"\u00e4"}"#
        );
        assert_eq!(renamed(r#"{"progress":1}"#), None);
        assert_eq!(renamed("[]"), None);
    }
}
