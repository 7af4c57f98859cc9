//! The bytes of version 1, as they were written when it was made.
//!
//! When a test here fails, files that exist cannot be read any more. Then the change is wrong, or it is a new version:
//! raise [`VERSION`], let the decoder read the old one as before for as long as files of it may exist, leave its
//! vectors and the entries that they are compared with alone, and add vectors of the new one. Only a case that is new (a
//! value, a kind of column) needs none: it is appended here, in entries of its own.

use bytes::Bytes;

use super::*;
use crate::batch::ChunkId;
use crate::change::{TransactionId, Xid};
use crate::value::TemporalSpecial;

/// One entry a line, in hexadecimal.
const VECTORS: &str = include_str!("../vectors/v1.txt");

/// Every case of everything.
pub(super) fn entries() -> Vec<Entry> {
    let kinds = kinds();
    let values = values();
    vec![
        Entry::Relation(Arc::clone(&kinds)),
        Entry::Relation(Arc::clone(&values)),
        Entry::Batch {
            events: vec![
                event(1, None, Change::Read { relation: Arc::clone(&values), after: all_values() }),
                event(2, None, Change::Truncate { relation: Arc::clone(&kinds) }),
            ],
            closing: Closing::Rows,
        },
        Entry::Batch { events: changes(&values), closing: Closing::Open },
        Entry::Batch {
            events: transactions(&kinds),
            closing: Closing::Commit(Lsn::binlog(1, 42, 1789)),
        },
        Entry::Batch {
            events: vec![],
            closing: Closing::Chunk(ChunkId { table: RelationId(16_385), number: 300 }),
        },
        Entry::Mark(Mark {
            position: Lsn::binlog(0, 42, 1789),
            last_event: Some(Lsn::new(0x16_B374_D848)),
            note: Some("0-1-42".into()),
        }),
        Entry::Mark(Mark { position: Lsn::ZERO, last_event: None, note: None }),
    ]
}

fn kinds() -> Arc<Relation> {
    let initial = |index: usize| match index {
        0 => Initial::Text("true".into()),
        1 => Initial::Unknown,
        _ => Initial::Null,
    };
    let column = |(index, kind): (usize, ColumnKind)| Column {
        number: i16::try_from(index).ok().filter(|number| *number > 0),
        type_modifier: if index == 5 { 655_366 } else { -1 },
        ..column(&format!("c{index}"), kind, initial(index))
    };
    let columns = arbitrary::KINDS.into_iter().enumerate().map(column).collect();
    let key = vec![1, 9];
    Arc::new(Relation { id: RelationId(1), version: 9, table: table("kinds"), columns, key })
}

fn values() -> Arc<Relation> {
    let columns = vec![column("v", ColumnKind::Raw, Initial::Null); all_values().values().len()];
    let key = vec![];
    let (id, version, table) = (RelationId(u32::MAX), 3_000_000_000, table("values"));
    Arc::new(Relation { id, version, table, columns, key })
}

fn all_values() -> Row {
    Row::new(vec![
        Value::Null,
        Value::Unavailable,
        Value::Boolean(false),
        Value::Boolean(true),
        Value::Int(i64::MIN),
        Value::Int(-1),
        Value::Uint(u64::MAX),
        Value::Float32(1.5),
        Value::Float64(-0.0),
        Value::Decimal("1.00".into()),
        Value::text("naïve"),
        Value::Bytes(Bytes::from_static(&[0, 0xFF])),
        Value::Json("{\"a\": 1}".into()),
        Value::Uuid([0xAB; 16]),
        Value::Date(-719_162),
        Value::Time(86_400_000_000),
        Value::TimeTz { micros: 1, offset_seconds: -3_600 },
        Value::Timestamp(1_790_000_000_000_000),
        Value::TimestampTz(-1),
        Value::Interval { months: 1, days: -2, micros: 3 },
        Value::Bits { length: 9, bytes: Bytes::from_static(&[0x81, 0x80]) },
        Value::TemporalSpecial(TemporalSpecial::Infinity),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity),
        Value::TemporalSpecial(TemporalSpecial::Literal("2020-00-00".into())),
        Value::Raw("{1,2}".into()),
    ])
}

fn changes(relation: &Arc<Relation>) -> Vec<Event> {
    let relation = || Arc::clone(relation);
    let row = |value: Value| Row::new(vec![value; all_values().values().len()]);
    let (before, after) = (row(Value::Unavailable), row(Value::Int(7)));
    let message = |transactional| Change::Message {
        prefix: "app".into(),
        content: Bytes::from_static(b"\0"),
        transactional,
    };
    let insert =
        |moved_from| Change::Insert { relation: relation(), after: row(Value::Null), moved_from };
    let update =
        |before| Change::Update { relation: relation(), before, after: row(Value::Uint(7)) };
    let delete = |moved| Change::Delete { relation: relation(), before: before.clone(), moved };
    let changes = [
        Change::Read { relation: relation(), after: after.clone() },
        insert(None),
        update(None),
        update(Some(before.clone())),
        delete(false),
        delete(true),
        insert(Some(before.clone())),
        Change::Truncate { relation: relation() },
        message(true),
        message(false),
    ];
    let xid = Some(TransactionId::Xid(Xid(1 << 33)));
    (1..).zip(changes).map(|(ordinal, change)| event(ordinal, xid, change)).collect()
}

fn transactions(relation: &Arc<Relation>) -> Vec<Event> {
    let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let gtid = |text: String| TransactionId::Gtid(text.parse().unwrap());
    let names = [
        TransactionId::Xid(Xid(1)),
        gtid(format!("{uuid}:23")),
        gtid(format!("{uuid}:reports:23")),
        TransactionId::MariaDb("0-1-42".parse().unwrap()),
        TransactionId::Place(Lsn::binlog(0, 3, 4)),
    ];
    let change = || Change::Truncate { relation: Arc::clone(relation) };
    names.into_iter().map(|name| event(1, Some(name), change())).collect()
}

fn event(ordinal: u32, transaction: Option<TransactionId>, change: Change) -> Event {
    Event {
        position: Position { commit: Lsn::new(0x16_B374_D848), ordinal },
        commit_time_micros: 1_790_000_000_000_000,
        transaction,
        redelivery: ordinal == 2,
        change,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(line: &str) -> Vec<u8> {
    let (pairs, _) = line.as_bytes().as_chunks::<2>();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(|pair| byte(pair)).collect()
}

/// Without the entries, which fill screens.
fn assert_same<T: PartialEq>(found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found == expected, "entry {index} is another one");
    }
}

#[test]
fn what_was_written_once_is_still_read() {
    let written: Vec<_> = VECTORS.lines().map(bytes).collect();
    assert_same(&decode(&written), &entries());
}

#[test]
fn what_is_written_is_what_was_written_once() {
    let written: Vec<_> = encode(&entries()).iter().map(|entry| hexadecimal(entry)).collect();
    let once: Vec<_> = VECTORS.lines().map(str::to_owned).collect();
    assert_same(&written, &once);
}
