//! What tests stand on: a world, upstream peers, an authorization server, questions.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "the harness is test code: a panic is how it says no"
)]

pub mod authorization_server;
pub mod browser;
pub mod children;
pub mod company_issuer;
pub mod conformance;
pub mod peer;
pub mod questions;
pub mod sse_peer;
pub mod stops;
pub mod upstream;
pub mod world;
