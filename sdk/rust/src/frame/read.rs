//! A request, read where it lies.

use std::borrow::Cow;

use super::{
    CELL_BYTES, FLAG_HAS_RELATION, FLAG_HAS_TRANSACTION, FLAG_MOVED, FLAG_REDELIVERY,
    FLAG_TRANSACTIONAL, HEADER_BYTES, NONE, ROW_BYTES, VERSION, tag,
};
use crate::event::{Operation, Position};
use crate::value::{TemporalSpecial, Value};

const MAGIC: [u8; 4] = *b"DOVE";

/// Takes the parts of a fixed-size entry from its front.
struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// A batch.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    rows: &'a [u8],
    values: Values<'a>,
}

/// The cells and the heap that they point into.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    cells: &'a [[u8; CELL_BYTES]],
    heap: &'a [u8],
}

/// The fixed part of an event.
#[derive(Clone, Copy)]
pub(crate) struct RawRow {
    relation_id: u32,
    relation_version: u32,
    pub(crate) operation: Operation,
    flags: u8,
    pub(crate) before: Option<u32>,
    pub(crate) after: Option<u32>,
    pub(crate) position: Position,
    pub(crate) commit_time_micros: i64,
    transaction: u64,
}

impl<'a> Request<'a> {
    pub(crate) fn read(frame: &'a [u8]) -> Result<Self, &'static str> {
        const CUT_OFF: &str = "cut off";
        let (header, rest) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(CUT_OFF)?;
        let mut parts = Parts(header);
        if parts.take() != Some(MAGIC) {
            return Err("another magic number");
        }
        if parts.take().map(u16::from_le_bytes) != Some(VERSION) {
            return Err("another frame version");
        }
        parts.take::<2>().ok_or(CUT_OFF)?;
        let [rows, cells, heap] = [parts.u32(), parts.u32(), parts.u32()];
        let section =
            |count: Option<u32>, size: usize| usize::try_from(count?).ok()?.checked_mul(size);
        let rows = section(rows, ROW_BYTES).ok_or(CUT_OFF)?;
        let cells = section(cells, CELL_BYTES).ok_or(CUT_OFF)?;
        let heap = section(heap, 1).ok_or(CUT_OFF)?;
        let (rows, rest) = rest.split_at_checked(rows).ok_or(CUT_OFF)?;
        let (cells, rest) = rest.split_at_checked(cells).ok_or(CUT_OFF)?;
        if rest.len() != heap {
            return Err("another length than its header says");
        }
        let (cells, _) = cells.as_chunks();
        Ok(Self { rows, values: Values { cells, heap: rest } })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.len() / ROW_BYTES
    }

    pub(crate) fn values(&self) -> Values<'a> {
        self.values
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<RawRow, &'static str>> + use<'a> {
        let (rows, _) = self.rows.as_chunks();
        rows.iter().map(|row| RawRow::read(row).ok_or("an unknown operation"))
    }
}

impl RawRow {
    #[inline]
    fn read(row: &[u8; ROW_BYTES]) -> Option<Self> {
        let index = |index: u32| if index == NONE { None } else { Some(index) };
        let mut parts = Parts(row);
        let relation_id = parts.u32()?;
        let relation_version = parts.u32()?;
        let [operation, flags, _, _] = parts.take()?;
        let before = index(parts.u32()?);
        let after = index(parts.u32()?);
        let ordinal = parts.u32()?;
        let position = Position { high: parts.u64()?, low: parts.u64()?, ordinal };
        let commit_time_micros = parts.u64()?.cast_signed();
        let transaction = parts.u64()?;
        let operation = *Operation::ALL.get(usize::from(operation))?;
        Some(Self {
            relation_id,
            relation_version,
            operation,
            flags,
            before,
            after,
            position,
            commit_time_micros,
            transaction,
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn relation(&self) -> Option<(u32, u32)> {
        self.has(FLAG_HAS_RELATION).then_some((self.relation_id, self.relation_version))
    }

    pub(crate) fn transaction(&self) -> Option<u64> {
        self.has(FLAG_HAS_TRANSACTION).then_some(self.transaction)
    }

    pub(crate) fn is_redelivery(&self) -> bool {
        self.has(FLAG_REDELIVERY)
    }

    pub(crate) fn is_moved(&self) -> bool {
        self.has(FLAG_MOVED)
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.has(FLAG_TRANSACTIONAL)
    }
}

impl<'a> Values<'a> {
    pub(crate) fn text(&self, cell: u32) -> Option<&'a str> {
        match self.value(cell)? {
            Value::Text(Cow::Borrowed(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, cell: u32) -> Option<&'a [u8]> {
        match self.value(cell)? {
            Value::Bytes(Cow::Borrowed(bytes)) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn value(&self, cell: u32) -> Option<Value<'a>> {
        let mut parts = Parts(self.cells.get(usize::try_from(cell).ok()?)?);
        let [tag, _, _, _] = parts.take()?;
        let length = parts.u32()?;
        let word = parts.u64()?;
        let signed = word.cast_signed();
        let slice = || self.slice(word, length);
        let text = || std::str::from_utf8(self.slice(word, length)?).ok().map(Cow::Borrowed);
        Some(match tag {
            tag::NULL => Value::Null,
            tag::UNAVAILABLE => Value::Unavailable,
            tag::BOOLEAN => Value::Boolean(word != 0),
            tag::INT => Value::Int(signed),
            tag::UINT => Value::Uint(word),
            tag::FLOAT32 => Value::Float32(f32::from_bits(u32::try_from(word).ok()?)),
            tag::FLOAT64 => Value::Float64(f64::from_bits(word)),
            tag::DECIMAL => Value::Decimal(text()?),
            tag::TEXT => Value::Text(text()?),
            tag::BYTES => Value::Bytes(Cow::Borrowed(slice()?)),
            tag::JSON => Value::Json(text()?),
            tag::UUID => Value::Uuid(slice()?.try_into().ok()?),
            tag::DATE => Value::Date(i32::try_from(signed).ok()?),
            tag::TIME => Value::Time(signed),
            tag::TIME_TZ => Value::TimeTz { micros: signed, offset_seconds: length.cast_signed() },
            tag::TIMESTAMP => Value::Timestamp(signed),
            tag::TIMESTAMP_TZ => Value::TimestampTz(signed),
            tag::INTERVAL => {
                let mut parts = Parts(slice()?);
                Value::Interval {
                    months: parts.u32()?.cast_signed(),
                    days: parts.u32()?.cast_signed(),
                    micros: parts.u64()?.cast_signed(),
                }
            }
            tag::BITS => {
                let bytes = Cow::Borrowed(self.slice(word, length.div_ceil(8))?);
                Value::Bits { length, bytes }
            }
            tag::INFINITY => Value::TemporalSpecial(TemporalSpecial::Infinity),
            tag::NEGATIVE_INFINITY => Value::TemporalSpecial(TemporalSpecial::NegativeInfinity),
            tag::TEMPORAL_LITERAL => Value::TemporalSpecial(TemporalSpecial::Literal(text()?)),
            tag::RAW => Value::Raw(text()?),
            _ => return None,
        })
    }

    fn slice(&self, offset: u64, length: u32) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.heap.get(start..end)
    }
}
