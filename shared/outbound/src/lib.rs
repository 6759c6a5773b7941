//! Everything that leaves the machine: guarded HTTP, MCP clients, OAuth, blobs.
//!
//! **Invariant:** nothing outside this crate connects to an address that a tenant, a configuration
//! or a peer names, and nothing in it does so without [`egress`] having judged the address.

pub mod blobs;
pub mod egress;
pub mod http;
pub mod mcp;
pub mod oauth;
pub mod stdio;

mod words;
