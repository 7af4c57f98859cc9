use std::sync::Arc;

use proptest::prelude::*;
use serde::Serialize;

use super::*;
use crate::change::Change;
use crate::position::Position;
use crate::schema::{Column, Initial, Kind as ColumnKind, RelationId, TableName};
use crate::value::{Row, Value};

mod arbitrary;
mod damaged;
mod vectors;

fn table(name: &str) -> TableName {
    TableName { namespace: "public".into(), name: name.into() }
}

fn column(name: &str, kind: ColumnKind, initial: Initial) -> Column {
    Column {
        name: name.into(),
        type_name: "text".into(),
        type_modifier: -1,
        kind,
        initial,
        number: None,
    }
}

/// One column, `note`.
fn orders(initial: Initial) -> Arc<Relation> {
    let columns = vec![column("note", ColumnKind::Text, initial)];
    Arc::new(Relation::new(RelationId(7), table("orders"), columns, vec![]))
}

fn read(relation: &Arc<Relation>, value: Value) -> Event {
    let relation = Arc::clone(relation);
    Event {
        position: Position { commit: Lsn::new(5), ordinal: 0 },
        commit_time_micros: 1,
        transaction: None,
        redelivery: false,
        change: Change::Read { relation, after: Row::new(vec![value]) },
    }
}

/// The entries that one encoder makes of this.
fn encode(entries: &[Entry]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut written = Vec::new();
    let mut each = |bytes: &[u8]| written.push(bytes.to_vec());
    for entry in entries {
        match entry {
            Entry::Relation(relation) => encoder.relation(relation, &mut each),
            Entry::Batch { events, closing } => encoder.batch(events, *closing, &mut each),
            Entry::Mark(mark) => encoder.mark(mark, &mut each),
        }
    }
    written
}

fn decode(entries: &[Vec<u8>]) -> Vec<Entry> {
    let mut decoder = Decoder::new();
    entries.iter().map(|entry| decoder.decode(entry).unwrap()).collect()
}

fn relations(entries: &[Entry]) -> Vec<&Arc<Relation>> {
    let mut relations = Vec::new();
    for entry in entries {
        if let Entry::Relation(relation) = entry {
            relations.push(relation);
        }
    }
    relations
}

fn rows_closed(events: Vec<Event>) -> Entry {
    Entry::Batch { events, closing: Closing::Rows }
}

/// An entry by hand: tuples are arrays.
fn by_hand(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(rmp_serde::to_vec(value).unwrap());
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in arbitrary::entries()) {
        let read = decode(&encode(&entries));
        let described = relations(&read);
        for (index, relation) in described.iter().enumerate() {
            prop_assert!(!described[..index].contains(relation), "described twice");
        }
        let without_relations = |entries: &[Entry]| -> Vec<Entry> {
            let rest = entries.iter().filter(|entry| !matches!(entry, Entry::Relation(_)));
            rest.cloned().map(arbitrary::floats_as_bits).collect()
        };
        prop_assert_eq!(without_relations(&read), without_relations(&entries));
        for relation in relations(&entries) {
            prop_assert!(described.contains(&relation));
        }
    }
}

#[test]
fn floats_keep_their_bits() {
    for bits in [0x7F80_0001, 0xFFC0_1234, 0x8000_0000, 0, u32::MAX] {
        let event = read(&orders(Initial::Null), Value::Float32(f32::from_bits(bits)));
        let Some(Value::Float32(float)) = only_value(&event) else { panic!("another kind") };
        assert_eq!(float.to_bits(), bits);
    }
    for bits in [0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_1234, 1 << 63, 0, u64::MAX] {
        let event = read(&orders(Initial::Null), Value::Float64(f64::from_bits(bits)));
        let Some(Value::Float64(float)) = only_value(&event) else { panic!("another kind") };
        assert_eq!(float.to_bits(), bits);
    }
}

/// Of the row, after it was written and read.
fn only_value(event: &Event) -> Option<Value> {
    let read = decode(&encode(&[rows_closed(vec![event.clone()])]));
    let Some(Entry::Batch { events, .. }) = read.last() else { panic!("the batch is last") };
    events.first()?.change.after()?.get(0).cloned()
}

#[test]
fn definitions_of_one_version_stay_apart() {
    let (was, is) = (orders(Initial::Text("new".into())), orders(Initial::Unknown));
    assert_eq!((was.id, was.version), (is.id, is.version));
    let batch = rows_closed([&was, &is, &was].map(|relation| read(relation, Value::Null)).into());

    let read = decode(&encode(std::slice::from_ref(&batch)));

    assert_eq!(read, [Entry::Relation(was), Entry::Relation(is), batch]);
}

#[test]
fn a_definition_is_described_once_whoever_holds_it() {
    let (one, same) = (orders(Initial::Null), orders(Initial::Null));
    let batches = [
        rows_closed(vec![read(&one, Value::Null), read(&same, Value::Null)]),
        rows_closed(vec![read(&same, Value::Null)]),
    ];
    let entries = decode(&encode(&[&[Entry::Relation(one)], &batches[..]].concat()));

    let [Entry::Relation(relation), Entry::Batch { events, .. }, Entry::Batch { .. }] =
        &entries[..]
    else {
        panic!("a definition and two batches: {entries:?}");
    };
    for event in events {
        assert!(Arc::ptr_eq(event.change.relation().unwrap(), relation));
    }
}

#[test]
fn equal_definitions_become_one_relation() {
    let entries = encode(&[Entry::Relation(orders(Initial::Null))]);
    let read = decode(&[&entries[..], &entries].concat());
    let [Entry::Relation(one), Entry::Relation(same)] = &read[..] else { panic!("{read:?}") };
    assert!(Arc::ptr_eq(one, same));
}

#[test]
fn a_decoder_that_read_another_segment_takes_no_table_for_another() {
    let columns = vec![column("note", ColumnKind::Text, Initial::Null)];
    let customers = Relation::new(RelationId(8), table("customers"), columns, vec![]);
    let batches = [orders(Initial::Null), Arc::new(customers)]
        .map(|relation| rows_closed(vec![read(&relation, Value::Null)]));

    let segments = batches.clone().map(|batch| encode(&[batch]));
    let read = decode(&segments.concat());

    let is_batch = |entry: &&Entry| matches!(entry, Entry::Batch { .. });
    assert!(read.iter().filter(is_batch).eq(&batches));
}

#[test]
fn what_a_transaction_says_is_written_once() {
    let event = |ordinal| Event {
        position: Position { commit: Lsn::new(u64::MAX), ordinal },
        transaction: Some(crate::change::Xid(u64::MAX).into()),
        ..read(&orders(Initial::Null), Value::Null)
    };
    let bytes = |count| {
        let batch = rows_closed((1..=count).map(event).collect());
        encode(&[batch]).last().map_or(0, Vec::len)
    };
    // Array, tag, ordinal, redelivery, table, and a row of an array with a null.
    assert_eq!(bytes(3) - bytes(2), 7);
}

#[test]
#[should_panic(expected = "row without a value for each column")]
fn a_row_that_could_not_be_read_is_not_written() {
    let mut event = read(&orders(Initial::Null), Value::Null);
    if let Some(row) = event.change.after_mut() {
        *row = Row::new(vec![]);
    }
    encode(&[rows_closed(vec![event])]);
}

#[test]
fn the_kind_of_an_entry_shows_without_reading_it() {
    let mut decoder = Decoder::new();
    for entry in encode(&vectors::entries()) {
        let kind = match decoder.decode(&entry).unwrap() {
            Entry::Relation(_) => Kind::Relation,
            Entry::Batch { .. } => Kind::Batch,
            Entry::Mark(_) => Kind::Mark,
        };
        assert_eq!(Kind::of(&entry), Some(kind));
        assert_eq!(Kind::of(&entry[..2]), None);
    }
    assert_eq!(Kind::of(&by_hand(&(99,))), None);
    assert_eq!(Kind::of(&[VERSION + 1, 0x91, tag::MARK]), None);
}
