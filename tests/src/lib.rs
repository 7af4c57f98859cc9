//! Support for the tests.

pub mod checker;
pub mod world;
