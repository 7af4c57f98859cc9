//! Canonical key bytes.
//!
//! Two images of the same row give the same bytes, whatever the path they came by, and two different keys give
//! different bytes: values are tagged and length-prefixed, so that `("a", "bc")` is not `("ab", "c")`. What PostgreSQL
//! holds equal but prints differently is made equal (`1.0` and `1.00` as numeric, `-0` and `0` as float, any NaN), so
//! that such a pair lands in one lane. A case-insensitive collation is not resolved here: there a change of spelling
//! is a key change, a delete before an insert.

use bytes::{BufMut, Bytes, BytesMut};

use crate::schema::Relation;
use crate::value::{Row, TemporalSpecial, Value};

/// The canonical bytes of one row's key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(Bytes);

impl Key {
    /// `None` for a table without a key, or where a key column is not in the row.
    pub fn of(relation: &Relation, row: &Row) -> Option<Self> {
        if relation.key.is_empty() {
            return None;
        }
        let mut bytes = BytesMut::with_capacity(16 * relation.key.len());
        write_key(relation, row, &mut bytes)?;
        Some(Self(bytes.freeze()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the key's bytes to a buffer that the caller reuses; `None` as in [`Key::of`].
pub fn write_key(relation: &Relation, row: &Row, out: &mut BytesMut) -> Option<()> {
    for &column in &relation.key {
        match row.get(column)? {
            Value::Unavailable => return None,
            value => write_value(value, out),
        }
    }
    Some(())
}

fn write_value(value: &Value, out: &mut BytesMut) {
    match value {
        // Both say "no value here"; a key column is never either, but a total function needs no panic.
        Value::Null | Value::Unavailable => out.put_u8(0),
        Value::Boolean(value) => write_word(1, u64::from(*value), out),
        Value::Int(value) => write_word(2, value.cast_unsigned(), out),
        Value::Uint(value) => write_word(3, *value, out),
        Value::Float32(value) => write_word(4, canonical_float(f64::from(*value)), out),
        Value::Float64(value) => write_word(5, canonical_float(*value), out),
        Value::Decimal(text) => write_bytes(6, canonical_decimal(text).as_bytes(), out),
        Value::Text(text) => write_bytes(7, text.as_bytes(), out),
        Value::Bytes(bytes) => write_bytes(8, bytes, out),
        Value::Json(text) => write_bytes(9, text.as_bytes(), out),
        Value::Uuid(bytes) => write_bytes(10, bytes, out),
        Value::Date(days) => write_word(11, i64::from(*days).cast_unsigned(), out),
        Value::Time(micros) => write_word(12, micros.cast_unsigned(), out),
        Value::TimeTz { micros, offset_seconds } => {
            write_word(13, micros.cast_unsigned(), out);
            out.put_i32(*offset_seconds);
        }
        Value::Timestamp(micros) => write_word(14, micros.cast_unsigned(), out),
        Value::TimestampTz(micros) => write_word(15, micros.cast_unsigned(), out),
        Value::Interval { months, days, micros } => {
            write_word(16, micros.cast_unsigned(), out);
            out.put_i32(*months);
            out.put_i32(*days);
        }
        Value::Bits { length, bytes } => {
            out.put_u8(17);
            out.put_u32(*length);
            out.put_slice(bytes);
        }
        Value::TemporalSpecial(TemporalSpecial::Infinity) => out.put_u8(18),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => out.put_u8(19),
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => {
            write_bytes(20, text.as_bytes(), out);
        }
        Value::Raw(text) => write_bytes(21, text.as_bytes(), out),
    }
}

fn write_word(tag: u8, word: u64, out: &mut BytesMut) {
    out.put_u8(tag);
    out.put_u64(word);
}

fn write_bytes(tag: u8, bytes: &[u8], out: &mut BytesMut) {
    out.put_u8(tag);
    out.put_u64(bytes.len() as u64);
    out.put_slice(bytes);
}

fn canonical_float(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Without trailing zeros after the point: numeric equality ignores the scale.
fn canonical_decimal(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, Kind, RelationId, TableName};

    fn relation(columns: usize) -> Relation {
        let column = |index: usize| Column {
            name: format!("c{index}"),
            type_name: "text".into(),
            type_modifier: -1,
            kind: Kind::Text,
            initial: crate::schema::Initial::Null,
            number: None,
        };
        Relation::new(
            RelationId(1),
            TableName { namespace: "public".into(), name: "t".into() },
            (0..columns).map(column).collect(),
            (0..columns).collect(),
        )
    }

    fn key(values: &[Value]) -> Option<Key> {
        Key::of(&relation(values.len()), &Row::new(values.to_vec()))
    }

    #[test]
    fn equal_numbers_have_equal_keys_and_neighbours_differ() {
        let decimal = |text: &str| key(&[Value::Decimal(text.into())]);
        assert_eq!(decimal("1.0"), decimal("1.00"));
        assert_eq!(decimal("1"), decimal("1.0"));
        assert_ne!(decimal("10"), decimal("1"));
        assert_eq!(key(&[Value::Float64(-0.0)]), key(&[Value::Float64(0.0)]));
        assert_ne!(key(&[Value::Int(1)]), key(&[Value::Uint(1)]));
    }

    #[test]
    fn column_edges_are_part_of_the_key() {
        let two = |a: &str, b: &str| key(&[Value::text(a), Value::text(b)]);
        assert_ne!(two("a", "bc"), two("ab", "c"));
    }

    #[test]
    fn a_missing_key_column_gives_no_key() {
        assert_eq!(key(&[Value::Unavailable]), None);
        assert_eq!(Key::of(&relation(0), &Row::default()), None);
    }
}
