//! Rows of MySQL and MariaDB, at every outlet of tables.

use std::sync::Arc;

use dovetail::origin;
use dovetail::outlet::{Error, Outlet};
use dovetail_core::schema::{Column, Initial, Kind, Relation};
use dovetail_core::value::{Row, TemporalSpecial, Value};

use crate::subject::{Place, Subject, origin_of, try_write, write};
use crate::text::texts;
use crate::world::*;

fn zero(text: &str) -> Value {
    Value::TemporalSpecial(TemporalSpecial::Literal(text.into()))
}

fn raw(text: &str) -> Value {
    Value::Raw(text.into())
}

fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.to_vec().into())
}

/// The types that both servers have, with the kind and values of each.
fn samples() -> Vec<(&'static str, Kind, Vec<Value>)> {
    let longest = (838 * 3_600 + 59 * 60 + 59) * 1_000_000;
    let instant = 1_700_000_000_123_456;
    let point = [&[0; 4][..], &[1, 1, 0, 0, 0], &1.5_f64.to_le_bytes(), &(-2.0_f64).to_le_bytes()];
    let bits = Value::Bits { length: 9, bytes: vec![0x81, 0x80].into() };
    vec![
        ("tinyint", Kind::Int, vec![Value::Int(-128), Value::Int(127)]),
        ("tinyint unsigned", Kind::Uint, vec![Value::Uint(255)]),
        ("smallint unsigned", Kind::Uint, vec![Value::Uint(65_535)]),
        ("mediumint", Kind::Int, vec![Value::Int(-8_388_608)]),
        ("int unsigned", Kind::Uint, vec![Value::Uint(4_294_967_295)]),
        ("bigint", Kind::Int, vec![Value::Int(i64::MIN), Value::Int(i64::MAX)]),
        ("bigint unsigned", Kind::Uint, [0, u64::MAX - 1, u64::MAX].map(Value::Uint).to_vec()),
        ("float", Kind::Float32, vec![Value::Float32(0.1), Value::Float32(-f32::MAX)]),
        ("double", Kind::Float64, vec![Value::Float64(0.1), Value::Float64(-f64::MAX)]),
        (
            "decimal(30,4)",
            Kind::Decimal,
            ["-9007199254740993.7890", "9007199254740993.7891", "0.0000"]
                .map(|text| Value::Decimal(text.into()))
                .to_vec(),
        ),
        ("year", Kind::Int, [0, 1_901, 2_155].map(Value::Int).to_vec()),
        ("date", Kind::Date, vec![Value::Date(0), Value::Date(20_000), zero("0000-00-00")]),
        ("time", Kind::Time, [-longest, 0, longest].map(Value::Time).to_vec()),
        ("time(6)", Kind::Time, [-1, 86_400_000_001].map(Value::Time).to_vec()),
        ("datetime", Kind::Timestamp, vec![zero("2024-00-10 00:00:00"), Value::Timestamp(0)]),
        ("datetime(6)", Kind::Timestamp, vec![Value::Timestamp(instant)]),
        (
            "timestamp(6)",
            Kind::TimestampTz,
            vec![Value::TimestampTz(instant), zero("0000-00-00 00:00:00")],
        ),
        ("char(10)", Kind::Text, ["", "a", "A", "\u{e4}"].map(Value::text).to_vec()),
        ("varchar(40)", Kind::Text, ["a", "a ", "\u{1f980}"].map(Value::text).to_vec()),
        ("text", Kind::Text, vec![Value::text("quote ' \" \\ back")]),
        ("binary(3)", Kind::Bytes, vec![bytes(&[1, 2, 0])]),
        ("varbinary(10)", Kind::Bytes, vec![bytes(&[]), bytes(&[0, 255])]),
        ("longblob", Kind::Bytes, vec![bytes(&(0..=255).collect::<Vec<u8>>())]),
        ("bit(9)", Kind::Bits, vec![bits]),
        ("enum('a','it''s','b\\\\c')", Kind::Raw, ["a", "it's", "b\\c"].map(raw).to_vec()),
        ("set('a','b')", Kind::Raw, ["", "a", "a,b"].map(raw).to_vec()),
        ("json", Kind::Json, vec![Value::Json("{\"a\": [1, 2.5, \"x\"]}".into())]),
        ("point", Kind::Bytes, vec![bytes(&point.concat())]),
        ("vector(1)", Kind::Bytes, vec![bytes(&1.5_f32.to_le_bytes())]),
    ]
}

/// Those of MariaDB alone.
fn samples_of_mariadb() -> Vec<(&'static str, Kind, Vec<Value>)> {
    vec![
        ("uuid", Kind::Uuid, vec![Value::Uuid(*b"0123456789abcdef")]),
        ("inet4", Kind::Raw, vec![raw("192.0.2.1")]),
        ("inet6", Kind::Raw, vec![raw("2001:db8::1")]),
        ("longtext", Kind::Text, vec![Value::text("{\"a\": 1}")]),
    ]
}

fn typed(name: &str, type_name: &str, kind: Kind) -> Column {
    Column {
        name: name.into(),
        type_name: type_name.into(),
        type_modifier: -1,
        kind,
        initial: Initial::Null,
        number: None,
    }
}

/// A table for every type and a place in the log; `columns` are named after the key.
fn tables(
    place: Place,
    samples: &[(&'static str, Kind, Vec<Value>)],
    columns: [&str; 2],
    key: &[usize],
) -> Vec<(Arc<Relation>, Vec<Value>, u64)> {
    let is_zero = |value: &Value| matches!(value, Value::TemporalSpecial(_));
    let holds = |value: &&Value| place != Place::Postgres || !is_zero(value);
    let table = |(number, (type_name, kind, values)): (u64, &(&str, Kind, Vec<Value>))| {
        let column = |name: &&str| match *name {
            "value" => typed("value", type_name, *kind),
            name => typed(name, "bigint", Kind::Int),
        };
        let columns = columns.iter().map(column).collect();
        let relation = relation(&format!("holder_{number}"), columns, key);
        (relation, values.iter().filter(holds).cloned().collect(), 200 + 10 * number)
    };
    (0..).zip(samples).map(table).collect()
}

async fn each_outlet(
    columns: [&str; 2],
    key: &[usize],
    wanted: impl Fn(Kind, &str) -> bool,
    check: impl AsyncFn(&Subject, &mut Outlet, &Arc<Relation>, &[Value], u64),
) {
    for kind in [origin::Kind::MySql, origin::Kind::MariaDb] {
        let mut samples = samples();
        if kind == origin::Kind::MariaDb {
            samples.retain(|(name, ..)| *name != "json");
            samples.extend(samples_of_mariadb());
        }
        samples.retain(|(name, kind, _)| wanted(*kind, name));
        for subject in Subject::transactional().await {
            let mut outlet = subject.try_open(&origin_of(kind)).await.expect("an outlet");
            for (relation, values, commit) in tables(subject.place, &samples, columns, key) {
                outlet.prepare(&relation, true).await.expect("ready");
                check(&subject, &mut outlet, &relation, &values, commit).await;
            }
            outlet.close().await.expect("closed");
        }
    }
}

#[tokio::test]
async fn a_value_of_every_type_of_mysql_comes_back_by_every_way_in() {
    each_outlet(
        ["id", "value"],
        &[0],
        |_, _| true,
        async |subject, outlet, relation, values, commit| {
            let numbered = |from: i64| -> Vec<Row> {
                let row = |(id, value): (i64, Value)| Row::new(vec![Value::Int(id), value]);
                (from..).zip(values.iter().cloned().chain([Value::Null])).map(row).collect()
            };
            write(outlet, [chunk(relation, numbered(0))]).await;
            let inserts = numbered(100).into_iter().map(|row| insert(relation, row));
            let updates = numbered(0).into_iter().map(|row| update(relation, row));
            write(outlet, [transaction(commit, inserts.chain(updates))]).await;
            let expected = texts([numbered(0), numbered(100)].concat());
            let found = subject.rows(relation).await;
            assert_eq!(found, expected, "{} in {:?}", relation.columns[1].type_name, subject.place);
        },
    )
    .await;
}

#[tokio::test]
async fn a_value_of_every_type_of_mysql_finds_its_row_when_there_is_no_key() {
    each_outlet(
        ["id", "value"],
        &[],
        |_, _| true,
        async |subject, outlet, relation, values, commit| {
            let all = || values.iter().cloned().chain([Value::Null]);
            let row = |value: Value| Row::new(vec![Value::Int(1), value]);
            write(outlet, [chunk(relation, all().map(row))]).await;
            let removed = all().map(|value| delete(relation, row(value)));
            write(outlet, [transaction(commit, removed)]).await;
            let found = subject.rows(relation).await;
            assert_eq!(
                found,
                texts([]),
                "{} in {:?}",
                relation.columns[1].type_name,
                subject.place
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_value_of_every_type_of_mysql_finds_its_row_as_a_key() {
    let can_be_a_key = |kind: Kind, name: &str| {
        kind != Kind::Json && !["point", "longblob", "vector(1)"].contains(&name)
    };
    each_outlet(
        ["value", "n"],
        &[0],
        can_be_a_key,
        async |subject, outlet, relation, values, commit| {
            let row = |value: &Value, n: i64| Row::new(vec![value.clone(), Value::Int(n)]);
            write(outlet, [chunk(relation, values.iter().map(|value| row(value, 1)))]).await;
            let changed = values.iter().map(|value| update(relation, row(value, 2)));
            write(outlet, [transaction(commit, changed)]).await;
            let name = &relation.columns[0].type_name;
            let expected = texts(values.iter().map(|value| row(value, 2)));
            assert_eq!(subject.rows(relation).await, expected, "{name} in {:?}", subject.place);
            let removed = values.iter().map(|value| delete(relation, row(value, 0)));
            write(outlet, [transaction(commit + 1, removed)]).await;
            assert_eq!(subject.rows(relation).await, texts([]), "{name} in {:?}", subject.place);
        },
    )
    .await;
}

#[tokio::test]
async fn a_zero_date_is_refused_where_there_is_none_until_the_column_is_text() {
    let subject = Subject::new(Place::Postgres).await;
    let table = relation(
        "days",
        vec![typed("id", "bigint", Kind::Int), typed("day", "date", Kind::Date)],
        &[0],
    );
    let row = || Row::new(vec![Value::Int(1), zero("0000-00-00")]);
    let open = async || subject.try_open(&origin_of(origin::Kind::MySql)).await.expect("an outlet");
    let mut outlet = open().await;
    outlet.prepare(&table, true).await.expect("ready");
    let result = try_write(&mut outlet, [chunk(&table, [row()])]).await;
    let Err(Error::Definite { remedy, .. }) = result else { panic!("{result:?}") };
    assert!(remedy.contains("text"), "{remedy}");
    outlet.close().await.expect("closed");
    subject.operate("ALTER TABLE days ALTER day TYPE text").await;
    write(&mut open().await, [chunk(&table, [row()])]).await;
    assert_eq!(subject.rows(&table).await, texts([row()]));
}

#[tokio::test]
async fn a_type_of_mysql_that_widens_is_followed() {
    let table = |type_name: &str, kind: Kind| {
        relation(
            "wide",
            vec![typed("id", "bigint", Kind::Int), typed("value", type_name, kind)],
            &[0],
        )
    };
    let steps = [
        (("int", Kind::Int, Value::Int(1)), ("bigint", Kind::Int, Value::Int(i64::MAX))),
        (
            ("varchar(3)", Kind::Text, Value::text("abc")),
            ("varchar(5)", Kind::Text, Value::text("abcde")),
        ),
        (("enum('a')", Kind::Raw, raw("a")), ("enum('a','b')", Kind::Raw, raw("b"))),
    ];
    for (before, after) in steps {
        for subject in Subject::transactional().await {
            let kind = origin_of(origin::Kind::MySql);
            let mut outlet = subject.try_open(&kind).await.expect("an outlet");
            let row = |id, value: &Value| Row::new(vec![Value::Int(id), value.clone()]);
            let (old, new) = (table(before.0, before.1), table(after.0, after.1));
            outlet.prepare(&old, true).await.expect("ready");
            write(&mut outlet, [chunk(&old, [row(1, &before.2)])]).await;
            write(&mut outlet, [transaction(200, [insert(&new, row(2, &after.2))])]).await;
            let expected = texts([row(1, &before.2), row(2, &after.2)]);
            assert_eq!(subject.rows(&new).await, expected, "{} in {:?}", after.0, subject.place);
        }
    }
}
