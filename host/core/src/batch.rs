//! What is handed on in one go.
//!
//! Batches are numbered from the seam on, and every stage keeps their order. A batch says what it closes, and only
//! that decides what may be made visible and what may be saved: no checkpoint can be cut inside a transaction, because
//! the batch that cuts it has none to give.

use crate::change::Event;
use crate::position::Lsn;
use crate::schema::RelationId;

/// A range of one table that is read in one go.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct ChunkId {
    pub table: RelationId,
    pub number: u32,
}

/// What is complete once a batch is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Closing {
    /// The transaction goes on in the next batch: a transactional outlet must not show this one alone.
    Open,
    /// Rows of a scan, more of their chunk to follow. May be shown.
    Rows,
    /// The last rows of a chunk.
    Chunk(ChunkId),
    /// Every transaction whose commit record starts before this position. The only thing a checkpoint is made of.
    /// Comes without events too, so that an idle database's log can be recycled.
    Commit(Lsn),
}

/// Changes in the order of the log (of a scan: of the chunk), each in one piece.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Counts from 0 in one life of the engine, without gaps.
    pub number: u64,
    pub events: Vec<Event>,
    pub closing: Closing,
}
