mod definitions;
mod headers;
mod names;
mod pins;
