//! MySQL's GTIDs: who numbered the transaction (a server's UUID, since 8.3 with an optional tag) and its number there.

mod encoding;
mod set;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::set::{GtidSet, Interval};
use super::InvalidGtid;

/// Printed `3e11fa47-71ca-11e1-9e33-c80aa9429562:23`, with a tag `3e11fa47-71ca-11e1-9e33-c80aa9429562:reports:23`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gtid {
    pub issuer: Issuer,
    /// From 1 to [`NUMBER_MAX`].
    pub number: u64,
}

/// One sequence of numbers. The same UUID with another tag numbers from 1 again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Issuer {
    pub uuid: Uuid,
    pub tag: Option<Tag>,
}

/// A server's or a group's `server_uuid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// A letter or underscore, then up to 31 letters, digits and underscores; in lower case, as servers keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Padded with zeros, which compare as the shorter text does.
    bytes: [u8; Tag::LENGTH_MAX],
}

/// Behind it a server issues no more: intervals are encoded with an end that is one more, as a signed number.
pub const NUMBER_MAX: u64 = (i64::MAX as u64) - 1;

const INVALID_GTID: InvalidGtid = InvalidGtid {
    expected: "MySQL GTID of the form 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, with a tag before the number if any",
};
const INVALID_UUID: InvalidGtid =
    InvalidGtid { expected: "UUID of the form 3e11fa47-71ca-11e1-9e33-c80aa9429562" };
const INVALID_TAG: InvalidGtid = InvalidGtid {
    expected: "GTID tag of at most 32 letters, digits and underscores that begins with no digit",
};

impl Tag {
    pub const LENGTH_MAX: usize = 32;

    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(Self::LENGTH_MAX);
        let text = self.bytes.get(..end).unwrap_or_default();
        std::str::from_utf8(text).expect("checked to be ASCII when it was made")
    }
}

impl FromStr for Tag {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        let mut bytes = [0; Self::LENGTH_MAX];
        let place = bytes.get_mut(..text.len()).ok_or(INVALID_TAG)?;
        if !begins || !text.bytes().all(is_inside) {
            return Err(INVALID_TAG);
        }
        place.copy_from_slice(text.as_bytes());
        bytes.make_ascii_lowercase();
        Ok(Self { bytes })
    }
}

impl FromStr for Uuid {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
        let mut groups = text.split('-');
        let mut digits = Vec::with_capacity(32);
        for length in GROUPS {
            let group = groups.next().filter(|group| group.len() == length).ok_or(INVALID_UUID)?;
            for byte in group.chars() {
                let digit = byte.to_digit(16).ok_or(INVALID_UUID)?;
                digits.push(u8::try_from(digit).map_err(|_| INVALID_UUID)?);
            }
        }
        if groups.next().is_some() {
            return Err(INVALID_UUID);
        }
        let mut uuid = [0; 16];
        let (pairs, _) = digits.as_chunks::<2>();
        for (byte, [high, low]) in uuid.iter_mut().zip(pairs) {
            *byte = high << 4 | low;
        }
        Ok(Self(uuid))
    }
}

impl FromStr for Gtid {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        let (issuer, number) = text.rsplit_once(':').ok_or(INVALID_GTID)?;
        let (uuid, tag) = match issuer.split_once(':') {
            None => (issuer, None),
            Some((uuid, tag)) => (uuid, Some(tag.parse()?)),
        };
        Ok(Self {
            issuer: Issuer { uuid: uuid.parse()?, tag },
            number: number_from(number).ok_or(INVALID_GTID)?,
        })
    }
}

/// Digits only, within the range that a server issues.
fn number_from(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits)?;
    (1..=NUMBER_MAX).contains(&number).then_some(number)
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uuid)?;
        match &self.tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.issuer, self.number)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Gtid {
    type Error = InvalidGtid;

    fn try_from(text: String) -> Result<Self, InvalidGtid> {
        text.parse()
    }
}

impl From<Gtid> for String {
    fn from(gtid: Gtid) -> Self {
        gtid.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    #[test]
    fn a_gtid_reads_back_what_it_prints() {
        for rest in
            ["1", "9223372036854775806", "reports:23", "_:1", "a2345678901234567890123456789012:5"]
        {
            let text = format!("{UUID}:{rest}");
            let gtid: Gtid = text.parse().unwrap();
            assert_eq!(gtid.to_string(), text);
            let json = serde_json::to_string(&gtid).unwrap();
            assert_eq!(serde_json::from_str::<Gtid>(&json).unwrap(), gtid);
        }
    }

    #[test]
    fn a_server_reads_upper_case_and_keeps_lower_case() {
        let gtid: Gtid = format!("{}:Reports:23", UUID.to_uppercase()).parse().unwrap();
        assert_eq!(gtid.to_string(), format!("{UUID}:reports:23"));
    }

    #[test]
    fn what_is_not_a_gtid_is_refused() {
        let wrong = [
            "",
            "1",
            ":0",
            ":-1",
            ":+1",
            ":1-2",
            ":9223372036854775807",
            ":2x:1",
            ":t-u:1",
            "::1",
            ":t:",
            ":t:u:1",
            ":a23456789012345678901234567890123:5",
            ":t\u{e9}:1",
            ": 1",
        ];
        for rest in wrong {
            let text = format!("{UUID}{rest}");
            assert!(text.parse::<Gtid>().is_err(), "{text}");
        }
        for uuid in ["3e11fa4771ca11e19e33c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa942956", "g"]
        {
            assert!(format!("{uuid}:1").parse::<Gtid>().is_err(), "{uuid}");
            assert!(format!("{UUID}-{uuid}:1").parse::<Gtid>().is_err(), "{uuid}");
        }
    }

    #[test]
    fn issuers_are_ordered_by_uuid_and_then_by_tag() {
        let issuer = |text: &str| format!("{text}:1").parse::<Gtid>().unwrap().issuer;
        let ordered =
            [UUID.to_owned(), format!("{UUID}:a"), format!("{UUID}:a0"), format!("{UUID}:b")];
        assert!(ordered.iter().map(|text| issuer(text)).is_sorted_by(|a, b| a < b));
    }
}
