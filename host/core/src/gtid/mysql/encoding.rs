//! The binary form of a set: the body of a `PREVIOUS_GTIDS` event, and what a dump is asked for with.
//!
//! A number of issuers, then for each its UUID and its intervals, each with an end that is one too far. Servers since
//! 8.3 write another form when the set has tags: the number's first and last byte are 1, and the tag stands behind the
//! UUID. A server before that would misread it, so the plain form is written wherever it can hold the set.

use super::set::{GtidSet, Interval};
use super::{InvalidGtid, Issuer, Tag, Uuid};

const INVALID: InvalidGtid = InvalidGtid { expected: "encoding of a set of MySQL GTIDs" };

/// The topmost byte of the number of issuers, and under it the lowest one too.
const TAGGED: u64 = 1;

impl GtidSet {
    pub fn encode(&self) -> Vec<u8> {
        let is_tagged = self.issuers().any(|(issuer, _)| issuer.tag.is_some());
        let count = self.issuers().len() as u64;
        let header = if is_tagged { TAGGED << 56 | count << 8 | TAGGED } else { count };
        let mut bytes = header.to_le_bytes().to_vec();
        for (issuer, intervals) in self.issuers() {
            bytes.extend_from_slice(&issuer.uuid.0);
            if is_tagged {
                let tag = issuer.tag.as_ref().map_or("", Tag::as_str);
                // A variable-length integer, of which one byte holds seven bits: no tag is longer than 32.
                bytes.push((tag.len() as u8) << 1);
                bytes.extend_from_slice(tag.as_bytes());
            }
            bytes.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for interval in intervals {
                bytes.extend_from_slice(&interval.first().to_le_bytes());
                bytes.extend_from_slice(&(interval.last() + 1).to_le_bytes());
            }
        }
        bytes
    }

    /// # Errors
    /// When the bytes are not exactly one set, in order, as a server writes it.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, InvalidGtid> {
        let bytes = &mut bytes;
        let header = take_u64(bytes)?;
        let (is_tagged, count) = match (header >> 56, header & 0xFF) {
            (0, _) => (false, header),
            (TAGGED, TAGGED) => (true, header << 8 >> 16),
            _ => return Err(INVALID),
        };
        let mut set = Self::default();
        for _ in 0..count {
            let uuid = Uuid(take(bytes)?);
            let tag = if is_tagged { take_tag(bytes)? } else { None };
            take_intervals(bytes, Issuer { uuid, tag }, &mut set)?;
        }
        if bytes.is_empty() { Ok(set) } else { Err(INVALID) }
    }
}

/// A wrong number of intervals runs out of bytes before it runs out of memory.
fn take_intervals(bytes: &mut &[u8], issuer: Issuer, set: &mut GtidSet) -> Result<(), InvalidGtid> {
    let mut before = 0;
    for _ in 0..take_u64(bytes)? {
        let (first, end) = (take_u64(bytes)?, take_u64(bytes)?);
        if first <= before {
            return Err(INVALID);
        }
        before = end;
        let last = end.checked_sub(1).ok_or(INVALID)?;
        set.insert_interval(issuer, Interval::new(first, last).ok_or(INVALID)?);
    }
    Ok(())
}

fn take_tag(bytes: &mut &[u8]) -> Result<Option<Tag>, InvalidGtid> {
    let [length] = take(bytes)?;
    if length & 1 == 1 {
        return Err(INVALID);
    }
    let (tag, rest) = bytes.split_at_checked(usize::from(length >> 1)).ok_or(INVALID)?;
    *bytes = rest;
    if tag.is_empty() {
        return Ok(None);
    }
    let tag = std::str::from_utf8(tag).map_err(|_| INVALID)?;
    tag.parse().map(Some)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, InvalidGtid> {
    take(bytes).map(u64::from_le_bytes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], InvalidGtid> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(INVALID)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_set_without_tags_is_encoded_for_any_server() {
        let mut expected = 1_u64.to_le_bytes().to_vec();
        expected.extend(set(&format!("{A}:1")).issuers().next().unwrap().0.uuid.0);
        for number in [2_u64, 1, 6, 8, 9] {
            expected.extend(number.to_le_bytes());
        }
        assert_eq!(set(&format!("{A}:1-5:8")).encode(), expected);
        assert_eq!(GtidSet::decode(&expected), Ok(set(&format!("{A}:1-5:8"))));
    }

    #[test]
    fn tags_take_the_later_form() {
        let tagged = set(&format!("{A}:1-5:reports:2"));
        let bytes = tagged.encode();
        assert_eq!(bytes.first_chunk(), Some(&[1, 2, 0, 0, 0, 0, 0, 1]));
        assert_eq!(GtidSet::decode(&bytes), Ok(tagged));
    }

    #[test]
    fn what_is_not_one_whole_set_is_refused() {
        for text in [format!("{A}:1-5:8"), format!("{A}:1-5:reports:2")] {
            let bytes = set(&text).encode();
            for end in 0..bytes.len() {
                assert!(GtidSet::decode(&bytes[..end]).is_err(), "{end}");
            }
            assert!(GtidSet::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
        let mut other_form = set(&format!("{A}:1")).encode();
        other_form[7] = 2;
        assert!(GtidSet::decode(&other_form).is_err());
        assert_eq!(GtidSet::decode(&[0; 8]), Ok(GtidSet::default()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            header in prop_oneof![Just(1_u64), Just(3), Just(1 << 56 | 1 << 8 | 1), any::<u64>()],
        ) {
            let length = bytes.len().min(8);
            bytes[..length].copy_from_slice(&header.to_le_bytes()[..length]);
            if let Ok(set) = GtidSet::decode(&bytes) {
                prop_assert_eq!(GtidSet::decode(&set.encode()), Ok(set));
            }
        }
    }
}
