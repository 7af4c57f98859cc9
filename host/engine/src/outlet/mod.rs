//! Where changes go, and the only place that can say that they are durable.
//!
//! An outlet gets batches in their order. It may put several into one transaction of its own, but never ends one where
//! a batch is [`Closing::Open`]: half a source transaction is never visible at a transactional outlet. A transactional
//! outlet writes the checkpoint in the same transaction as the rows, and reports it when it is opened, so that the
//! repetition after a crash has no effect.

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::outcome::Record;
use dovetail_core::position::Lsn;

/// A batch behind the plugins.
#[derive(Debug)]
pub struct Delivery {
    pub number: u64,
    pub records: Vec<Record>,
    pub closing: Closing,
}

/// Proof that something survives a crash of this machine. Only outlets make it; the state saves nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable<T>(T);

impl<T: Copy> Durable<T> {
    pub(in crate::outlet) fn new(value: T) -> Self {
        Self(value)
    }

    pub fn get(&self) -> T {
        self.0
    }
}

/// What became durable by a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    Chunk(Durable<ChunkId>),
    Commit(Durable<Lsn>),
}
