//! Support for the tests.

pub mod checker;
