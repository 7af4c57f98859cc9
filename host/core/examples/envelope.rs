//! What the envelope costs: batches of updates of four columns with both images, a thousand events each, in transactions
//! of ten.
//!
//! Prints one figure a line, `figure NAME VALUE UNIT`: nanoseconds an event to encode and to decode, the medians of many
//! rounds, and bytes an event.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "it measures the core from outside"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dovetail_core::batch::Closing;
use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::envelope::{Decoder, Encoder};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use dovetail_core::value::{Row, Value};

const EVENTS: u32 = 1_000;
const ROUNDS: usize = 500;
const COLUMNS: [(&str, &str, Kind); 4] = [
    ("id", "int8", Kind::Int),
    ("customer", "text", Kind::Text),
    ("amount", "numeric", Kind::Decimal),
    ("changed_at", "timestamptz", Kind::TimestampTz),
];

fn main() {
    let events = events();
    let closing = Closing::Commit(Lsn::new(1 << 40));
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let mut entries = Vec::new();
    encoder.batch(&events, closing, &mut |bytes| entries.push(bytes.to_vec()));
    for entry in &entries {
        decoder.decode(entry).expect("it has just been written");
    }
    let batch = entries.pop().unwrap_or_default();

    let (mut encoding, mut decoding) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        encoder.batch(black_box(&events), closing, &mut |bytes| {
            black_box(bytes);
        });
        encoding.push(started.elapsed().as_nanos());

        let started = Instant::now();
        let entry = decoder.decode(black_box(&batch));
        decoding.push(started.elapsed().as_nanos());
        drop(black_box(entry));
    }
    figure("envelope_encode", median(encoding), "ns/event");
    figure("envelope_decode", median(decoding), "ns/event");
    let bytes = batch.len() as f64 / f64::from(EVENTS);
    figure("envelope_bytes", bytes, "bytes/event");
}

fn events() -> Vec<Event> {
    let column = |(name, type_name, kind): (&str, &str, Kind)| Column {
        name: name.into(),
        type_name: type_name.into(),
        type_modifier: -1,
        kind,
        initial: Initial::Null,
        number: None,
    };
    let table = TableName { namespace: "public".into(), name: "orders".into() };
    let columns = COLUMNS.map(column).into();
    let relation = Arc::new(Relation::new(RelationId(16_385), table, columns, vec![0]));
    let row = |number: u32, amount: &str| {
        Row::new(vec![
            Value::Int(1_000_000 + i64::from(number)),
            Value::text(format!("customer {number}").as_str()),
            Value::Decimal(amount.into()),
            Value::TimestampTz(1_790_000_000_000_000 + i64::from(number)),
        ])
    };
    let event = |number: u32| {
        let transaction = number / 10;
        Event {
            position: Position {
                commit: Lsn::new(0x16_B374_D848 + u64::from(transaction) * 800),
                ordinal: number % 10 + 1,
            },
            commit_time_micros: 1_790_000_000_000_000 + i64::from(transaction),
            transaction: Some(Xid(7_000_000_000 + u64::from(transaction)).into()),
            redelivery: false,
            change: Change::Update {
                relation: Arc::clone(&relation),
                before: Some(row(number, "19.90")),
                after: row(number, "1249.00"),
            },
        }
    };
    (0..EVENTS).map(event).collect()
}

/// Of one event.
fn median(mut nanoseconds: Vec<u128>) -> f64 {
    nanoseconds.sort_unstable();
    let middle = nanoseconds.get(nanoseconds.len() / 2).copied().unwrap_or_default();
    middle as f64 / f64::from(EVENTS)
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.1} {unit}");
}
