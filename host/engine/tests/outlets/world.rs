//! Tables, rows and batches, in few words.

use std::sync::Arc;

use dovetail::outlet::Delivery;
use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::decode::types;
use dovetail_core::outcome::{Body, Record};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Relation, RelationId, TableName};
use dovetail_core::value::{Row, Value};

pub(crate) fn column(name: &str, type_name: &str) -> Column {
    Column {
        name: name.into(),
        type_name: type_name.into(),
        type_modifier: -1,
        kind: types::kind(type_name),
        initial: Initial::Null,
        number: None,
    }
}

pub(crate) fn relation(name: &str, columns: Vec<Column>, key: &[usize]) -> Arc<Relation> {
    let table = TableName { namespace: "public".into(), name: name.into() };
    let id = RelationId(name.bytes().map(u32::from).sum());
    Arc::new(Relation::new(id, table, columns, key.to_vec()))
}

/// `id` (the key), `name`, `note`.
pub(crate) fn people() -> Arc<Relation> {
    relation(
        "people",
        vec![column("id", "int8"), column("name", "text"), column("note", "text")],
        &[0],
    )
}

/// The same without a key.
pub(crate) fn keyless() -> Arc<Relation> {
    relation("log", vec![column("id", "int8"), column("name", "text"), column("note", "text")], &[])
}

/// Text for a value; `~` is unavailable, `-` null.
pub(crate) fn row(id: i64, name: &str, note: &str) -> Row {
    Row::new(vec![Value::Int(id), word(name), word(note)])
}

pub(crate) fn word(text: &str) -> Value {
    match text {
        "~" => Value::Unavailable,
        "-" => Value::Null,
        text => Value::text(text),
    }
}

pub(crate) fn key_only(id: i64) -> Row {
    row(id, "~", "~")
}

pub(crate) fn read(relation: &Arc<Relation>, after: Row) -> Change {
    Change::Read { relation: Arc::clone(relation), after }
}

pub(crate) fn insert(relation: &Arc<Relation>, after: Row) -> Change {
    Change::Insert { relation: Arc::clone(relation), after, moved_from: None }
}

pub(crate) fn update(relation: &Arc<Relation>, after: Row) -> Change {
    Change::Update { relation: Arc::clone(relation), before: None, after }
}

pub(crate) fn update_from(relation: &Arc<Relation>, before: Row, after: Row) -> Change {
    Change::Update { relation: Arc::clone(relation), before: Some(before), after }
}

pub(crate) fn delete(relation: &Arc<Relation>, before: Row) -> Change {
    Change::Delete { relation: Arc::clone(relation), before, moved: false }
}

pub(crate) fn truncate(relation: &Arc<Relation>) -> Change {
    Change::Truncate { relation: Arc::clone(relation) }
}

/// Both halves of a key change.
pub(crate) fn move_row(relation: &Arc<Relation>, from: Row, to: Row) -> [Change; 2] {
    [
        Change::Delete { relation: Arc::clone(relation), before: from.clone(), moved: true },
        Change::Insert { relation: Arc::clone(relation), after: to, moved_from: Some(from) },
    ]
}

fn record(commit: u64, ordinal: u32, change: Change) -> Record {
    let event = Event {
        position: Position { commit: Lsn::new(commit), ordinal },
        commit_time_micros: 1_000_000,
        transaction: (ordinal > 0).then_some(Xid(commit).into()),
        redelivery: false,
        change,
    };
    Record { body: Body::Event(event), route: None }
}

fn delivery(records: Vec<Record>, closing: Closing) -> Delivery {
    Delivery { number: 0, records, closing }
}

/// A transaction of the stream with its commit record at `commit`, closed right behind it.
pub(crate) fn transaction(commit: u64, changes: impl IntoIterator<Item = Change>) -> Delivery {
    part(commit, 1, changes, Closing::Commit(Lsn::new(commit + 1)))
}

/// A part of one, from this ordinal on.
pub(crate) fn part(
    commit: u64,
    from: u32,
    changes: impl IntoIterator<Item = Change>,
    closing: Closing,
) -> Delivery {
    let records = (from..).zip(changes).map(|(ordinal, change)| record(commit, ordinal, change));
    delivery(records.collect(), closing)
}

pub(crate) const PIN: u64 = 100;

/// Rows of a scan, the whole chunk.
pub(crate) fn chunk(relation: &Arc<Relation>, rows: impl IntoIterator<Item = Row>) -> Delivery {
    let records = rows.into_iter().map(|row| record(PIN, 0, read(relation, row)));
    delivery(records.collect(), Closing::Chunk(chunk_id(relation)))
}

pub(crate) fn chunk_id(relation: &Arc<Relation>) -> ChunkId {
    ChunkId { table: relation.id, number: 0 }
}

/// The barrier before a table is scanned again.
pub(crate) fn barrier(relation: &Arc<Relation>) -> Delivery {
    delivery(vec![record(PIN, 0, truncate(relation))], Closing::Rows)
}
