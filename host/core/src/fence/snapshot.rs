//! PostgreSQL's own description of what a snapshot shows.

use std::fmt;
use std::str::FromStr;

use super::InvalidFence;
use crate::change::Xid;

/// Reads and prints as `pg_current_snapshot()` does: `10:20:10,14,15`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// Sorted, without duplicates, all in `xmin..xmax`.
    running: Vec<u64>,
}

impl Snapshot {
    /// # Errors
    /// When the bounds are crossed, or a running transaction is outside them or out of order.
    pub fn new(xmin: u64, xmax: u64, running: Vec<u64>) -> Result<Self, InvalidFence> {
        let inside = running.iter().all(|xid| (xmin..xmax).contains(xid));
        if xmin == 0 || xmin > xmax || !inside || !running.is_sorted_by(|a, b| a < b) {
            return Err(InvalidFence);
        }
        Ok(Self { xmin, xmax, running })
    }

    /// Whether the view shows what this transaction wrote. For a transaction with subtransactions ask with the
    /// top-level id, which is what the stream carries.
    pub fn contains(&self, Xid(xid): Xid) -> bool {
        xid < self.xmin || (xid < self.xmax && self.running.binary_search(&xid).is_err())
    }

    /// Every transaction below it had ended when the view was opened.
    pub fn ended_before(&self) -> Xid {
        Xid(self.xmin)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (index, xid) in self.running.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{xid}")?;
        }
        Ok(())
    }
}

impl FromStr for Snapshot {
    type Err = InvalidFence;

    fn from_str(text: &str) -> Result<Self, InvalidFence> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidFence);
        let mut parts = text.split(':');
        let (Some(xmin), Some(xmax), Some(running), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidFence);
        };
        let running = match running {
            "" => Vec::new(),
            list => list.split(',').map(number).collect::<Result<_, _>>()?,
        };
        Self::new(number(xmin)?, number(xmax)?, running)
    }
}

impl Xid {
    /// The full id of a transaction that the stream names by its lower 32 bits: the nearest to a full id of the same
    /// time. PostgreSQL never lets ids that are in use drift 2^31 apart, so the nearest is the right one as long as
    /// the reference is any id that was assigned while the log in question was written or kept.
    #[must_use]
    pub fn extend(self, low: u32) -> Self {
        let reference_low = u32::try_from(self.0 & u64::from(u32::MAX)).expect("masked to 32 bits");
        let distance = i64::from(low.wrapping_sub(reference_low).cast_signed());
        // Before the first epoch there is nothing: such an id can only lie ahead.
        let nearest = self.0.checked_add_signed(distance);
        Self(nearest.unwrap_or_else(|| u64::from(low)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    #[test]
    fn a_snapshot_reads_back_what_it_prints() {
        for text in
            ["1:1:", "10:20:10,14,15", "10:20:", "4294967290:4294967400:4294967295,4294967296"]
        {
            assert_eq!(snapshot(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_snapshot_is_refused() {
        let wrong = [
            "",
            ":",
            "::",
            "1:2",
            "1:2:3:4",
            "0:1:",
            "5:4:",
            "1:9:9",
            "3:9:2",
            "1:9:4,4",
            "1:9:5,4",
            "1:9:4,",
            "1:9:,4",
            "1:9:x",
            "-1:9:",
            "1:99999999999999999999:",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Snapshot>(), Err(InvalidFence), "{text}");
        }
    }

    #[test]
    fn a_view_contains_what_had_ended_when_it_was_opened() {
        let snapshot = snapshot("10:20:10,14,15");
        for inside in [1, 9, 11, 13, 16, 19] {
            assert!(snapshot.contains(Xid(inside)), "{inside}");
        }
        for outside in [10, 14, 15, 20, 21, u64::MAX] {
            assert!(!snapshot.contains(Xid(outside)), "{outside}");
        }
    }

    #[test]
    fn a_transaction_id_is_extended_over_the_wrap() {
        const EPOCH: u64 = 1 << 32;
        let extend = |reference: u64, low: u32| Xid(reference).extend(low).0;
        assert_eq!(extend(1000, 1001), 1001);
        assert_eq!(extend(1000, 3), 3);
        assert_eq!(extend(EPOCH - 1, 3), EPOCH + 3, "the stream wrapped after the reference");
        assert_eq!(extend(EPOCH + 3, u32::MAX), EPOCH - 1, "the stream is still behind the wrap");
        assert_eq!(extend(7 * EPOCH + 5, 4), 7 * EPOCH + 4);
        assert_eq!(extend(3, u32::MAX), EPOCH - 1, "nothing lies before the first epoch");
    }

    proptest! {
        #[test]
        fn any_id_within_half_an_epoch_of_the_reference_is_restored(
            reference in (1_u64 << 31)..(1 << 60),
            distance in -((1_i64 << 31) - 1)..(1 << 31),
        ) {
            let id = reference.checked_add_signed(distance).unwrap();
            let low = u32::try_from(id & u64::from(u32::MAX)).unwrap();
            prop_assert_eq!(Xid(reference).extend(low).0, id);
        }
    }
}
