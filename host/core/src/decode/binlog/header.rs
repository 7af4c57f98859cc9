//! The common header of every event, and its checksum.
//!
//! Which events carry a checksum is said by the file's `FORMAT_DESCRIPTION`, whose own last four bytes are always kept
//! for one. What a server makes up for its reader (the artificial `ROTATE` before a file, heartbeats) goes by what the
//! reader asked for instead, which can differ from the file at hand; such an event has a checksum iff its last four
//! bytes are the right one.

use super::kind;
use super::reader::{Reader, Short};

/// Bytes of a header. Longer ones were foreseen and never came.
pub const LENGTH: usize = 19;
pub(super) const CHECKSUM_LENGTH: usize = 4;
const FLAGS_AT: usize = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Seconds since the Unix epoch.
    pub timestamp: u32,
    /// See [`kind`](super::kind).
    pub kind: u8,
    pub server: u32,
    /// Of the whole event.
    pub size: u32,
    /// The lower half of the event's end in its file; 0 in an event that is in no file.
    pub end: u32,
    pub flags: u16,
}

impl Header {
    /// The file is being written. It was not set when the checksum was computed.
    const IN_USE: u16 = 0x01;
    /// Made up for the reader.
    const ARTIFICIAL: u16 = 0x20;
    /// A reader that does not know the type may pass over the event.
    const IGNORABLE: u16 = 0x80;

    /// Stands in a file; otherwise the server made it up for its reader. A heartbeat's end is that of the latest event.
    pub fn is_logged(&self) -> bool {
        let is_heartbeat = matches!(self.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2);
        self.end != 0 && self.flags & Self::ARTIFICIAL == 0 && !is_heartbeat
    }

    pub fn is_ignorable(&self) -> bool {
        self.flags & Self::IGNORABLE != 0
    }
}

/// Definite: what arrived is not what the server wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFrame {
    #[error("event that ends too early")]
    Short,
    #[error("event of {announced} bytes that has {found}")]
    Size { announced: u32, found: usize },
    #[error("event whose checksum does not fit; the binary log or the connection is damaged")]
    Checksum,
}

impl From<Short> for InvalidFrame {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// Whether an event ends in a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Absent,
    Present,
    /// There, and of no meaning.
    Unused,
    /// There iff it fits.
    Guessed,
}

pub fn header(event: &[u8]) -> Result<Header, InvalidFrame> {
    let header = of_part(event)?;
    if usize::try_from(header.size) != Ok(event.len()) {
        return Err(InvalidFrame::Size { announced: header.size, found: event.len() });
    }
    Ok(header)
}

/// The header of an event whose rest may be missing.
pub(super) fn of_part(event: &[u8]) -> Result<Header, Short> {
    let mut reader = Reader::new(event);
    Ok(Header {
        timestamp: reader.u32()?,
        kind: reader.u8()?,
        server: reader.u32()?,
        size: reader.u32()?,
        end: reader.u32()?,
        flags: reader.u16()?,
    })
}

/// What stands between the header and the checksum.
pub(super) fn body(event: &[u8], checksum: Checksum) -> Result<&[u8], InvalidFrame> {
    let behind = event.get(LENGTH..).ok_or(InvalidFrame::Short)?;
    if checksum == Checksum::Absent {
        return Ok(behind);
    }
    let split = behind.split_last_chunk::<CHECKSUM_LENGTH>();
    let (body, fits) = match split {
        Some((body, found)) => (body, checksum == Checksum::Unused || crc32(event) == *found),
        None => (behind, false),
    };
    match checksum {
        Checksum::Guessed if !fits => Ok(behind),
        _ if split.is_none() => Err(InvalidFrame::Short),
        _ if !fits => Err(InvalidFrame::Checksum),
        _ => Ok(body),
    }
}

/// Of everything but the last four bytes.
fn crc32(event: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    let end = event.len().saturating_sub(CHECKSUM_LENGTH);
    digest(event.get(..end).unwrap_or_default()).sum().to_le_bytes()
}

/// Of an event's beginning.
pub(super) fn digest(event: &[u8]) -> flate2::Crc {
    let mut digest = flate2::Crc::new();
    match event.split_at_checked(FLAGS_AT) {
        Some((before, [flags, behind @ ..])) => {
            let in_use = Header::IN_USE.to_le_bytes()[0];
            digest.update(before);
            digest.update(&[flags & !in_use]);
            digest.update(behind);
        }
        _ => digest.update(event),
    }
    digest
}
