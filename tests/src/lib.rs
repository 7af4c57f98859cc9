//! Support for the tests.

pub mod corpus;
