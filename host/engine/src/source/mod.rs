//! Where changes come from: one module per kind of database.

pub mod mysql;
pub mod postgres;
