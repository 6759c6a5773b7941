//! Questions of servers that older clients were asked, and have not answered yet.
//!
//! They live in this process, as the stream does that they were asked on: one process serves calls
//! (`app::nodes`), so an answer finds its question.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(in crate::gateway) use app::through::Reply;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::gateway::{McpSession, message::RequestId};

/// By MCP session, which only its holder can name, and our id of the question.
type Asked = HashMap<(McpSession, Uuid), oneshot::Sender<Reply>>;

/// The open questions of one process.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Questions(Arc<Mutex<Asked>>);

/// An open question; dropped, it is asked no more.
#[derive(Debug)]
pub(super) struct Question {
    questions: Questions,
    key: (McpSession, Uuid),
    answer: oneshot::Receiver<Reply>,
}

impl Questions {
    pub(super) fn open(&self, session: McpSession) -> Question {
        let key = (session, Uuid::new_v4());
        let (sender, answer) = oneshot::channel();
        self.lock().insert(key, sender);
        Question { questions: self.clone(), key, answer }
    }

    /// Takes an answer of the session. One to no open question is let pass: it may have crossed with
    /// the end of the question.
    pub(in crate::gateway) fn answer(&self, session: McpSession, id: &RequestId, reply: Reply) {
        let id = serde_json::from_str::<String>(id.json()).ok();
        let Some(id) = id.and_then(|id| Uuid::parse_str(&id).ok()) else { return };
        if let Some(asked) = self.lock().remove(&(session, id)) {
            // Nobody waits for it any more: as above.
            let _ = asked.send(reply);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// JSON of the id.
    pub(super) fn id(&self) -> String {
        format!("\"{}\"", self.key.1)
    }

    /// What the client answers. Cancel-safe, and pending for good after that.
    pub(super) async fn answered(&mut self) -> Reply {
        match (&mut self.answer).await {
            Ok(reply) => reply,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.questions.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn id(json: &str) -> RequestId {
        RequestId::of(serde_json::from_str::<&RawValue>(json).unwrap()).unwrap()
    }

    fn reply() -> Reply {
        Reply::Result(RawValue::from_string("{}".to_owned()).unwrap())
    }

    #[tokio::test]
    async fn only_the_session_that_was_asked_answers() {
        let questions = Questions::default();
        let (session, other) = (Uuid::new_v4(), Uuid::new_v4());
        let mut question = questions.open(session);
        let asked = id(&question.id());
        questions.answer(other, &asked, reply());
        questions.answer(session, &id("7"), reply());
        assert_eq!(questions.lock().len(), 1);
        questions.answer(session, &asked, reply());
        assert!(matches!(question.answered().await, Reply::Result(_)));
    }

    #[test]
    fn a_question_that_is_asked_no_more_leaves_nothing() {
        let questions = Questions::default();
        drop(questions.open(Uuid::new_v4()));
        assert!(questions.lock().is_empty());
    }
}
