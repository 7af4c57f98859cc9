//! A reply, collected outcome by outcome.

use super::{NONE, VERSION, tag};
use crate::outcome::{Emission, Failure, FailureClass, Outcome, Payload, Place};
use crate::relation::Relation;
use crate::value::{TemporalSpecial, Value};

const MAGIC: [u8; 4] = *b"DOVR";

/// Keeps its buffers from one reply to the next.
#[derive(Default)]
pub(crate) struct Writer {
    outcomes: Section,
    cells: Section,
    emissions: Section,
    pairs: Section,
    heap: Vec<u8>,
    overflow: bool,
}

#[derive(Default)]
struct Section {
    bytes: Vec<u8>,
    count: u32,
}

impl Section {
    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    fn push<const WORDS: usize>(&mut self, words: [u32; WORDS]) {
        for word in words {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.count = self.count.saturating_add(1);
    }
}

impl Writer {
    pub(crate) fn begin(&mut self, outcomes: usize) {
        self.outcomes.clear();
        self.cells.clear();
        self.emissions.clear();
        self.pairs.clear();
        self.heap.clear();
        self.overflow = false;
        self.outcomes.bytes.reserve(outcomes * 12);
    }

    /// The relation resolves the names of a patch; a message has none.
    pub(crate) fn push(&mut self, outcome: Outcome, relation: Option<&Relation>) {
        let entry = match outcome {
            Outcome::Pass => [0, 0, 0],
            Outcome::Drop => [1, 0, 0],
            Outcome::Patch(patch) => match self.patch(&patch.cells, relation) {
                Some(entry) => entry,
                None => self.failure(&unknown_column()),
            },
            Outcome::Emit(emissions) => {
                let first = self.emissions.count;
                for emission in &emissions {
                    self.emission(emission);
                }
                [3, first, self.count(emissions.len())]
            }
            Outcome::Route(targets) => {
                let offset = self.count(self.heap.len());
                self.heap.extend(targets.iter().flat_map(|target| target.to_le_bytes()));
                [4, offset, self.count(targets.len())]
            }
            Outcome::Fail(failure) => self.failure(&failure),
        };
        self.outcomes.push(entry);
    }

    /// The reply; `None` when it would not fit its own offsets.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        let heap = self.count(self.heap.len());
        if self.overflow {
            return None;
        }
        let sections =
            [&self.outcomes.bytes, &self.cells.bytes, &self.emissions.bytes, &self.pairs.bytes];
        let length: usize = sections.iter().map(|section| section.len()).sum();
        let mut reply = Vec::with_capacity(super::HEADER_BYTES + length + self.heap.len());
        reply.extend_from_slice(&MAGIC);
        reply.extend_from_slice(&u32::from(VERSION).to_le_bytes());
        let counts =
            [self.outcomes.count, self.cells.count, self.emissions.count, self.pairs.count];
        for word in counts.into_iter().chain([heap, 0]) {
            reply.extend_from_slice(&word.to_le_bytes());
        }
        for section in sections {
            reply.extend_from_slice(section);
        }
        reply.extend_from_slice(&self.heap);
        Some(reply)
    }

    fn count(&mut self, count: usize) -> u32 {
        match u32::try_from(count) {
            Ok(NONE) | Err(_) => {
                self.overflow = true;
                0
            }
            Ok(count) => count,
        }
    }

    fn patch(
        &mut self,
        cells: &[(Place, Value<'static>)],
        relation: Option<&Relation>,
    ) -> Option<[u32; 3]> {
        let resolve = |place: &Place| match place {
            Place::Index(index) => Some(*index),
            Place::Name(name) => relation?.column_index(name),
        };
        let columns: Option<Vec<u16>> =
            cells.iter().map(|(place, _)| u16::try_from(resolve(place)?).ok()).collect();
        let first = self.cells.count;
        for (column, (_, value)) in columns?.into_iter().zip(cells) {
            self.cell(column, value);
        }
        Some([2, first, self.cells.count - first])
    }

    fn failure(&mut self, failure: &Failure) -> [u32; 3] {
        let class = match failure.class {
            FailureClass::InvalidData => 0,
            FailureClass::Unsupported => 1,
            FailureClass::Internal => 2,
        };
        let pair = self.pairs.count;
        self.pair(failure.code.as_bytes(), failure.message.as_bytes());
        [5, pair, class]
    }

    fn emission(&mut self, emission: &Emission) {
        let optional = |writer: &mut Self, bytes: Option<&[u8]>| match bytes {
            Some(bytes) => writer.store(bytes),
            None => [NONE, 0],
        };
        let [topic, topic_bytes] = optional(self, emission.topic.as_deref().map(str::as_bytes));
        let [key, key_bytes] = optional(self, emission.key.as_deref());
        let [kind, first, count] = match &emission.payload {
            Payload::Row(values) => {
                let first = self.cells.count;
                for (column, value) in values.iter().enumerate() {
                    // Rows are as wide as the relation, which has fewer columns than that.
                    self.cell(u16::try_from(column).unwrap_or(u16::MAX), value);
                }
                [0, first, self.cells.count - first]
            }
            Payload::Bytes(bytes) => {
                let [offset, length] = self.store(bytes);
                [1, offset, length]
            }
            Payload::Tombstone => [2, 0, 0],
        };
        let pair = self.pairs.count;
        for (name, value) in &emission.headers {
            self.pair(name.as_bytes(), value);
        }
        let pairs = self.pairs.count - pair;
        self.emissions.push([topic, topic_bytes, key, key_bytes, kind, first, count, pair, pairs]);
    }

    fn pair(&mut self, name: &[u8], value: &[u8]) {
        let [name, name_bytes] = self.store(name);
        let [value, value_bytes] = self.store(value);
        self.pairs.push([name, name_bytes, value, value_bytes]);
    }

    fn store(&mut self, bytes: &[u8]) -> [u32; 2] {
        let offset = self.count(self.heap.len());
        self.heap.extend_from_slice(bytes);
        [offset, self.count(bytes.len())]
    }

    fn cell(&mut self, column: u16, value: &Value<'_>) {
        let (tag, length, word) = self.parts(value);
        let [column_low, column_high] = column.to_le_bytes();
        let head = u32::from_le_bytes([tag, 0, column_low, column_high]);
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let low = u32::from_le_bytes([a, b, c, d]);
        let high = u32::from_le_bytes([e, f, g, h]);
        self.cells.push([head, length, low, high]);
    }

    fn heaped(&mut self, tag: u8, bytes: &[u8]) -> (u8, u32, u64) {
        let [offset, length] = self.store(bytes);
        (tag, length, u64::from(offset))
    }

    fn parts(&mut self, value: &Value<'_>) -> (u8, u32, u64) {
        let signed = i64::cast_unsigned;
        match value {
            Value::Null => (tag::NULL, 0, 0),
            Value::Unavailable => (tag::UNAVAILABLE, 0, 0),
            Value::Boolean(value) => (tag::BOOLEAN, 0, u64::from(*value)),
            Value::Int(value) => (tag::INT, 0, signed(*value)),
            Value::Uint(value) => (tag::UINT, 0, *value),
            Value::Float32(value) => (tag::FLOAT32, 0, u64::from(value.to_bits())),
            Value::Float64(value) => (tag::FLOAT64, 0, value.to_bits()),
            Value::Decimal(text) => self.heaped(tag::DECIMAL, text.as_bytes()),
            Value::Text(text) => self.heaped(tag::TEXT, text.as_bytes()),
            Value::Bytes(bytes) => self.heaped(tag::BYTES, bytes),
            Value::Json(text) => self.heaped(tag::JSON, text.as_bytes()),
            Value::Uuid(bytes) => self.heaped(tag::UUID, bytes),
            Value::Date(days) => (tag::DATE, 0, signed(i64::from(*days))),
            Value::Time(micros) => (tag::TIME, 0, signed(*micros)),
            Value::TimeTz { micros, offset_seconds } => {
                (tag::TIME_TZ, offset_seconds.cast_unsigned(), signed(*micros))
            }
            Value::Timestamp(micros) => (tag::TIMESTAMP, 0, signed(*micros)),
            Value::TimestampTz(micros) => (tag::TIMESTAMP_TZ, 0, signed(*micros)),
            Value::Interval { months, days, micros } => {
                let [offset, _] = self.store(&months.to_le_bytes());
                self.heap.extend_from_slice(&days.to_le_bytes());
                self.heap.extend_from_slice(&micros.to_le_bytes());
                (tag::INTERVAL, 16, u64::from(offset))
            }
            Value::Bits { length, bytes } => {
                let whole = usize::try_from(length.div_ceil(8)).unwrap_or(usize::MAX);
                let [offset, _] = self.store(bytes.get(..whole).unwrap_or(bytes));
                let missing = whole.saturating_sub(bytes.len());
                self.heap.resize(self.heap.len() + missing, 0);
                (tag::BITS, *length, u64::from(offset))
            }
            Value::TemporalSpecial(TemporalSpecial::Infinity) => (tag::INFINITY, 0, 0),
            Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => {
                (tag::NEGATIVE_INFINITY, 0, 0)
            }
            Value::TemporalSpecial(TemporalSpecial::Literal(text)) => {
                self.heaped(tag::TEMPORAL_LITERAL, text.as_bytes())
            }
            Value::Raw(text) => self.heaped(tag::RAW, text.as_bytes()),
        }
    }
}

fn unknown_column() -> Failure {
    Failure {
        class: FailureClass::Internal,
        code: "sdk.unknown-column".to_owned(),
        message: "patch names a column that the relation does not have or that was not asked for"
            .to_owned(),
    }
}
