//! Tools of servers: names, definitions, pins.
//!
//! What a server says about its tool is a peer's word: it is read, bounded, pinned by its digest,
//! and shown with whatever hides in it made visible or taken out.

mod definition;
mod listing;
mod names;
mod pin;
mod problem;
mod text;

pub use definition::{Definition, UnusableTool};
pub use listing::listed;
pub use names::{agent_name, assign_ids, looks_alike};
pub use pin::{Discovery, KnownTool, Pin, Pinned, ToolChange, reconcile};
pub use problem::ToolProblem;
pub use text::{escaped, visible_text};

#[cfg(test)]
mod tests;
