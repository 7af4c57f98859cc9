//! Values as parameters: always text, which the statement casts to the column's type.
//!
//! One text form serves every type there is, also those that this program does not know, and it is the form in which
//! the source gave the value. One array per column makes a statement of the whole batch.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use dovetail_core::decode::print::{self, Printed};
use dovetail_core::value::{Row, Value};
use postgres_protocol::types::{ArrayDimension, array_to_sql};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

type Result = std::result::Result<IsNull, Box<dyn Error + Sync + Send>>;

fn write(value: &Value, out: &mut BytesMut) -> postgres_protocol::IsNull {
    match print::text(value) {
        Printed::Text(text) => {
            out.put_slice(text.as_bytes());
            postgres_protocol::IsNull::No
        }
        Printed::Null | Printed::Unavailable => postgres_protocol::IsNull::Yes,
    }
}

/// One column of a batch, as `text[]`.
#[derive(Debug)]
pub(super) struct Texts<'a> {
    pub(super) rows: &'a [&'a Row],
    pub(super) column: usize,
}

impl ToSql for Texts<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result {
        let length = i32::try_from(self.rows.len())?;
        let dimension = ArrayDimension { len: length, lower_bound: 1 };
        let cells = self.rows.iter().map(|row| row.get(self.column).unwrap_or(&Value::Null));
        let cell = |value: &Value, out: &mut BytesMut| Ok(write(value, out));
        array_to_sql(Some(dimension), Type::TEXT.oid(), cells, cell, out)?;
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT_ARRAY
    }

    to_sql_checked!();
}

/// One value, as `text`.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) &'a Value);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result {
        Ok(match write(self.0, out) {
            postgres_protocol::IsNull::Yes => IsNull::Yes,
            postgres_protocol::IsNull::No => IsNull::No,
        })
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }

    to_sql_checked!();
}

pub(super) fn texts<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<Text<'a>> {
    values.into_iter().map(Text).collect()
}

pub(super) fn arrays<'a>(rows: &'a [&'a Row], columns: &[usize]) -> Vec<Texts<'a>> {
    columns.iter().map(|&column| Texts { rows, column }).collect()
}
