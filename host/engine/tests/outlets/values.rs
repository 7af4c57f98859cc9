//! Every kind of value comes back as it went in.

use bytes::Bytes;
use dovetail_core::schema::{Column, Kind, Relation};
use dovetail_core::value::{Row, TemporalSpecial, Value};
use std::sync::Arc;

use crate::subject::{Place, Subject, write};
use crate::text::{printed, texts};
use crate::world::*;

/// The type of a column, and values for it. Every variant of `Value` is among them.
pub(crate) fn samples() -> Vec<(&'static str, Vec<Value>)> {
    let decimals = ["0", "1.0", "1.00", "-12345678901234567890.000000000000000000001", "NaN"];
    let texts = [
        "",
        "plain",
        "quote ' \" \\ back",
        "tab\tline\nreturn\r",
        "\u{1}\u{7f}",
        "日本語 🦀",
        "NULL",
        "\\N",
    ];
    let jsons =
        ["{\"a\": 1, \"a\": 2}", "12345678901234567890123456789.10", "\"text\"", "null", "[]"];
    let bytes = [vec![], vec![0], (0..=255).collect::<Vec<u8>>()];
    let bits = [(0, vec![]), (1, vec![0x80]), (9, vec![0x81, 0x80])];
    let instants =
        [i64::from(i32::MIN) * 1_000_000, -1, 0, 1, 1_700_000_000_123_456, -62_167_219_200_000_001];
    vec![
        ("bool", vec![Value::Boolean(true), Value::Boolean(false)]),
        ("int8", [i64::MIN, -1, 0, (1 << 53) + 1, i64::MAX].map(Value::Int).to_vec()),
        (
            "xid8",
            [0, (1 << 53) + 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX].map(Value::Uint).to_vec(),
        ),
        (
            "float4",
            [0.1, -0.0, f32::MIN_POSITIVE, f32::MAX, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]
                .map(Value::Float32)
                .to_vec(),
        ),
        (
            "float8",
            [0.1, -0.0, 5e-324, 1e21, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]
                .map(Value::Float64)
                .to_vec(),
        ),
        ("numeric", decimals.map(|text| Value::Decimal(text.into())).to_vec()),
        ("text", texts.map(Value::text).to_vec()),
        ("json", jsons.map(|text| Value::Json(text.into())).to_vec()),
        ("bytea", bytes.map(|bytes| Value::Bytes(bytes.into())).to_vec()),
        ("uuid", vec![Value::Uuid([0; 16]), Value::Uuid(*b"0123456789abcdef")]),
        (
            "date",
            vec![
                Value::Date(0),
                Value::Date(-800_000),
                Value::Date(20_000),
                Value::TemporalSpecial(TemporalSpecial::Infinity),
                Value::TemporalSpecial(TemporalSpecial::NegativeInfinity),
            ],
        ),
        ("time", [0, 1, 86_399_999_999, 86_400_000_000].map(Value::Time).to_vec()),
        (
            "timetz",
            [(0, 0), (1, -12_600), (86_400_000_000, 57_599)]
                .map(|(micros, offset_seconds)| Value::TimeTz { micros, offset_seconds })
                .to_vec(),
        ),
        ("timestamp", instants.map(Value::Timestamp).to_vec()),
        ("timestamptz", {
            let special = [
                TemporalSpecial::Infinity,
                TemporalSpecial::NegativeInfinity,
                TemporalSpecial::Literal("294276-12-31 23:59:59.999999+00".into()),
            ];
            instants
                .map(Value::TimestampTz)
                .into_iter()
                .chain(special.map(Value::TemporalSpecial))
                .collect()
        }),
        (
            "interval",
            [(0, 0, 0), (14, -3, 14_706_789_000), (-14, 3, -1)]
                .map(|(months, days, micros)| Value::Interval { months, days, micros })
                .to_vec(),
        ),
        (
            "varbit",
            bits.map(|(length, bytes)| Value::Bits { length, bytes: Bytes::from(bytes) }).to_vec(),
        ),
        (
            "_text",
            vec![Value::Raw("{a,NULL,\"\",\"x\\\"y\"}".into()), Value::Raw("[2:3]={1,2}".into())],
        ),
        ("public.mood", vec![Value::Raw("happy 'n' glad".into())]),
    ]
}

/// A table of its own for every type, and a place in the log.
fn holders(place: Place, columns: impl Fn(&str) -> (Vec<Column>, &'static [usize])) -> Vec<Holder> {
    (0..)
        .zip(samples())
        .map(|(number, (type_name, mut values))| {
            values.retain(|value| place.holds(value));
            let (columns, key) = columns(type_name);
            let relation = relation(&format!("holder_{number}"), columns, key);
            Holder { relation, type_name, values, commit: 200 + 10 * number }
        })
        .collect()
}

struct Holder {
    relation: Arc<Relation>,
    type_name: &'static str,
    values: Vec<Value>,
    commit: u64,
}

#[tokio::test]
async fn a_value_of_every_kind_comes_back_by_every_way_in() {
    for subject in Subject::all().await {
        let mut outlet = subject.open().await;
        for holder in
            holders(subject.place, |name| (vec![column("id", "int8"), column("value", name)], &[0]))
        {
            let relation = &holder.relation;
            outlet.prepare(relation, true).await.expect("ready");
            let numbered = |from: i64| -> Vec<Row> {
                let row = |(id, value): (i64, Value)| Row::new(vec![Value::Int(id), value]);
                (from..).zip(holder.values.iter().cloned().chain([Value::Null])).map(row).collect()
            };
            let changes: Vec<_> = numbered(100)
                .into_iter()
                .map(|row| insert(relation, row))
                .chain(numbered(0).into_iter().map(|row| update(relation, row)))
                .collect();
            write(&mut outlet, [chunk(relation, numbered(0)), chunk(relation, numbered(50))]).await;
            write(&mut outlet, [transaction(holder.commit, changes)]).await;
            let expected = [numbered(0), numbered(50), numbered(100)].concat();
            let (name, place) = (holder.type_name, subject.place);
            assert_eq!(subject.rows(relation).await, texts(expected), "{name} in {place:?}");
        }
    }
}

#[tokio::test]
async fn a_value_of_every_kind_finds_its_row_when_there_is_no_key() {
    for subject in Subject::transactional().await {
        let mut outlet = subject.open().await;
        for holder in
            holders(subject.place, |name| (vec![column("id", "int8"), column("value", name)], &[]))
        {
            let relation = &holder.relation;
            outlet.prepare(relation, true).await.expect("ready");
            let row = |value: &Value| Row::new(vec![Value::Int(1), value.clone()]);
            let values: Vec<_> = holder.values.iter().cloned().chain([Value::Null]).collect();
            write(&mut outlet, [chunk(relation, values.iter().map(row))]).await;
            assert_eq!(subject.rows(relation).await.len(), values.len());
            let removed = values.iter().map(|value| delete(relation, row(value)));
            write(&mut outlet, [transaction(holder.commit, removed)]).await;
            let (name, place) = (holder.type_name, subject.place);
            assert_eq!(subject.rows(relation).await, texts([]), "{name} in {place:?}");
        }
    }
}

/// PostgreSQL has no key on json and the like; what has an order can be one.
fn can_be_a_key(type_name: &str) -> bool {
    !matches!(type_name, "json")
}

#[tokio::test]
async fn a_value_of_every_kind_finds_its_row_as_a_key() {
    for subject in Subject::transactional().await {
        let mut outlet = subject.open().await;
        for holder in
            holders(subject.place, |name| (vec![column("value", name), column("n", "int8")], &[0]))
        {
            if !can_be_a_key(holder.type_name) {
                continue;
            }
            let relation = &holder.relation;
            outlet.prepare(relation, true).await.expect("ready");
            let row = |value: &Value, n: i64| Row::new(vec![value.clone(), Value::Int(n)]);
            // Numbers that PostgreSQL holds equal are one key.
            let mut values = holder.values.clone();
            values.dedup_by_key(|value| {
                printed(value).map(|text| text.trim_end_matches(['0', '.']).to_owned())
            });
            write(&mut outlet, [chunk(relation, values.iter().map(|value| row(value, 1)))]).await;
            let changed = values.iter().map(|value| update(relation, row(value, 2)));
            write(&mut outlet, [transaction(holder.commit, changed)]).await;
            let expected = texts(values.iter().map(|value| row(value, 2)));
            let (name, place) = (holder.type_name, subject.place);
            assert_eq!(subject.rows(relation).await, expected, "{name} in {place:?}");
            let removed = values.iter().map(|value| delete(relation, row(value, 0)));
            write(&mut outlet, [transaction(holder.commit + 1, removed)]).await;
            assert_eq!(subject.rows(relation).await, texts([]), "{name} in {place:?}");
        }
    }
}

#[test]
fn the_samples_have_every_kind() {
    let kinds: Vec<Kind> =
        samples().iter().map(|(name, _)| dovetail_core::decode::types::kind(name)).collect();
    for kind in [
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
    ] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[tokio::test]
async fn odd_names_of_tables_and_columns_are_only_names() {
    for subject in Subject::transactional().await {
        let odd = relation(
            "Odd \"table\".x",
            vec![
                column("a\"b", "int8"),
                column("c.d e", "text"),
                column("日本", "text"),
                column("ORDER", "text"),
            ],
            &[0],
        );
        let mut outlet = subject.open_with(&odd).await;
        let row = |id: i64| Row::new(vec![Value::Int(id), word("x"), word("-"), word("y")]);
        write(
            &mut outlet,
            [chunk(&odd, [row(1), row(2)]), transaction(200, [delete(&odd, row(1))])],
        )
        .await;
        if subject.place != Place::Sqlite {
            continue;
        }
        subject.operate("SELECT \"a\"\"b\" FROM \"Odd \"\"table\"\".x\"").await;
    }
}
