//! Performs what `dovetail-core` decides: databases, files, plugins, time.

pub mod config;
pub mod lanes;
mod offload;
pub mod origin;
pub mod outlet;
pub mod plugins;
pub mod source;
pub mod state;
pub mod tls;
