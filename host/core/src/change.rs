//! One change of the source, as it crosses every boundary after the decoder.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::gtid::{mariadb, mysql};
use crate::position::{Lsn, Position};
use crate::schema::Relation;
use crate::value::Row;

/// PostgreSQL's 64-bit transaction id: the stream's 32 bits extended by the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Xid(pub u64);

/// The name of a transaction of the stream, as its source gives it. A fence is tested against it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransactionId {
    /// PostgreSQL.
    Xid(Xid),
    /// MySQL with GTIDs.
    Gtid(mysql::Gtid),
    MariaDb(mariadb::Gtid),
    /// A binlog transaction without a GTID: where it starts.
    Place(Lsn),
}

impl TransactionId {
    /// The number that one source counts its transactions with; one without a GTID has none.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Xid(Xid(number)) => Some(*number),
            Self::Gtid(gtid) => Some(gtid.number),
            Self::MariaDb(gtid) => Some(gtid.sequence),
            Self::Place(_) => None,
        }
    }
}

impl From<Xid> for TransactionId {
    fn from(xid: Xid) -> Self {
        Self::Xid(xid)
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(Xid(number)) => fmt::Display::fmt(number, f),
            Self::Gtid(gtid) => fmt::Display::fmt(gtid, f),
            Self::MariaDb(gtid) => fmt::Display::fmt(gtid, f),
            Self::Place(lsn) => fmt::Display::fmt(lsn, f),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// A row of the scan; consumers tell it from a live insert.
    Read,
    Insert,
    Update,
    Delete,
    Truncate,
    Message,
}

impl Operation {
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Insert, Self::Update, Self::Delete, Self::Truncate, Self::Message];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::Message => "message",
        }
    }
}

/// What happened. Rows are complete unless a value says [`Unavailable`](crate::value::Value::Unavailable).
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Read {
        relation: Arc<Relation>,
        after: Row,
    },
    Insert {
        relation: Arc<Relation>,
        after: Row,
        /// Second half of a key change: the old row, of which the key at least is there. What `after` lacks
        /// (unchanged TOAST) only an outlet that still holds the old row can supply, so the halves stay adjacent.
        moved_from: Option<Row>,
    },
    /// The key is the same in both images, though it may be spelled anew (numeric 1.0 as 1.00).
    Update {
        relation: Arc<Relation>,
        /// The whole old row under `REPLICA IDENTITY FULL`; the old key where it is spelled anew; otherwise none.
        before: Option<Row>,
        after: Row,
    },
    Delete {
        relation: Arc<Relation>,
        /// The key at least; the whole row under `REPLICA IDENTITY FULL`.
        before: Row,
        /// First half of a key change: the insert that `moved_from` this row is the next change.
        moved: bool,
    },
    /// Empties the table: a barrier on all lanes. Also stands before the rows of a table that is scanned again.
    Truncate {
        relation: Arc<Relation>,
    },
    /// `pg_logical_emit_message`.
    Message {
        prefix: String,
        content: Bytes,
        transactional: bool,
    },
}

impl Change {
    pub fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Insert { .. } => Operation::Insert,
            Self::Update { .. } => Operation::Update,
            Self::Delete { .. } => Operation::Delete,
            Self::Truncate { .. } => Operation::Truncate,
            Self::Message { .. } => Operation::Message,
        }
    }

    /// The table; a message has none.
    pub fn relation(&self) -> Option<&Arc<Relation>> {
        match self {
            Self::Read { relation, .. }
            | Self::Insert { relation, .. }
            | Self::Update { relation, .. }
            | Self::Delete { relation, .. }
            | Self::Truncate { relation } => Some(relation),
            Self::Message { .. } => None,
        }
    }

    pub fn before(&self) -> Option<&Row> {
        match self {
            Self::Update { before, .. } => before.as_ref(),
            Self::Insert { moved_from, .. } => moved_from.as_ref(),
            Self::Delete { before, .. } => Some(before),
            _ => None,
        }
    }

    pub fn after(&self) -> Option<&Row> {
        match self {
            Self::Read { after, .. } | Self::Insert { after, .. } | Self::Update { after, .. } => {
                Some(after)
            }
            _ => None,
        }
    }

    pub fn after_mut(&mut self) -> Option<&mut Row> {
        match self {
            Self::Read { after, .. } | Self::Insert { after, .. } | Self::Update { after, .. } => {
                Some(after)
            }
            _ => None,
        }
    }

    /// Whether the change is of one row, and so takes that row's lane; all others are barriers.
    pub fn has_lane(&self) -> bool {
        self.keyed_row().is_some()
    }

    /// The row whose key says which lane the change belongs to.
    pub fn keyed_row(&self) -> Option<&Row> {
        match self {
            Self::Delete { before, .. } => Some(before),
            _ => self.after(),
        }
    }
}

/// A change with its place and its transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub position: Position,
    /// Commit time in microseconds since the Unix epoch; of a scanned row, the time of its view.
    pub commit_time_micros: i64,
    /// `None` for a scanned row and for a message outside a transaction.
    pub transaction: Option<TransactionId>,
    /// May have been delivered before: it lies behind the saved checkpoint of an earlier run, or its table is scanned
    /// again.
    pub redelivery: bool,
    pub change: Change,
}

impl Event {
    /// Approximate memory, in bytes; what the limits of batches count.
    pub fn memory_bytes(&self) -> usize {
        let rows = [self.change.before(), self.change.after()];
        let rows: usize = rows.into_iter().flatten().map(Row::memory_bytes).sum();
        let message = match &self.change {
            Change::Message { prefix, content, .. } => prefix.len() + content.len(),
            _ => 0,
        };
        size_of::<Self>() + rows + message
    }
}
