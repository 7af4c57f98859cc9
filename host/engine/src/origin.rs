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

/// One log: of a database of a PostgreSQL data directory, or of a MySQL or MariaDB server and those that take over from
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub kind: Kind,
    /// PostgreSQL's `system_identifier`, which `initdb` makes and a copy of the data directory keeps. Elsewhere a name of
    /// the server that the pin was taken at; it stays when another one takes over.
    pub system: String,
    /// Empty where one log has all databases of a server.
    pub database: String,
}

/// Which kind of database: what the types of its columns mean follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MySql,
    MariaDb,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MySql, Self::MariaDb];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::MariaDb => "mariadb",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Postgres => write!(f, "database {} of system {}", self.database, self.system),
            Kind::MySql | Kind::MariaDb => write!(f, "{} server {}", self.kind.name(), self.system),
        }
    }
}
