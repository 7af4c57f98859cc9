//! Where changes come from: one module per kind of database.

mod batcher;
mod line;
pub mod mysql;
pub mod postgres;
mod socket;
