//! One file of the spool: a header, then frames.
//!
//! ```text
//! header  "dvspool1"  owner u64  number u64  from (file u64, offset u64)  checksum u64
//! frame   length u32  checksum u64  entry
//! ```
//!
//! Numbers are little-endian. A checksum is over what stands between it and the one before, seeded with the owner and the
//! segment's number: a block that the disk kept from an older file is not taken for one of this.
//!
//! A crash leaves a frame that is not whole at the end of the last segment, and only there: every other one was synced
//! before its successor was made. What a source goes on from is a mark, so the segment ends with its last one, and what
//! follows it is cut off ([`recover`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dovetail_core::envelope::{Decoder, Entry, Kind, Mark};
use dovetail_core::position::Lsn;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::Error;

/// What every version's file begins with. A file of another one is no torn one.
const FAMILY: &[u8] = b"dvspool";
const MAGIC: [u8; 8] = *b"dvspool1";
const HEADER_LENGTH: usize = 48;
pub(super) const HEADER_BYTES: u64 = HEADER_LENGTH as u64;
const FRAME_HEAD_BYTES: usize = 12;
/// Read at once.
const READ_BYTES: usize = 1 << 20;

/// Which pipeline's spool it is, from which pin on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner(pub(super) u64);

/// What a segment says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) owner: Owner,
    pub(super) number: u64,
    /// What starts before stands in the segments before.
    pub(super) from: Lsn,
}

impl Header {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let (file, offset) = (self.from.file(), self.from.offset());
        for number in [self.owner.0, self.number, file, offset] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(xxh3_64_with_seed(&bytes, 0).to_le_bytes());
        bytes
    }

    /// `None`: it is not whole, or none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(40)?;
        let checksum = u64::from_le_bytes(checksum.get(..8)?.try_into().ok()?);
        if xxh3_64_with_seed(body, 0) != checksum || !body.starts_with(&MAGIC) {
            return None;
        }
        let mut numbers = body.get(8..)?.chunks_exact(8);
        let mut number = || numbers.next()?.try_into().ok().map(u64::from_le_bytes);
        let (owner, sequence) = (Owner(number()?), number()?);
        Some(Self { owner, number: sequence, from: Lsn::from_parts(number()?, number()?) })
    }

    fn seed(self) -> u64 {
        self.owner.0 ^ self.number.rotate_left(32)
    }
}

pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.spool"))
}

/// The number in a segment's file name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".spool")?;
    (number.len() == 12).then(|| number.parse().ok()).flatten()
}

/// Appends one frame to a buffer.
///
/// # Errors
/// An entry of 4 GiB or more.
pub(super) fn frame(header: Header, entry: &[u8], buffer: &mut Vec<u8>) -> Result<(), Error> {
    let length = u32::try_from(entry.len());
    let length = length.map_err(|_| Error::EntryTooLarge { bytes: entry.len() })?;
    buffer.extend(length.to_le_bytes());
    buffer.extend(checksum(header, length, entry).to_le_bytes());
    buffer.extend_from_slice(entry);
    Ok(())
}

/// A bit of the length that is wrong shows as well.
fn checksum(header: Header, length: u32, entry: &[u8]) -> u64 {
    xxh3_64_with_seed(entry, header.seed() ^ u64::from(length))
}

/// A frame at the beginning of some bytes.
enum Frame {
    /// With its head.
    Whole { length: usize },
    /// So many bytes are needed, at least.
    Short(usize),
    /// What stands there was never written so.
    Torn,
}

fn parse(header: Header, bytes: &[u8]) -> Frame {
    let Some((head, rest)) = bytes.split_at_checked(FRAME_HEAD_BYTES) else {
        return Frame::Short(FRAME_HEAD_BYTES);
    };
    let (length, sum) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
    let Ok(size) = usize::try_from(length) else { return Frame::Torn };
    let Some(entry) = rest.get(..size) else {
        return Frame::Short(FRAME_HEAD_BYTES.saturating_add(size));
    };
    if checksum(header, length, entry) != sum {
        return Frame::Torn;
    }
    Frame::Whole { length: FRAME_HEAD_BYTES + size }
}

/// A segment as it is found on the disk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) header: Header,
    /// Up to the last mark; what follows is of no use.
    pub(super) bytes: u64,
    pub(super) mark: Mark,
}

/// Looks a segment through for its last whole mark. `None`: there is none, so nothing in it counts.
pub(super) fn recover(path: &Path) -> Result<Option<Found>, Error> {
    let Some(mut reader) = Reader::open(path, HEADER_BYTES)? else { return Ok(None) };
    let header = reader.header;
    let mut found = None;
    while let Read::Frame { entry, next } = reader.next(u64::MAX)? {
        if Kind::of(entry) == Some(Kind::Mark) {
            let Ok(Entry::Mark(mark)) = Decoder::new().decode(entry) else { break };
            found = Some(Found { header, bytes: next, mark });
        }
    }
    Ok(found)
}

/// Reads a segment frame by frame.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    path: PathBuf,
    pub(super) header: Header,
    bytes: Vec<u8>,
    /// Of the first of `bytes`, in the file.
    at: u64,
    used: usize,
}

/// What comes next in a segment.
pub(super) enum Read<'a> {
    Frame {
        entry: &'a [u8],
        /// Where it ends.
        next: u64,
    },
    /// There is nothing more, or what is there is not whole.
    End,
}

impl Reader {
    /// `None`: it has no header.
    pub(super) fn open(path: &Path, at: u64) -> Result<Option<Self>, Error> {
        let failed = |error| Error::io(path, error);
        let file = File::open(path).map_err(failed)?;
        let mut bytes = vec![0; HEADER_LENGTH];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        if bytes.starts_with(FAMILY) && !bytes.starts_with(&MAGIC) {
            return Err(Error::damaged(path, "it was written by another version of dovetail"));
        }
        let Some(header) = Header::parse(&bytes) else { return Ok(None) };
        bytes.clear();
        Ok(Some(Self { file, path: path.to_owned(), header, bytes, at, used: 0 }))
    }

    /// The next frame that ends at or before this place.
    pub(super) fn next(&mut self, end: u64) -> Result<Read<'_>, Error> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            let length = match parse(self.header, rest) {
                Frame::Torn => return Ok(Read::End),
                Frame::Whole { length } => length,
                Frame::Short(needed) => {
                    let more = self.fill(needed, end);
                    if more.map_err(|error| Error::io(&self.path, error))? {
                        continue;
                    }
                    return Ok(Read::End);
                }
            };
            let entry = self.used + FRAME_HEAD_BYTES..self.used + length;
            self.used += length;
            let next = self.at + self.used as u64;
            let entry = self.bytes.get(entry).unwrap_or_default();
            return Ok(Read::Frame { entry, next });
        }
    }

    /// Makes so many bytes available behind those that were used; false where there are not so many.
    fn fill(&mut self, needed: usize, end: u64) -> io::Result<bool> {
        self.bytes.drain(..self.used);
        self.at += self.used as u64;
        self.used = 0;
        let held = self.bytes.len();
        let from = self.at + held as u64;
        let length = self.file.metadata()?.len().min(end);
        let there = usize::try_from(length.saturating_sub(from)).unwrap_or(usize::MAX);
        if there < needed.saturating_sub(held) {
            return Ok(false);
        }
        let more = needed.max(READ_BYTES).saturating_sub(held).min(there);
        self.bytes.resize(held.saturating_add(more), 0);
        let target = self.bytes.get_mut(held..).unwrap_or_default();
        self.file.read_exact_at(target, from)?;
        Ok(true)
    }
}
