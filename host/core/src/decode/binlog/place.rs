//! Where in the log an event stands.
//!
//! A header holds the lower 32 bits of the event's end, and a file can be longer: one transaction of any size goes into
//! one file. The full offset is the first at or behind the event's earliest possible end that has these lower bits: the
//! earliest is the end of the event before plus this event's size, and later it is where the server left out events (those
//! that were not asked for, by GTID or by type). What the server makes up is in no file and moves nothing.

use super::header::Header;
use crate::position::Lsn;

/// No server leaves out so much without a heartbeat in between; what seems further ahead lies behind.
const GAP_MAX: u64 = 1 << 31;

/// The end of the latest event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: Lsn,
    /// The server has said which file it sends.
    is_known: bool,
}

/// Definite: positions would be wrong from here on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlace {
    #[error("binlog file {file} without a number at its end")]
    FileName { file: String },
    #[error("event that ends at {end} of the file does not follow {at}")]
    Gap { at: Lsn, end: u32 },
}

impl Place {
    pub(super) fn new(from: Lsn) -> Self {
        Self { at: from, is_known: false }
    }

    pub(super) fn at(&self) -> Lsn {
        self.at
    }

    /// Moves behind the event, and gives its start.
    pub(super) fn pass(&mut self, header: &Header) -> Result<Lsn, InvalidPlace> {
        if !header.is_logged() {
            return Ok(self.at);
        }
        let size = u64::from(header.size);
        let gap = InvalidPlace::Gap { at: self.at, end: header.end };
        let earliest = self.at.offset().checked_add(size).ok_or(gap.clone())?;
        let end = extend(header.end, earliest).ok_or(gap.clone())?;
        if end - earliest > GAP_MAX {
            return Err(gap);
        }
        self.at = self.with_offset(end);
        Ok(self.with_offset(end - size))
    }

    /// Moves to a place in a file that the server names; `true` when the log went on in another file. The first that is
    /// made up by the server (not `is_logged`) only says where the dump begins.
    pub(super) fn rotate(
        &mut self,
        file: &str,
        offset: u64,
        is_logged: bool,
    ) -> Result<bool, InvalidPlace> {
        let to = Lsn::binlog(self.at.epoch(), number(file)?, offset);
        let is_next = (self.is_known || is_logged) && to.file() != self.at.file();
        self.at = to;
        self.is_known = true;
        Ok(is_next)
    }

    /// Moves forward in the same file to a place that a heartbeat tells; `true` when it did.
    pub(super) fn forward(
        &mut self,
        file: &str,
        offset: u64,
        is_whole: bool,
    ) -> Result<bool, InvalidPlace> {
        if number(file)? != self.at.number() {
            return Ok(false);
        }
        let lower = u32::try_from(offset & u64::from(u32::MAX)).expect("masked to 32 bits");
        let extended =
            extend(lower, self.at.offset()).filter(|end| end - self.at.offset() < GAP_MAX);
        let offset = if is_whole { Some(offset) } else { extended };
        let Some(offset) = offset.filter(|offset| *offset > self.at.offset()) else {
            return Ok(false);
        };
        self.at = self.with_offset(offset);
        Ok(true)
    }

    fn with_offset(&self, offset: u64) -> Lsn {
        Lsn::binlog(self.at.epoch(), self.at.number(), offset)
    }
}

/// The first offset at or behind `earliest` that ends in these bits.
fn extend(lower: u32, earliest: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    let same = earliest & !(WRAP - 1) | u64::from(lower);
    if same < earliest { same.checked_add(WRAP) } else { Some(same) }
}

/// Of `binlog.000042`.
pub fn number(file: &str) -> Result<u32, InvalidPlace> {
    let invalid = || InvalidPlace::FileName { file: file.to_owned() };
    let (_, number) = file.rsplit_once('.').ok_or_else(invalid)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: u32, end: u32) -> Header {
        Header { timestamp: 0, kind: 2, server: 1, size, end, flags: 0 }
    }

    #[test]
    fn an_offset_goes_on_behind_four_gibibytes() {
        let wrap = 1_u64 << 32;
        let mut place = Place::new(Lsn::binlog(0, 3, wrap - 100));
        assert_eq!(place.pass(&header(60, u32::MAX - 39)), Ok(Lsn::binlog(0, 3, wrap - 100)));
        assert_eq!(place.pass(&header(60, 20)), Ok(Lsn::binlog(0, 3, wrap - 40)));
        assert_eq!(place.at(), Lsn::binlog(0, 3, wrap + 20));
        assert_eq!(place.pass(&header(30, 150)), Ok(Lsn::binlog(0, 3, wrap + 120)), "left out");
    }

    #[test]
    fn what_does_not_follow_is_refused() {
        let mut place = Place::new(Lsn::binlog(0, 3, 1000));
        assert!(matches!(place.pass(&header(60, 1000)), Err(InvalidPlace::Gap { .. })));
        assert_eq!(place.pass(&header(60, 0)), Ok(Lsn::binlog(0, 3, 1000)), "made up");
        assert_eq!(place.at(), Lsn::binlog(0, 3, 1000));
    }

    #[test]
    fn files_are_numbered_at_the_end_of_their_name() {
        assert_eq!(number("binlog.000042"), Ok(42));
        assert_eq!(number("host.name-bin.1000000"), Ok(1_000_000));
        for file in ["", "binlog", "binlog.", "binlog.index", "binlog.+42", "binlog.4294967296"] {
            assert!(number(file).is_err(), "{file}");
        }
    }

    #[test]
    fn the_first_file_is_no_change_of_file() {
        let mut place = Place::new(Lsn::binlog(2, 3, 1000));
        assert_eq!(place.rotate("b.000003", 1000, false), Ok(false));
        assert_eq!(place.rotate("b.000003", 1000, false), Ok(false));
        assert_eq!(place.rotate("b.000004", 4, false), Ok(true));
        assert_eq!(place.at(), Lsn::binlog(2, 4, 4));
    }

    #[test]
    fn a_heartbeat_moves_forward_only_and_in_its_file() {
        let mut place = Place::new(Lsn::binlog(0, 3, (1 << 32) + 5));
        assert_eq!(place.forward("b.000003", 4, false), Ok(false), "five bytes back, not 4 GiB on");
        assert_eq!(place.forward("b.000002", 90, false), Ok(false));
        assert_eq!(place.forward("b.000003", 90, false), Ok(true));
        assert_eq!(place.at().offset(), (1 << 32) + 90);
        assert_eq!(place.forward("b.000003", 90, true), Ok(false));
        assert_eq!(place.forward("b.000003", 1 << 34, true), Ok(true));
    }
}
