pub mod peer;
pub mod questions;
pub mod upstream;
pub mod world;
