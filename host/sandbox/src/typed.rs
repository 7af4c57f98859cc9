//! The typed form: events as lists of records.
//!
//! Goes in borrowed: wasmtime copies each value into the guest, nothing is copied on the way there. It costs several
//! times the packed form all the same, because each text is an allocation inside the guest.

use dovetail_core::change::{Change, Event, Operation};
use dovetail_core::frame::{Call, Entry};
use dovetail_core::outcome::{Cell, Emission, Failure, FailureClass, Outcome, Payload};
use dovetail_core::schema::{Column, Kind};
use dovetail_core::value::{Row, TemporalSpecial, Text, Value};
use wasmtime::Store;

use crate::bindings::dovetail::plugin::types;
use crate::bindings::exports::dovetail::plugin::{lifecycle, typed};
use crate::error::CallError;
use crate::host::Host;
use crate::instance::call_error_of;
use crate::relations::Known;
use crate::trap::trap_of;

/// Tells the guest of a relation, in the columns that it asked for.
pub(crate) fn announce(
    store: &mut Store<Host>,
    guest: &lifecycle::Guest,
    known: &Known,
) -> Result<(), CallError> {
    let relation = &known.relation;
    let columns: Vec<types::Column<'_>> = known
        .projection()
        .into_iter()
        .flat_map(|projection| &projection.columns)
        .filter_map(|&index| {
            let ordinal = relation.key.iter().position(|&key| key == index);
            Some(column(relation.columns.get(index)?, ordinal))
        })
        .collect();
    let announced = types::Relation {
        id: types::RelationRef { id: relation.id.0, version: relation.version },
        namespace: &relation.table.namespace,
        name: &relation.table.name,
        columns: &columns,
    };
    let called = guest.call_on_relation(&mut *store, announced);
    called.map_err(|error| trap_of(&error, store.data(), "on-relation"))?.map_err(call_error_of)
}

fn column(column: &Column, key_ordinal: Option<usize>) -> types::Column<'_> {
    types::Column {
        name: &column.name,
        type_name: &column.type_name,
        type_modifier: column.type_modifier,
        kind: kind(column.kind),
        key_ordinal: key_ordinal.and_then(|ordinal| u16::try_from(ordinal).ok()),
    }
}

fn kind(kind: Kind) -> types::Kind {
    match kind {
        Kind::Boolean => types::Kind::Boolean,
        Kind::Int => types::Kind::Int,
        Kind::Uint => types::Kind::Uint,
        Kind::Float32 => types::Kind::Float32,
        Kind::Float64 => types::Kind::Float64,
        Kind::Decimal => types::Kind::Decimal,
        Kind::Text => types::Kind::Text,
        Kind::Bytes => types::Kind::Bytes,
        Kind::Json => types::Kind::Json,
        Kind::Uuid => types::Kind::Uuid,
        Kind::Date => types::Kind::Date,
        Kind::Time => types::Kind::Time,
        Kind::TimeTz => types::Kind::TimeTz,
        Kind::Timestamp => types::Kind::Timestamp,
        Kind::TimestampTz => types::Kind::TimestampTz,
        Kind::Interval => types::Kind::Interval,
        Kind::Bits => types::Kind::Bits,
        Kind::Raw => types::Kind::Raw,
    }
}

/// The values of a call's rows, which the events borrow.
struct Images<'a> {
    before: Option<Vec<types::ValueParam<'a>>>,
    after: Option<Vec<types::ValueParam<'a>>>,
}

pub(crate) fn process(
    store: &mut Store<Host>,
    guest: &typed::Guest,
    call: Call,
    entries: &[Entry<'_>],
) -> Result<Vec<Outcome>, CallError> {
    let images: Vec<Images<'_>> = entries.iter().map(images).collect();
    let events: Vec<types::Event<'_>> =
        entries.iter().zip(&images).map(|(entry, images)| event(entry.event, images)).collect();
    let called = guest.call_process(&mut *store, call.sequence, &events);
    let reply = called.map_err(|error| trap_of(&error, store.data(), "process"))?;
    Ok(reply.map_err(call_error_of)?.into_iter().map(outcome).collect())
}

fn images<'a>(entry: &Entry<'a>) -> Images<'a> {
    let Some(projection) = entry.projection else {
        return Images { before: None, after: None };
    };
    let image = |row: &'a Row| {
        let value = |&column: &usize| row.get(column).map_or(types::ValueParam::Unavailable, value);
        projection.columns.iter().map(value).collect()
    };
    let change = &entry.event.change;
    Images {
        before: change.before().filter(|_| projection.before).map(image),
        after: change.after().map(image),
    }
}

fn event<'a>(event: &'a Event, images: &'a Images<'a>) -> types::Event<'a> {
    let change = &event.change;
    types::Event {
        position: types::Position {
            high: event.position.commit.file(),
            low: event.position.commit.offset(),
            ordinal: event.position.ordinal,
        },
        operation: operation(change.operation()),
        relation: change
            .relation()
            .map(|relation| types::RelationRef { id: relation.id.0, version: relation.version }),
        commit_time: event.commit_time_micros,
        transaction: event.transaction.and_then(|transaction| transaction.number()),
        redelivery: event.redelivery,
        moved: matches!(
            change,
            Change::Insert { moved_from: Some(_), .. } | Change::Delete { moved: true, .. }
        ),
        before: images.before.as_deref(),
        after: images.after.as_deref(),
        message: match change {
            Change::Message { prefix, content, transactional } => {
                Some(types::Message { prefix, content, transactional: *transactional })
            }
            _ => None,
        },
    }
}

fn operation(operation: Operation) -> types::Operation {
    match operation {
        Operation::Read => types::Operation::Read,
        Operation::Insert => types::Operation::Insert,
        Operation::Update => types::Operation::Update,
        Operation::Delete => types::Operation::Delete,
        Operation::Truncate => types::Operation::Truncate,
        Operation::Message => types::Operation::Message,
    }
}

fn value(value: &Value) -> types::ValueParam<'_> {
    use types::ValueParam as Param;
    match value {
        Value::Null => Param::Null,
        Value::Unavailable => Param::Unavailable,
        Value::Boolean(value) => Param::Boolean(*value),
        Value::Int(value) => Param::Int(*value),
        Value::Uint(value) => Param::Uint(*value),
        Value::Float32(value) => Param::Float32(*value),
        Value::Float64(value) => Param::Float64(*value),
        Value::Decimal(text) => Param::Decimal(text),
        Value::Text(text) => Param::Text(text),
        Value::Bytes(bytes) => Param::Bytes(bytes),
        Value::Json(text) => Param::Json(text),
        Value::Uuid(bytes) => {
            let number = u128::from_be_bytes(*bytes);
            let [high, low] = [number >> 64, number & u128::from(u64::MAX)]
                .map(|half| u64::try_from(half).unwrap_or_default());
            Param::Uuid(types::Uuid { high, low })
        }
        Value::Date(days) => Param::Date(*days),
        Value::Time(micros) => Param::Time(*micros),
        Value::TimeTz { micros, offset_seconds } => {
            Param::TimeTz(types::TimeTz { micros: *micros, offset_seconds: *offset_seconds })
        }
        Value::Timestamp(micros) => Param::Timestamp(*micros),
        Value::TimestampTz(micros) => Param::TimestampTz(*micros),
        Value::Interval { months, days, micros } => {
            Param::Interval(types::Interval { months: *months, days: *days, micros: *micros })
        }
        Value::Bits { length, bytes } => Param::Bits(types::BitsParam { length: *length, bytes }),
        Value::TemporalSpecial(special) => Param::TemporalSpecial(match special {
            TemporalSpecial::Infinity => types::TemporalSpecialParam::Infinity,
            TemporalSpecial::NegativeInfinity => types::TemporalSpecialParam::NegativeInfinity,
            TemporalSpecial::Literal(text) => types::TemporalSpecialParam::Literal(text),
        }),
        Value::Raw(text) => Param::Raw(text),
    }
}

fn outcome(outcome: types::Outcome) -> Outcome {
    match outcome {
        types::Outcome::Pass => Outcome::Pass,
        types::Outcome::Drop => Outcome::Drop,
        types::Outcome::Patch(cells) => Outcome::Patch(cells.into_iter().map(cell).collect()),
        types::Outcome::Emit(emissions) => {
            Outcome::Emit(emissions.into_iter().map(emission).collect())
        }
        types::Outcome::Route(targets) => Outcome::Route(targets),
        types::Outcome::Fail(failure) => Outcome::Fail(Failure {
            class: match failure.class {
                types::FailureClass::InvalidData => FailureClass::InvalidData,
                types::FailureClass::Unsupported => FailureClass::Unsupported,
                types::FailureClass::Internal => FailureClass::Internal,
            },
            code: failure.code,
            message: failure.message,
        }),
    }
}

fn cell(cell: types::Cell) -> Cell {
    Cell { column: usize::from(cell.column), value: value_back(cell.value) }
}

fn emission(emission: types::Emission) -> Emission {
    Emission {
        topic: emission.topic,
        key: emission.key.map(Into::into),
        payload: match emission.payload {
            types::Payload::Row(values) => {
                Payload::Row(Row::new(values.into_iter().map(value_back).collect()))
            }
            types::Payload::Bytes(bytes) => Payload::Bytes(bytes.into()),
            types::Payload::Tombstone => Payload::Tombstone,
        },
        headers: emission
            .headers
            .into_iter()
            .map(|header| (header.name, header.value.into()))
            .collect(),
    }
}

fn value_back(value: types::ValueResult) -> Value {
    use types::ValueResult as Back;
    match value {
        Back::Null => Value::Null,
        Back::Unavailable => Value::Unavailable,
        Back::Boolean(value) => Value::Boolean(value),
        Back::Int(value) => Value::Int(value),
        Back::Uint(value) => Value::Uint(value),
        Back::Float32(value) => Value::Float32(value),
        Back::Float64(value) => Value::Float64(value),
        Back::Decimal(text) => Value::Decimal(Text::from(text)),
        Back::Text(text) => Value::Text(Text::from(text)),
        Back::Bytes(bytes) => Value::Bytes(bytes.into()),
        Back::Json(text) => Value::Json(Text::from(text)),
        Back::Uuid(types::Uuid { high, low }) => {
            Value::Uuid((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
        }
        Back::Date(days) => Value::Date(days),
        Back::Time(micros) => Value::Time(micros),
        Back::TimeTz(types::TimeTz { micros, offset_seconds }) => {
            Value::TimeTz { micros, offset_seconds }
        }
        Back::Timestamp(micros) => Value::Timestamp(micros),
        Back::TimestampTz(micros) => Value::TimestampTz(micros),
        Back::Interval(types::Interval { months, days, micros }) => {
            Value::Interval { months, days, micros }
        }
        Back::Bits(bits) => Value::Bits { length: bits.length, bytes: bits.bytes.into() },
        Back::TemporalSpecial(special) => Value::TemporalSpecial(match special {
            types::TemporalSpecialResult::Infinity => TemporalSpecial::Infinity,
            types::TemporalSpecialResult::NegativeInfinity => TemporalSpecial::NegativeInfinity,
            types::TemporalSpecialResult::Literal(text) => {
                TemporalSpecial::Literal(Text::from(text))
            }
        }),
        Back::Raw(text) => Value::Raw(Text::from(text)),
    }
}
