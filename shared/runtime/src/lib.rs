//! What a process needs around its work: settings, telemetry, lifecycle, and the private Postgres
//! of `up`. Linux only: the private Postgres reads `/proc`.

pub mod config;
pub mod lifecycle;
pub mod postgres;
pub mod telemetry;
pub mod terminal;
