//! One record as one line of JSON, written straight into a buffer: no tree is built per row.

use std::io::Write;

use dovetail_core::change::{Change, Event, TransactionId, Xid};
use dovetail_core::decode::print::{self, Printed};
use dovetail_core::key::Key;
use dovetail_core::outcome::{Body, Emission, Payload, Record};
use dovetail_core::position::Position;
use dovetail_core::schema::{Relation, TableName};
use dovetail_core::value::{Row, Value};
use xxhash_rust::xxh3::xxh3_128;

use super::json;
use crate::origin::Source;

/// Writes records. Holds what the id of a line is made of.
#[derive(Debug)]
pub(super) struct Encoder {
    /// `SYSTEM:DATABASE:`, or `SYSTEM:` where one log has all databases; escaped.
    id_prefix: Vec<u8>,
    /// The emissions of one input stand side by side and share its position; this tells them apart.
    emission: Option<(Position, Option<u128>, u64)>,
}

impl Encoder {
    pub(super) fn new(source: &Source) -> Self {
        let mut id_prefix = Vec::new();
        json::escape(&format!("{}:", source.system), &mut id_prefix);
        if !source.database.is_empty() {
            json::escape(&format!("{}:", source.database), &mut id_prefix);
        }
        Self { id_prefix, emission: None }
    }

    pub(super) fn write(&mut self, record: &Record, out: &mut Vec<u8>) {
        match &record.body {
            Body::Event(event) => self.event(event, out),
            Body::Emission { position, redelivery, relation, input, emission } => {
                let relation = relation.as_deref();
                self.emission(*position, *redelivery, relation.zip(input.as_ref()), emission, out);
            }
        }
        out.push(b'\n');
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        self.emission = None;
        let change = &event.change;
        let relation = change.relation().map(|relation| &**relation);
        head(change.operation().name(), relation, event.position, out);
        let key = relation.zip(change.keyed_row());
        self.id(event.position, digest(event.position, key), None, out);
        json::member("ts_us", out);
        json::int(event.commit_time_micros, out);
        match event.transaction {
            Some(TransactionId::Xid(Xid(number))) => {
                json::member("xid", out);
                json::uint(number, out);
            }
            Some(named) => {
                json::member("transaction", out);
                json::string(&named.to_string(), out);
            }
            None => {}
        }
        flag("redelivery", event.redelivery, out);
        let moved = matches!(
            change,
            Change::Delete { moved: true, .. } | Change::Insert { moved_from: Some(_), .. }
        );
        flag("moved", moved, out);
        if let Change::Message { prefix, content, transactional } = change {
            json::member("transactional", out);
            out.extend_from_slice(if *transactional { b"true" } else { b"false" });
            json::member("prefix", out);
            json::string(prefix, out);
            json::member("content", out);
            bytes(content, out);
        }
        if let Some(relation) = relation {
            rows(relation, change.keyed_row(), change.before(), change.after(), out);
        }
        out.push(b'}');
    }

    fn emission(
        &mut self,
        position: Position,
        redelivery: bool,
        input: Option<(&Relation, &Row)>,
        emission: &Emission,
        out: &mut Vec<u8>,
    ) {
        let digest = digest(position, input);
        let number = match self.emission {
            Some((before, of, number)) if (before, of) == (position, digest) => number + 1,
            _ => 0,
        };
        self.emission = Some((position, digest, number));
        head("emit", input.map(|(relation, _)| relation), position, out);
        self.id(position, digest, Some(number), out);
        flag("redelivery", redelivery, out);
        if let Some(topic) = &emission.topic {
            json::member("topic", out);
            json::string(topic, out);
        }
        if let Some(key) = &emission.key {
            json::member("emitted_key", out);
            bytes(key, out);
        }
        if !emission.headers.is_empty() {
            json::member("headers", out);
            json::list(b'[', b']', &emission.headers, out, |(name, value), out| {
                out.push(b'[');
                json::string(name, out);
                out.push(b',');
                bytes(value, out);
                out.push(b']');
            });
        }
        let after = match &emission.payload {
            Payload::Row(row) => Some(row),
            Payload::Bytes(payload) => {
                json::member("payload", out);
                bytes(payload, out);
                None
            }
            Payload::Tombstone => {
                flag("tombstone", true, out);
                None
            }
        };
        if let Some((relation, row)) = input {
            rows(relation, Some(row), None, after, out);
        }
        out.push(b'}');
    }

    /// Nothing where nothing identifies the row: two equal rows of a table without a key are two rows.
    fn id(
        &self,
        position: Position,
        digest: Option<u128>,
        emission: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if position.ordinal == 0 && digest.is_none() {
            return;
        }
        json::member("id", out);
        out.push(b'"');
        out.extend_from_slice(&self.id_prefix);
        let written = match digest {
            Some(digest) => write!(out, "{position}:{digest:032x}"),
            None => write!(out, "{position}"),
        };
        written.expect("a vector takes every byte");
        if let Some(number) = emission {
            write!(out, "/{number}").expect("a vector takes every byte");
        }
        out.push(b'"');
    }
}

/// Of the key of a scanned row, which shares its position with all others. A streamed change needs none.
fn digest(position: Position, input: Option<(&Relation, &Row)>) -> Option<u128> {
    if position.ordinal > 0 {
        return None;
    }
    let (relation, row) = input?;
    let key = Key::of(relation, row)?;
    let mut bytes = relation.id.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(key.as_bytes());
    Some(xxh3_128(&bytes))
}

fn head(operation: &str, relation: Option<&Relation>, position: Position, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"op\":");
    json::string(operation, out);
    if let Some(relation) = relation {
        json::member("table", out);
        json::string(&written(&relation.table), out);
    }
    write!(out, ",\"pos\":{{\"commit\":\"{}\",\"ordinal\":{}}}", position.commit, position.ordinal)
        .expect("a vector takes every byte");
}

fn flag(name: &str, value: bool, out: &mut Vec<u8>) {
    if value {
        json::member(name, out);
        out.extend_from_slice(b"true");
    }
}

fn rows(
    relation: &Relation,
    keyed: Option<&Row>,
    before: Option<&Row>,
    after: Option<&Row>,
    out: &mut Vec<u8>,
) {
    if relation.has_key()
        && let Some(row) = keyed
    {
        json::member("key", out);
        let key = relation.key.iter().copied();
        object(relation, row, key, out);
    }
    for (name, row) in [("before", before), ("after", after)] {
        if let Some(row) = row {
            json::member(name, out);
            object(relation, row, 0..relation.columns.len(), out);
        }
    }
    let missing = |row: &Row| -> Vec<usize> {
        let is_missing = |column: &usize| row.get(*column) == Some(&Value::Unavailable);
        (0..relation.columns.len()).filter(is_missing).collect()
    };
    let missing = after.map(missing).unwrap_or_default();
    if !missing.is_empty() {
        json::member("unavailable", out);
        json::list(b'[', b']', &missing, out, |column, out| {
            json::string(column_name(relation, *column), out);
        });
    }
}

fn column_name(relation: &Relation, column: usize) -> &str {
    relation.columns.get(column).map_or("", |column| &column.name)
}

fn object(relation: &Relation, row: &Row, columns: impl Iterator<Item = usize>, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut first = true;
    for column in columns {
        let value = match row.get(column) {
            Some(Value::Unavailable) | None => continue,
            Some(value) => value,
        };
        if !first {
            out.push(b',');
        }
        first = false;
        json::string(column_name(relation, column), out);
        out.push(b':');
        cell(value, out);
    }
    out.push(b'}');
}

fn cell(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null | Value::Unavailable => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Int(value) => json::int(*value, out),
        Value::Uint(value) => json::uint(*value, out),
        Value::Float32(value) if value.is_finite() => json::float(*value, out),
        Value::Float64(value) if value.is_finite() => json::float(*value, out),
        Value::Bytes(value) => bytes(value, out),
        other => match print::text(other) {
            Printed::Text(text) => json::string(&text, out),
            Printed::Null | Printed::Unavailable => out.extend_from_slice(b"null"),
        },
    }
}

fn bytes(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(5 + 2 * value.len());
    out.extend_from_slice(b"\"\\\\x");
    for byte in value {
        for half in [byte >> 4, byte & 0xF] {
            out.extend(DIGITS.get(usize::from(half)));
        }
    }
    out.push(b'"');
}

/// The table as the configuration writes it: quoted where it is not a plain word.
fn written(table: &TableName) -> String {
    let part = |name: &str| {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if !name.is_empty() && name.bytes().all(plain) {
            name.to_owned()
        } else {
            format!("\"{}\"", name.replace('"', "\"\""))
        }
    };
    format!("{}.{}", part(&table.namespace), part(&table.name))
}

#[cfg(test)]
mod tests {
    use dovetail_core::position::Lsn;

    use super::*;
    use crate::origin::Kind;

    fn line(source: &Source, transaction: TransactionId, commit: Lsn) -> String {
        let content = bytes::Bytes::new();
        let event = Event {
            position: Position { commit, ordinal: 1 },
            commit_time_micros: 7,
            transaction: Some(transaction),
            redelivery: false,
            change: Change::Message { prefix: "p".into(), content, transactional: true },
        };
        let mut out = Vec::new();
        Encoder::new(source).event(&event, &mut out);
        String::from_utf8(out).expect("JSON")
    }

    #[test]
    fn a_line_names_its_transaction_as_the_source_does() {
        let source = |kind, system: &str, database: &str| Source {
            kind,
            system: system.into(),
            database: database.into(),
        };
        let postgres = source(Kind::Postgres, "7301", "shop");
        let text = line(&postgres, Xid(771).into(), Lsn::new(0x16_B374_D848));
        let expected = r#""commit":"16/B374D848","ordinal":1},"id":"7301:shop:16/B374D848+1","ts_us":7,"xid":771,"#;
        assert!(text.contains(expected), "{text}");
        let mysql = source(Kind::MySql, "uuid", "");
        let place = Lsn::binlog(0, 42, 1789);
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23";
        let text = line(&mysql, TransactionId::Gtid(gtid.parse().expect("a GTID")), place);
        let expected = format!(r#""id":"uuid:000042:1789+1","ts_us":7,"transaction":"{gtid}","#);
        assert!(text.contains(&expected), "{text}");
        let text = line(&mysql, TransactionId::Place(place), place);
        assert!(text.contains(r#""transaction":"000042:1789","#), "{text}");
    }
}
