//! An event that arrives in parts: a compressed transaction too large to be in memory at once.
//!
//! The protocol sends an event of 16 MiB and more in pieces, and a compressed transaction may have a gibibyte. Its rows
//! are unpacked and handed on while it arrives. Its checksum comes last, so by then most of the rows are gone; but not its
//! commit, which is inside the last part. Load-bearing: the checksum is verified when the last part is taken, before
//! anything of that is unpacked. What was handed on of a damaged event is never closed.

use bytes::Bytes;

use super::event::InvalidEvent;
use super::header::{self, CHECKSUM_LENGTH, Checksum, Header, InvalidFrame};
use super::kind;
use super::payload::Payload;
use super::reader::Short;

/// What is known of the parts that have arrived.
pub(super) struct Arriving {
    digest: flate2::Crc,
    /// Bytes before the checksum that have not arrived.
    missing: usize,
    /// As far as it has arrived; `None` where events have none.
    checksum: Option<Vec<u8>>,
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arriving").field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Arriving {
    /// The first part has the whole of the payload's own header.
    pub(super) fn begin(
        first: &Bytes,
        checksum: Checksum,
    ) -> Result<(Header, Payload, Self), InvalidEvent> {
        let header = header::of_part(first).map_err(InvalidFrame::from)?;
        if header.kind != kind::TRANSACTION_PAYLOAD {
            return Err(InvalidEvent::Body { kind: header.kind });
        }
        let (length, checksum) = match checksum {
            Checksum::Absent => (0, None),
            _ => (CHECKSUM_LENGTH, Some(Vec::new())),
        };
        let announced = usize::try_from(header.size).map_err(|_| InvalidFrame::Short)?;
        let missing = announced.checked_sub(length).ok_or(InvalidFrame::Short)?;
        let mut arriving = Self { digest: flate2::Crc::new(), missing, checksum };
        let data = arriving.split(first)?;
        arriving.digest = header::digest(&data);
        arriving.verify()?;
        let body = data.get(header::LENGTH..).ok_or(InvalidFrame::Short)?;
        let payload = Payload::new(&data, body, arriving.missing)?;
        Ok((header, payload, arriving))
    }

    /// What another part has of the payload.
    pub(super) fn take(&mut self, part: &Bytes) -> Result<Bytes, InvalidEvent> {
        let data = self.split(part)?;
        self.digest.update(&data);
        self.verify()?;
        Ok(data)
    }

    pub(super) fn is_whole(&self) -> bool {
        let lacks = |checksum: &Vec<u8>| checksum.len() < CHECKSUM_LENGTH;
        self.missing == 0 && !self.checksum.as_ref().is_some_and(lacks)
    }

    /// Keeps what belongs to the checksum.
    fn split(&mut self, part: &Bytes) -> Result<Bytes, InvalidFrame> {
        let length = part.len().min(self.missing);
        self.missing -= length;
        let behind = part.get(length..).unwrap_or_default();
        match &mut self.checksum {
            Some(checksum) => checksum.extend_from_slice(behind),
            None if behind.is_empty() => {}
            None => return Err(Short.into()),
        }
        Ok(part.slice(..length))
    }

    fn verify(&self) -> Result<(), InvalidFrame> {
        match &self.checksum {
            Some(found) if found.len() > CHECKSUM_LENGTH => Err(InvalidFrame::Short),
            Some(found) if found.len() == CHECKSUM_LENGTH => {
                let fits = *found == self.digest.sum().to_le_bytes();
                if fits { Ok(()) } else { Err(InvalidFrame::Checksum) }
            }
            _ => Ok(()),
        }
    }
}
