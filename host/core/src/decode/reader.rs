//! A cursor over one message. Every read is checked; running short is the only way to fail.

use bytes::Bytes;

/// The message ends before what it announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Short;

#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    message: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a Bytes) -> Self {
        Self { message, at: 0 }
    }

    pub(super) fn message(&self) -> &'a Bytes {
        self.message
    }

    pub(super) fn left(&self) -> usize {
        self.message.len().saturating_sub(self.at)
    }

    /// Everything that is left.
    pub(super) fn rest(&mut self) -> Bytes {
        let rest = self.message.slice(self.at.min(self.message.len())..);
        self.at = self.message.len();
        rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let rest = self.message.get(self.at..).ok_or(Short)?;
        let bytes = rest.first_chunk().ok_or(Short)?;
        self.at += N;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Short> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Short> {
        self.array().map(i64::from_be_bytes)
    }

    /// The range of the next `length` bytes of the message.
    pub(super) fn range(&mut self, length: u32) -> Result<std::ops::Range<usize>, Short> {
        let length = usize::try_from(length).map_err(|_| Short)?;
        let end = self.at.checked_add(length).ok_or(Short)?;
        if end > self.message.len() {
            return Err(Short);
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    /// Bytes up to a terminating NUL, without it.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Short> {
        let rest = self.message.get(self.at..).ok_or(Short)?;
        let end = memchr::memchr(0, rest).ok_or(Short)?;
        let string = rest.get(..end).ok_or(Short)?;
        self.at += end + 1;
        Ok(string)
    }
}
