mod definitions;
mod names;
mod pins;
