//! `TRANSACTION_PAYLOAD`: the events of a transaction, compressed as one.
//!
//! A payload is at most as large as one event, but what it holds is a whole transaction, a hundred times as large for
//! rows that resemble each other. So it is unpacked event by event, as the events are asked for: besides the payload
//! itself only one event and the window of the decompressor are in memory. The events inside have no checksum, and
//! their positions mean nothing.

use std::io::Read;

use bytes::Bytes;

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
    bytes: Unpacked,
}

enum Unpacked {
    Plain(std::io::Cursor<Bytes>),
    Zstd(Box<zstd::stream::read::Decoder<'static, std::io::Cursor<Bytes>>>),
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").finish_non_exhaustive()
    }
}

impl Payload {
    /// `body` is a part of `event`.
    pub(super) fn new(event: &Bytes, body: &[u8]) -> Result<Self, InvalidPayload> {
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
        let packed = reader.take(size.ok_or(Short)?)?;
        if !reader.is_empty() {
            return Err(InvalidPayload::Short);
        }
        let packed = std::io::Cursor::new(event.slice_ref(packed));
        let bytes = match method {
            Some(NONE) => Unpacked::Plain(packed),
            Some(ZSTD) => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed);
                let mut decoder = decoder.map_err(InvalidPayload::Unpack)?;
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(InvalidPayload::Unpack)?;
                Unpacked::Zstd(Box::new(decoder))
            }
            other => return Err(InvalidPayload::Method(other.unwrap_or(u64::MAX))),
        };
        Ok(Self { bytes })
    }

    /// The next event, without a checksum.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, InvalidPayload> {
        const SIZE_AT: std::ops::Range<usize> = 9..13;
        let mut event = Vec::new();
        self.read(header::LENGTH, &mut event)?;
        if event.is_empty() {
            return Ok(None);
        }
        let size = event.get(SIZE_AT).and_then(|size| size.first_chunk()).ok_or(Short)?;
        let size = u32::from_le_bytes(*size);
        let rest = usize::try_from(size).ok().and_then(|size| size.checked_sub(header::LENGTH));
        let rest = rest.filter(|_| size <= EVENT_MAX).ok_or(InvalidPayload::EventSize(size))?;
        self.read(rest, &mut event)?;
        if usize::try_from(size) != Ok(event.len()) {
            return Err(InvalidPayload::Short);
        }
        Ok(Some(Bytes::from(event)))
    }

    /// Less at the end.
    fn read(&mut self, length: usize, event: &mut Vec<u8>) -> Result<(), InvalidPayload> {
        let length = u64::try_from(length).map_err(|_| Short)?;
        let read = match &mut self.bytes {
            Unpacked::Plain(bytes) => bytes.take(length).read_to_end(event),
            Unpacked::Zstd(bytes) => bytes.by_ref().take(length).read_to_end(event),
        };
        read.map(|_| ()).map_err(InvalidPayload::Unpack)
    }
}
