//! Fences: what a view contains, in terms that a streamed transaction can be tested against.
//!
//! What these terms are depends on what a server can say of a view:
//!
//! - PostgreSQL describes it exactly ([`Snapshot`]), and the test is the one that the server itself applied to every row
//!   of the view. It never compares a log position with visibility: a transaction's commit record can be in the log (and
//!   in the stream) long before its rows become visible, so no position says what a view holds.
//! - MariaDB gives a view together with the place in the binlog at which it was opened, while no commit is under way:
//!   exactly what starts before that place is in the view. So does a view that is opened under a lock which keeps commits
//!   out. A place that was merely *read* beside a view is no such fence, for the reason above.
//! - MySQL without a lock says which GTIDs had been executed. A set that is the same before and after a view was opened
//!   is what the view contains. (A server adds a GTID to the set after it committed in the engine. So a set that was
//!   read *before* is a lower bound; one that was read *after* may have what the view lacks.)
//!
//! Where a server commits so fast that no view is alone with its description, a *lower bound* is all that can be said: the
//! view shows this, and may show more ([`Fence::AtLeast`]).
//!
//! A transaction that a fence cannot be asked about (of a source's other kind of name) counts as not contained: to emit
//! what is in a view already repeats it, to drop what is not loses it.
//!
//! The stream of PostgreSQL names transactions by 32 bits, a snapshot by 64. [`Xid::extend`] joins them.

mod snapshot;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::snapshot::Snapshot;
use crate::change::{TransactionId, Xid};
use crate::gtid::mysql::GtidSet;
use crate::position::Lsn;

/// The transactions that a view contains.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Fence {
    /// PostgreSQL. Prints as `pg_current_snapshot()` does.
    Snapshot(Snapshot),
    /// Binlog transactions that start before this. Prints as `before 000042:1789`.
    Before(Lsn),
    /// MySQL. Prints as `gtids` and the set.
    Gtids(GtidSet),
    /// The view shows these for certain, and may show others. Prints as `at least` and the fence.
    AtLeast(Box<Fence>),
}

/// What every transaction was up to that might be missing in a view that is opened too early.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// Those with a smaller id.
    Xid(Xid),
    /// Those that start in the log before this.
    Log(Lsn),
    /// These.
    Gtids(GtidSet),
}

/// The text is not what a fence prints as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a fence of the form 10:20:10,14,15, `before 000042:1789` or `gtids` with a set, or `at least` with one of these"
)]
pub struct InvalidFence;

/// A fence of one kind and a mark of another: a defect of the source that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this fence does not say whether a view is behind that mark")]
pub struct Incomparable;

const BEFORE: &str = "before ";
const GTIDS: &str = "gtids ";
const AT_LEAST: &str = "at least ";

impl Fence {
    /// Whether the view shows what this transaction wrote, whose position in the log is `commit`.
    pub fn contains(&self, transaction: &TransactionId, commit: Lsn) -> bool {
        match (self, transaction) {
            (Self::Snapshot(snapshot), TransactionId::Xid(xid)) => snapshot.contains(*xid),
            (Self::Before(place), _) => commit < *place,
            (Self::Gtids(gtids), TransactionId::Gtid(gtid)) => gtids.contains(gtid),
            (Self::AtLeast(fence), _) => fence.contains(transaction, commit),
            _ => false,
        }
    }

    /// Whether the view shows nothing but what the fence contains.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::AtLeast(_))
    }

    /// The same as a lower bound.
    #[must_use]
    pub fn at_least(self) -> Self {
        match self {
            Self::AtLeast(_) => self,
            fence => Self::AtLeast(Box::new(fence)),
        }
    }

    /// Whether the view shows everything up to the mark.
    ///
    /// # Errors
    /// When the two are of different kinds.
    pub fn covers(&self, mark: &Mark) -> Result<bool, Incomparable> {
        match (self, mark) {
            (Self::Snapshot(snapshot), Mark::Xid(xid)) => Ok(*xid <= snapshot.ended_before()),
            (Self::Before(place), Mark::Log(mark)) => Ok(mark <= place),
            (Self::Gtids(gtids), Mark::Gtids(mark)) => Ok(mark.is_subset(gtids)),
            (Self::AtLeast(fence), mark) => fence.covers(mark),
            _ => Err(Incomparable),
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(snapshot) => fmt::Display::fmt(snapshot, f),
            Self::Before(place) => write!(f, "{BEFORE}{place}"),
            Self::Gtids(gtids) => write!(f, "{GTIDS}{gtids}"),
            Self::AtLeast(fence) => write!(f, "{AT_LEAST}{fence}"),
        }
    }
}

impl FromStr for Fence {
    type Err = InvalidFence;

    fn from_str(text: &str) -> Result<Self, InvalidFence> {
        if let Some(fence) = text.strip_prefix(AT_LEAST) {
            let fence: Self = fence.parse()?;
            return if fence.is_exact() { Ok(fence.at_least()) } else { Err(InvalidFence) };
        }
        if let Some(place) = text.strip_prefix(BEFORE) {
            return place.parse().map(Self::Before).map_err(|_| InvalidFence);
        }
        if let Some(gtids) = text.strip_prefix(GTIDS) {
            return gtids.parse().map(Self::Gtids).map_err(|_| InvalidFence);
        }
        text.parse().map(Self::Snapshot)
    }
}

impl TryFrom<String> for Fence {
    type Error = InvalidFence;

    fn try_from(text: String) -> Result<Self, InvalidFence> {
        text.parse()
    }
}

impl From<Fence> for String {
    fn from(fence: Fence) -> Self {
        fence.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtid::mysql;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn fence(text: &str) -> Fence {
        text.parse().unwrap()
    }

    fn gtid(number: u64) -> mysql::Gtid {
        format!("{UUID}:{number}").parse().unwrap()
    }

    fn gtids(intervals: &str) -> GtidSet {
        format!("{UUID}:{intervals}").parse().unwrap()
    }

    fn log(offset: u64) -> Lsn {
        Lsn::binlog(0, 42, offset)
    }

    #[test]
    fn every_kind_of_fence_reads_back_what_it_prints() {
        let set = format!("gtids {UUID}:1-7:9");
        let bound = "at least before 000042:1789";
        for text in
            ["10:20:10,14", "before 000042:1789", "before 1.000042:4", &set, "gtids ", bound]
        {
            assert_eq!(fence(text).to_string(), text);
            let json = serde_json::to_string(&fence(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Fence>(&json).unwrap(), fence(text));
        }
        for wrong in
            ["", "before", "before ", "before 42:4", "gtids", "gtids x", "10:20", "at least "]
        {
            assert_eq!(wrong.parse::<Fence>(), Err(InvalidFence), "{wrong}");
        }
    }

    #[test]
    fn each_kind_is_asked_in_its_own_terms() {
        let snapshot = fence("10:20:14");
        for (xid, inside) in [(13, true), (14, false), (20, false)] {
            assert_eq!(snapshot.contains(&Xid(xid).into(), Lsn::ZERO), inside, "{xid}");
        }
        let before = Fence::Before(log(100));
        let named = TransactionId::Gtid(gtid(8));
        for transaction in [named, TransactionId::Place(log(99))] {
            assert!(before.contains(&transaction, log(99)));
            assert!(
                !before.contains(&transaction, log(100)),
                "it starts where the view was opened"
            );
            assert!(!before.contains(&transaction, Lsn::binlog(0, 43, 4)));
            assert!(!before.contains(&transaction, Lsn::binlog(1, 1, 4)), "after a fail-over");
        }
        let executed = Fence::Gtids(gtids("1-7:9"));
        for (number, inside) in [(7, true), (8, false), (9, true), (10, false)] {
            let transaction = TransactionId::Gtid(gtid(number));
            assert_eq!(executed.contains(&transaction, log(4)), inside, "{number}");
        }
        assert!(!executed.contains(&TransactionId::Place(log(4)), log(4)));
        assert!(!snapshot.contains(&TransactionId::Place(log(4)), log(4)));
    }

    #[test]
    fn a_lower_bound_contains_what_it_is_the_bound_of() {
        let bound = Fence::Gtids(gtids("1-7")).at_least();
        assert!(!bound.is_exact() && Fence::Gtids(gtids("1-7")).is_exact());
        assert_eq!(bound.clone().at_least(), bound);
        for (number, inside) in [(7, true), (8, false)] {
            let transaction = TransactionId::Gtid(gtid(number));
            assert_eq!(bound.contains(&transaction, log(4)), inside, "{number}");
        }
        assert_eq!(bound.covers(&Mark::Gtids(gtids("1-6"))), Ok(true));
        assert_eq!(bound.covers(&Mark::Gtids(gtids("1-8"))), Ok(false));
        assert_eq!("at least at least 10:20:".parse::<Fence>(), Err(InvalidFence));
    }

    #[test]
    fn a_view_is_good_if_it_covers_the_mark() {
        let covers = |fence: &Fence, mark: Mark| fence.covers(&mark);
        let snapshot = fence("10:20:10,14");
        assert_eq!(covers(&snapshot, Mark::Xid(Xid(10))), Ok(true));
        assert_eq!(covers(&snapshot, Mark::Xid(Xid(11))), Ok(false), "10 was running");
        let before = Fence::Before(log(100));
        assert_eq!(covers(&before, Mark::Log(log(100))), Ok(true));
        assert_eq!(covers(&before, Mark::Log(log(101))), Ok(false));
        let executed = Fence::Gtids(gtids("1-7:9"));
        assert_eq!(covers(&executed, Mark::Gtids(gtids("1-5:9"))), Ok(true));
        assert_eq!(covers(&executed, Mark::Gtids(GtidSet::default())), Ok(true));
        assert_eq!(covers(&executed, Mark::Gtids(gtids("1-8"))), Ok(false));
        assert_eq!(covers(&executed, Mark::Log(log(4))), Err(Incomparable));
        assert_eq!(covers(&snapshot, Mark::Log(log(4))), Err(Incomparable));
    }
}
