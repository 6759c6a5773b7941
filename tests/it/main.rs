#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is how they fail")]

mod broker;
mod discovery;
mod events;
mod gateway;
mod hostile;
mod identity;
mod jobs;
mod kill;
mod nodes;
mod outbound_blobs;
mod outbound_calls;
mod outbound_discovery;
mod outbound_lifecycle;
mod outbound_rmcp;
mod permissions;
mod private_postgres;
mod routes;
mod secrets;
mod self_approval;
mod servers;
mod sessions;
mod setup;
mod tenancy;
mod tidy;
mod up;
