//! A value in SQLite, without loss.

use std::borrow::Cow;

use dovetail_core::decode::print::{self, Printed};
use dovetail_core::schema::Kind;
use dovetail_core::value::Value;
use rusqlite::types::{ToSql, ToSqlOutput, Value as Owned, ValueRef};

/// Binds a value as the table in the outlet's doc says.
pub(super) struct Cell<'a>(pub(super) &'a Value);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = |text: &'_ str| ToSqlOutput::Owned(Owned::Text(text.to_owned()));
        Ok(match self.0 {
            Value::Null | Value::Unavailable => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Boolean(value) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*value))),
            Value::Int(value) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Value::Uint(value) => match i64::try_from(*value) {
                Ok(value) => ToSqlOutput::Borrowed(ValueRef::Integer(value)),
                Err(_) => text(&value.to_string()),
            },
            // SQLite stores a NaN as null.
            Value::Float32(value) if value.is_nan() => text("NaN"),
            Value::Float64(value) if value.is_nan() => text("NaN"),
            Value::Float32(value) => ToSqlOutput::Borrowed(ValueRef::Real(f64::from(*value))),
            Value::Float64(value) => ToSqlOutput::Borrowed(ValueRef::Real(*value)),
            Value::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            other => match print::text(other) {
                Printed::Text(Cow::Borrowed(text)) => {
                    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
                }
                Printed::Text(Cow::Owned(text)) => ToSqlOutput::Owned(Owned::Text(text)),
                Printed::Null | Printed::Unavailable => ToSqlOutput::Borrowed(ValueRef::Null),
            },
        })
    }
}

/// The declared type of a column. Its affinity must leave every value of the kind as it was bound.
pub(super) fn declared(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean | Kind::Int => " INTEGER",
        // Load-bearing: under a numeric affinity the text of an integer beyond 2^63 becomes a float, and -0 becomes the
        // integer 0, as which SQLite stores whole floats of such columns.
        Kind::Uint | Kind::Float32 | Kind::Float64 => "",
        Kind::Bytes => " BLOB",
        Kind::Decimal
        | Kind::Text
        | Kind::Json
        | Kind::Uuid
        | Kind::Date
        | Kind::Time
        | Kind::TimeTz
        | Kind::Timestamp
        | Kind::TimestampTz
        | Kind::Interval
        | Kind::Bits
        | Kind::Raw => " TEXT",
    }
}
