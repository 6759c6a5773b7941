pub mod peer;
pub mod upstream;
pub mod world;
