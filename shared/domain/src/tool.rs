//! Tools of servers: names, definitions, pins.
//!
//! What a server says about its tool is a peer's word: it is read, bounded, pinned by its digest,
//! and shown with whatever hides in it made visible or taken out.

mod definition;
mod diff;
mod headers;
mod listing;
mod names;
mod pin;
mod problem;
mod text;

pub use definition::{Definition, UnusableTool};
pub use diff::{Change, Diff, diff, reveal_definition};
pub use listing::listed;
pub use names::{agent_name, assign_ids, display_name, looks_alike};
pub use pin::{Discovery, KnownTool, Pin, Pinned, ToolChange, reconcile};
pub use problem::ToolProblem;
pub(crate) use text::is_hidden;
pub use text::{escaped, revealed, visible_text};

#[cfg(test)]
mod tests;
