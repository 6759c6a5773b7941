//! Pure rules of the service: identifiers, states, policy, limits, errors.
//!
//! **Invariant:** nothing here does I/O, reads a clock or draws randomness; every function takes
//! `now` and identifiers from its caller. Its tests need no runtime and no database.

pub mod access_token;
pub mod audit;
pub mod builtin;
pub mod caller;
pub mod company;
pub mod connection;
pub mod delegation;
pub mod elicitation;
pub mod error;
pub mod event;
pub mod ids;
pub mod invocation;
pub mod jobs;
pub mod json;
pub mod limits;
pub mod permission;
pub mod schema;
pub mod server;
pub mod session;
pub mod token;
pub mod tool;
pub mod user;
pub mod web_session;

pub use caller::{Caller, Reach, Role, Scope, Scopes, Via};
pub use error::{Code, Error, Retry};

/// Points in time, always UTC.
pub type Timestamp = chrono::DateTime<chrono::Utc>;
