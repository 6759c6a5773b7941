//! Questions as the broker asks them, for tests that need no server behind them.

use app::permissions::{NewQuestion, Subject};
use domain::{
    ids::{ExecutionId, PermissionRequestId, ServerId, SessionId, TokenId, ToolId},
    json::Sha256Digest,
};
use uuid::Uuid;

use crate::world::{Person, World};

/// The server that the questions are about. Nothing need be there.
pub const SERVER: &str = "custom-0123456789ab";

/// Whether `tool` may be called with `input` in a session of `person`, for a fresh execution.
#[must_use]
pub fn question(person: &Person, session: SessionId, tool: &str, input: &str) -> NewQuestion {
    NewQuestion {
        session,
        user: person.id,
        token: None,
        execution: ExecutionId(Uuid::new_v4()),
        call_id: "1".to_owned(),
        server: ServerId::from(SERVER),
        server_name: "Weather".to_owned(),
        tool: ToolId::from(tool),
        subject: Subject::Tool(tool.to_owned()),
        resource: format!("{SERVER}/{tool}"),
        definition_hash: Some(Sha256Digest::of(tool.as_bytes())),
        input_digest: Sha256Digest::of(input.as_bytes()),
        input: input.to_owned(),
    }
}

/// The same, by a token whose identical call may take it over.
#[must_use]
pub fn by(token: TokenId, question: NewQuestion) -> NewQuestion {
    NewQuestion { token: Some(token), ..question }
}

/// The same call again: another execution.
#[must_use]
pub fn again(question: &NewQuestion) -> NewQuestion {
    NewQuestion {
        execution: ExecutionId(Uuid::new_v4()),
        call_id: "2".to_owned(),
        ..question.clone()
    }
}

pub async fn ask(world: &World, person: &Person, question: &NewQuestion) -> PermissionRequestId {
    app::permissions::ask(&world.ctx, person.tenant.id, question).await.unwrap()
}
