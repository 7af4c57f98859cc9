//! Anything that can come from a source.

use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::{Entry, Mark};
use crate::batch::{ChunkId, Closing};
use crate::change::{Change, Event, TransactionId, Xid};
use crate::gtid::mysql::{Issuer, Uuid};
use crate::gtid::{mariadb, mysql};
use crate::position::{Lsn, Position};
use crate::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use crate::value::{Row, TemporalSpecial, Text, Value};

pub(super) const KINDS: [Kind; 18] = [
    Kind::Boolean,
    Kind::Int,
    Kind::Uint,
    Kind::Float32,
    Kind::Float64,
    Kind::Decimal,
    Kind::Text,
    Kind::Bytes,
    Kind::Json,
    Kind::Uuid,
    Kind::Date,
    Kind::Time,
    Kind::TimeTz,
    Kind::Timestamp,
    Kind::TimestampTz,
    Kind::Interval,
    Kind::Bits,
    Kind::Raw,
];

/// What a source may send in one segment.
pub(super) fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = |relations: Vec<Arc<Relation>>| {
        let runs = vec(run(relations.clone()), 0..4).prop_map(|runs| runs.concat());
        prop_oneof![
            4 => (runs, closing()).prop_map(|(events, closing)| Entry::Batch { events, closing }),
            1 => select(relations).prop_map(Entry::Relation),
            1 => mark().prop_map(Entry::Mark),
        ]
    };
    vec(relation(), 1..4).prop_flat_map(move |relations| vec(entry(relations), 0..5))
}

/// Floats are compared by their bits: a NaN equals nothing.
pub(super) fn floats_as_bits(mut entry: Entry) -> Entry {
    let row = |row: &mut Row| {
        let values = std::mem::take(row).into_values().into_iter().map(|value| match value {
            Value::Float32(float) => Value::text(format!("f32 {:x}", float.to_bits())),
            Value::Float64(float) => Value::text(format!("f64 {:x}", float.to_bits())),
            value => value,
        });
        *row = Row::new(values.collect());
    };
    if let Entry::Batch { events, .. } = &mut entry {
        for event in events {
            match &mut event.change {
                Change::Read { after, .. } => row(after),
                Change::Insert { after, moved_from: other, .. }
                | Change::Update { after, before: other, .. } => {
                    row(after);
                    other.iter_mut().for_each(row);
                }
                Change::Delete { before, .. } => row(before),
                Change::Truncate { .. } | Change::Message { .. } => {}
            }
        }
    }
    entry
}

fn mark() -> impl Strategy<Value = Mark> {
    let note = proptest::option::of(string());
    (lsn(), proptest::option::of(lsn()), note).prop_map(|(position, last_event, note)| Mark {
        position,
        last_event,
        note,
    })
}

fn closing() -> impl Strategy<Value = Closing> {
    prop_oneof![
        Just(Closing::Open),
        Just(Closing::Rows),
        any::<(u32, u32)>().prop_map(|(table, number)| {
            Closing::Chunk(ChunkId { table: RelationId(table), number })
        }),
        lsn().prop_map(Closing::Commit),
    ]
}

/// Changes that share their transaction.
fn run(relations: Vec<Arc<Relation>>) -> impl Strategy<Value = Vec<Event>> {
    let changes = vec((any::<u32>(), any::<bool>(), change(relations)), 1..5);
    // Neighbours that differ in one of the three among them.
    let commit = prop_oneof![Just(Lsn::new(5)), lsn()];
    let time = prop_oneof![Just(1), any::<i64>()];
    let head = (commit, time, proptest::option::of(transaction()));
    (head, changes).prop_map(|((commit, commit_time_micros, transaction), changes)| {
        let event = |(ordinal, redelivery, change)| Event {
            position: Position { commit, ordinal },
            commit_time_micros,
            transaction,
            redelivery,
            change,
        };
        changes.into_iter().map(event).collect()
    })
}

fn change(relations: Vec<Arc<Relation>>) -> impl Strategy<Value = Change> {
    let keyed = select(relations).prop_flat_map(|relation| {
        let columns = relation.columns.len();
        let rows = (row(columns), proptest::option::of(row(columns)));
        (Just(relation), rows, any::<bool>(), 0..5).prop_map(
            |(relation, (row, other), moved, operation)| match operation {
                0 => Change::Read { relation, after: row },
                1 => Change::Insert { relation, after: row, moved_from: other },
                2 => Change::Update { relation, before: other, after: row },
                3 => Change::Delete { relation, before: row, moved },
                _ => Change::Truncate { relation },
            },
        )
    });
    let message =
        (string(), bytes(), any::<bool>()).prop_map(|(prefix, content, transactional)| {
            Change::Message { prefix, content, transactional }
        });
    prop_oneof![8 => keyed, 1 => message]
}

fn transaction() -> impl Strategy<Value = TransactionId> {
    let tag = proptest::option::of("[a-z_][a-z0-9_]{0,31}").prop_map(|tag| {
        let tag = tag.as_deref().map(str::parse).transpose();
        tag.expect("a tag")
    });
    prop_oneof![
        any::<u64>().prop_map(|number| TransactionId::Xid(Xid(number))),
        (any::<[u8; 16]>(), tag, any::<u64>()).prop_map(|(uuid, tag, number)| {
            let issuer = Issuer { uuid: Uuid(uuid), tag };
            TransactionId::Gtid(mysql::Gtid { issuer, number })
        }),
        any::<(u32, u32, u64)>().prop_map(|(domain, server, sequence)| {
            TransactionId::MariaDb(mariadb::Gtid { domain, server, sequence })
        }),
        lsn().prop_map(TransactionId::Place),
    ]
}

fn relation() -> impl Strategy<Value = Arc<Relation>> {
    let columns = vec(column(), 0..6).prop_flat_map(|columns| {
        let indices: Vec<usize> = (0..columns.len()).collect();
        let key = 0..=indices.len();
        (Just(columns), subsequence(indices, key))
    });
    (any::<(u32, u32)>(), string(), string(), columns).prop_map(
        |((id, version), namespace, name, (columns, key))| {
            let table = TableName { namespace, name };
            Arc::new(Relation { id: RelationId(id), version, table, columns, key })
        },
    )
}

fn column() -> impl Strategy<Value = Column> {
    let initial =
        prop_oneof![Just(Initial::Null), Just(Initial::Unknown), string().prop_map(Initial::Text),];
    let number = proptest::option::of(any::<i16>());
    (string(), string(), any::<i32>(), select(&KINDS[..]), initial, number).prop_map(
        |(name, type_name, type_modifier, kind, initial, number)| Column {
            name,
            type_name,
            type_modifier,
            kind,
            initial,
            number,
        },
    )
}

fn row(columns: usize) -> impl Strategy<Value = Row> {
    vec(value(), columns).prop_map(Row::new)
}

fn value() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(Value::Null),
        Just(Value::Unavailable),
        any::<bool>().prop_map(Value::Boolean),
        any::<i64>().prop_map(Value::Int),
        (-200..300_i64).prop_map(Value::Int),
        any::<u64>().prop_map(Value::Uint),
        any::<u32>().prop_map(|bits| Value::Float32(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| Value::Float64(f64::from_bits(bits))),
    ];
    let texts = prop_oneof![
        text().prop_map(Value::Decimal),
        text().prop_map(Value::Text),
        text().prop_map(Value::Json),
        text().prop_map(Value::Raw),
        bytes().prop_map(Value::Bytes),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        (any::<u32>(), bytes()).prop_map(|(length, bytes)| Value::Bits { length, bytes }),
    ];
    let temporal = prop_oneof![
        any::<i32>().prop_map(Value::Date),
        any::<i64>().prop_map(Value::Time),
        any::<(i64, i32)>()
            .prop_map(|(micros, offset_seconds)| Value::TimeTz { micros, offset_seconds }),
        any::<i64>().prop_map(Value::Timestamp),
        any::<i64>().prop_map(Value::TimestampTz),
        any::<(i32, i32, i64)>().prop_map(|(months, days, micros)| Value::Interval {
            months,
            days,
            micros
        }),
        Just(Value::TemporalSpecial(TemporalSpecial::Infinity)),
        Just(Value::TemporalSpecial(TemporalSpecial::NegativeInfinity)),
        text().prop_map(|text| Value::TemporalSpecial(TemporalSpecial::Literal(text))),
    ];
    prop_oneof![plain, texts, temporal]
}

fn lsn() -> impl Strategy<Value = Lsn> {
    any::<(u64, u64)>().prop_map(|(file, offset)| Lsn::from_parts(file, offset))
}

/// Lengths around which MessagePack changes its form among them.
fn string() -> impl Strategy<Value = String> {
    let long = select(&[31, 32, 255, 256, 65_535, 65_536][..]);
    prop_oneof![20 => "\\PC{0,9}", 1 => long.prop_map(|length| "x".repeat(length))]
}

fn text() -> impl Strategy<Value = Text> {
    string().prop_map(Text::from)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}
