//! The fences in force, and the verdict on one streamed change.

use crate::change::TransactionId;
use crate::position::Lsn;
use crate::schema::RelationId;

use super::record::{Fenced, Record, Scan};

/// What becomes of a streamed change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    Emit,
    /// The scan of its table may already hold it: emit it as a redelivery.
    Repeat,
    /// The scan of its table already holds it.
    Drop,
}

/// Which changes the scans hold. A copy that misses a retirement gives the same verdicts, only less cheaply: past its
/// horizon a fence contains nothing that the stream still brings.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fences(Vec<(RelationId, Fenced)>);

impl Fences {
    pub fn of(record: &Record) -> Self {
        let fenced = record.tables.values().filter_map(|scan| match scan {
            Scan::Done { relation, fenced } => fenced.clone().map(|fenced| (*relation, fenced)),
            Scan::Due { .. } | Scan::Skipped { .. } => None,
        });
        let mut fences = Self(fenced.collect());
        fences.0.sort_by_key(|(relation, _)| *relation);
        if let Some(checkpoint) = record.checkpoint {
            fences.retire(checkpoint);
        }
        fences
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of a change in the transaction at `commit`.
    pub fn judge(&self, relation: RelationId, transaction: &TransactionId, commit: Lsn) -> Verdict {
        if self.0.is_empty() {
            return Verdict::Emit;
        }
        let index = self.0.binary_search_by_key(&relation, |(relation, _)| *relation);
        let Some((_, fenced)) = index.ok().and_then(|index| self.0.get(index)) else {
            return Verdict::Emit;
        };
        let Fenced { fence, horizon } = fenced;
        if fence.contains(transaction, commit) {
            Verdict::Drop
        } else if !fence.is_exact() && commit < *horizon {
            Verdict::Repeat
        } else {
            Verdict::Emit
        }
    }

    pub(super) fn retire(&mut self, checkpoint: Lsn) {
        self.0.retain(|(_, fenced)| fenced.horizon > checkpoint);
    }
}
