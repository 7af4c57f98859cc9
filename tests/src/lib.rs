//! What proves the engine: private servers, workloads that record what they committed, and the checker.

pub mod postgres;
pub mod wait;
