//! `TRANSACTION_PAYLOAD`: the events of a transaction, compressed as one.
//!
//! A payload is at most as large as one event, but what it holds is a whole transaction, a hundred times as large for
//! rows that resemble each other. So it is unpacked event by event, as the events are asked for: besides the payload
//! itself only one event and the window of the decompressor are in memory. The events inside have no checksum, and
//! their positions mean nothing. A large payload is not even in memory itself: it is unpacked [as it
//! arrives](super::arriving).

use std::collections::VecDeque;
use std::io::{self, BufRead, ErrorKind, Read};

use bytes::{Buf, Bytes};

use super::header;
use super::reader::{Reader, Short};

/// What a server writes at most as one event.
const EVENT_MAX: u32 = 1 << 30;
/// A window of 128 MiB; servers stay far below it at every level that can be set.
const WINDOW_LOG_MAX: u32 = 27;

/// Definite.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPayload {
    #[error("compressed transaction that ends too early")]
    Short,
    #[error("transaction compressed by method {0}, which is not known")]
    Method(u64),
    #[error("compressed transaction with an event of {0} bytes")]
    EventSize(u32),
    #[error("compressed transaction that cannot be unpacked")]
    Unpack(#[source] std::io::Error),
}

impl From<Short> for InvalidPayload {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// The events of a compressed transaction that have not been taken yet.
pub struct Payload {
    bytes: Unpacker,
    /// The event that is being unpacked.
    event: Vec<u8>,
}

enum Unpacker {
    Plain(Packed),
    Zstd(Box<zstd::stream::read::Decoder<'static, Packed>>),
}

/// Bytes that have arrived.
struct Packed {
    parts: VecDeque<Bytes>,
    /// How many have not.
    missing: usize,
}

/// What comes next out of a payload.
#[derive(Debug)]
pub enum Unpacked {
    /// Without a checksum.
    Event(Bytes),
    /// More has to arrive first.
    Starved,
    End,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").finish_non_exhaustive()
    }
}

impl Payload {
    /// `body` is a part of `event`; `missing` bytes of it have not arrived.
    pub(super) fn new(event: &Bytes, body: &[u8], missing: usize) -> Result<Self, InvalidPayload> {
        const ZSTD: u64 = 0;
        const NONE: u64 = 255;
        mod field {
            pub(super) const END: u64 = 0;
            pub(super) const SIZE: u64 = 1;
            pub(super) const METHOD: u64 = 2;
        }
        let mut reader = Reader::new(body);
        let (mut size, mut method) = (None, None);
        loop {
            let kind = reader.packed()?;
            if kind == field::END {
                break;
            }
            let mut content = Reader::new(reader.packed_bytes()?);
            match kind {
                field::SIZE => size = Some(content.packed_length()?),
                field::METHOD => method = Some(content.packed()?),
                // The unpacked size among them, which nothing here depends on.
                _ => {}
            }
        }
        let packed = reader.rest();
        if size != packed.len().checked_add(missing) {
            return Err(InvalidPayload::Short);
        }
        let packed = Packed { parts: [event.slice_ref(packed)].into(), missing };
        let bytes = match method {
            Some(NONE) => Unpacker::Plain(packed),
            Some(ZSTD) => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed);
                let mut decoder = decoder.map_err(InvalidPayload::Unpack)?;
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(InvalidPayload::Unpack)?;
                Unpacker::Zstd(Box::new(decoder))
            }
            other => return Err(InvalidPayload::Method(other.unwrap_or(u64::MAX))),
        };
        Ok(Self { bytes, event: Vec::new() })
    }

    /// More of it has arrived.
    pub(super) fn push(&mut self, part: Bytes) -> Result<(), InvalidPayload> {
        let packed = match &mut self.bytes {
            Unpacker::Plain(packed) => packed,
            Unpacker::Zstd(decoder) => decoder.get_mut(),
        };
        packed.missing = packed.missing.checked_sub(part.len()).ok_or(Short)?;
        packed.parts.push_back(part);
        Ok(())
    }

    pub(super) fn next(&mut self) -> Result<Unpacked, InvalidPayload> {
        match self.unpack() {
            Err(InvalidPayload::Unpack(error)) if error.kind() == ErrorKind::WouldBlock => {
                Ok(Unpacked::Starved)
            }
            unpacked => Ok(unpacked?.map_or(Unpacked::End, Unpacked::Event)),
        }
    }

    /// The next event. Where more has to arrive, what there is of the event is kept.
    fn unpack(&mut self) -> Result<Option<Bytes>, InvalidPayload> {
        const SIZE_AT: std::ops::Range<usize> = 9..13;
        self.read_up_to(header::LENGTH)?;
        if self.event.is_empty() {
            return Ok(None);
        }
        let size = self.event.get(SIZE_AT).and_then(|size| size.first_chunk()).ok_or(Short)?;
        let size = u32::from_le_bytes(*size);
        let length = usize::try_from(size).ok().filter(|length| *length >= header::LENGTH);
        let length = length.filter(|_| size <= EVENT_MAX).ok_or(InvalidPayload::EventSize(size))?;
        self.read_up_to(length)?;
        if length != self.event.len() {
            return Err(InvalidPayload::Short);
        }
        Ok(Some(Bytes::from(std::mem::take(&mut self.event))))
    }

    /// Until so much of the event is there; less at the end.
    fn read_up_to(&mut self, length: usize) -> Result<(), InvalidPayload> {
        let left = u64::try_from(length.saturating_sub(self.event.len())).map_err(|_| Short)?;
        let event = &mut self.event;
        // What was read before an error is in the buffer.
        let read = match &mut self.bytes {
            Unpacker::Plain(bytes) => bytes.take(left).read_to_end(event),
            Unpacker::Zstd(bytes) => bytes.by_ref().take(left).read_to_end(event),
        };
        read.map(|_| ()).map_err(InvalidPayload::Unpack)
    }
}

impl BufRead for Packed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.parts.pop_front_if(|part| part.is_empty()).is_some() {}
        match self.parts.front() {
            Some(part) => Ok(part),
            None if self.missing == 0 => Ok(&[]),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn consume(&mut self, amount: usize) {
        if let Some(part) = self.parts.front_mut() {
            part.advance(amount.min(part.len()));
        }
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
