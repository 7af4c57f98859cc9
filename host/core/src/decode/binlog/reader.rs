//! A cursor over the bytes of one event: little-endian, and every read is checked.

/// The event ends before what it announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ends too early")]
pub(crate) struct Short;

#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Short> {
        let (taken, left) = self.left.split_at_checked(length).ok_or(Short)?;
        self.left = left;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (taken, left) = self.left.split_first_chunk().ok_or(Short)?;
        self.left = left;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of `N` bytes, at most eight.
    pub(crate) fn uint<const N: usize>(&mut self) -> Result<u64, Short> {
        let bytes: [u8; N] = self.array()?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A length-encoded integer; its marks for null and for an error are no numbers.
    pub(crate) fn packed(&mut self) -> Result<u64, Short> {
        match self.u8()? {
            byte @ 0..=250 => Ok(u64::from(byte)),
            252 => self.u16().map(u64::from),
            253 => self.uint::<3>(),
            254 => self.u64(),
            251 | 255 => Err(Short),
        }
    }

    /// A length-encoded integer that counts something in memory.
    pub(crate) fn packed_length(&mut self) -> Result<usize, Short> {
        usize::try_from(self.packed()?).map_err(|_| Short)
    }

    /// As many bytes as the length-encoded integer before them says.
    pub(crate) fn packed_bytes(&mut self) -> Result<&'a [u8], Short> {
        let length = self.packed_length()?;
        self.take(length)
    }

    /// As many bytes as the one byte before them says, and a terminating zero.
    pub(crate) fn short_string(&mut self) -> Result<&'a [u8], Short> {
        let length = usize::from(self.u8()?);
        let string = self.take(length)?;
        match self.u8()? {
            0 => Ok(string),
            _ => Err(Short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_integers_have_their_first_byte_as_a_mark() {
        let number = |bytes: &[u8]| Reader::new(bytes).packed();
        assert_eq!(number(&[250]), Ok(250));
        assert_eq!(number(&[252, 1, 2]), Ok(0x0201));
        assert_eq!(number(&[253, 1, 2, 3]), Ok(0x03_0201));
        assert_eq!(number(&[254, 1, 0, 0, 0, 0, 0, 0, 2]), Ok(0x0200_0000_0000_0001));
        for short in [&[][..], &[251], &[252, 1], &[253, 1, 2], &[254, 1], &[255]] {
            assert_eq!(number(short), Err(Short), "{short:?}");
        }
    }
}
