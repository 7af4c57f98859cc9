//! MariaDB's compressed events: a header of one byte and up to four of length, and zlib behind it.

use std::io::Read;

use super::reader::Reader;

/// As large as a server makes an event; what says that it is larger is not one.
const LENGTH_MAX: usize = 1 << 30;

/// `None` when it is not what a server writes. Takes no more memory than it finds bytes for.
pub(super) fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    const ALGORITHM: u8 = 0x70;
    const LENGTH_BYTES: u8 = 0x07;
    const PRESENT: u8 = 0x80;
    let mut reader = Reader::new(bytes);
    let head = reader.u8().ok()?;
    if head & PRESENT == 0 || head & ALGORITHM != 0 {
        return None;
    }
    // Unlike all other numbers of a binlog it begins with the highest byte.
    let mut length = 0_usize;
    for _ in 0..head & LENGTH_BYTES {
        length = length.checked_mul(256)?.checked_add(usize::from(reader.u8().ok()?))?;
    }
    if length > LENGTH_MAX {
        return None;
    }
    let mut plain = Vec::new();
    let limit = u64::try_from(length).ok()? + 1;
    flate2::read::ZlibDecoder::new(reader.rest()).take(limit).read_to_end(&mut plain).ok()?;
    (plain.len() == length).then_some(plain)
}
