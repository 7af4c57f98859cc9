//! From the frame that a guest returns to outcomes.

use bytes::Bytes;

use super::{
    CELL_BYTES, EMISSION_BYTES, HEADER_BYTES, NONE, OUTCOME_BYTES, PAIR_BYTES, REPLY_MAGIC,
    VERSION, tag,
};
use crate::outcome::{Cell, Emission, Failure, FailureClass, Outcome, Payload};
use crate::value::{Row, TemporalSpecial, Text, Value};

/// What is wrong with a reply, for the plugin's author.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidFrame {
    #[error("reply does not begin with `DOVR`")]
    Magic,
    #[error("reply of frame version {0}, of which this host reads 1 only")]
    Version(u16),
    #[error("reply of {found} bytes, but its header says {announced}")]
    Length { announced: u64, found: usize },
    #[error("{found} outcomes for {expected} events")]
    OutcomeCount { expected: usize, found: usize },
    #[error("unknown kind {0} of outcome")]
    OutcomeKind(u32),
    #[error("unknown kind {0} of payload")]
    PayloadKind(u32),
    #[error("unknown failure class {0}")]
    FailureClass(u32),
    #[error("unknown tag {0} of a value")]
    Tag(u8),
    #[error("value whose word does not fit its tag {0}")]
    Word(u8),
    #[error("{0} are not used in order, each once")]
    Order(&'static str),
    #[error("reference beyond the heap, or more references than the heap has bytes")]
    Heap,
    #[error("text that is not utf-8")]
    NotUtf8,
}

/// Reads a reply to a call with `events` events. Columns are indices into the projection, as the guest knows them.
///
/// # Errors
/// When the bytes are not a reply to such a call. Nothing of it may then be used.
pub fn decode_reply(bytes: &[u8], events: usize) -> Result<Vec<Outcome>, InvalidFrame> {
    let mut sections = Sections::split(bytes, events)?;
    let mut outcomes = Vec::with_capacity(events);
    let mut entries = sections.outcomes;
    while let Some(entry) = take_words::<OUTCOME_BYTES, 3>(&mut entries) {
        outcomes.push(sections.outcome(entry)?);
    }
    sections.finish()?;
    Ok(outcomes)
}

struct Header {
    outcomes: u32,
    cells: u32,
    emissions: u32,
    pairs: u32,
    heap: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, InvalidFrame> {
        let mut rest = bytes;
        let header = take_words::<HEADER_BYTES, 8>(&mut rest).ok_or(InvalidFrame::Magic)?;
        let [magic, version, outcomes, cells, emissions, pairs, heap, reserved] = header;
        if magic.to_le_bytes() != REPLY_MAGIC {
            return Err(InvalidFrame::Magic);
        }
        let [low, high, reserved_low, reserved_high] = version.to_le_bytes();
        let version = u16::from_le_bytes([low, high]);
        if version != VERSION {
            return Err(InvalidFrame::Version(version));
        }
        if reserved != 0 || reserved_low != 0 || reserved_high != 0 {
            return Err(InvalidFrame::Order("reserved fields"));
        }
        Ok(Self { outcomes, cells, emissions, pairs, heap })
    }
}

/// The parts of a reply. Each is consumed from its front, so that an entry can serve one outcome only.
struct Sections<'a> {
    outcomes: &'a [u8],
    cells: Cursor<'a>,
    emissions: Cursor<'a>,
    pairs: Cursor<'a>,
    /// Copied out of the reply once; values are slices of it.
    heap: Bytes,
    heap_budget: usize,
}

struct Cursor<'a> {
    rest: &'a [u8],
    next: u32,
    name: &'static str,
}

impl<'a> Cursor<'a> {
    fn new(rest: &'a [u8], name: &'static str) -> Self {
        Self { rest, next: 0, name }
    }

    /// Checks that the range starts where the last one ended.
    fn begin(&self, first: u32, count: u32) -> Result<(), InvalidFrame> {
        // Without entries there is nothing to point at, so the index means nothing.
        if count != 0 && first != self.next {
            return Err(InvalidFrame::Order(self.name));
        }
        Ok(())
    }

    fn take<const BYTES: usize, const WORDS: usize>(
        &mut self,
    ) -> Result<[u32; WORDS], InvalidFrame> {
        let words = take_words::<BYTES, WORDS>(&mut self.rest);
        self.next = self.next.saturating_add(1);
        words.ok_or(InvalidFrame::Order(self.name))
    }
}

/// The next `WORDS` 32-bit words of an entry of `BYTES` bytes, which are four times as many.
fn take_words<const BYTES: usize, const WORDS: usize>(rest: &mut &[u8]) -> Option<[u32; WORDS]> {
    let (entry, behind) = rest.split_first_chunk::<BYTES>()?;
    *rest = behind;
    let mut words = [0; WORDS];
    let (chunks, _) = entry.as_chunks::<4>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u32::from_le_bytes(*chunk);
    }
    Some(words)
}

fn size(count: u32, each: usize) -> u64 {
    u64::from(count) * each as u64
}

fn index(value: u32) -> Result<usize, InvalidFrame> {
    usize::try_from(value).map_err(|_| InvalidFrame::Heap)
}

impl<'a> Sections<'a> {
    fn split(bytes: &'a [u8], events: usize) -> Result<Self, InvalidFrame> {
        let header = Header::read(bytes)?;
        let sizes = [
            size(header.outcomes, OUTCOME_BYTES),
            size(header.cells, CELL_BYTES),
            size(header.emissions, EMISSION_BYTES),
            size(header.pairs, PAIR_BYTES),
            u64::from(header.heap),
        ];
        // Five products below 2^38 each: no overflow.
        let announced = HEADER_BYTES as u64 + sizes.iter().sum::<u64>();
        let wrong = InvalidFrame::Length { announced, found: bytes.len() };
        if u64::try_from(bytes.len()) != Ok(announced) {
            return Err(wrong);
        }
        let found = index(header.outcomes)?;
        if found != events {
            return Err(InvalidFrame::OutcomeCount { expected: events, found });
        }
        let mut rest = bytes.get(HEADER_BYTES..).ok_or(wrong)?;
        let mut section = |size: u64| {
            let (section, behind) = rest.split_at_checked(usize::try_from(size).ok()?)?;
            rest = behind;
            Some(section)
        };
        let [outcomes, cells, emissions, pairs, heap] = sizes.map(&mut section);
        let heap = heap.ok_or(wrong)?;
        Ok(Self {
            outcomes: outcomes.ok_or(wrong)?,
            cells: Cursor::new(cells.ok_or(wrong)?, "cells"),
            emissions: Cursor::new(emissions.ok_or(wrong)?, "emissions"),
            pairs: Cursor::new(pairs.ok_or(wrong)?, "pairs"),
            heap: Bytes::copy_from_slice(heap),
            heap_budget: heap.len(),
        })
    }

    fn finish(&self) -> Result<(), InvalidFrame> {
        for cursor in [&self.cells, &self.emissions, &self.pairs] {
            if !cursor.rest.is_empty() {
                return Err(InvalidFrame::Order(cursor.name));
            }
        }
        Ok(())
    }

    fn outcome(&mut self, [kind, first, count]: [u32; 3]) -> Result<Outcome, InvalidFrame> {
        Ok(match kind {
            0 => Outcome::Pass,
            1 => Outcome::Drop,
            2 => Outcome::Patch(self.patch(first, count)?),
            3 => {
                self.emissions.begin(first, count)?;
                let emissions = (0..count).map(|_| self.emission()).collect::<Result<_, _>>()?;
                Outcome::Emit(emissions)
            }
            4 => Outcome::Route(self.route(first, count)?),
            5 => Outcome::Fail(self.failure(first, count)?),
            unknown => return Err(InvalidFrame::OutcomeKind(unknown)),
        })
    }

    fn patch(&mut self, first: u32, count: u32) -> Result<Vec<Cell>, InvalidFrame> {
        self.cells.begin(first, count)?;
        (0..count).map(|_| self.cell()).collect()
    }

    fn row(&mut self, first: u32, count: u32) -> Result<Row, InvalidFrame> {
        let cells = self.patch(first, count)?;
        Ok(Row::new(cells.into_iter().map(|cell| cell.value).collect()))
    }

    fn route(&mut self, offset: u32, count: u32) -> Result<Vec<u16>, InvalidFrame> {
        let bytes = count.checked_mul(2).ok_or(InvalidFrame::Heap)?;
        let bytes = self.slice(offset, index(bytes)?)?;
        let (targets, _) = bytes.as_chunks::<2>();
        Ok(targets.iter().map(|target| u16::from_le_bytes(*target)).collect())
    }

    fn failure(&mut self, pair: u32, class: u32) -> Result<Failure, InvalidFrame> {
        self.pairs.begin(pair, 1)?;
        let [code, code_bytes, message, message_bytes] = self.pairs.take::<PAIR_BYTES, 4>()?;
        let class = match class {
            0 => FailureClass::InvalidData,
            1 => FailureClass::Unsupported,
            2 => FailureClass::Internal,
            unknown => return Err(InvalidFrame::FailureClass(unknown)),
        };
        let code = self.string(code, code_bytes)?;
        let message = self.string(message, message_bytes)?;
        Ok(Failure { class, code, message })
    }

    fn emission(&mut self) -> Result<Emission, InvalidFrame> {
        let words = self.emissions.take::<EMISSION_BYTES, 9>()?;
        let [topic, topic_bytes, key, key_bytes, kind, first, count, pair, pairs] = words;
        let topic = match topic {
            NONE => None,
            offset => Some(self.string(offset, topic_bytes)?),
        };
        let key = match key {
            NONE => None,
            offset => Some(self.slice(offset, index(key_bytes)?)?),
        };
        let payload = match kind {
            0 => Payload::Row(self.row(first, count)?),
            1 => Payload::Bytes(self.slice(first, index(count)?)?),
            2 => Payload::Tombstone,
            unknown => return Err(InvalidFrame::PayloadKind(unknown)),
        };
        self.pairs.begin(pair, pairs)?;
        let headers = (0..pairs).map(|_| self.header()).collect::<Result<_, _>>()?;
        Ok(Emission { topic, key, payload, headers })
    }

    fn header(&mut self) -> Result<(String, Bytes), InvalidFrame> {
        let [name, name_bytes, value, value_bytes] = self.pairs.take::<PAIR_BYTES, 4>()?;
        Ok((self.string(name, name_bytes)?, self.slice(value, index(value_bytes)?)?))
    }

    fn slice(&mut self, offset: u32, length: usize) -> Result<Bytes, InvalidFrame> {
        let start = index(offset)?;
        let end = start.checked_add(length).ok_or(InvalidFrame::Heap)?;
        self.heap_budget = self.heap_budget.checked_sub(length).ok_or(InvalidFrame::Heap)?;
        if end > self.heap.len() {
            return Err(InvalidFrame::Heap);
        }
        Ok(self.heap.slice(start..end))
    }

    fn text(&mut self, offset: u32, length: u32) -> Result<Text, InvalidFrame> {
        let bytes = self.slice(offset, index(length)?)?;
        Text::from_utf8(bytes).map_err(|_| InvalidFrame::NotUtf8)
    }

    fn string(&mut self, offset: u32, length: u32) -> Result<String, InvalidFrame> {
        Ok(self.text(offset, length)?.as_str().to_owned())
    }

    fn cell(&mut self) -> Result<Cell, InvalidFrame> {
        let [head, length, low, high] = self.cells.take::<CELL_BYTES, 4>()?;
        let [tag, _, column_low, column_high] = head.to_le_bytes();
        let column = usize::from(u16::from_le_bytes([column_low, column_high]));
        let word = u64::from(high) << 32 | u64::from(low);
        Ok(Cell { column, value: self.value(tag, length, word)? })
    }

    fn value(&mut self, tag: u8, length: u32, word: u64) -> Result<Value, InvalidFrame> {
        let wrong = InvalidFrame::Word(tag);
        let offset = || u32::try_from(word).map_err(|_| InvalidFrame::Heap);
        let signed = word.cast_signed();
        Ok(match tag {
            tag::NULL => Value::Null,
            tag::UNAVAILABLE => Value::Unavailable,
            tag::BOOLEAN => Value::Boolean(match word {
                0 => false,
                1 => true,
                _ => return Err(wrong),
            }),
            tag::INT => Value::Int(signed),
            tag::UINT => Value::Uint(word),
            tag::FLOAT32 => Value::Float32(f32::from_bits(u32::try_from(word).map_err(|_| wrong)?)),
            tag::FLOAT64 => Value::Float64(f64::from_bits(word)),
            tag::DECIMAL => Value::Decimal(self.text(offset()?, length)?),
            tag::TEXT => Value::Text(self.text(offset()?, length)?),
            tag::BYTES => Value::Bytes(self.slice(offset()?, index(length)?)?),
            tag::JSON => Value::Json(self.text(offset()?, length)?),
            tag::UUID => Value::Uuid(self.sixteen(offset()?, length, wrong)?),
            tag::DATE => Value::Date(i32::try_from(signed).map_err(|_| wrong)?),
            tag::TIME => Value::Time(signed),
            tag::TIME_TZ => Value::TimeTz { micros: signed, offset_seconds: length.cast_signed() },
            tag::TIMESTAMP => Value::Timestamp(signed),
            tag::TIMESTAMP_TZ => Value::TimestampTz(signed),
            tag::INTERVAL => interval(self.sixteen(offset()?, length, wrong)?),
            tag::BITS => {
                let bytes = self.slice(offset()?, index(length.div_ceil(8))?)?;
                Value::Bits { length, bytes }
            }
            tag::INFINITY => Value::TemporalSpecial(TemporalSpecial::Infinity),
            tag::NEGATIVE_INFINITY => Value::TemporalSpecial(TemporalSpecial::NegativeInfinity),
            tag::TEMPORAL_LITERAL => {
                Value::TemporalSpecial(TemporalSpecial::Literal(self.text(offset()?, length)?))
            }
            tag::RAW => Value::Raw(self.text(offset()?, length)?),
            unknown => return Err(InvalidFrame::Tag(unknown)),
        })
    }

    fn sixteen(
        &mut self,
        offset: u32,
        length: u32,
        wrong: InvalidFrame,
    ) -> Result<[u8; 16], InvalidFrame> {
        let bytes = self.slice(offset, index(length)?)?;
        <[u8; 16]>::try_from(bytes.as_ref()).map_err(|_| wrong)
    }
}

fn interval(bytes: [u8; 16]) -> Value {
    let [a, b, c, d, e, f, g, h, micros @ ..] = bytes;
    Value::Interval {
        months: i32::from_le_bytes([a, b, c, d]),
        days: i32::from_le_bytes([e, f, g, h]),
        micros: i64::from_le_bytes(micros),
    }
}
