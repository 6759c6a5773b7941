//! The pass-through form of the gateway: one server under its own names, and what only such a form can
//! have: resources, prompts, completion, log messages, subscriptions, questions to the client.
//!
//! Calls go through [`crate::broker`] like all others. What is asked besides ([`ask`], [`listen`]) goes
//! past the same checks and the same admission, without a question and without a record of its own.

mod ask;
mod listen;
mod offer;
mod rounds;
mod session;
mod source;
mod tools;
mod upstream;

pub use ask::{Ask, Refused, ask};
pub use listen::{Heard, Wishes, listen, subscribe};
pub use offer::{Offer, about};
pub use outbound::mcp::{Clocks, FromServer, Relay, Reply, Rpc, is_not_offered, is_session_lost};
pub use rounds::{InputRequest, InputRequired, input_required};
pub use session::{Begun, begin, end, roots_changed};
pub use source::{Source, enter};
pub use tools::{tools, tools_digest};
pub use upstream::{OwnSession, Upstream};
