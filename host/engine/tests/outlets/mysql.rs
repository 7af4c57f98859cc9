//! What an outlet of MySQL or MariaDB has to do because of what those servers do.

use std::sync::Arc;

use dovetail::outlet::{Error, Outlet};
use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Column, Initial, Relation};
use dovetail_core::seam::Recorded;
use dovetail_core::value::{Row, TemporalSpecial, Value};

use crate::subject::{Place, Subject, try_write, write};
use crate::text::texts;
use crate::world::*;

async fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for place in Place::mysql() {
        subjects.push(Subject::new(place).await);
    }
    subjects
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    let Err(error @ Error::Definite { .. }) = result else { panic!("not definite: {result:?}") };
    assert!(error.to_string().contains(words), "{words:?} is not in {error}");
}

/// A `numeric` of so many digits, two of them behind the point.
fn numeric(name: &str, digits: i32, scale: i32) -> Column {
    Column { type_modifier: ((digits << 16) | scale) + 4, ..column(name, "numeric") }
}

fn decimal(text: &str) -> Value {
    Value::Decimal(text.into())
}

/// The operator's way on from a refusal is what the refusal advises.
#[tokio::test]
async fn a_value_that_the_servers_type_does_not_hold_is_refused_until_the_column_is_text() {
    let special = Value::TemporalSpecial;
    let odd = [
        (column("value", "float8"), Value::Float64(f64::NAN)),
        (column("value", "float4"), Value::Float32(f32::INFINITY)),
        (numeric("value", 10, 2), decimal("NaN")),
        (column("value", "date"), special(TemporalSpecial::Infinity)),
        (column("value", "timestamp"), Value::Timestamp(-62_167_219_200_000_001)),
        (column("value", "timestamptz"), special(TemporalSpecial::NegativeInfinity)),
    ];
    for subject in subjects().await {
        for (commit, (value_column, value)) in (200..).zip(&odd) {
            let name = format!("odd_{}", value_column.type_name);
            let table = relation(&name, vec![column("id", "int8"), value_column.clone()], &[0]);
            let mut outlet = subject.open_with(&table).await;
            let row = || Row::new(vec![Value::Int(1), value.clone()]);
            let changes = || [transaction(commit, [insert(&table, row())])];
            refused(try_write(&mut outlet, changes()).await, "longtext");
            outlet.close().await.expect("closed");
            subject.operate(&format!("ALTER TABLE {name} MODIFY value longtext")).await;
            let mut outlet = subject.open().await;
            write(&mut outlet, changes()).await;
            let text = vec![column("id", "int8"), column("value", "text")];
            let found = subject.rows(&relation(&name, text, &[0])).await;
            assert_eq!(found, texts([row()]), "{name} in {:?}", subject.place);
        }
    }
}

#[tokio::test]
async fn nothing_is_rounded_or_cut_in_a_table_of_the_operator() {
    let cases = [
        ("numeric", "decimal(6,1)", decimal("1.20"), decimal("1.25")),
        ("numeric", "int", decimal("7.0"), decimal("7.5")),
        ("timestamp", "datetime", Value::Timestamp(1_000_000), Value::Timestamp(1)),
        ("time", "time(3)", Value::Time(1_000), Value::Time(1)),
        ("float8", "float", Value::Float64(0.5), Value::Float64(0.1)),
        ("text", "varchar(2)", Value::text("ab"), Value::text("ab  ")),
        ("text", "char(2)", Value::text("a"), Value::text("a ")),
        ("bytea", "binary(2)", Value::Bytes(vec![1, 0].into()), Value::Bytes(vec![1].into())),
        ("text", "bigint", Value::text("12"), Value::text("12abc")),
    ];
    for subject in subjects().await {
        subject.open().await.close().await.expect("closed");
        for (type_name, there, fits, does_not) in &cases {
            let create = format!("CREATE TABLE narrow (id bigint PRIMARY KEY, value {there})");
            subject.operate(&create).await;
            let columns = vec![column("id", "int8"), column("value", type_name)];
            let table = relation("narrow", columns, &[0]);
            let mut outlet = subject.open_with(&table).await;
            let row = |id, value: &Value| Row::new(vec![Value::Int(id), value.clone()]);
            write(&mut outlet, [chunk(&table, [row(1, fits)])]).await;
            let result = try_write(&mut outlet, [chunk(&table, [row(2, does_not)])]).await;
            refused(result, "does not fit the type");
            outlet.close().await.expect("closed");
            subject.operate("DROP TABLE narrow; DELETE FROM _dovetail_tables").await;
        }
    }
}

#[tokio::test]
async fn keys_that_differ_at_the_source_differ_here() {
    for subject in subjects().await {
        let words = relation("words", vec![column("word", "text"), column("n", "int8")], &[0]);
        let all = ["a", "A", "a ", "a  ", "ä", "a\u{308}", "ß", "ss", "", " ", "\t"];
        let row = |word: &str, n| Row::new(vec![Value::text(word), Value::Int(n)]);
        let mut outlet = subject.open_with(&words).await;
        write(&mut outlet, [chunk(&words, all.map(|word| row(word, 1)))]).await;
        let changes = all.map(|word| update(&words, row(word, 2)));
        write(&mut outlet, [transaction(200, changes)]).await;
        let expected = texts(all.map(|word| row(word, 2)));
        assert_eq!(subject.rows(&words).await, expected, "{:?}", subject.place);
        write(&mut outlet, [transaction(300, [delete(&words, row("a", 0))])]).await;
        assert_eq!(subject.rows(&words).await.len(), all.len() - 1, "{:?}", subject.place);
        let long = row(&"x".repeat(800), 1);
        let result = try_write(&mut outlet, [transaction(400, [insert(&words, long)])]).await;
        refused(result, "varchar(768)");
    }
}

/// Neighbours beyond the 53 bits in which the servers compare a number with a text.
#[tokio::test]
async fn large_decimals_are_told_apart() {
    let rows = ["9007199254740993.00001", "9007199254740993.00002", "9007199254740993.00003"];
    let row = |text: &str| Row::new(vec![decimal(text)]);
    for subject in subjects().await {
        for (name, key, commit) in [("keyed", &[0][..], 200), ("loose", &[], 300)] {
            let table = relation(name, vec![numeric("amount", 30, 5)], key);
            let mut outlet = subject.open_with(&table).await;
            write(&mut outlet, [chunk(&table, rows.map(row))]).await;
            write(&mut outlet, [transaction(commit, [delete(&table, row(rows[1]))])]).await;
            let expected = texts([row(rows[0]), row(rows[2])]);
            assert_eq!(subject.rows(&table).await, expected, "{name} in {:?}", subject.place);
            outlet.close().await.expect("closed");
        }
    }
}

#[tokio::test]
async fn a_table_by_which_rows_could_be_mistaken_is_refused() {
    let columns = || vec![column("word", "text"), column("n", "int8")];
    let (keyed, loose) = (relation("words", columns(), &[0]), relation("words", columns(), &[]));
    for subject in subjects().await {
        subject.open().await.close().await.expect("closed");
        for (create, relation, words) in [
            (
                "(word varchar(40) PRIMARY KEY, n bigint) COLLATE utf8mb4_bin",
                &keyed,
                "collation utf8mb4_bin",
            ),
            (
                "(word varchar(40), n bigint) COLLATE utf8mb4_unicode_ci",
                &loose,
                "collation utf8mb4_unicode_ci",
            ),
            ("(word varbinary(40) PRIMARY KEY, n bigint UNIQUE)", &keyed, "its index n is unique"),
            ("(word varbinary(40), n bigint, PRIMARY KEY (word(3)))", &keyed, "is unique"),
            (
                "(word varbinary(40) PRIMARY KEY, n bigint) ENGINE = MyISAM",
                &keyed,
                "its engine is MyISAM",
            ),
        ] {
            subject.operate(&format!("CREATE TABLE words {create}")).await;
            let mut outlet = subject.open().await;
            refused(outlet.prepare(relation, true).await, words);
            outlet.close().await.expect("closed");
            subject.operate("DROP TABLE words").await;
        }
    }
}

fn with_city() -> Arc<Relation> {
    let city = Column { initial: Initial::Text("Bern".into()), ..column("city", "text") };
    let name_and_note = ["name", "note"].map(|name| column(name, "text"));
    let columns = [column("id", "int8")].into_iter().chain(name_and_note).chain([city]);
    relation("people", columns.collect(), &[0])
}

fn cited(id: i64, name: &str, note: &str, city: &str) -> Row {
    Row::new(vec![Value::Int(id), word(name), word(note), word(city)])
}

/// A change of definition would commit what is open.
#[tokio::test]
async fn a_definition_that_changes_in_mid_transaction_shows_no_half_of_it() {
    for subject in subjects().await {
        let (old, new) = (people(), with_city());
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [row(1, "ada", "a")])]).await;
        let first = || part(200, 1, [insert(&old, row(2, "bob", "b"))], Closing::Open);
        let rest = || {
            let changes = [
                insert(&new, cited(3, "eve", "e", "Oslo")),
                update(&new, cited(1, "ada l.", "~", "~")),
            ];
            part(200, 2, changes, Closing::Commit(Lsn::new(201)))
        };
        write(&mut outlet, [first()]).await;
        let result = try_write(&mut outlet, [rest()]).await;
        assert!(matches!(result, Err(Error::Transient { .. })), "{result:?}");
        outlet.close().await.expect("closed");
        assert_eq!(subject.rows(&old).await, texts([row(1, "ada", "a")]), "{:?}", subject.place);
        let mut outlet = subject.open().await;
        assert_eq!(outlet.recorded(), Recorded::Empty);
        write(&mut outlet, [first()]).await;
        write(&mut outlet, [rest()]).await;
        let expected = [
            cited(1, "ada l.", "a", "Bern"),
            cited(2, "bob", "b", "Bern"),
            cited(3, "eve", "e", "Oslo"),
        ];
        assert_eq!(subject.rows(&new).await, texts(expected), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_column_that_goes_in_mid_transaction_goes_with_its_commit() {
    for subject in subjects().await {
        let (old, new) = (with_city(), people());
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [cited(1, "ada", "a", "Rome")])]).await;
        let changes =
            [insert(&old, cited(2, "bob", "b", "Oslo")), insert(&new, row(3, "eve", "e"))];
        write(&mut outlet, [part(200, 1, changes, Closing::Open)]).await;
        assert_eq!(subject.rows(&old).await, texts([cited(1, "ada", "a", "Rome")]));
        let end = part(200, 3, [update(&new, row(2, "bo", "~"))], Closing::Commit(Lsn::new(201)));
        write(&mut outlet, [end]).await;
        let expected = [row(1, "ada", "a"), row(2, "bo", "b"), row(3, "eve", "e")];
        assert_eq!(subject.rows(&new).await, texts(expected), "{:?}", subject.place);
        // It is gone, and not only left out: what comes under its name is another one.
        write(&mut outlet, [transaction(300, [insert(&old, cited(4, "dan", "d", "Riga"))])]).await;
        let expected = [
            cited(1, "ada", "a", "Bern"),
            cited(2, "bo", "b", "Bern"),
            cited(3, "eve", "e", "Bern"),
            cited(4, "dan", "d", "Riga"),
        ];
        assert_eq!(subject.rows(&old).await, texts(expected), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_column_that_gets_wider_gets_wider_here() {
    let table = |digits: i32| {
        relation("amounts", vec![column("id", "int8"), numeric("amount", digits, 2)], &[0])
    };
    let row = |id, text: &str| Row::new(vec![Value::Int(id), decimal(text)]);
    for subject in subjects().await {
        let (narrow, wide) = (table(10), table(14));
        let mut outlet = subject.open_with(&narrow).await;
        write(&mut outlet, [chunk(&narrow, [row(1, "12345678.90")])]).await;
        write(&mut outlet, [transaction(200, [insert(&wide, row(2, "123456789012.34"))])]).await;
        let expected = texts([row(1, "12345678.90"), row(2, "123456789012.34")]);
        assert_eq!(subject.rows(&wide).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn an_outlet_waits_for_the_session_before_it() {
    for subject in subjects().await {
        let people = people();
        let mut first = subject.open_with(&people).await;
        let (config, origin) = (subject.config(), crate::subject::origin());
        let second = tokio::spawn(async move { Outlet::open(&config, &origin, 0).await });
        subject.wait_for_session("User lock").await;
        write(&mut first, [transaction(200, [insert(&people, row(1, "ada", "a"))])]).await;
        first.close().await.expect("closed");
        let second = second.await.expect("no panic").expect("an outlet");
        assert_eq!(second.recorded(), Recorded::At(Lsn::new(201)), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_row_beyond_the_servers_limit_is_refused_with_its_remedy() {
    let huge = "x".repeat(70 * 1024 * 1024);
    for subject in subjects().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let result = try_write(&mut outlet, [chunk(&people, [row(1, &huge, "-")])]).await;
        refused(result, "raise max_allowed_packet");
    }
}
