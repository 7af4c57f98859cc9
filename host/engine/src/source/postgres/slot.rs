//! The replication slot.

use dovetail_core::position::Lsn;

use crate::config;

use super::connection::Session;
use super::failure::Failure;

/// What a new slot waits for: a transaction that runs since before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    Session {
        pid: i32,
        xid: Option<String>,
        age_seconds: Option<i64>,
    },
    Prepared {
        gid: String,
        xid: String,
        age_seconds: i64,
    },
    /// The holder of the transaction cannot be seen.
    Transaction {
        xid: String,
    },
}

/// A position from which every later change will be streamed, with the view that holds everything before it.
#[derive(Debug)]
pub struct Pin(());

impl Pin {
    /// The pin: every transaction whose commit record lies before it is in the view, every other will be streamed.
    pub fn position(&self) -> Lsn {
        unimplemented!()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("gave up after {seconds} s of waiting for running transactions; ...")]
    Waiting { seconds: u64, blockers: Vec<Blocker> },
    #[error("slot {0} exists already; ...")]
    Exists(String),
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Creates the slot; `waiting` is told every second what it waits for.
pub async fn create(
    _source: &config::Postgres,
    _waiting: impl FnMut(&[Blocker]) + Send,
) -> Result<Pin, CreateError> {
    unimplemented!()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub plugin: String,
    pub database: Option<String>,
    pub active_pid: Option<i32>,
    pub restart: Option<Lsn>,
    pub confirmed: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: Option<String>,
    /// Why it is lost, where the server says so (17 and later).
    pub invalidation: Option<String>,
}

pub async fn inspect(_session: &Session, _name: &str) -> Result<Option<Slot>, Failure> {
    unimplemented!()
}

/// Drops the slot; one that is not there is no error.
pub async fn drop(_session: &Session, _name: &str) -> Result<(), Failure> {
    unimplemented!()
}
