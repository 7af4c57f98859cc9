//! What was recorded of one run: what the database committed, and what was observed of the engine.
//!
//! A history of the explorer is complete. One of a live run leaves out what nobody could see: commit positions of
//! transactions that were never delivered, the moments of saving. The checker judges what is there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dovetail_core::position::{Lsn, Position};

/// One row of one table, by the text of its key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowKey {
    pub table: Arc<str>,
    pub key: Arc<str>,
}

impl RowKey {
    pub fn new(table: impl Into<Arc<str>>, key: impl Into<Arc<str>>) -> Self {
        Self { table: table.into(), key: key.into() }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.table, self.key)
    }
}

/// What a row held. No two writes of one key have the same version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Image {
    pub version: u64,
    /// Digest of all columns; 0 on both sides where only versions are compared.
    pub digest: u64,
}

impl Image {
    pub fn of_version(version: u64) -> Self {
        Self { version, digest: 0 }
    }
}

/// What a committed transaction did, in its order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Write {
    Insert(RowKey, Image),
    Update(RowKey, Image),
    Delete(RowKey),
    /// A new key for a row: delivered as a delete and an insert.
    Move {
        from: RowKey,
        to: RowKey,
        image: Image,
    },
    Truncate(Arc<str>),
}

/// A committed transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transaction {
    /// Its id in the database; what a delivered change is matched by.
    pub id: u64,
    /// Start of the commit record, where it is known.
    pub commit: Option<Lsn>,
    pub writes: Vec<Write>,
}

/// An operation as the outlet received it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    Read,
    Insert,
    Update,
    Delete,
}

/// A change that the outlet made durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Delivered {
    pub position: Position,
    /// `None` for a row of a scan.
    pub transaction: Option<u64>,
    pub row: RowKey,
    pub operation: Operation,
    /// `None` for a delete, and where the outlet cannot tell.
    pub image: Option<Image>,
    pub redelivery: bool,
}

/// What was seen of the engine, in the order in which it was seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Observation {
    Delivered(Delivered),
    /// A table was emptied at the outlet: by a transaction of the source, or (`None`) before the rows of a table that
    /// is scanned again.
    Truncated {
        table: Arc<str>,
        transaction: Option<u64>,
        redelivery: bool,
    },
    /// A transactional outlet made what it received since the last time visible, in one go.
    Shown,
    /// A checkpoint was saved.
    Saved(Lsn),
    /// What committed before is durable in the spool, or was let go of there.
    Spooled(Lsn),
    /// The source was told that it need not keep what committed before.
    Acknowledged(Lsn),
    /// From here on the source can no longer deliver everything that the engine still needs.
    LogLost,
    /// The pipeline stopped by itself.
    Refused,
}

/// What was seen between a start of the engine and its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Life {
    /// The checkpoint that was saved when it started, where it is known.
    pub resumed_from: Option<Lsn>,
    pub observations: Vec<Observation>,
}

pub type Rows = BTreeMap<RowKey, Image>;

/// One run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    /// In an order that is right for every key and every truncated table; commit order is. What the tables held in the
    /// beginning is the work of a first transaction.
    pub transactions: Vec<Transaction>,
    /// Work that was undone, by `ROLLBACK` or to a savepoint; only the images that no other write has.
    pub rolled_back: Vec<(RowKey, Image)>,
    /// What committed before has to be found in the scan, not in the stream.
    pub pin: Option<Lsn>,
    /// The same for tables that were added later.
    pub added: BTreeMap<Arc<str>, Lsn>,
    pub lives: Vec<Life>,
    /// At rest: writers have stopped and the engine has caught up. Otherwise only what can be told before the end is
    /// judged.
    pub at_rest: Option<AtRest>,
}

/// The two ends, when nothing moves any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtRest {
    /// `None` where nothing was scanned, so that the two need not be equal.
    pub source: Option<Rows>,
    /// `None` where the outlet is a log: what was delivered is folded instead.
    pub outlet: Option<Rows>,
}
