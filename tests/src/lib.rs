//! What proves the engine: private servers, workloads that record what they committed, the type corpus, and the checker.

pub mod blockade;
mod certificate;
pub mod checker;
pub mod content;
pub mod corpus;
pub mod engine;
pub mod example;
pub mod lines;
pub mod mysql;
pub mod postgres;
pub mod proxy;
pub mod session;
pub mod trial;
pub mod wait;
pub mod workload;
pub mod world;
pub mod writers;
