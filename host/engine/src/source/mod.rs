//! Where changes come from: one module per kind of database.

mod line;
pub mod mysql;
pub mod postgres;
mod socket;
