//! What comes from a source: pieces of tables, then items of the log.

use std::num::NonZeroU16;
use std::sync::Arc;

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};

/// What a view is opened for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The tables that will be scanned in it.
    pub tables: Vec<TableName>,
    /// How many connections will read side by side.
    pub workers: NonZeroU16,
}

/// How a plan is scanned.
#[derive(Debug, Clone)]
pub struct Options {
    /// The position of every row.
    pub pin: Lsn,
    /// An earlier attempt may have delivered these rows.
    pub redelivery: bool,
}

/// Rows of one chunk.
#[derive(Debug)]
pub struct Piece {
    pub relation: Arc<Relation>,
    /// May be empty where a chunk has no rows (any more).
    pub events: Vec<Event>,
    /// Set on the last piece of a chunk.
    pub chunk: Option<ChunkId>,
}

/// What the stream brings.
#[derive(Debug)]
pub enum Item {
    /// A captured table's definition, before its first change and whenever it may have changed.
    Relation(Arc<Relation>),
    /// Changes in the order of the log. `closing` is `Open` or `Commit`; without events it is an idle stretch that may be
    /// checkpointed.
    Batch { events: Vec<Event>, closing: Closing },
}
