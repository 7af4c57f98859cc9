//! Fixed units: `ucs2`, `utf16`, `utf16le` and `utf32`.
//!
//! A half of a surrogate pair is not a character, though `ucs2` columns can hold one: UTF-8 has no form for it.

fn units<const N: usize>(bytes: &[u8]) -> Option<&[[u8; N]]> {
    let (units, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then_some(units)
}

pub(super) fn ucs2(bytes: &[u8]) -> Option<String> {
    let units = units::<2>(bytes)?.iter();
    units.map(|unit| char::from_u32(u16::from_be_bytes(*unit).into())).collect()
}

pub(super) fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let units = units::<2>(bytes)?.iter();
    char::decode_utf16(units.map(|bytes| unit(*bytes))).collect::<Result<_, _>>().ok()
}

pub(super) fn utf32(bytes: &[u8]) -> Option<String> {
    let units = units::<4>(bytes)?.iter();
    units.map(|unit| char::from_u32(u32::from_be_bytes(*unit))).collect()
}
