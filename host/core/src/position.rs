//! Positions in the source's log.
//!
//! A stream is ordered by commit, not by the moment at which a row was written: two transactions that interleave
//! arrive one after the other, in the order of their commit records. A position is therefore the start of the
//! transaction's *commit record* and an ordinal inside the transaction. Many rows share one commit (COPY even writes
//! them at one LSN), so a position without the ordinal cannot tell them apart, and a checkpoint never stands inside a
//! transaction: it is a plain [`Lsn`] before which every commit record has been dealt with.
//!
//! A binlog holds each transaction in one piece, in the order of commit, so its start orders transactions as well as a
//! commit record does, and stands in the record's place: nothing of it lies before its start, and nothing of another
//! one between its start and its end.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A place in a source's log: which file, and the byte offset in it. Ordered as the log is.
///
/// PostgreSQL's write-ahead log is one run of bytes: its file is 0, and a place is written `16/B374D848`. MySQL's and
/// MariaDB's log is a series of files with names that end in a number; `binlog.000042` at byte 1789 is written
/// `000042:1789`. Positions of two servers can't be compared, so every fail-over to another server begins a new *epoch*,
/// which stands before the number once there was one: `1.000042:1789`. What was streamed before it lies before all
/// that follows it, whatever the files of the other server are called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lsn {
    /// Of a binlog: epoch << 32 | number.
    file: u64,
    offset: u64,
}

impl Lsn {
    pub const ZERO: Self = Self::new(0);

    /// A byte of PostgreSQL's log.
    pub const fn new(offset: u64) -> Self {
        Self { file: 0, offset }
    }

    /// A byte of a binlog file. Servers number their files from 1.
    pub fn binlog(epoch: u32, number: u32, offset: u64) -> Self {
        Self { file: u64::from(epoch) << 32 | u64::from(number), offset }
    }

    /// From what [`Self::file`] and [`Self::offset`] say.
    pub const fn from_parts(file: u64, offset: u64) -> Self {
        Self { file, offset }
    }

    /// What positions are compared by before the offset; 0 on PostgreSQL.
    pub const fn file(self) -> u64 {
        self.file
    }

    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// How many fail-overs lie before it.
    pub fn epoch(self) -> u32 {
        u32::try_from(self.file >> 32).expect("half of 64 bits")
    }

    /// Of the binlog file.
    pub fn number(self) -> u32 {
        u32::try_from(self.file & u64::from(u32::MAX)).expect("masked to 32 bits")
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file == 0 {
            return write!(f, "{:X}/{:X}", self.offset >> 32, self.offset & 0xFFFF_FFFF);
        }
        if self.epoch() > 0 {
            write!(f, "{}.", self.epoch())?;
        }
        write!(f, "{:06}:{}", self.number(), self.offset)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is neither two hexadecimal halves joined by a slash, nor a number and an offset joined by a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a log position of the form 16/B374D848 or 000042:1789")]
pub struct InvalidLsn;

impl FromStr for Lsn {
    type Err = InvalidLsn;

    fn from_str(text: &str) -> Result<Self, InvalidLsn> {
        if let Some((high, low)) = text.split_once('/') {
            let high = u32::from_str_radix(high, 16).map_err(|_| InvalidLsn)?;
            let low = u32::from_str_radix(low, 16).map_err(|_| InvalidLsn)?;
            return Ok(Self::new(u64::from(high) << 32 | u64::from(low)));
        }
        let (file, offset) = text.split_once(':').ok_or(InvalidLsn)?;
        let (epoch, number) = file.split_once('.').unwrap_or(("0", file));
        let position = Self::binlog(decimal(epoch)?, decimal(number)?, decimal(offset)?);
        // One place has one text, so that texts may be compared for equality where they are kept.
        if position.to_string() == text { Ok(position) } else { Err(InvalidLsn) }
    }
}

fn decimal<T: FromStr>(text: &str) -> Result<T, InvalidLsn> {
    text.parse().map_err(|_| InvalidLsn)
}

impl TryFrom<String> for Lsn {
    type Error = InvalidLsn;

    fn try_from(text: String) -> Result<Self, InvalidLsn> {
        text.parse()
    }
}

impl From<Lsn> for String {
    fn from(lsn: Lsn) -> Self {
        lsn.to_string()
    }
}

/// The place of one change. Totally ordered within a source; doubles as the identity of a change, so that the same
/// change delivered again after a restart carries the same position.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Position {
    /// Start of the commit record; of a binlog transaction, which is written in one piece, the start of its first
    /// event. A scanned row carries the pin.
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
    fn a_binlog_position_reads_back_what_it_prints() {
        for (lsn, text) in [
            (Lsn::binlog(0, 42, 1789), "000042:1789"),
            (Lsn::binlog(1, 42, 1789), "1.000042:1789"),
            (Lsn::binlog(0, 1_234_567, 5 << 32), "1234567:21474836480"),
            (
                Lsn::binlog(u32::MAX, u32::MAX, u64::MAX),
                "4294967295.4294967295:18446744073709551615",
            ),
        ] {
            assert_eq!(lsn.to_string(), text);
            assert_eq!(text.parse(), Ok(lsn));
            let json = serde_json::to_string(&lsn).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Lsn>(&json).unwrap(), lsn);
        }
        for wrong in [
            ":",
            "42:4",
            "000042:",
            ":4",
            "000042:04",
            "000042:+4",
            "+00042:4",
            "0000042:4",
            "000000:4",
            "0.000042:4",
            "01.000042:4",
            ".000042:4",
            "1.:4",
            "4294967296:4",
            "000042:4:4",
            "000042:-4",
        ] {
            assert_eq!(wrong.parse::<Lsn>(), Err(InvalidLsn), "{wrong}");
        }
    }

    #[test]
    fn files_come_before_offsets_and_epochs_before_files() {
        let ordered = [
            Lsn::ZERO,
            Lsn::binlog(0, 1, u64::MAX),
            Lsn::binlog(0, 2, 4),
            Lsn::binlog(0, 999_999, 4),
            Lsn::binlog(0, 1_000_000, 4),
            Lsn::binlog(1, 1, 4),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b));
        let last = Lsn::binlog(1, 1, 4);
        assert_eq!((last.epoch(), last.number(), last.offset()), (1, 1, 4));
    }

    #[test]
    fn positions_are_ordered_by_commit_before_ordinal() {
        let late_row_of_early_commit = Position { commit: Lsn::new(1), ordinal: 9 };
        let early_row_of_late_commit = Position { commit: Lsn::new(2), ordinal: 1 };
        assert!(late_row_of_early_commit < early_row_of_late_commit);
    }
}
