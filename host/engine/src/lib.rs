//! Performs what `dovetail-core` decides: databases, files, plugins, time.

pub mod config;
mod offload;
pub mod origin;
pub mod outlet;
pub mod source;
pub mod state;
