//! One value of a row image, as the log holds it.
//!
//! Nothing is guessed: bytes that no server writes for the type are an error with the column's name, and never with the
//! value. Numbers allocate nothing; text that is UTF-8 already, bytes and geometries share the event's buffer.

use bytes::Bytes;

use super::charset::NotText;
use super::compressed;
use super::decimal;
use super::definition::{ColumnDefinition, DataType, Width};
use super::inet::{inet4, inet6};
use super::json::{self, Document};
use super::layout::Layout;
use super::temporal;
use crate::value::Value;

/// Why bytes are not a value of their column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    #[error("the row ends before the value does")]
    Short,
    #[error("bytes that no server writes for this type")]
    Malformed,
    #[error("a number without a label")]
    Label,
    #[error(transparent)]
    Text(#[from] NotText),
    #[error("a compressed value that does not unpack")]
    Compressed,
    #[error("json: {0}")]
    Json(#[from] json::Invalid),
    #[error("a client's value of another type")]
    Client,
}

/// Says which column, and nothing of the value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column} of type {type_name}: {reason}")]
pub struct InvalidCell {
    pub column: String,
    pub type_name: String,
    #[source]
    pub reason: Reason,
}

impl InvalidCell {
    #[cold]
    pub(super) fn new(definition: &ColumnDefinition, reason: Reason) -> Self {
        Self { column: definition.name.clone(), type_name: definition.type_name(), reason }
    }
}

/// The value that begins at a place of the buffer, and the place behind it.
///
/// # Errors
/// When the bytes are not a value of this column.
pub fn cell(
    definition: &ColumnDefinition,
    buffer: &Bytes,
    at: usize,
) -> Result<(Value, usize), InvalidCell> {
    read(definition, buffer, at).map_err(|reason| InvalidCell::new(definition, reason))
}

pub(super) fn read(
    definition: &ColumnDefinition,
    buffer: &Bytes,
    at: usize,
) -> Result<(Value, usize), Reason> {
    let rest = buffer.get(at..).ok_or(Reason::Short)?;
    let take = |length: usize| rest.get(..length).ok_or(Reason::Short);
    let (value, length) = match definition.layout {
        Layout::Integer { width, unsigned } => integer(rest, width, unsigned)?,
        Layout::Float => (Value::Float32(f32::from_le_bytes(array(rest)?)), 4),
        Layout::Double => (Value::Float64(f64::from_le_bytes(array(rest)?)), 8),
        Layout::Decimal { precision, scale } => {
            let length = decimal::length(precision, scale)?;
            (Value::Decimal(decimal::text(precision, scale, take(length)?)?.into()), length)
        }
        Layout::Year => {
            let [year] = array(rest)?;
            (Value::Int(if year == 0 { 0 } else { 1_900 + i64::from(year) }), 1)
        }
        Layout::Date => (temporal::date(take(3)?)?, 3),
        Layout::Time { fraction } => {
            let length = 3 + temporal::fraction_bytes(fraction);
            (temporal::time(take(length)?)?, length)
        }
        Layout::DateTime { fraction } => {
            let length = 5 + temporal::fraction_bytes(fraction);
            (temporal::date_time(take(length)?, fraction)?, length)
        }
        Layout::Timestamp { fraction } => {
            let length = 4 + temporal::fraction_bytes(fraction);
            (temporal::timestamp(take(length)?, fraction)?, length)
        }
        Layout::OldTime { fraction } => {
            let length = temporal::old_time_bytes(fraction);
            (temporal::old_time(take(length)?, fraction)?, length)
        }
        Layout::OldDateTime { fraction } => {
            let length = temporal::old_date_time_bytes(fraction);
            (temporal::old_date_time(take(length)?, fraction)?, length)
        }
        Layout::OldTimestamp { fraction } => {
            let length = temporal::old_timestamp_bytes(fraction);
            (temporal::old_timestamp(take(length)?, fraction)?, length)
        }
        Layout::Bits { bytes } => {
            let length = usize::from(bytes);
            (bits(&definition.data_type, take(length)?)?, length)
        }
        Layout::Number { bytes } => {
            let length = usize::from(bytes);
            (label(&definition.data_type, take(length)?)?, length)
        }
        Layout::Counted { count_bytes } => {
            let (start, end) = content(rest, count_bytes)?;
            let bytes = buffer.slice(at + start..at + end);
            (counted(&definition.data_type, bytes)?, end)
        }
        Layout::CountedCompressed { count_bytes } => {
            let (start, end) = content(rest, count_bytes)?;
            let packed = buffer.slice(at + start..at + end);
            (counted(&definition.data_type, compressed::unpack(packed)?)?, end)
        }
    };
    Ok((value, at + length))
}

/// Where the content of a counted value begins and ends.
pub(super) fn content(rest: &[u8], count_bytes: u8) -> Result<(usize, usize), Reason> {
    let start = usize::from(count_bytes);
    let count = rest.get(..start).ok_or(Reason::Short)?;
    let length = usize::try_from(little_endian(count)).map_err(|_| Reason::Short)?;
    let end = start.checked_add(length).ok_or(Reason::Short)?;
    if end > rest.len() {
        return Err(Reason::Short);
    }
    Ok((start, end))
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Reason> {
    bytes.first_chunk().copied().ok_or(Reason::Short)
}

fn integer(rest: &[u8], width: Width, unsigned: bool) -> Result<(Value, usize), Reason> {
    let value = |signed: i64, whole: u64| {
        if unsigned { Value::Uint(whole) } else { Value::Int(signed) }
    };
    Ok(match width {
        Width::One => {
            let bytes = array(rest)?;
            (value(i8::from_le_bytes(bytes).into(), u8::from_le_bytes(bytes).into()), 1)
        }
        Width::Two => {
            let bytes = array(rest)?;
            (value(i16::from_le_bytes(bytes).into(), u16::from_le_bytes(bytes).into()), 2)
        }
        Width::Three => {
            let [low, middle, high] = array(rest)?;
            // Shifted down from the top of four bytes, so that the sign comes along.
            let signed = i32::from_le_bytes([0, low, middle, high]) >> 8;
            (value(signed.into(), u32::from_le_bytes([low, middle, high, 0]).into()), 3)
        }
        Width::Four => {
            let bytes = array(rest)?;
            (value(i32::from_le_bytes(bytes).into(), u32::from_le_bytes(bytes).into()), 4)
        }
        Width::Eight => {
            let bytes = array(rest)?;
            (value(i64::from_le_bytes(bytes), u64::from_le_bytes(bytes)), 8)
        }
    })
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// From bits that end at the last byte's end to bits that begin at the first byte's beginning.
pub(super) fn bits(data_type: &DataType, bytes: &[u8]) -> Result<Value, Reason> {
    let DataType::Bit { length } = *data_type else { return Err(Reason::Malformed) };
    let unused = (8 - length % 8) % 8;
    let Some((first, _)) = bytes.split_first() else { return Err(Reason::Short) };
    if u32::try_from(bytes.len()) != Ok(length.div_ceil(8))
        || u32::from(*first) >= 1 << (8 - unused)
    {
        return Err(Reason::Malformed);
    }
    let number = bytes.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    let shifted = (number << unused).to_be_bytes();
    let shifted = shifted.get(8 - bytes.len()..).ok_or(Reason::Malformed)?;
    Ok(Value::Bits { length, bytes: Bytes::copy_from_slice(shifted) })
}

fn label(data_type: &DataType, bytes: &[u8]) -> Result<Value, Reason> {
    let number = little_endian(bytes);
    let text = match data_type {
        DataType::Enum { labels, .. } => labels.of_enum(number),
        DataType::Set { labels, .. } => labels.of_set(number),
        _ => None,
    };
    Ok(Value::Raw(text.ok_or(Reason::Label)?))
}

fn counted(data_type: &DataType, bytes: Bytes) -> Result<Value, Reason> {
    Ok(match data_type {
        DataType::Char { charset, .. }
        | DataType::VarChar { charset, .. }
        | DataType::Text { charset, .. } => Value::Text(charset.text(bytes)?),
        DataType::VarBinary { .. } | DataType::Blob(_) | DataType::Geometry(_) => {
            Value::Bytes(bytes)
        }
        DataType::Vector { dimensions } => vector(*dimensions, bytes)?,
        DataType::Binary { length } => Value::Bytes(padded(*length, bytes)?),
        DataType::Json => Value::Json(Document::parse(&bytes)?.to_text()?),
        DataType::Uuid => Value::Uuid(full(&bytes)?),
        DataType::Inet4 => Value::Raw(inet4(full(&bytes)?)),
        DataType::Inet6 => Value::Raw(inet6(full(&bytes)?)),
        _ => return Err(Reason::Malformed),
    })
}

/// A vector's dimensions are its maximum.
pub(super) fn vector(dimensions: u32, bytes: Bytes) -> Result<Value, Reason> {
    let most = u64::from(dimensions) * 4;
    let length = u64::try_from(bytes.len()).map_err(|_| Reason::Malformed)?;
    if length > most || length % 4 != 0 { Err(Reason::Malformed) } else { Ok(Value::Bytes(bytes)) }
}

/// The log leaves out the zero bytes at the end of a BINARY value.
pub(super) fn padded(length: u32, bytes: Bytes) -> Result<Bytes, Reason> {
    let length = usize::try_from(length).map_err(|_| Reason::Malformed)?;
    if bytes.len() > length {
        return Err(Reason::Malformed);
    }
    if bytes.len() == length {
        return Ok(bytes);
    }
    let mut padded = Vec::with_capacity(length);
    padded.extend_from_slice(&bytes);
    padded.resize(length, 0);
    Ok(padded.into())
}

fn full<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Reason> {
    let mut full = [0; N];
    full.get_mut(..bytes.len()).ok_or(Reason::Malformed)?.copy_from_slice(bytes);
    Ok(full)
}
