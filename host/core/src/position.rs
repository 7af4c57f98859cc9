//! Positions in the source's log.
//!
//! A stream is ordered by commit, not by the moment at which a row was written: two transactions that interleave
//! arrive one after the other, in the order of their commit records. A position is therefore the start of the
//! transaction's *commit record* and an ordinal inside the transaction. Many rows share one commit (COPY even writes
//! them at one LSN), so a position without the ordinal cannot tell them apart, and a checkpoint never stands inside a
//! transaction: it is a plain [`Lsn`] before which every commit record has been dealt with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A byte offset in PostgreSQL's write-ahead log, written `16/B374D848`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Lsn(u64);

impl Lsn {
    pub const ZERO: Self = Self(0);

    pub const fn new(offset: u64) -> Self {
        Self(offset)
    }

    pub const fn offset(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not two hexadecimal halves joined by a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a log position of the form 16/B374D848")]
pub struct InvalidLsn;

impl FromStr for Lsn {
    type Err = InvalidLsn;

    fn from_str(text: &str) -> Result<Self, InvalidLsn> {
        let (high, low) = text.split_once('/').ok_or(InvalidLsn)?;
        let high = u32::from_str_radix(high, 16).map_err(|_| InvalidLsn)?;
        let low = u32::from_str_radix(low, 16).map_err(|_| InvalidLsn)?;
        Ok(Self(u64::from(high) << 32 | u64::from(low)))
    }
}

/// The place of one change. Totally ordered within a source; doubles as the identity of a change, so that the same
/// change delivered again after a restart carries the same position.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Position {
    /// Start of the commit record. A scanned row carries the pin.
    pub commit: Lsn,
    /// Counts the changes of a transaction from 1; both halves of a key change have one of their own. 0 is a scanned
    /// row, which its key identifies.
    pub ordinal: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.commit, self.ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_reads_back_what_it_prints() {
        for offset in [0, 1, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX] {
            let lsn = Lsn::new(offset);
            assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
        for wrong in ["", "/", "1", "1/", "g/0", "1/100000000", "1/2/3"] {
            assert_eq!(wrong.parse::<Lsn>(), Err(InvalidLsn), "{wrong}");
        }
    }

    #[test]
    fn positions_are_ordered_by_commit_before_ordinal() {
        let late_row_of_early_commit = Position { commit: Lsn::new(1), ordinal: 9 };
        let early_row_of_late_commit = Position { commit: Lsn::new(2), ordinal: 1 };
        assert!(late_row_of_early_commit < early_row_of_late_commit);
    }
}
