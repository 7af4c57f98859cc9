//! Rows of `COPY ... TO STDOUT` in text format, one `CopyData` message each.
//!
//! Fields are separated by tabs; a tab, a newline, a carriage return or a backslash inside a field is escaped, so the
//! only literal tabs are separators. A field that is `\N` and nothing else is null; the text `\N` comes as `\\N`.
//! Fields without a backslash share the message. Source: the page of `COPY` in PostgreSQL's manual, "Text Format".

use std::ops::Range;

use bytes::Bytes;
use memchr::{memchr, memchr_iter};

use super::text::{self, InvalidText};
use crate::schema::{Column, Relation};
use crate::value::{Row, Value};

/// The row is not one of the relation that it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRow {
    #[error("row of {found} fields for the {expected} columns of {table}")]
    Fields { table: String, expected: usize, found: usize },
    #[error("escape sequence without an end in column {column} of {table}")]
    Escape { table: String, column: String },
    #[error("column {column} of {table} has a value that its type does not print")]
    Value { table: String, column: String, source: InvalidText },
}

/// # Errors
/// When the message is not a row of the relation; all its columns have to have been selected, in order.
pub fn row(relation: &Relation, message: &Bytes) -> Result<Row, InvalidRow> {
    let line = message.strip_suffix(b"\n").unwrap_or(message);
    let expected = relation.columns.len();
    let fields = |found| InvalidRow::Fields { table: relation.table.to_string(), expected, found };
    if line.is_empty() && expected == 0 {
        return Ok(Row::default());
    }
    let escapes = memchr(b'\\', line).is_some();
    let mut values = Vec::with_capacity(expected);
    let mut columns = relation.columns.iter();
    let mut start = 0;
    for end in memchr_iter(b'\t', line).chain([line.len()]) {
        let Some(column) = columns.next() else {
            return Err(fields(memchr_iter(b'\t', line).count() + 1));
        };
        let read = if escapes {
            push_escaped(column, message, start..end, &mut values)
        } else {
            text::push(column.kind, message, start..end, &mut values).map_err(Wrong::Text)
        };
        read.map_err(|wrong| wrong.of(relation, column))?;
        start = end + 1;
    }
    if values.len() < expected {
        return Err(fields(values.len()));
    }
    Ok(Row::new(values))
}

enum Wrong {
    Escape,
    Text(InvalidText),
}

impl Wrong {
    fn of(self, relation: &Relation, column: &Column) -> InvalidRow {
        let (table, column) = (relation.table.to_string(), column.name.clone());
        match self {
            Self::Escape => InvalidRow::Escape { table, column },
            Self::Text(source) => InvalidRow::Value { table, column, source },
        }
    }
}

fn push_escaped(
    column: &Column,
    message: &Bytes,
    range: Range<usize>,
    values: &mut Vec<Value>,
) -> Result<(), Wrong> {
    let field = message.get(range.clone()).unwrap_or_default();
    if field == b"\\N" {
        values.push(Value::Null);
        return Ok(());
    }
    let Some(first) = memchr(b'\\', field) else {
        return text::push(column.kind, message, range, values).map_err(Wrong::Text);
    };
    let text = Bytes::from(unescape(field, first).ok_or(Wrong::Escape)?);
    text::push(column.kind, &text, 0..text.len(), values).map_err(Wrong::Text)
}

/// `None` when the field ends in a lone backslash.
fn unescape(field: &[u8], first: usize) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(field.len());
    let (mut plain, mut rest) = field.split_at_checked(first)?;
    loop {
        text.extend_from_slice(plain);
        let Some(escape) = rest.strip_prefix(b"\\") else { return Some(text) };
        let (byte, after) = unescape_one(escape)?;
        text.push(byte);
        (plain, rest) = after.split_at_checked(memchr(b'\\', after).unwrap_or(after.len()))?;
    }
}

/// One sequence behind its backslash, and what follows it.
fn unescape_one(escape: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = escape.split_first()?;
    let byte = match first {
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0B,
        b'0'..=b'7' => return Some(number(escape, 3, 8)),
        b'x' if after.first().is_some_and(u8::is_ascii_hexdigit) => {
            return Some(number(after, 2, 16));
        }
        other => *other,
    };
    Some((byte, after))
}

/// A byte from up to `most` digits; higher bits are dropped, as the server does.
fn number(digits: &[u8], most: usize, radix: u32) -> (u8, &[u8]) {
    let mut number = 0_u32;
    let mut rest = digits;
    for _ in 0..most {
        let Some((digit, after)) = rest.split_first() else { break };
        let Some(digit) = char::from(*digit).to_digit(radix) else { break };
        number = number * radix + digit;
        rest = after;
    }
    (number.to_le_bytes()[0], rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{Initial, Kind, RelationId, TableName};

    fn relation(kinds: &[Kind]) -> Relation {
        let column = |(index, kind): (usize, &Kind)| Column {
            name: format!("c{index}"),
            type_name: "text".into(),
            type_modifier: -1,
            kind: *kind,
            initial: Initial::Null,
            number: None,
        };
        let columns = kinds.iter().enumerate().map(column).collect();
        let table = TableName { namespace: "public".into(), name: "t".into() };
        Relation::new(RelationId(1), table, columns, vec![])
    }

    fn read(kinds: &[Kind], line: &str) -> Result<Vec<Value>, InvalidRow> {
        row(&relation(kinds), &Bytes::copy_from_slice(line.as_bytes())).map(Row::into_values)
    }

    #[test]
    fn a_row_without_backslashes_shares_the_message() {
        let message = Bytes::from_static(b"7\tseven\t\n");
        let relation = relation(&[Kind::Int, Kind::Text, Kind::Text]);
        let row = row(&relation, &message).expect("a row");
        assert_eq!(row.values(), [Value::Int(7), Value::text("seven"), Value::text("")]);
        let Some(Value::Text(text)) = row.get(1) else { panic!("text") };
        assert_eq!(text.as_bytes().as_ptr(), message[2..].as_ptr());
    }

    #[test]
    fn null_is_neither_empty_nor_the_text_of_its_mark() {
        let kinds = [Kind::Text; 4];
        let values = read(&kinds, "\\N\t\t\\\\N\tx\\\\N\n").expect("a row");
        assert_eq!(values, [Value::Null, Value::text(""), Value::text("\\N"), Value::text("x\\N")]);
    }

    #[test]
    fn every_escape_sequence_of_the_manual_is_read() {
        let line = "\\b\\f\\n\\r\\t\\v\\\\\\.\\101\\x41\\x4g\\0178\\q";
        let text = "\u{8}\u{c}\n\r\t\u{b}\\.AA\u{4}g\u{f}8q";
        assert_eq!(read(&[Kind::Text], line), Ok(vec![Value::text(text)]));
        let bytes = Value::Bytes(Bytes::from_static(&[0xDE, 0xAD]));
        assert_eq!(read(&[Kind::Bytes], "\\\\xdead\n"), Ok(vec![bytes]));
    }

    #[test]
    fn a_row_of_another_width_or_with_an_open_escape_is_refused() {
        let two = [Kind::Text; 2];
        for (line, found) in [("a\n", 1), ("a\tb\tc\n", 3), ("\n", 1)] {
            let fields = InvalidRow::Fields { table: "public.t".into(), expected: 2, found };
            assert_eq!(read(&two, line), Err(fields), "{line}");
        }
        let escape = InvalidRow::Escape { table: "public.t".into(), column: "c1".into() };
        assert_eq!(read(&two, "a\tb\\\n"), Err(escape));
        assert_eq!(read(&[], "\n"), Ok(vec![]));
        assert_eq!(read(&[Kind::Text], "\n"), Ok(vec![Value::text("")]));
    }

    #[test]
    fn an_error_names_the_column_and_not_the_value() {
        let error = read(&[Kind::Int], "secret\n").expect_err("not an integer");
        assert!(!format!("{error:?} {error}").contains("secret"));
    }

    /// What the server escapes in text format.
    fn escape(text: &str) -> String {
        let escapes = [
            ('\\', "\\\\"),
            ('\u{8}', "\\b"),
            ('\u{c}', "\\f"),
            ('\n', "\\n"),
            ('\r', "\\r"),
            ('\t', "\\t"),
            ('\u{b}', "\\v"),
        ];
        let mut line = String::new();
        for character in text.chars() {
            match escapes.iter().find(|(from, _)| *from == character) {
                Some((_, to)) => line.push_str(to),
                None => line.push(character),
            }
        }
        line
    }

    proptest! {
        #[test]
        fn what_the_server_escapes_is_read_back(
            texts in proptest::collection::vec(
                proptest::option::of("([\\\\\t\n\r\u{8}\u{b}\u{c}N.x0a]|\\PC){0,12}"), 1..6)
        ) {
            let kinds = vec![Kind::Text; texts.len()];
            let fields = texts.iter().map(|text| match text {
                Some(text) => escape(text),
                None => "\\N".into(),
            });
            let line = fields.collect::<Vec<_>>().join("\t") + "\n";
            let expected: Vec<Value> = texts.iter().map(|text| match text {
                Some(text) => Value::text(text.as_str()),
                None => Value::Null,
            }).collect();
            prop_assert_eq!(read(&kinds, &line), Ok(expected));
        }

        #[test]
        fn any_bytes_are_a_row_or_refused(line in any::<Vec<u8>>()) {
            let relation = relation(&[Kind::Text, Kind::Int]);
            if let Ok(row) = row(&relation, &Bytes::from(line)) {
                prop_assert_eq!(row.values().len(), 2);
            }
        }
    }
}
