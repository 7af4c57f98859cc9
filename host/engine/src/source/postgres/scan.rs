//! Chunks of a view, read in parallel.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dovetail_core::batch::ChunkId;
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;

use super::failure::Failure;

#[derive(Debug)]
pub struct Plan {
    pub tables: Vec<TablePlan>,
}

#[derive(Debug)]
pub struct TablePlan {
    pub relation: Arc<Relation>,
    pub chunks: u32,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub workers: NonZeroU16,
    /// Position of every row.
    pub pin: Lsn,
    /// Marks every row as a possible repetition (an earlier attempt may have delivered it).
    pub redelivery: bool,
}

/// Rows of one chunk, in one piece.
#[derive(Debug)]
pub struct Piece {
    pub relation: Arc<Relation>,
    pub events: Vec<Event>,
    /// The last piece of this chunk.
    pub chunk: Option<ChunkId>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A worker lost its connection, and with it the view.
    #[error("the view is lost; ...")]
    ViewLost(#[source] Failure),
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Counters of a running scan, shared with whoever shows them.
#[derive(Debug, Default)]
pub struct Progress {
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub chunks: AtomicU64,
}

#[derive(Debug)]
pub struct Scan(());

impl Scan {
    /// The next piece, from whichever worker has one; `None` after the last. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Piece>, ScanError> {
        unimplemented!()
    }

    /// Counters in the order of the plan's tables.
    pub fn progress(&self) -> &[(Arc<Relation>, Arc<Progress>)] {
        unimplemented!()
    }
}
