//! Which lane a change goes by.
//!
//! A lane is one ordered path through the plugins. Every change of a key takes the same lane, so calls of one lane,
//! strictly one after the other, give per-key order inside every plugin. A table without a key uses one lane for all
//! its rows. What has no key of its own (truncate, message) is a barrier: it travels alone, after everything before it
//! and before everything after it.

use std::num::NonZeroU16;

use bytes::BytesMut;
use xxhash_rust::xxh3::xxh3_64;

use crate::change::Change;
use crate::key::write_key;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane(pub u16);

/// Where a change goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    Lane(Lane),
    /// Waits for all lanes, then goes alone by lane 0.
    Barrier,
}

/// Chooses lanes. Holds a scratch buffer, so that no key is allocated on the hot path.
#[derive(Debug)]
pub struct Lanes {
    count: NonZeroU16,
    scratch: BytesMut,
}

impl Lanes {
    pub fn new(count: NonZeroU16) -> Self {
        Self { count, scratch: BytesMut::new() }
    }

    pub fn count(&self) -> usize {
        usize::from(self.count.get())
    }

    pub fn path(&mut self, change: &Change) -> Path {
        let (Some(relation), Some(row)) = (change.relation(), change.keyed_row()) else {
            return Path::Barrier;
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&relation.id.0.to_be_bytes());
        if write_key(relation, row, &mut self.scratch).is_none() {
            self.scratch.truncate(size_of::<u32>());
        }
        let lane = xxh3_64(&self.scratch) % u64::from(self.count.get());
        Path::Lane(Lane(u16::try_from(lane).expect("smaller than the count, which is a u16")))
    }
}
