//! A value as the column that is there takes it, or not at all.
//!
//! The server rounds fractions to what a column holds, cuts blanks off text, and takes the beginning of a text for a
//! number, in its strict mode as well. What a column would not give back as it was is therefore refused here, before it is sent.

use std::borrow::Cow;

use dovetail_core::decode::print::{self, Printed};
use dovetail_core::value::{TemporalSpecial, Value};
use mysql_async::Value as Bound;

/// What kind of column it is at the outlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Integer,
    /// As text, a 0 would be the year 2000.
    Year,
    Decimal {
        digits: usize,
        scale: usize,
    },
    Float,
    Double,
    Bit,
    Date,
    /// With that many digits of a second's fraction, as the two below.
    DateTime {
        fraction: u32,
    },
    Time {
        fraction: u32,
    },
    /// Blanks at the end are not kept.
    Char {
        characters: usize,
    },
    VarChar {
        characters: usize,
    },
    Text,
    /// Shorter values are filled up.
    Binary {
        bytes: usize,
    },
    Bytes,
    Json,
    /// Geometry and vectors: in the server's own form.
    Opaque,
    /// Labels, addresses: the server judges their text.
    Printed,
}

/// Why a column cannot take a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("it is not a finite number")]
    NotFinite,
    #[error("it has more digits than the column")]
    Digits,
    #[error("it is no number")]
    NotANumber,
    #[error("it is outside the years 0 to 9999")]
    Year,
    #[error("it is outside the range of 838:59:59")]
    Hours,
    #[error("it has a finer fraction of a second than the column")]
    Fraction,
    #[error("it is no date or time that the column can hold")]
    Temporal,
    #[error("it is longer than the column")]
    Length,
    #[error("its length is not the column's, and the server would fill it up")]
    Filled,
    #[error("it ends in a blank, which the column does not keep")]
    Blank,
    #[error("it has more than 64 bits")]
    Bits,
}

impl Form {
    /// Of a type as the server prints it: `decimal(10,2)`, `bigint(20) unsigned`.
    pub(super) fn of(column_type: &str) -> Self {
        let (word, rest) = column_type.split_once(['(', ' ']).unwrap_or((column_type, ""));
        let mut numbers = rest.split(')').next().unwrap_or("").split(',');
        let mut number = || numbers.next().and_then(|text| text.trim().parse::<usize>().ok());
        let length = |length: Option<usize>| length.unwrap_or(1);
        let fraction =
            |digits: Option<usize>| digits.map_or(0, |it| u32::try_from(it).unwrap_or(0));
        match word.to_ascii_lowercase().as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Self::Integer,
            "decimal" => {
                let digits = number().unwrap_or(10);
                Self::Decimal { digits, scale: number().unwrap_or(0) }
            }
            "year" => Self::Year,
            "float" => Self::Float,
            "double" => Self::Double,
            "bit" => Self::Bit,
            "date" => Self::Date,
            "datetime" | "timestamp" => Self::DateTime { fraction: fraction(number()) },
            "time" => Self::Time { fraction: fraction(number()) },
            "char" => Self::Char { characters: length(number()) },
            "varchar" => Self::VarChar { characters: length(number()) },
            "tinytext" | "text" | "mediumtext" | "longtext" => Self::Text,
            "binary" => Self::Binary { bytes: length(number()) },
            "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Self::Bytes,
            "json" => Self::Json,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
            | "multipolygon" | "geomcollection" | "geometrycollection" | "vector" => Self::Opaque,
            _ => Self::Printed,
        }
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Char { .. } | Self::VarChar { .. } | Self::Text)
    }

    /// The value for a parameter. What is null or was not in the log is null.
    pub(super) fn bind(self, value: &Value) -> Result<Bound, Unfit> {
        if matches!(value, Value::Null | Value::Unavailable) {
            return Ok(Bound::NULL);
        }
        match self {
            Self::Integer | Self::Year => integer(value),
            Self::Decimal { digits, scale } => {
                let text = finite(value)?;
                fits(&text, digits, scale)?;
                Ok(bytes(text.as_bytes()))
            }
            Self::Float => float(value),
            Self::Double => double(value),
            Self::Bit => bit(value),
            Self::Date => temporal(value, None).map(|text| bytes(text.as_bytes())),
            Self::DateTime { fraction } => {
                temporal(value, Some(fraction)).map(|text| bytes(text.as_bytes()))
            }
            Self::Time { fraction } => time(value, fraction),
            Self::Char { characters } => {
                let text = text(value);
                if text.ends_with(' ') {
                    return Err(Unfit::Blank);
                }
                short(&text, characters)
            }
            Self::VarChar { characters } => short(&text(value), characters),
            Self::Binary { bytes: length } => {
                let raw = raw(value);
                if raw.len() == length { Ok(bytes(&raw)) } else { Err(Unfit::Filled) }
            }
            Self::Bytes | Self::Opaque => Ok(bytes(&raw(value))),
            Self::Text | Self::Json | Self::Printed => Ok(bytes(text(value).as_bytes())),
        }
    }
}

fn bytes(bytes: &[u8]) -> Bound {
    Bound::Bytes(bytes.to_vec())
}

fn text(value: &Value) -> Cow<'_, str> {
    match print::text(value) {
        Printed::Text(text) => text,
        Printed::Null | Printed::Unavailable => Cow::Borrowed(""),
    }
}

/// Bytes as they are; 16 of a uuid; of anything else its text.
fn raw(value: &Value) -> Cow<'_, [u8]> {
    match value {
        Value::Bytes(bytes) => Cow::Borrowed(bytes),
        Value::Uuid(uuid) => Cow::Borrowed(uuid),
        value => match text(value) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        },
    }
}

/// Blanks that are too many would be cut off with no more than a note.
fn short(text: &str, characters: usize) -> Result<Bound, Unfit> {
    if text.len() > characters && text.chars().count() > characters {
        return Err(Unfit::Length);
    }
    Ok(bytes(text.as_bytes()))
}

/// The decimal text of a finite number.
fn finite(value: &Value) -> Result<Cow<'_, str>, Unfit> {
    let text = match value {
        Value::Boolean(value) => Cow::Borrowed(if *value { "1" } else { "0" }),
        Value::Float32(value) if !value.is_finite() => return Err(Unfit::NotFinite),
        Value::Float64(value) if !value.is_finite() => return Err(Unfit::NotFinite),
        // Without an exponent.
        Value::Float32(value) => Cow::Owned(value.to_string()),
        Value::Float64(value) => Cow::Owned(value.to_string()),
        value => text(value),
    };
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
        && digits.matches('.').count() <= 1;
    match value {
        _ if is_number => Ok(text),
        Value::Decimal(_) => Err(Unfit::NotFinite),
        _ => Err(Unfit::NotANumber),
    }
}

fn fits(text: &str, digits: usize, scale: usize) -> Result<(), Unfit> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.trim_start_matches('-').trim_start_matches('0').len();
    let fraction = fraction.trim_end_matches('0').len();
    if fraction > scale || whole + scale > digits { Err(Unfit::Digits) } else { Ok(()) }
}

fn integer(value: &Value) -> Result<Bound, Unfit> {
    match value {
        Value::Int(value) => Ok(Bound::Int(*value)),
        Value::Uint(value) => Ok(Bound::UInt(*value)),
        value => {
            let text = finite(value)?;
            // The server's own limits are narrower.
            fits(&text, 20, 0)?;
            Ok(bytes(text.split('.').next().unwrap_or("").as_bytes()))
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what changes by it is refused")]
fn float(value: &Value) -> Result<Bound, Unfit> {
    match value {
        Value::Float32(value) if value.is_finite() => Ok(Bound::Float(*value)),
        Value::Float64(value) if value.is_finite() => {
            let narrow = *value as f32;
            if f64::from(narrow).to_bits() == value.to_bits() {
                Ok(Bound::Float(narrow))
            } else {
                Err(Unfit::Digits)
            }
        }
        value => finite(value).map(|text| bytes(text.as_bytes())),
    }
}

fn double(value: &Value) -> Result<Bound, Unfit> {
    match value {
        Value::Float32(value) if value.is_finite() => Ok(Bound::Double(f64::from(*value))),
        Value::Float64(value) if value.is_finite() => Ok(Bound::Double(*value)),
        value => finite(value).map(|text| bytes(text.as_bytes())),
    }
}

/// Bits are a number there, whose last bit is the last.
fn bit(value: &Value) -> Result<Bound, Unfit> {
    match value {
        Value::Bits { length, bytes } if *length <= 64 => {
            let whole = bytes.iter().fold(0_u64, |whole, byte| (whole << 8) | u64::from(*byte));
            let padding = u32::try_from(bytes.len() * 8).unwrap_or(64).saturating_sub(*length);
            Ok(Bound::UInt(whole >> padding.min(63)))
        }
        Value::Bits { .. } => Err(Unfit::Bits),
        Value::Boolean(value) => Ok(Bound::UInt(u64::from(*value))),
        value => integer(value),
    }
}

/// The text of a date, or of a date and time.
fn temporal(value: &Value, fraction: Option<u32>) -> Result<String, Unfit> {
    let printed = match value {
        // The outlet's sessions are in UTC.
        Value::TimestampTz(micros) => text(&Value::Timestamp(*micros)).into_owned(),
        Value::Date(_) | Value::Timestamp(_) | Value::Text(_) | Value::Raw(_) => {
            text(value).into_owned()
        }
        // A zero date of MySQL's.
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => text.as_str().to_owned(),
        Value::TemporalSpecial(_) => return Err(Unfit::Temporal),
        _ => return Err(Unfit::Temporal),
    };
    // The year before the first is 0 there.
    let printed = match printed.strip_suffix(" BC") {
        Some(before) if before.starts_with("0001-") => before.replacen("0001-", "0000-", 1),
        Some(_) => return Err(Unfit::Year),
        None => printed,
    };
    if printed.find('-') != Some(4) {
        return Err(Unfit::Year);
    }
    let (date, rest) = printed.split_once(' ').unwrap_or((&printed, ""));
    let (time, point) = rest.split_once('.').unwrap_or((rest, ""));
    let shaped = |text: &str, mark: char, lengths: &[usize]| {
        text.split(mark).map(str::len).eq(lengths.iter().copied())
            && text.chars().all(|c| c == mark || c.is_ascii_digit())
    };
    let is_time = time.is_empty() || shaped(time, ':', &[2, 2, 2]);
    if !shaped(date, '-', &[4, 2, 2]) || !is_time || !point.chars().all(|c| c.is_ascii_digit()) {
        return Err(Unfit::Temporal);
    }
    let finest = point.trim_end_matches('0').len();
    match fraction {
        None if time.chars().any(|c| c.is_ascii_digit() && c != '0') || finest > 0 => {
            Err(Unfit::Temporal)
        }
        Some(digits) if finest > usize::try_from(digits).unwrap_or(0) => Err(Unfit::Fraction),
        _ => Ok(printed),
    }
}

const MICROS_PER_SECOND: u64 = 1_000_000;
/// 838:59:59, the longest there is.
const SECONDS_MAX: u64 = 838 * 3_600 + 59 * 60 + 59;

fn time(value: &Value, fraction: u32) -> Result<Bound, Unfit> {
    let micros = match value {
        Value::Time(micros) => *micros,
        Value::Text(_) | Value::Raw(_) => return Ok(bytes(text(value).as_bytes())),
        _ => return Err(Unfit::Temporal),
    };
    let (seconds, rest) =
        (micros.unsigned_abs() / MICROS_PER_SECOND, micros.unsigned_abs() % MICROS_PER_SECOND);
    if micros.unsigned_abs() > SECONDS_MAX * MICROS_PER_SECOND {
        return Err(Unfit::Hours);
    }
    if rest % 10_u64.pow(6 - fraction.min(6)) != 0 {
        return Err(Unfit::Fraction);
    }
    let sign = if micros < 0 { "-" } else { "" };
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    Ok(bytes(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{rest:06}").as_bytes()))
}
