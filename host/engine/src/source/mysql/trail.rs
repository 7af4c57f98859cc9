//! What is known beside each position that may become a checkpoint.
//!
//! A checkpoint is a position, and a position is worth something on one server only. To go on elsewhere, and to see that
//! a server is still the one it was, the state keeps beside it which transactions had been committed and what the last
//! event was. Both are known while the log is read; which of the positions becomes a checkpoint is known much later. So
//! what was new up to each of them is kept until it is asked for, or passed.
//!
//! **Bounded** by the stream's own limits: only the end of a batch can become a checkpoint, every batch in flight
//! counts against the queues that it is in, and the transactions of a batch are intervals of a set.
//!
//! **Behind an open XA transaction** nothing is closed, while other transactions end. Their GTIDs must not be beside the
//! position before them: another server, asked to go on behind that set, would leave out the prepared rows, whose own GTID
//! is among them. So they wait until they are closed, one by one up to [`WAITING_MAX`] and then together: a GTID too few is
//! a transaction that comes again.

use std::collections::VecDeque;

use dovetail_core::change::TransactionId;
use dovetail_core::gtid::mariadb::GtidState;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;

use super::continuity::{Footprint, Gtids};

/// Transactions that wait one by one: some megabytes.
const WAITING_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Trail {
    /// What follows is known of this position: the latest one at or before what was asked for.
    end: Lsn,
    gtids: Gtids,
    footprint: Option<Footprint>,
    /// The latest event at or before it that is known; a position that a heartbeat closed has no footprint of its own.
    known: Option<Footprint>,
    /// Behind that one, in order.
    stretches: VecDeque<Stretch>,
    /// Not closed yet: transactions up to a position.
    waiting: VecDeque<(Lsn, Gtids)>,
}

/// What was committed up to a position, and not before the one of the stretch before it.
#[derive(Debug)]
struct Stretch {
    end: Lsn,
    gtids: Gtids,
    footprint: Option<Footprint>,
}

impl Trail {
    /// At the position that the stream begins at; `head` is what is known instead of a footprint.
    pub(super) fn new(
        end: Lsn,
        gtids: Gtids,
        footprint: Option<Footprint>,
        head: Option<Footprint>,
    ) -> Self {
        let (stretches, waiting) = (VecDeque::new(), VecDeque::new());
        Self { end, gtids, footprint, known: footprint.or(head), stretches, waiting }
    }

    /// A transaction has ended at `end`. Without GTIDs there is nothing to keep.
    pub(super) fn commit(&mut self, end: Lsn, transaction: &TransactionId) {
        if self.gtids == Gtids::None {
            return;
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((end, self.gtids.none_yet()));
        }
        let Some((last_end, gtids)) = self.waiting.back_mut() else { return };
        *last_end = end;
        match (gtids, transaction) {
            (Gtids::Set(set), TransactionId::Gtid(gtid)) => set.insert(*gtid),
            (Gtids::State(state), TransactionId::MariaDb(gtid)) => state.advance(*gtid),
            _ => {}
        }
    }

    /// Everything before `closed` was handed over; the event before it, where it is known.
    pub(super) fn close(&mut self, closed: Lsn, footprint: Option<Footprint>) {
        let mut gtids = self.gtids.none_yet();
        while let Some((_, more)) = self.waiting.pop_front_if(|(end, _)| *end <= closed) {
            gtids.add(&more);
        }
        match self.stretches.back_mut() {
            // Behind an open XA transaction the same position is closed again and again.
            Some(last) if last.end == closed => last.gtids.add(&gtids),
            _ => self.stretches.push_back(Stretch { end: closed, gtids, footprint }),
        }
    }

    /// What is known at or before a position, and at which one. None before it is asked for again.
    ///
    /// They differ where an outlet is ahead of the checkpoint: its position is saved before the log has been read up to
    /// there. An event before another position would be taken for a log that was reset.
    pub(super) fn at(&mut self, position: Lsn) -> (Lsn, &Gtids, Option<Footprint>) {
        while let Some(stretch) = self.stretches.pop_front_if(|stretch| stretch.end <= position) {
            self.end = stretch.end;
            self.gtids.add(&stretch.gtids);
            self.footprint = stretch.footprint;
            self.known = stretch.footprint.or(self.known);
        }
        (self.end, &self.gtids, self.footprint)
    }

    /// What is known instead, where that position has no footprint.
    pub(super) fn head(&self) -> Option<Footprint> {
        self.known.filter(|_| self.footprint.is_none())
    }
}

impl Gtids {
    fn none_yet(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Set(_) => Self::Set(GtidSet::default()),
            Self::State(_) => Self::State(GtidState::default()),
        }
    }

    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Set(set), Self::Set(other)) => set.union(other),
            (Self::State(state), Self::State(other)) => {
                other.gtids().for_each(|gtid| state.advance(gtid));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn lsn(offset: u64) -> Lsn {
        Lsn::binlog(0, 1, offset)
    }

    fn footprint(offset: u64) -> Option<Footprint> {
        Some(Footprint { start: lsn(offset), digest: offset })
    }

    fn set(intervals: &str) -> Gtids {
        Gtids::Set(format!("{UUID}:{intervals}").parse().unwrap())
    }

    #[test]
    fn a_position_gets_what_was_committed_before_it() {
        let mut trail = Trail::new(lsn(1000), set("1-10"), None, None);
        for number in 11..=15 {
            let gtid = format!("{UUID}:{number}").parse().unwrap();
            trail.commit(lsn(number * 100), &TransactionId::Gtid(gtid));
            if number % 2 == 1 {
                trail.close(lsn(number * 100), footprint(number * 100 - 31));
            }
        }
        assert_eq!(trail.at(lsn(1000)), (lsn(1000), &set("1-10"), None));
        assert_eq!(trail.at(lsn(1100)), (lsn(1100), &set("1-11"), footprint(1069)));
        assert_eq!(trail.at(lsn(1250)), (lsn(1100), &set("1-11"), footprint(1069)));
        assert_eq!(trail.at(lsn(9999)), (lsn(1500), &set("1-15"), footprint(1469)));
        assert!(trail.stretches.is_empty());
    }

    #[test]
    fn mariadb_keeps_the_latest_of_each_domain() {
        let mut trail = Trail::new(lsn(200), Gtids::State("0-1-10".parse().unwrap()), None, None);
        for (end, gtid) in [(300, "0-1-11"), (400, "5-2-1"), (500, "0-2-12")] {
            trail.commit(lsn(end), &TransactionId::MariaDb(gtid.parse().unwrap()));
        }
        trail.close(lsn(500), None);
        assert_eq!(trail.at(lsn(500)).1, &Gtids::State("0-2-12,5-2-1".parse().unwrap()));
    }

    #[test]
    fn without_gtids_there_is_a_footprint() {
        let mut trail = Trail::new(lsn(400), Gtids::None, None, None);
        trail.commit(lsn(500), &TransactionId::Place(lsn(400)));
        trail.close(lsn(500), footprint(469));
        assert_eq!(trail.at(lsn(500)), (lsn(500), &Gtids::None, footprint(469)));
    }

    #[test]
    fn a_position_without_a_footprint_has_the_latest_event_before_it() {
        let mut trail = Trail::new(lsn(4), Gtids::None, None, footprint(126));
        assert_eq!((trail.at(lsn(4)).2, trail.head()), (None, footprint(126)));
        trail.close(lsn(500), None);
        trail.close(lsn(600), footprint(569));
        trail.close(lsn(700), None);
        assert_eq!((trail.at(lsn(500)).2, trail.head()), (None, footprint(126)));
        assert_eq!((trail.at(lsn(600)).2, trail.head()), (footprint(569), None));
        assert_eq!((trail.at(lsn(700)).2, trail.head()), (None, footprint(569)));
    }

    #[test]
    fn what_ended_behind_an_open_xa_transaction_waits() {
        let mut trail = Trail::new(lsn(1000), set("1-10"), None, None);
        for number in 11..=14 {
            let gtid = format!("{UUID}:{number}").parse().unwrap();
            trail.commit(lsn(number * 100), &TransactionId::Gtid(gtid));
            // The one that ends at 1200 is prepared and starts at 1150.
            trail.close(lsn((number * 100).min(1150)), None);
        }
        assert_eq!(trail.stretches.len(), 2);
        assert_eq!(trail.at(lsn(1150)).1, &set("1-11"));
        trail.close(lsn(1400), None);
        assert_eq!(trail.at(lsn(1400)).1, &set("1-14"));
    }

    #[test]
    fn too_many_that_wait_are_closed_together() {
        let mut trail = Trail::new(lsn(1000), set("1-10"), None, None);
        let many = u64::try_from(WAITING_MAX).unwrap() + 5;
        for number in 11..11 + many {
            let gtid = format!("{UUID}:{number}").parse().unwrap();
            trail.commit(lsn(number * 100), &TransactionId::Gtid(gtid));
        }
        assert_eq!(trail.waiting.len(), WAITING_MAX);
        let last = 10 + many;
        trail.close(lsn((last - 1) * 100), None);
        assert_eq!(trail.at(lsn(last * 100)).1, &set(&format!("1-{}", last - 6)));
        trail.close(lsn(last * 100), None);
        assert_eq!(trail.at(lsn(last * 100)).1, &set(&format!("1-{last}")));
    }
}
