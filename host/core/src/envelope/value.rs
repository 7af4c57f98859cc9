//! Rows and values. A row is one array, in which each value takes one element for its tag and as many as its case
//! needs: none for a null, which is a single byte then.

use serde::de::{Error as _, SeqAccess};
use serde::ser::{Error as _, Serialize, SerializeTupleStruct, Serializer};

use super::Malformed;
use super::array::{Binary, Context, Elements, Str, next};
use crate::schema::Relation;
use crate::value::{Row, TemporalSpecial, Value};

/// Numbers of the cases of a value. They are in files: none is ever changed or given to another case.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const UNAVAILABLE: u8 = 1;
    pub(super) const BOOLEAN: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const UINT: u8 = 4;
    pub(super) const FLOAT32: u8 = 5;
    pub(super) const FLOAT64: u8 = 6;
    pub(super) const DECIMAL: u8 = 7;
    pub(super) const TEXT: u8 = 8;
    pub(super) const BYTES: u8 = 9;
    pub(super) const JSON: u8 = 10;
    pub(super) const UUID: u8 = 11;
    pub(super) const DATE: u8 = 12;
    pub(super) const TIME: u8 = 13;
    pub(super) const TIME_TZ: u8 = 14;
    pub(super) const TIMESTAMP: u8 = 15;
    pub(super) const TIMESTAMP_TZ: u8 = 16;
    pub(super) const INTERVAL: u8 = 17;
    pub(super) const BITS: u8 = 18;
    pub(super) const INFINITY: u8 = 19;
    pub(super) const NEGATIVE_INFINITY: u8 = 20;
    pub(super) const TEMPORAL_LITERAL: u8 = 21;
    pub(super) const RAW: u8 = 22;
}

/// A row as it is written.
pub(super) struct RowForm<'a> {
    pub(super) row: &'a Row,
    pub(super) relation: &'a Relation,
}

impl Serialize for RowForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = self.row.values();
        if values.len() != self.relation.columns.len() {
            return Err(S::Error::custom("row without a value for each column"));
        }
        let elements = values.iter().map(elements).sum();
        let mut array = serializer.serialize_tuple_struct("row", elements)?;
        for value in values {
            write(value, &mut array)?;
        }
        array.end()
    }
}

/// How many elements [`write()`] writes.
fn elements(value: &Value) -> usize {
    match value {
        Value::Null
        | Value::Unavailable
        | Value::TemporalSpecial(TemporalSpecial::Infinity | TemporalSpecial::NegativeInfinity) => {
            1
        }
        Value::Boolean(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float32(_)
        | Value::Float64(_)
        | Value::Decimal(_)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Json(_)
        | Value::Uuid(_)
        | Value::Date(_)
        | Value::Time(_)
        | Value::Timestamp(_)
        | Value::TimestampTz(_)
        | Value::TemporalSpecial(TemporalSpecial::Literal(_))
        | Value::Raw(_) => 2,
        Value::TimeTz { .. } | Value::Bits { .. } => 3,
        Value::Interval { .. } => 4,
    }
}

fn write<S: SerializeTupleStruct>(value: &Value, array: &mut S) -> Result<(), S::Error> {
    match value {
        Value::Null => array.serialize_field(&tag::NULL),
        Value::Unavailable => array.serialize_field(&tag::UNAVAILABLE),
        Value::Boolean(value) => tagged(array, tag::BOOLEAN, value),
        Value::Int(value) => tagged(array, tag::INT, value),
        Value::Uint(value) => tagged(array, tag::UINT, value),
        Value::Float32(value) => tagged(array, tag::FLOAT32, &value.to_bits()),
        Value::Float64(value) => tagged(array, tag::FLOAT64, &value.to_bits()),
        Value::Decimal(text) => tagged(array, tag::DECIMAL, &Str(text)),
        Value::Text(text) => tagged(array, tag::TEXT, &Str(text)),
        Value::Bytes(bytes) => tagged(array, tag::BYTES, &Binary(bytes)),
        Value::Json(text) => tagged(array, tag::JSON, &Str(text)),
        Value::Uuid(bytes) => tagged(array, tag::UUID, &Binary(bytes)),
        Value::Date(days) => tagged(array, tag::DATE, days),
        Value::Time(micros) => tagged(array, tag::TIME, micros),
        Value::TimeTz { micros, offset_seconds } => {
            tagged(array, tag::TIME_TZ, micros)?;
            array.serialize_field(offset_seconds)
        }
        Value::Timestamp(micros) => tagged(array, tag::TIMESTAMP, micros),
        Value::TimestampTz(micros) => tagged(array, tag::TIMESTAMP_TZ, micros),
        Value::Interval { months, days, micros } => {
            tagged(array, tag::INTERVAL, months)?;
            array.serialize_field(days)?;
            array.serialize_field(micros)
        }
        Value::Bits { length, bytes } => {
            tagged(array, tag::BITS, length)?;
            array.serialize_field(&Binary(bytes))
        }
        Value::TemporalSpecial(TemporalSpecial::Infinity) => array.serialize_field(&tag::INFINITY),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => {
            array.serialize_field(&tag::NEGATIVE_INFINITY)
        }
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => {
            tagged(array, tag::TEMPORAL_LITERAL, &Str(text))
        }
        Value::Raw(text) => tagged(array, tag::RAW, &Str(text)),
    }
}

fn tagged<S: SerializeTupleStruct>(
    array: &mut S,
    tag: u8,
    value: &impl Serialize,
) -> Result<(), S::Error> {
    array.serialize_field(&tag)?;
    array.serialize_field(value)
}

/// Reads a row of this table.
#[derive(Clone, Copy)]
pub(super) struct RowOf<'a> {
    pub(super) context: Context<'a>,
    pub(super) relation: &'a Relation,
}

impl RowOf<'_> {
    fn incomplete<E: serde::de::Error>(self) -> E {
        let table = self.relation.table.to_string();
        self.context.refuse(Malformed::Row { table, columns: self.relation.columns.len() })
    }
}

impl<'de> Elements<'de> for RowOf<'_> {
    type Value = Row;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Row, A::Error> {
        let columns = self.relation.columns.len();
        let mut values = Vec::with_capacity(columns.min(self.context.room(array, 1)));
        while let Some(tag) = array.next_element()? {
            if values.len() == columns {
                return Err(self.incomplete());
            }
            values.push(value(tag, array, self.context)?);
        }
        if values.len() < columns {
            return Err(self.incomplete());
        }
        Ok(Row::new(values))
    }
}

fn value<'de, A: SeqAccess<'de>>(
    tag: u8,
    array: &mut A,
    context: Context<'_>,
) -> Result<Value, A::Error> {
    Ok(match tag {
        tag::NULL => Value::Null,
        tag::UNAVAILABLE => Value::Unavailable,
        tag::BOOLEAN => Value::Boolean(next(array)?),
        tag::INT => Value::Int(next(array)?),
        tag::UINT => Value::Uint(next(array)?),
        tag::FLOAT32 => Value::Float32(f32::from_bits(next(array)?)),
        tag::FLOAT64 => Value::Float64(f64::from_bits(next(array)?)),
        tag::DECIMAL => Value::Decimal(context.text(array)?),
        tag::TEXT => Value::Text(context.text(array)?),
        tag::BYTES => Value::Bytes(context.bytes(array)?),
        tag::JSON => Value::Json(context.text(array)?),
        tag::UUID => {
            let bytes = context.bytes(array)?;
            let bytes = bytes.as_ref().try_into();
            Value::Uuid(bytes.map_err(|_| A::Error::custom("uuid of another length"))?)
        }
        tag::DATE => Value::Date(next(array)?),
        tag::TIME => Value::Time(next(array)?),
        tag::TIME_TZ => Value::TimeTz { micros: next(array)?, offset_seconds: next(array)? },
        tag::TIMESTAMP => Value::Timestamp(next(array)?),
        tag::TIMESTAMP_TZ => Value::TimestampTz(next(array)?),
        tag::INTERVAL => {
            Value::Interval { months: next(array)?, days: next(array)?, micros: next(array)? }
        }
        tag::BITS => Value::Bits { length: next(array)?, bytes: context.bytes(array)? },
        tag::INFINITY => Value::TemporalSpecial(TemporalSpecial::Infinity),
        tag::NEGATIVE_INFINITY => Value::TemporalSpecial(TemporalSpecial::NegativeInfinity),
        tag::TEMPORAL_LITERAL => {
            Value::TemporalSpecial(TemporalSpecial::Literal(context.text(array)?))
        }
        tag::RAW => Value::Raw(context.text(array)?),
        unknown => return Err(context.unknown("value", unknown)),
    })
}
