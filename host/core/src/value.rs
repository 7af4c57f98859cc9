//! Column values, without loss.
//!
//! One enum carries every type of every source. Numbers that fit a machine word are words; everything whose exact
//! form only the source knows stays the source's text. [`Value::Unavailable`] (the column was not in the row image) is
//! not [`Value::Null`]: an outlet that writes one for the other destroys data.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// UTF-8 text that shares the buffer it was read into.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Bytes);

/// The bytes are not UTF-8. They are not repeated here: a value never enters a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("text that is not utf-8")]
pub struct NotUtf8;

impl Text {
    /// # Errors
    /// When the bytes are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, NotUtf8> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(NotUtf8),
        }
    }

    /// The part of a buffer that was found to be text already, so that it is not looked at again.
    ///
    /// # Panics
    /// When the text does not lie in the buffer.
    pub(crate) fn shared(buffer: &Bytes, text: &str) -> Self {
        Self(buffer.slice_ref(text.as_bytes()))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text.into_bytes()))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One column of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    /// Not in the row image: unchanged TOAST, a column outside the replica identity of an old row, or one that
    /// `binlog_row_image` leaves out.
    Unavailable,
    Boolean(bool),
    Int(i64),
    Uint(u64),
    Float32(f32),
    Float64(f64),
    /// The source's decimal text; also `NaN`, `Infinity`, `-Infinity`. `1.0` and `1.00` stay what they are.
    Decimal(Text),
    Text(Text),
    Bytes(Bytes),
    /// Unparsed, exactly as the source gave it, or as it prints what its log holds in binary.
    Json(Text),
    /// Big-endian, as printed.
    Uuid([u8; 16]),
    /// Days since 1970-01-01, proleptic Gregorian.
    Date(i32),
    /// Microseconds since midnight; PostgreSQL's 24:00:00 is 86,400,000,000. MySQL's and MariaDB's TIME is a duration:
    /// negative as well, and up to 838:59:59, far beyond a day.
    Time(i64),
    /// Microseconds since midnight and the zone's offset in seconds east of UTC.
    TimeTz {
        micros: i64,
        offset_seconds: i32,
    },
    /// Wall clock without a zone: microseconds since 1970-01-01 00:00:00.
    Timestamp(i64),
    /// Instant: microseconds since the Unix epoch.
    TimestampTz(i64),
    /// Not a duration: a month has no fixed length, a day may have 25 hours.
    Interval {
        months: i32,
        days: i32,
        micros: i64,
    },
    /// `length` bits, first bit in the most significant place, the last byte padded with zeros.
    Bits {
        length: u32,
        bytes: Bytes,
    },
    TemporalSpecial(TemporalSpecial),
    /// Arrays, composites, ranges, enums, network and geometric types, extension types: the source's text form; the
    /// column's type name says how to read it.
    Raw(Text),
}

/// A date or time that no integer holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TemporalSpecial {
    Infinity,
    NegativeInfinity,
    /// The source's text, for what lies outside the integer's range, or outside the calendar (`2020-00-00`).
    Literal(Text),
}

impl Value {
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    /// Bytes that the value keeps alive beside its own size; for the limits of batches, which count memory.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Decimal(text) | Self::Text(text) | Self::Json(text) | Self::Raw(text) => {
                text.0.len()
            }
            Self::TemporalSpecial(TemporalSpecial::Literal(text)) => text.0.len(),
            Self::Bytes(bytes) | Self::Bits { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}

/// The values of one row, in the order of its relation's columns.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Row(Vec<Value>);

impl Row {
    pub fn new(values: Vec<Value>) -> Self {
        Self(values)
    }

    pub fn get(&self, column: usize) -> Option<&Value> {
        self.0.get(column)
    }

    pub fn get_mut(&mut self, column: usize) -> Option<&mut Value> {
        self.0.get_mut(column)
    }

    pub fn values(&self) -> &[Value] {
        &self.0
    }

    pub fn into_values(self) -> Vec<Value> {
        self.0
    }

    /// Whether every column was in the row image.
    pub fn is_whole(&self) -> bool {
        !self.0.contains(&Value::Unavailable)
    }

    /// Approximate memory of the row, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().map(|value| size_of::<Value>() + value.heap_bytes()).sum()
    }
}
