//! Where the stream is cut.

use std::collections::HashSet;

use dovetail_core::batch::Closing;
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use dovetail_core::schema::RelationId;

/// Events of a batch: enough to amortize the hand-over, and the calls behind it.
const BATCH_EVENTS: usize = 512;
/// Bytes of a batch, counted on the wire.
const BATCH_BYTES: usize = 1 << 20;
/// What an event takes beside its bytes on the wire.
const EVENT_BYTES: usize = 256;

/// Events, what they close, and about how much memory they take.
pub(in crate::source) type Cut = (Vec<Event>, Closing, usize);

/// Collects events, and the latest commit among them.
pub(in crate::source) struct Batcher {
    events: Vec<Event>,
    /// Events before this have been looked at.
    seen: usize,
    bytes: usize,
    /// How many of the events were complete at the latest commit that has not been handed over, and what it closes.
    complete: Option<(usize, Lsn)>,
    /// The latest position that was closed; none is closed twice, nor one before it.
    closed: Lsn,
    left_out: HashSet<RelationId>,
}

impl Batcher {
    pub(in crate::source) fn new(from: Lsn) -> Self {
        Self {
            events: Vec::with_capacity(BATCH_EVENTS),
            seen: 0,
            bytes: 0,
            complete: None,
            closed: from,
            left_out: HashSet::new(),
        }
    }

    /// Where the next events go.
    pub(in crate::source) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }

    /// Events may have been appended, from a frame of this size.
    pub(in crate::source) fn grown(&mut self, bytes: usize) {
        if !self.left_out.is_empty() && self.events.len() > self.seen {
            let mut index = 0;
            let (seen, left_out) = (self.seen, &self.left_out);
            self.events.retain(|event| {
                let relation = event.change.relation().map(|relation| relation.id);
                let keep = index < seen || relation.is_none_or(|id| !left_out.contains(&id));
                index += 1;
                keep
            });
        }
        if self.events.len() > self.seen {
            self.bytes += bytes + EVENT_BYTES;
        }
        self.seen = self.events.len();
    }

    /// Everything before `position` has been sent.
    pub(in crate::source) fn commit(&mut self, position: Lsn) {
        if position > self.closed {
            self.closed = position;
            self.complete = Some((self.events.len(), position));
        } else if !self.events.is_empty() {
            self.complete = Some((self.events.len(), self.closed));
        }
    }

    pub(in crate::source) fn capture(&mut self, id: RelationId) {
        self.left_out.remove(&id);
    }

    pub(in crate::source) fn leave_out(&mut self, id: RelationId) {
        self.left_out.insert(id);
    }

    pub(in crate::source) fn is_full(&self) -> bool {
        self.events.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES
    }

    pub(in crate::source) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.complete.is_none()
    }

    /// Everything collected: what is complete, and what of an open transaction follows it.
    pub(in crate::source) fn cut(&mut self, open: bool) -> [Option<Cut>; 2] {
        let bytes = std::mem::take(&mut self.bytes);
        self.seen = 0;
        let complete = self.complete.take();
        if self.events.is_empty() && complete.is_none() {
            return [None, None];
        }
        let mut events = std::mem::replace(&mut self.events, Vec::with_capacity(BATCH_EVENTS));
        let Some((length, position)) = complete else {
            return [Some((events, Closing::Open, bytes)), None];
        };
        let closing = Closing::Commit(position);
        let rest = match open {
            true => events.split_off(length.min(events.len())),
            false => Vec::new(),
        };
        let rest = (!rest.is_empty()).then_some((rest, Closing::Open, 0));
        [Some((events, closing, bytes)), rest]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dovetail_core::change::Change;
    use dovetail_core::position::Position;

    use super::*;

    fn event(commit: u64, ordinal: u32) -> Event {
        Event {
            position: Position { commit: Lsn::new(commit), ordinal },
            commit_time_micros: 0,
            transaction: None,
            redelivery: false,
            change: Change::Message {
                prefix: String::new(),
                content: Bytes::new(),
                transactional: true,
            },
        }
    }

    fn push(batcher: &mut Batcher, commit: u64, ordinal: u32) {
        batcher.events().push(event(commit, ordinal));
        batcher.grown(10);
    }

    fn shape(cut: [Option<Cut>; 2]) -> Vec<(usize, Closing)> {
        cut.into_iter().flatten().map(|(events, closing, _)| (events.len(), closing)).collect()
    }

    #[test]
    fn a_cut_inside_a_transaction_closes_what_was_complete_before() {
        let mut batcher = Batcher::new(Lsn::new(1));
        push(&mut batcher, 10, 1);
        batcher.commit(Lsn::new(20));
        push(&mut batcher, 30, 1);
        push(&mut batcher, 30, 2);
        let commit = Closing::Commit(Lsn::new(20));
        assert_eq!(shape(batcher.cut(true)), [(1, commit), (2, Closing::Open)]);
        push(&mut batcher, 30, 3);
        assert_eq!(shape(batcher.cut(true)), [(1, Closing::Open)]);
        assert!(batcher.is_empty());
        batcher.commit(Lsn::new(40));
        assert_eq!(shape(batcher.cut(false)), [(0, Closing::Commit(Lsn::new(40)))]);
    }

    #[test]
    fn no_position_is_closed_twice_nor_before_the_start() {
        let mut batcher = Batcher::new(Lsn::new(100));
        batcher.commit(Lsn::new(90));
        batcher.commit(Lsn::new(100));
        assert!(batcher.is_empty());
        batcher.commit(Lsn::new(110));
        assert_eq!(shape(batcher.cut(false)), [(0, Closing::Commit(Lsn::new(110)))]);
        batcher.commit(Lsn::new(110));
        assert!(batcher.is_empty());
    }

    #[test]
    fn a_batch_is_full_by_events_and_by_bytes() {
        let mut batcher = Batcher::new(Lsn::new(1));
        for ordinal in 0..512 {
            assert!(!batcher.is_full());
            push(&mut batcher, 10, ordinal);
        }
        assert!(batcher.is_full());
        batcher.cut(true);
        batcher.events().push(event(10, 600));
        batcher.grown(BATCH_BYTES);
        assert!(batcher.is_full());
    }
}
