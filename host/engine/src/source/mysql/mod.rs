//! MySQL and MariaDB: preflight, pin, views, scan.

pub mod connection;
pub mod failure;
pub mod identifier;
