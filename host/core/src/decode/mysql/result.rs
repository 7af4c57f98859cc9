//! One value of a scanned row, as a client gets it by the binary protocol.
//!
//! The session has no character set for results (columns arrive in their own, as in the log), the time zone `+00:00`,
//! and no `PAD_CHAR_TO_FULL_LENGTH`. The same value of the log's row image comes out equal.

use bytes::Bytes;

use super::cell::{InvalidCell, Reason, bits, padded, vector};
use super::decimal;
use super::definition::{ColumnDefinition, DataType};
use super::temporal::{Moment, Zone, duration};
use crate::decode::text;
use crate::schema::Kind;
use crate::value::{Text, Value};

/// What a client library hands out. Small integers may come in either form.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Null,
    Int(i64),
    Uint(u64),
    Float(f32),
    Double(f64),
    Bytes(Bytes),
    Date { year: u16, month: u8, day: u8, hour: u8, minute: u8, second: u8, micros: u32 },
    Time { negative: bool, days: u32, hours: u8, minutes: u8, seconds: u8, micros: u32 },
}

/// The value of a scanned cell.
///
/// # Errors
/// When the client's value is not one of this column.
pub fn from_result(definition: &ColumnDefinition, cell: Cell) -> Result<Value, InvalidCell> {
    value(definition, cell).map_err(|reason| InvalidCell::new(definition, reason))
}

fn value(definition: &ColumnDefinition, cell: Cell) -> Result<Value, Reason> {
    let data_type = &definition.data_type;
    match cell {
        Cell::Null => Ok(Value::Null),
        Cell::Int(number) => match data_type {
            DataType::Integer { unsigned: true, .. } => {
                u64::try_from(number).map(Value::Uint).map_err(|_| Reason::Client)
            }
            DataType::Integer { unsigned: false, .. } | DataType::Year => Ok(Value::Int(number)),
            _ => Err(Reason::Client),
        },
        Cell::Uint(number) => match data_type {
            DataType::Integer { unsigned: true, .. } => Ok(Value::Uint(number)),
            DataType::Integer { unsigned: false, .. } | DataType::Year => {
                i64::try_from(number).map(Value::Int).map_err(|_| Reason::Client)
            }
            _ => Err(Reason::Client),
        },
        Cell::Float(number) => match data_type {
            DataType::Float { .. } => Ok(Value::Float32(number)),
            _ => Err(Reason::Client),
        },
        Cell::Double(number) => match data_type {
            DataType::Double { .. } => Ok(Value::Float64(number)),
            _ => Err(Reason::Client),
        },
        Cell::Bytes(bytes) => of_bytes(data_type, bytes),
        Cell::Date { year, month, day, hour, minute, second, micros } => {
            let moment = Moment {
                year: year.into(),
                month: month.into(),
                day: day.into(),
                hour: hour.into(),
                minute: minute.into(),
                second: second.into(),
                micros,
            };
            match data_type {
                DataType::Date => moment.date(),
                DataType::DateTime { fraction } => moment.date_time(Zone::None, *fraction),
                DataType::Timestamp { fraction } => moment.date_time(Zone::Utc, *fraction),
                _ => Err(Reason::Client),
            }
        }
        Cell::Time { negative, days, hours, minutes, seconds, micros } => {
            if !matches!(data_type, DataType::Time { .. }) || hours > 23 {
                return Err(Reason::Client);
            }
            let hours = days.checked_mul(24).and_then(|all| all.checked_add(hours.into()));
            let hours = hours.ok_or(Reason::Client)?;
            duration(negative, hours, minutes.into(), seconds.into(), micros)
        }
    }
}

fn of_bytes(data_type: &DataType, bytes: Bytes) -> Result<Value, Reason> {
    let utf8 = |bytes: Bytes| Text::from_utf8(bytes).map_err(|_| Reason::Client);
    Ok(match data_type {
        DataType::Decimal { .. } => {
            let number = bytes.slice_ref(decimal::without_padding(&bytes));
            if !decimal::is_decimal(&number) {
                return Err(Reason::Client);
            }
            Value::Decimal(utf8(number)?)
        }
        DataType::Char { charset, .. }
        | DataType::VarChar { charset, .. }
        | DataType::Text { charset, .. } => Value::Text(charset.text(bytes)?),
        DataType::Enum { charset, .. } | DataType::Set { charset, .. } => {
            Value::Raw(charset.text(bytes)?)
        }
        DataType::Binary { length } => Value::Bytes(padded(*length, bytes)?),
        DataType::VarBinary { .. } | DataType::Blob(_) | DataType::Geometry(_) => {
            Value::Bytes(bytes)
        }
        DataType::Vector { dimensions } => vector(*dimensions, bytes)?,
        DataType::Bit { .. } => bits(data_type, &bytes)?,
        DataType::Json => Value::Json(utf8(bytes)?),
        DataType::Uuid => text::value_of(Kind::Uuid, &bytes).map_err(|_| Reason::Client)?,
        DataType::Inet4 | DataType::Inet6 => Value::Raw(utf8(bytes)?),
        _ => return Err(Reason::Client),
    })
}
