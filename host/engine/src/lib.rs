//! Performs what `dovetail-core` decides: databases, files, plugins, time.

pub mod config;
pub mod outlet;
pub mod source;
pub mod state;
pub mod tls;
