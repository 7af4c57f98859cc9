//! Column values.

use std::borrow::Cow;

/// One column of one row. What is read borrows from the batch; what is written may own.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    /// Not in the row image. Not null: to write one for the other destroys data.
    Unavailable,
    Boolean(bool),
    Int(i64),
    Uint(u64),
    Float32(f32),
    Float64(f64),
    /// The source's decimal text; also `NaN`, `Infinity`, `-Infinity`.
    Decimal(Cow<'a, str>),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Unparsed, exactly as the source gave it.
    Json(Cow<'a, str>),
    /// Big-endian, as printed.
    Uuid([u8; 16]),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    TimeTz {
        micros: i64,
        /// East of UTC.
        offset_seconds: i32,
    },
    /// Wall clock: microseconds since 1970-01-01 00:00:00.
    Timestamp(i64),
    /// Instant: microseconds since the Unix epoch.
    TimestampTz(i64),
    Interval {
        months: i32,
        days: i32,
        micros: i64,
    },
    /// `length` bits, the first in the most significant place.
    Bits {
        length: u32,
        bytes: Cow<'a, [u8]>,
    },
    TemporalSpecial(TemporalSpecial<'a>),
    /// The source's text; the column's type name says how to read it.
    Raw(Cow<'a, str>),
}

/// A date or time that no integer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemporalSpecial<'a> {
    Infinity,
    NegativeInfinity,
    Literal(Cow<'a, str>),
}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// The text of a text, decimal, JSON or raw value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Decimal(text) | Self::Text(text) | Self::Json(text) | Self::Raw(text) => {
                Some(text)
            }
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Uint(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}
