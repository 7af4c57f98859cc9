//! Whose changes these are.
//!
//! Everything durable that the engine leaves somewhere (its state, the checkpoint in an outlet, the id of an event)
//! names its origin, because a position means something in one log only: taken for a position of another server, it
//! would skip changes without a trace.

use std::fmt;

/// A pipeline and the database that it captures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub pipeline: String,
    pub source: Source,
}

/// One log: a database of one server's data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// PostgreSQL's `system_identifier`, which `initdb` makes and a copy of the data directory keeps.
    pub system: String,
    pub database: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "database {} of system {}", self.database, self.system)
    }
}
