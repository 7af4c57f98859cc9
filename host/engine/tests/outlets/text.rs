//! Values as text, one way for every kind of outlet.

use dovetail_core::decode::print::{self, Printed};
use dovetail_core::schema::Kind;
use dovetail_core::value::Value;
use rusqlite::types::ValueRef;

use crate::subject::Rows;

pub(crate) fn printed(value: &Value) -> Option<String> {
    match print::text(value) {
        Printed::Text(text) => Some(text.into_owned()),
        Printed::Null => None,
        Printed::Unavailable => panic!("no row at rest lacks a column"),
    }
}

pub(crate) fn texts(rows: impl IntoIterator<Item = dovetail_core::value::Row>) -> Rows {
    let text = |row: dovetail_core::value::Row| row.values().iter().map(printed).collect();
    let mut rows: Rows = rows.into_iter().map(text).collect();
    rows.sort();
    rows
}

pub(crate) fn float(kind: Kind, value: f64) -> Option<String> {
    match kind {
        #[expect(clippy::cast_possible_truncation, reason = "it came from 32 bits")]
        Kind::Float32 => printed(&Value::Float32(value as f32)),
        _ => printed(&Value::Float64(value)),
    }
}

pub(crate) fn backticked(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

pub(crate) fn mysql_text(kind: Kind, cell: mysql_async::Value) -> Option<String> {
    use mysql_async::Value as Cell;
    let clock = |hours: u32, minutes: u8, seconds: u8, micros: u32| {
        let whole = format!("{hours:02}:{minutes:02}:{seconds:02}");
        let fraction = format!(".{micros:06}");
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        format!("{whole}{fraction}")
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
    Some(match (kind, cell) {
        (_, Cell::NULL) => return None,
        (Kind::Boolean, Cell::Int(value)) => return printed(&Value::Boolean(value == 1)),
        (Kind::Bytes, Cell::Bytes(bytes)) => return printed(&Value::Bytes(bytes.into())),
        (Kind::Int | Kind::Uint, Cell::Int(value)) => value.to_string(),
        (Kind::Int | Kind::Uint, Cell::UInt(value)) => value.to_string(),
        (Kind::Float32, Cell::Float(value)) => return printed(&Value::Float32(value)),
        (Kind::Float64, Cell::Double(value)) => return printed(&Value::Float64(value)),
        (Kind::Date, Cell::Date(year, month, day, 0, 0, 0, 0)) => {
            format!("{year:04}-{month:02}-{day:02}")
        }
        (
            Kind::Timestamp | Kind::TimestampTz,
            Cell::Date(year, month, day, hours, minutes, seconds, micros),
        ) => {
            let clock = clock(hours.into(), minutes, seconds, micros);
            // A zero date has none.
            let zone = if kind == Kind::TimestampTz && month > 0 { "+00" } else { "" };
            format!("{year:04}-{month:02}-{day:02} {clock}{zone}")
        }
        (Kind::Time, Cell::Time(negative, days, hours, minutes, seconds, micros)) => {
            let sign = if negative { "-" } else { "" };
            format!("{sign}{}", clock(days * 24 + u32::from(hours), minutes, seconds, micros))
        }
        (Kind::Boolean | Kind::Float32 | Kind::Float64 | Kind::Date | Kind::Timestamp, other) => {
            panic!("{kind:?} as {other:?}")
        }
        (_, Cell::Bytes(bytes)) => text(bytes),
        (Kind::Text, Cell::Int(value)) => value.to_string(),
        (_, other) => panic!("{kind:?} as {other:?}"),
    })
}

pub(crate) fn sqlite_text(kind: Kind, cell: ValueRef<'_>) -> Option<String> {
    match (kind, cell) {
        (_, ValueRef::Null) => None,
        (Kind::Boolean, ValueRef::Integer(value)) => printed(&Value::Boolean(value == 1)),
        (Kind::Int | Kind::Uint, ValueRef::Integer(value)) => Some(value.to_string()),
        (Kind::Float32 | Kind::Float64, ValueRef::Real(value)) => float(kind, value),
        (Kind::Bytes, ValueRef::Blob(bytes)) => {
            printed(&Value::Bytes(bytes::Bytes::copy_from_slice(bytes)))
        }
        (Kind::Int | Kind::Boolean | Kind::Bytes, other) => panic!("{kind:?} as {other:?}"),
        (_, ValueRef::Text(text)) => Some(String::from_utf8(text.to_vec()).expect("utf-8")),
        (_, other) => panic!("{kind:?} as {other:?}"),
    }
}

pub(crate) fn json_text(kind: Kind, cell: &serde_json::Value) -> Option<String> {
    use serde_json::Value as Json;
    match (kind, cell) {
        (_, Json::Null) => None,
        (Kind::Boolean, Json::Bool(value)) => printed(&Value::Boolean(*value)),
        (Kind::Int | Kind::Uint, Json::Number(number)) => Some(number.to_string()),
        (Kind::Float32 | Kind::Float64, Json::Number(number)) => {
            float(kind, number.as_f64().expect("a number"))
        }
        (Kind::Boolean | Kind::Int | Kind::Uint, other) => panic!("{kind:?} as {other}"),
        (_, Json::String(text)) => Some(text.clone()),
        (_, other) => panic!("{kind:?} as {other}"),
    }
}
