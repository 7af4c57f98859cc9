//! What proves the engine: private servers, workloads that record what they committed, and the checker.

pub mod checker;
pub mod engine;
pub mod postgres;
pub mod wait;
pub mod workload;
