//! How the row images of the log spell a column's values.
//!
//! A table map gives each column a type code and up to two bytes of metadata. Both servers write CHAR, ENUM, SET and
//! BINARY under the code of CHAR, with the real type in the metadata; a length of more than 255 bytes borrows two bits
//! of that type.

use super::definition::{DataType, Server, Size, Width};

/// Type codes of table maps (`enum_field_types` of both servers).
pub(super) mod code {
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const OLD_TIMESTAMP: u8 = 7;
    pub(crate) const LONG_LONG: u8 = 8;
    pub(crate) const INT24: u8 = 9;
    pub(crate) const DATE: u8 = 10;
    pub(crate) const OLD_TIME: u8 = 11;
    pub(crate) const OLD_DATETIME: u8 = 12;
    pub(crate) const YEAR: u8 = 13;
    pub(crate) const NEW_DATE: u8 = 14;
    pub(crate) const VARCHAR: u8 = 15;
    pub(crate) const BIT: u8 = 16;
    pub(crate) const TIMESTAMP: u8 = 17;
    pub(crate) const DATETIME: u8 = 18;
    pub(crate) const TIME: u8 = 19;
    /// MariaDB only, like the next.
    pub(crate) const COMPRESSED_BLOB: u8 = 140;
    pub(crate) const COMPRESSED_VARCHAR: u8 = 141;
    pub(crate) const VECTOR: u8 = 242;
    pub(crate) const JSON: u8 = 245;
    pub(crate) const DECIMAL: u8 = 246;
    pub(crate) const ENUM: u8 = 247;
    pub(crate) const SET: u8 = 248;
    pub(crate) const BLOB: u8 = 252;
    pub(crate) const VAR_STRING: u8 = 253;
    pub(crate) const STRING: u8 = 254;
    pub(crate) const GEOMETRY: u8 = 255;
}

/// Digits behind the point of a temporal value.
const FRACTION_MAX: u8 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    Integer {
        width: Width,
        unsigned: bool,
    },
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year,
    Date,
    Time {
        fraction: u8,
    },
    DateTime {
        fraction: u8,
    },
    Timestamp {
        fraction: u8,
    },
    /// Before MySQL 5.6 and MariaDB 10.1; MariaDB's with a fraction are of yet another form.
    OldTime {
        fraction: u8,
    },
    OldDateTime {
        fraction: u8,
    },
    OldTimestamp {
        fraction: u8,
    },
    /// A count of so many bytes, then the content.
    Counted {
        count_bytes: u8,
    },
    /// The content is MariaDB's compressed form.
    CountedCompressed {
        count_bytes: u8,
    },
    /// So many bytes of bits, the first in the most significant place.
    Bits {
        bytes: u8,
    },
    /// The number of an ENUM's label, or the bits of a SET.
    Number {
        bytes: u8,
    },
}

/// The real type behind the code of CHAR, and its length in bytes.
pub(super) fn unpack_string(metadata: u16) -> (u8, u32) {
    let [first, second] = metadata.to_le_bytes();
    if first & 0x30 == 0x30 {
        (first, u32::from(second))
    } else {
        let high = u32::from((first & 0x30) ^ 0x30) << 4;
        (first | 0x30, high | u32::from(second))
    }
}

impl Layout {
    /// What values of this type look like under a code and its metadata (the first byte in the low place); `None`
    /// where they cannot have them.
    pub(super) fn fitting(
        data_type: &DataType,
        server: Server,
        code: u8,
        metadata: u16,
    ) -> Option<Self> {
        let [low, high] = metadata.to_le_bytes();
        let (string_code, string_bytes) =
            if code == code::STRING { unpack_string(metadata) } else { (code, 0) };
        let is_string = string_code == code::STRING;
        let fixed = |length: u32| (is_string && string_bytes == length).then(|| counted(length));
        let old = |given: u8| given == 0 || server == Server::MariaDb;
        if data_type.fraction().is_some_and(|fraction| fraction > FRACTION_MAX) {
            return None;
        }
        match data_type {
            DataType::Integer { width, unsigned } => (code == integer_code(*width))
                .then_some(Self::Integer { width: *width, unsigned: *unsigned }),
            DataType::Float { .. } => (code == code::FLOAT && low == 4).then_some(Self::Float),
            DataType::Double { .. } => (code == code::DOUBLE && low == 8).then_some(Self::Double),
            DataType::Decimal { precision, scale, .. } => (code == code::DECIMAL
                && (low, high) == (*precision, *scale))
                .then_some(Self::Decimal { precision: *precision, scale: *scale }),
            DataType::Year => (code == code::YEAR).then_some(Self::Year),
            DataType::Date => matches!(code, code::DATE | code::NEW_DATE).then_some(Self::Date),
            DataType::Time { fraction } => match code {
                code::TIME if low == *fraction => Some(Self::Time { fraction: low }),
                code::OLD_TIME if old(*fraction) => Some(Self::OldTime { fraction: *fraction }),
                _ => None,
            },
            DataType::DateTime { fraction } => match code {
                code::DATETIME if low == *fraction => Some(Self::DateTime { fraction: low }),
                code::OLD_DATETIME if old(*fraction) => {
                    Some(Self::OldDateTime { fraction: *fraction })
                }
                _ => None,
            },
            DataType::Timestamp { fraction } => match code {
                code::TIMESTAMP if low == *fraction => Some(Self::Timestamp { fraction: low }),
                code::OLD_TIMESTAMP if old(*fraction) => {
                    Some(Self::OldTimestamp { fraction: *fraction })
                }
                _ => None,
            },
            DataType::Char { length, charset } => {
                fixed(length.checked_mul(charset.bytes_per_character())?)
            }
            DataType::Binary { length } => fixed(*length),
            DataType::VarChar { length, charset } => {
                let bytes = length.checked_mul(charset.bytes_per_character())?;
                variable(server, code, metadata, bytes)
            }
            DataType::VarBinary { length } => variable(server, code, metadata, *length),
            DataType::Text { size, .. } | DataType::Blob(size) => blob(server, code, low, *size),
            DataType::Bit { length } => {
                (code == code::BIT && u32::from(high) * 8 + u32::from(low) == *length && low < 8)
                    .then(|| Self::Bits { bytes: high.saturating_add(u8::from(low > 0)) })
            }
            DataType::Enum { labels, .. } => {
                let bytes = if labels.len() < 256 { 1 } else { 2 };
                number(code::ENUM, code, metadata, bytes)
            }
            DataType::Set { labels, .. } => {
                let bytes = match labels.len().div_ceil(8) {
                    5.. => 8,
                    bytes => u8::try_from(bytes).ok()?,
                };
                number(code::SET, code, metadata, bytes)
            }
            DataType::Json => (server == Server::MySql && code == code::JSON && low == 4)
                .then_some(Self::Counted { count_bytes: 4 }),
            DataType::Geometry(_) => {
                (code == code::GEOMETRY && low == 4).then_some(Self::Counted { count_bytes: 4 })
            }
            DataType::Vector { dimensions } => match server {
                Server::MySql => {
                    (code == code::VECTOR && low == 4).then_some(Self::Counted { count_bytes: 4 })
                }
                Server::MariaDb => variable(server, code, metadata, dimensions.checked_mul(4)?),
            },
            DataType::Uuid | DataType::Inet6 => fixed(16),
            DataType::Inet4 => fixed(4),
        }
    }
}

pub(super) const fn integer_code(width: Width) -> u8 {
    match width {
        Width::One => code::TINY,
        Width::Two => code::SHORT,
        Width::Three => code::INT24,
        Width::Four => code::LONG,
        Width::Eight => code::LONG_LONG,
    }
}

fn counted(length: u32) -> Layout {
    Layout::Counted { count_bytes: if length > 255 { 2 } else { 1 } }
}

fn variable(server: Server, code: u8, metadata: u16, length: u32) -> Option<Layout> {
    let announced = u32::from(metadata);
    let count_bytes = if announced > 255 { 2 } else { 1 };
    match code {
        code::VARCHAR | code::VAR_STRING => {
            (announced == length).then_some(Layout::Counted { count_bytes })
        }
        // One byte more, for the header of the compressed form.
        code::COMPRESSED_VARCHAR if server == Server::MariaDb => {
            (announced == length + 1).then_some(Layout::CountedCompressed { count_bytes })
        }
        _ => None,
    }
}

fn blob(server: Server, code: u8, announced: u8, size: Size) -> Option<Layout> {
    let count_bytes = size.count_bytes();
    match code {
        code::BLOB => (announced == count_bytes).then_some(Layout::Counted { count_bytes }),
        code::COMPRESSED_BLOB if server == Server::MariaDb => {
            (announced == count_bytes).then_some(Layout::CountedCompressed { count_bytes })
        }
        _ => None,
    }
}

fn number(wanted: u8, code: u8, metadata: u16, bytes: u8) -> Option<Layout> {
    let [first, second] = metadata.to_le_bytes();
    let announced = if code == code::STRING || code == wanted { (first, second) } else { (0, 0) };
    (announced == (wanted, bytes)).then_some(Layout::Number { bytes })
}
