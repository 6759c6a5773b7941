#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is how they fail")]

mod broker;
mod gateway;
mod outbound_blobs;
mod events;
mod permissions;
mod sessions;
mod outbound_calls;
mod outbound_discovery;
mod outbound_lifecycle;
mod outbound_rmcp;
mod private_postgres;
mod tenancy;
mod identity;
mod routes;
mod setup;
mod tidy;
mod discovery;
mod servers;
mod jobs;
mod nodes;
mod up;
mod kill;
mod secrets;
mod self_approval;
mod hostile;
