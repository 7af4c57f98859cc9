//! From events to the frame that a guest reads.

use super::{
    CELL_BYTES, FLAG_HAS_RELATION, FLAG_HAS_TRANSACTION, FLAG_MOVED, FLAG_REDELIVERY,
    FLAG_TRANSACTIONAL, HEADER_BYTES, NONE, REQUEST_MAGIC, ROW_BYTES, VERSION, tag,
};
use crate::change::{Change, Event, Operation};
use crate::value::{Row, TemporalSpecial, Value};

/// What of a relation's rows a plugin sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Projection {
    /// Indices into the relation's columns, ascending.
    pub columns: Vec<usize>,
    /// Whether the row before the change is handed over too.
    pub before: bool,
}

/// One event of a call, with the projection of its relation; a message has none.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub event: &'a Event,
    pub projection: Option<&'a Projection>,
}

/// Which call it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub lane: u32,
    /// Numbers the batches of the lane; the same again when a batch is called again.
    pub sequence: u64,
}

/// The batch does not fit the frame's 32-bit offsets: hand over fewer events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("batch larger than a frame can hold (4 GiB of values, 65,535 columns)")]
pub struct TooLarge;

/// Writes frames. Keeps its scratch space from one frame to the next.
#[derive(Debug, Default)]
pub struct Encoder {
    heap: Vec<u8>,
}

impl Encoder {
    /// Replaces what is in `out` by the frame. The same events give the same bytes.
    ///
    /// # Errors
    /// When the frame would not fit its own offsets; `out` is then of no use.
    pub fn encode(
        &mut self,
        call: Call,
        entries: &[Entry<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), TooLarge> {
        out.clear();
        self.heap.clear();
        let cells: usize = entries.iter().map(Entry::cells).sum();
        out.reserve(HEADER_BYTES + entries.len() * ROW_BYTES + cells * CELL_BYTES);
        out.extend_from_slice(&[0; HEADER_BYTES]);

        let mut next_cell = 0;
        for entry in entries {
            entry.write_row(&mut next_cell, out)?;
        }
        for entry in entries {
            entry.write_cells(out, &mut self.heap)?;
        }

        let mut header = [0; HEADER_BYTES];
        let mut fields = Fields::new(&mut header);
        fields.put(REQUEST_MAGIC);
        fields.put(VERSION.to_le_bytes());
        fields.put([0; 2]);
        fields.put(length(entries.len())?.to_le_bytes());
        fields.put(length(cells)?.to_le_bytes());
        fields.put(length(self.heap.len())?.to_le_bytes());
        fields.put(call.lane.to_le_bytes());
        fields.put(call.sequence.to_le_bytes());
        if let Some(place) = out.first_chunk_mut() {
            *place = header;
        }
        out.extend_from_slice(&self.heap);
        Ok(())
    }
}

/// Fills a fixed array from the front. What does not fit is cut off: the sizes are constants of this module, and the
/// vectors would show it.
struct Fields<'a> {
    rest: &'a mut [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a mut [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let rest = std::mem::take(&mut self.rest);
        if let Some((place, rest)) = rest.split_first_chunk_mut() {
            *place = bytes;
            self.rest = rest;
        }
    }
}

fn length(length: usize) -> Result<u32, TooLarge> {
    match u32::try_from(length) {
        Ok(NONE) | Err(_) => Err(TooLarge),
        Ok(length) => Ok(length),
    }
}

impl Entry<'_> {
    fn before(&self) -> Option<&Row> {
        match self.projection {
            Some(projection) if projection.before => self.event.change.before(),
            _ => None,
        }
    }

    fn columns(&self) -> usize {
        match (&self.event.change, self.projection) {
            (Change::Message { .. }, _) => 2,
            (_, Some(projection)) => projection.columns.len(),
            (_, None) => 0,
        }
    }

    fn has_after(&self) -> bool {
        matches!(self.event.change, Change::Message { .. }) || self.event.change.after().is_some()
    }

    fn cells(&self) -> usize {
        let images = usize::from(self.before().is_some()) + usize::from(self.has_after());
        images * self.columns()
    }

    fn write_row(&self, next_cell: &mut usize, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        let columns = self.columns();
        let mut image = |present: bool| {
            if !present {
                return Ok(NONE);
            }
            let first = length(*next_cell)?;
            *next_cell += columns;
            Ok(first)
        };
        let before = image(self.before().is_some())?;
        let after = image(self.has_after())?;
        let event = self.event;
        let relation = event.change.relation();

        let mut row = [0; ROW_BYTES];
        let mut fields = Fields::new(&mut row);
        fields.put(relation.map_or(0, |relation| relation.id.0).to_le_bytes());
        fields.put(relation.map_or(0, |relation| relation.version).to_le_bytes());
        fields.put([operation_number(event.change.operation())]);
        fields.put([flags(event)]);
        fields.put(u16::try_from(columns).map_err(|_| TooLarge)?.to_le_bytes());
        fields.put(before.to_le_bytes());
        fields.put(after.to_le_bytes());
        fields.put(event.position.ordinal.to_le_bytes());
        fields.put(event.position.commit.file().to_le_bytes());
        fields.put(event.position.commit.offset().to_le_bytes());
        fields.put(event.commit_time_micros.to_le_bytes());
        fields.put(transaction(event).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&row);
        Ok(())
    }

    fn write_cells(&self, out: &mut Vec<u8>, heap: &mut Vec<u8>) -> Result<(), TooLarge> {
        if let Change::Message { prefix, content, .. } = &self.event.change {
            write_heap_cell(tag::TEXT, prefix.as_bytes(), out, heap)?;
            return write_heap_cell(tag::BYTES, content, out, heap);
        }
        let Some(projection) = self.projection else { return Ok(()) };
        for row in [self.before(), self.event.change.after()].into_iter().flatten() {
            for &column in &projection.columns {
                // A row shorter than its relation lacks the column, and that is what the guest is told.
                write_value(row.get(column).unwrap_or(&Value::Unavailable), out, heap)?;
            }
        }
        Ok(())
    }
}

const fn operation_number(operation: Operation) -> u8 {
    match operation {
        Operation::Read => 0,
        Operation::Insert => 1,
        Operation::Update => 2,
        Operation::Delete => 3,
        Operation::Truncate => 4,
        Operation::Message => 5,
    }
}

/// The number of its transaction; one that only has a place counts as none.
fn transaction(event: &Event) -> Option<u64> {
    event.transaction.and_then(|transaction| transaction.number())
}

fn flags(event: &Event) -> u8 {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let moved = matches!(
        event.change,
        Change::Insert { moved_from: Some(_), .. } | Change::Delete { moved: true, .. }
    );
    let transactional = matches!(event.change, Change::Message { transactional: true, .. });
    flag(event.redelivery, FLAG_REDELIVERY)
        | flag(moved, FLAG_MOVED)
        | flag(transactional, FLAG_TRANSACTIONAL)
        | flag(transaction(event).is_some(), FLAG_HAS_TRANSACTION)
        | flag(event.change.relation().is_some(), FLAG_HAS_RELATION)
}

#[inline]
fn write_cell(tag: u8, length: u32, word: u64, out: &mut Vec<u8>) {
    let mut cell = [0; CELL_BYTES];
    let mut fields = Fields::new(&mut cell);
    fields.put([tag, 0, 0, 0]);
    fields.put(length.to_le_bytes());
    fields.put(word.to_le_bytes());
    out.extend_from_slice(&cell);
}

#[inline]
fn write_heap_cell(
    tag: u8,
    bytes: &[u8],
    out: &mut Vec<u8>,
    heap: &mut Vec<u8>,
) -> Result<(), TooLarge> {
    let offset = length(heap.len())?;
    write_cell(tag, length(bytes.len())?, u64::from(offset), out);
    heap.extend_from_slice(bytes);
    Ok(())
}

fn write_value(value: &Value, out: &mut Vec<u8>, heap: &mut Vec<u8>) -> Result<(), TooLarge> {
    let signed = i64::cast_unsigned;
    match value {
        Value::Null => write_cell(tag::NULL, 0, 0, out),
        Value::Unavailable => write_cell(tag::UNAVAILABLE, 0, 0, out),
        Value::Boolean(value) => write_cell(tag::BOOLEAN, 0, u64::from(*value), out),
        Value::Int(value) => write_cell(tag::INT, 0, signed(*value), out),
        Value::Uint(value) => write_cell(tag::UINT, 0, *value, out),
        Value::Float32(value) => write_cell(tag::FLOAT32, 0, u64::from(value.to_bits()), out),
        Value::Float64(value) => write_cell(tag::FLOAT64, 0, value.to_bits(), out),
        Value::Decimal(text) => return write_heap_cell(tag::DECIMAL, text.as_bytes(), out, heap),
        Value::Text(text) => return write_heap_cell(tag::TEXT, text.as_bytes(), out, heap),
        Value::Bytes(bytes) => return write_heap_cell(tag::BYTES, bytes, out, heap),
        Value::Json(text) => return write_heap_cell(tag::JSON, text.as_bytes(), out, heap),
        Value::Uuid(bytes) => return write_heap_cell(tag::UUID, bytes, out, heap),
        Value::Date(days) => write_cell(tag::DATE, 0, signed(i64::from(*days)), out),
        Value::Time(micros) => write_cell(tag::TIME, 0, signed(*micros), out),
        Value::TimeTz { micros, offset_seconds } => {
            write_cell(tag::TIME_TZ, offset_seconds.cast_unsigned(), signed(*micros), out);
        }
        Value::Timestamp(micros) => write_cell(tag::TIMESTAMP, 0, signed(*micros), out),
        Value::TimestampTz(micros) => write_cell(tag::TIMESTAMP_TZ, 0, signed(*micros), out),
        Value::Interval { months, days, micros } => {
            let mut interval = [0; 16];
            let mut fields = Fields::new(&mut interval);
            fields.put(months.to_le_bytes());
            fields.put(days.to_le_bytes());
            fields.put(micros.to_le_bytes());
            return write_heap_cell(tag::INTERVAL, &interval, out, heap);
        }
        Value::Bits { length: bits, bytes } => {
            // The length counts bits; the reader derives the bytes from it.
            let offset = length(heap.len())?;
            write_cell(tag::BITS, *bits, u64::from(offset), out);
            let whole = usize::try_from(bits.div_ceil(8)).map_err(|_| TooLarge)?;
            let present = bytes.get(..whole).unwrap_or(bytes);
            heap.extend_from_slice(present);
            heap.resize(heap.len() + whole - present.len(), 0);
        }
        Value::TemporalSpecial(TemporalSpecial::Infinity) => write_cell(tag::INFINITY, 0, 0, out),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => {
            write_cell(tag::NEGATIVE_INFINITY, 0, 0, out);
        }
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => {
            return write_heap_cell(tag::TEMPORAL_LITERAL, text.as_bytes(), out, heap);
        }
        Value::Raw(text) => return write_heap_cell(tag::RAW, text.as_bytes(), out, heap),
    }
    Ok(())
}
