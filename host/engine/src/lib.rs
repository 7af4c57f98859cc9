//! Performs what `dovetail-core` decides: databases, files, plugins, time.

pub mod cli;
pub mod config;
pub mod delivery;
pub mod driver;
pub mod error;
pub mod exit;
pub mod gaps;
pub mod lanes;
mod offload;
pub mod origin;
pub mod outlet;
pub mod pipeline;
pub mod plugins;
pub mod progress;
pub mod shutdown;
pub mod source;
pub mod spool;
pub mod state;
pub mod status;
pub mod telemetry;
pub mod tls;
