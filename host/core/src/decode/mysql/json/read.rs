//! From bytes to a [`Document`].

use super::{DEPTH_MAX, Document, Invalid};

mod kind {
    pub(super) const SMALL_OBJECT: u8 = 0;
    pub(super) const LARGE_OBJECT: u8 = 1;
    pub(super) const SMALL_ARRAY: u8 = 2;
    pub(super) const LARGE_ARRAY: u8 = 3;
    pub(super) const LITERAL: u8 = 4;
    pub(super) const INT16: u8 = 5;
    pub(super) const UINT16: u8 = 6;
    pub(super) const INT32: u8 = 7;
    pub(super) const UINT32: u8 = 8;
    pub(super) const INT64: u8 = 9;
    pub(super) const UINT64: u8 = 10;
    pub(super) const DOUBLE: u8 = 11;
    pub(super) const STRING: u8 = 12;
    pub(super) const OPAQUE: u8 = 15;
}

pub(super) fn document(bytes: &[u8]) -> Result<Document<'_>, Invalid> {
    // What a NOT NULL column gets for lack of a default.
    let Some((kind, content)) = bytes.split_first() else { return Ok(Document::Null) };
    let mut reader = Reader { budget: bytes.len() };
    reader.value(*kind, content, 1)
}

struct Reader {
    /// Bytes that may still be visited. Nothing in a document is shared, so all visits together are no more than its
    /// length.
    budget: usize,
}

/// Whether counts and offsets take two bytes or four.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Small,
    Large,
}

impl Form {
    const fn bytes(self) -> usize {
        match self {
            Self::Small => 2,
            Self::Large => 4,
        }
    }

    fn read(self, bytes: &[u8], at: usize) -> Result<usize, Invalid> {
        let number = match self {
            Self::Small => u16::from_le_bytes(array(bytes, at)?).into(),
            Self::Large => u32::from_le_bytes(array(bytes, at)?),
        };
        usize::try_from(number).map_err(|_| Invalid::Malformed)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Invalid> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().ok_or(Invalid::Malformed)
}

impl Reader {
    fn pay(&mut self, bytes: usize) -> Result<(), Invalid> {
        self.budget = self.budget.checked_sub(bytes).ok_or(Invalid::Malformed)?;
        Ok(())
    }

    fn value<'a>(
        &mut self,
        kind: u8,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<Document<'a>, Invalid> {
        Ok(match kind {
            kind::SMALL_OBJECT => self.object(Form::Small, bytes, depth)?,
            kind::LARGE_OBJECT => self.object(Form::Large, bytes, depth)?,
            kind::SMALL_ARRAY => self.array(Form::Small, bytes, depth)?,
            kind::LARGE_ARRAY => self.array(Form::Large, bytes, depth)?,
            kind::LITERAL => literal(array(bytes, 0)?)?,
            kind::INT16 => Document::Int(i16::from_le_bytes(array(bytes, 0)?).into()),
            kind::UINT16 => Document::Uint(u16::from_le_bytes(array(bytes, 0)?).into()),
            kind::INT32 => Document::Int(i32::from_le_bytes(array(bytes, 0)?).into()),
            kind::UINT32 => Document::Uint(u32::from_le_bytes(array(bytes, 0)?).into()),
            kind::INT64 => Document::Int(i64::from_le_bytes(array(bytes, 0)?)),
            kind::UINT64 => Document::Uint(u64::from_le_bytes(array(bytes, 0)?)),
            kind::DOUBLE => {
                let number = f64::from_le_bytes(array(bytes, 0)?);
                if !number.is_finite() {
                    return Err(Invalid::Malformed);
                }
                Document::Double(number)
            }
            kind::STRING => Document::String(self.text(counted(bytes)?)?),
            kind::OPAQUE => {
                let [code] = array(bytes, 0)?;
                let content = counted(bytes.get(1..).ok_or(Invalid::Malformed)?)?;
                self.pay(content.len())?;
                Document::Opaque { code, bytes: content }
            }
            _ => return Err(Invalid::Malformed),
        })
    }

    fn text<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a str, Invalid> {
        self.pay(bytes.len())?;
        std::str::from_utf8(bytes).map_err(|_| Invalid::Malformed)
    }

    /// The number of members, and the bytes of the whole container.
    fn container<'a>(
        &mut self,
        form: Form,
        bytes: &'a [u8],
        depth: usize,
        entry_bytes: usize,
    ) -> Result<(usize, &'a [u8]), Invalid> {
        if depth > DEPTH_MAX {
            return Err(Invalid::TooDeep);
        }
        let count = form.read(bytes, 0)?;
        let size = form.read(bytes, form.bytes())?;
        let bytes = bytes.get(..size).ok_or(Invalid::Malformed)?;
        self.pay(count.checked_mul(entry_bytes).ok_or(Invalid::Malformed)?)?;
        Ok((count, bytes))
    }

    fn array<'a>(
        &mut self,
        form: Form,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<Document<'a>, Invalid> {
        let entry_bytes = 1 + form.bytes();
        let (count, bytes) = self.container(form, bytes, depth, entry_bytes)?;
        let mut elements = Vec::with_capacity(count);
        for index in 0..count {
            let entry = 2 * form.bytes() + index * entry_bytes;
            elements.push(self.entry(form, bytes, entry, depth)?);
        }
        Ok(Document::Array(elements))
    }

    fn object<'a>(
        &mut self,
        form: Form,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<Document<'a>, Invalid> {
        let key_bytes = form.bytes() + 2;
        let value_bytes = 1 + form.bytes();
        let (count, bytes) = self.container(form, bytes, depth, key_bytes + value_bytes)?;
        let keys = 2 * form.bytes();
        let values = keys + count * key_bytes;
        let mut members = Vec::with_capacity(count);
        for index in 0..count {
            let key_entry = keys + index * key_bytes;
            let start = form.read(bytes, key_entry)?;
            let length = Form::Small.read(bytes, key_entry + form.bytes())?;
            let end = start.checked_add(length).ok_or(Invalid::Malformed)?;
            let key = self.text(bytes.get(start..end).ok_or(Invalid::Malformed)?)?;
            let value = self.entry(form, bytes, values + index * value_bytes, depth)?;
            members.push((key.into(), value));
        }
        Ok(Document::Object(members))
    }

    /// A value in its entry where it fits, otherwise where the entry points to.
    fn entry<'a>(
        &mut self,
        form: Form,
        bytes: &'a [u8],
        entry: usize,
        depth: usize,
    ) -> Result<Document<'a>, Invalid> {
        let [kind] = array(bytes, entry)?;
        let inline = match kind {
            kind::LITERAL | kind::INT16 | kind::UINT16 => true,
            kind::INT32 | kind::UINT32 => form == Form::Large,
            _ => false,
        };
        let place = entry + 1;
        let place = if inline { place } else { form.read(bytes, place)? };
        self.value(kind, bytes.get(place..).ok_or(Invalid::Malformed)?, depth + 1)
    }
}

fn literal<'a>([byte]: [u8; 1]) -> Result<Document<'a>, Invalid> {
    match byte {
        0 => Ok(Document::Null),
        1 => Ok(Document::Boolean(true)),
        2 => Ok(Document::Boolean(false)),
        _ => Err(Invalid::Malformed),
    }
}

/// Content behind its length, of which seven bits stand in each byte, the lowest first.
fn counted(bytes: &[u8]) -> Result<&[u8], Invalid> {
    let mut length = 0_usize;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let start = index + 1;
            let end = start.checked_add(length).ok_or(Invalid::Malformed)?;
            return bytes.get(start..end).ok_or(Invalid::Malformed);
        }
    }
    Err(Invalid::Malformed)
}
