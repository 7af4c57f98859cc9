//! MariaDB's COMPRESSED columns, which the log holds as the table does.
//!
//! The first byte says how: 0 for content that was not worth compressing; otherwise the method in the high four bits (8
//! is zlib, the only one there is), then a bit for a stream without zlib's own header, and in the low three how many
//! bytes of the original length follow, big-endian.

use std::io::Read;

use bytes::Bytes;

use super::cell::Reason;

const METHOD_ZLIB: u8 = 8;
/// A longtext's content; a length beyond it is not a length.
const ORIGINAL_BYTES_MAX: u64 = u32::MAX as u64;
/// Deflate cannot do better than about 1032 to 1, so a longer original is a lie that must not cost memory.
const RATIO_MAX: u64 = 1_100;

pub(super) fn unpack(packed: Bytes) -> Result<Bytes, Reason> {
    let Some((header, rest)) = packed.split_first() else { return Ok(packed) };
    if *header == 0 {
        return Ok(packed.slice(1..));
    }
    let (length_bytes, stream) =
        rest.split_at_checked(usize::from(header & 7)).ok_or(Reason::Compressed)?;
    let length = length_bytes.iter().fold(0, |length, byte| (length << 8) | u64::from(*byte));
    let stream_bytes = u64::try_from(stream.len()).map_err(|_| Reason::Compressed)?;
    if header >> 4 != METHOD_ZLIB
        || length > ORIGINAL_BYTES_MAX
        || length > stream_bytes.saturating_mul(RATIO_MAX)
    {
        return Err(Reason::Compressed);
    }
    let capacity = usize::try_from(length).map_err(|_| Reason::Compressed)?;
    let mut content = Vec::with_capacity(capacity);
    // One byte more than announced, so that a longer stream shows itself.
    let read = if header & 8 == 0 {
        flate2::read::ZlibDecoder::new(stream).take(length + 1).read_to_end(&mut content)
    } else {
        flate2::read::DeflateDecoder::new(stream).take(length + 1).read_to_end(&mut content)
    };
    match read {
        Ok(read) if read == capacity => Ok(content.into()),
        _ => Err(Reason::Compressed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_mariadb_wrote_unpacks() {
        // repeat('b', 200), as MariaDB 10.11 logs it.
        let packed = Bytes::from_static(&[0x89, 0xc8, 0x4b, 0x4a, 0x1a, 0x1e, 0, 0]);
        assert_eq!(unpack(packed), Ok(Bytes::from(vec![b'b'; 200])));
        assert_eq!(unpack(Bytes::from_static(b"\0short")), Ok(Bytes::from_static(b"short")));
        assert_eq!(unpack(Bytes::new()), Ok(Bytes::new()));
    }

    #[test]
    fn a_length_that_does_not_fit_the_stream_is_refused() {
        for length in [0, 199, 201, 255] {
            let packed = Bytes::copy_from_slice(&[0x89, length, 0x4b, 0x4a, 0x1a, 0x1e, 0, 0]);
            assert_eq!(unpack(packed), Err(Reason::Compressed), "{length}");
        }
        assert_eq!(
            unpack(Bytes::from_static(&[0x8c, 255, 255, 255, 255])),
            Err(Reason::Compressed)
        );
        assert_eq!(unpack(Bytes::from_static(&[0x99, 1, 3, 0])), Err(Reason::Compressed));
    }

    proptest! {
        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(unpack(bytes.into()));
        }
    }
}
