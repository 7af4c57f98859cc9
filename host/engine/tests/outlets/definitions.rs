//! The definition of a table changes in mid-stream.

use std::sync::Arc;

use dovetail::outlet::Error;
use dovetail_core::schema::{Column, Initial, Relation};
use dovetail_core::value::{Row, Value};

use crate::subject::{Place, Subject, try_write, write};
use crate::text::texts;
use crate::world::*;

fn with(columns: Vec<Column>) -> Arc<Relation> {
    relation("people", columns, &[0])
}

fn first() -> Arc<Relation> {
    with(vec![column("id", "int8"), column("name", "text")])
}

/// `id` and a text, with the source's numbers of the columns.
fn numbered([id, text]: [(&str, i16); 2]) -> Arc<Relation> {
    let id = Column { number: Some(id.1), ..column(id.0, "int8") };
    with(vec![id, Column { number: Some(text.1), ..column(text.0, "text") }])
}

fn with_city(initial: Initial) -> Arc<Relation> {
    let city = Column { initial, ..column("city", "text") };
    with(vec![column("id", "int8"), city, column("name", "text")])
}

fn two(id: i64, name: &str) -> Row {
    Row::new(vec![Value::Int(id), word(name)])
}

fn three(id: i64, city: &str, name: &str) -> Row {
    Row::new(vec![Value::Int(id), word(city), word(name)])
}

#[tokio::test]
async fn a_column_that_is_added_comes_to_the_outlet_with_what_older_rows_hold() {
    for (initial, held) in [(Initial::Null, "-"), (Initial::Text("Bern".into()), "Bern")] {
        for subject in Subject::transactional().await {
            let (old, new) = (first(), with_city(initial.clone()));
            let mut outlet = subject.open_with(&old).await;
            write(&mut outlet, [chunk(&old, [two(1, "ada")])]).await;
            write(
                &mut outlet,
                [
                    transaction(200, [insert(&old, two(2, "bob"))]),
                    transaction(
                        300,
                        [
                            insert(&new, three(3, "Oslo", "eve")),
                            update(&new, three(1, "~", "ada l.")),
                        ],
                    ),
                ],
            )
            .await;
            let expected =
                texts([three(1, held, "ada l."), three(2, held, "bob"), three(3, "Oslo", "eve")]);
            assert_eq!(subject.rows(&new).await, expected, "{:?}", subject.place);
            // It is remembered.
            drop(outlet);
            let mut outlet = subject.open().await;
            write(&mut outlet, [transaction(400, [delete(&new, three(2, "~", "~"))])]).await;
        }
    }
}

#[tokio::test]
async fn a_column_that_is_dropped_goes_from_the_outlet() {
    for subject in Subject::transactional().await {
        let (old, new) = (with_city(Initial::Null), first());
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [three(1, "Bern", "ada")])]).await;
        write(&mut outlet, [transaction(200, [insert(&new, two(2, "bob"))])]).await;
        assert_eq!(
            subject.rows(&new).await,
            texts([two(1, "ada"), two(2, "bob")]),
            "{:?}",
            subject.place
        );
        drop(outlet);
        let mut outlet = subject.open().await;
        write(&mut outlet, [transaction(300, [insert(&old, three(3, "Oslo", "eve"))])]).await;
        let expected = [three(1, "-", "ada"), three(2, "-", "bob"), three(3, "Oslo", "eve")];
        assert_eq!(subject.rows(&old).await, texts(expected), "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_change_of_definition_that_cannot_be_followed_stops_with_what_to_do() {
    let renamed = with(vec![column("id", "int8"), column("full_name", "text")]);
    let retyped = with(vec![column("id", "int8"), column("name", "bytea")]);
    let rekeyed = relation("people", vec![column("id", "int8"), column("name", "text")], &[1]);
    for (what, new) in [
        ("a rename", renamed),
        ("a type", retyped),
        ("a key", rekeyed),
        ("a volatile default", with_city(Initial::Unknown)),
        ("a column made anew", numbered([("id", 1), ("name", 3)])),
    ] {
        for subject in Subject::transactional().await {
            let old = numbered([("id", 1), ("name", 2)]);
            let mut outlet = subject.open_with(&old).await;
            write(&mut outlet, [chunk(&old, [two(1, "ada")])]).await;
            let values = new.columns.iter().map(|_| Value::Null).collect();
            let result =
                try_write(&mut outlet, [transaction(200, [insert(&new, Row::new(values))])]).await;
            let Err(Error::Definite { remedy, .. }) = result else {
                panic!("{what} in {:?}: {result:?}", subject.place)
            };
            assert!(remedy.contains("table at the outlet"), "{remedy}");
            outlet.close().await.expect("closed");
            assert_eq!(subject.rows(&old).await, texts([two(1, "ada")]), "{what}: nothing landed");
        }
    }
}

/// Two columns that swap their names look like none that came or went.
#[tokio::test]
async fn columns_that_change_places_stop_with_what_to_do() {
    for subject in Subject::transactional().await {
        let (old, new) = (people(), {
            let columns = ["id", "note", "name"].into_iter().zip(["int8", "text", "text"]);
            with(columns.map(|(name, kind)| column(name, kind)).collect())
        });
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [row(1, "ada", "a")])]).await;
        let changes = [transaction(200, [insert(&new, row(2, "b", "bob"))])];
        let result = try_write(&mut outlet, changes).await;
        let Err(Error::Definite { what, .. }) = result else {
            panic!("{:?}: {result:?}", subject.place)
        };
        assert!(what.contains("columns changed places"), "{what}");
        outlet.close().await.expect("closed");
        assert_eq!(subject.rows(&old).await, texts([row(1, "ada", "a")]), "nothing landed");
    }
}

#[tokio::test]
async fn a_column_that_the_operator_added_is_taken_as_it_is() {
    for subject in Subject::transactional().await {
        let (old, new) = (first(), with_city(Initial::Unknown));
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [two(1, "ada")])]).await;
        outlet.close().await.expect("closed");
        subject
            .operate("ALTER TABLE people ADD COLUMN city TEXT; UPDATE people SET city = 'Bonn'")
            .await;
        let mut outlet = subject.open().await;
        write(&mut outlet, [transaction(200, [insert(&new, three(2, "Oslo", "bob"))])]).await;
        let expected = texts([three(1, "Bonn", "ada"), three(2, "Oslo", "bob")]);
        assert_eq!(subject.rows(&new).await, expected, "{:?}", subject.place);
    }
}

/// The name of the table in which an outlet notes its own.
fn ledger(subject: &Subject) -> &'static str {
    match subject.place {
        Place::Sqlite | Place::MySql(_) => "_dovetail_tables",
        _ => "_dovetail.tables",
    }
}

#[tokio::test]
async fn a_table_whose_noted_definition_was_cleared_is_taken_as_it_stands() {
    for subject in Subject::transactional().await {
        let (old, new) = (first(), with(vec![column("id", "int8"), column("name", "bytea")]));
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [two(1, "ada")])]).await;
        let bytes = |id| Row::new(vec![Value::Int(id), Value::Bytes(b"ada".as_slice().into())]);
        let changes = || [transaction(200, [insert(&new, bytes(2))])];
        let Err(Error::Definite { remedy, .. }) = try_write(&mut outlet, changes()).await else {
            panic!("a type that changed is followed")
        };
        let ledger = ledger(&subject);
        assert!(remedy.contains(&format!("set its definition in {ledger} to ''")), "{remedy}");
        outlet.close().await.expect("closed");
        let same_change = match subject.place {
            Place::Sqlite => "UPDATE people SET name = CAST(name AS BLOB)",
            Place::MySql(_) => "ALTER TABLE people MODIFY name longblob",
            _ => "ALTER TABLE people ALTER name TYPE bytea USING convert_to(name, 'UTF8')",
        };
        subject.operate(&format!("{same_change}; UPDATE {ledger} SET definition = ''")).await;
        let mut outlet = subject.open().await;
        write(&mut outlet, changes()).await;
        assert_eq!(subject.rows(&new).await, texts([bytes(1), bytes(2)]), "{:?}", subject.place);
    }
}

/// What the message advises: empty it by scanning it again, not by hand.
#[tokio::test]
async fn a_change_that_cannot_be_followed_goes_through_with_a_new_scan_and_not_with_an_emptied_table()
 {
    for subject in Subject::transactional().await {
        let (old, new) = (first(), with(vec![column("id", "int8"), column("name", "int8")]));
        let number = |id, name| Row::new(vec![Value::Int(id), Value::Int(name)]);
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [two(1, "11"), two(2, "22")])]).await;
        outlet.close().await.expect("closed");
        let changes = || [transaction(200, [insert(&new, number(3, 33))])];
        for emptied in ["", "DELETE FROM people"] {
            subject.operate(emptied).await;
            let mut outlet = subject.open().await;
            let result = try_write(&mut outlet, changes()).await;
            let Err(Error::Definite { remedy, .. }) = result else {
                panic!("{emptied:?} in {:?}: {result:?}", subject.place)
            };
            assert!(remedy.contains("scan the table again"), "{remedy}");
            outlet.close().await.expect("closed");
        }
        subject.operate("INSERT INTO people VALUES (9, 'left')").await;
        let mut outlet = subject.open().await;
        outlet.prepare(&new, false).await.expect("a table that is emptied next");
        write(&mut outlet, [barrier(&new), chunk(&new, [number(1, 11), number(2, 22)])]).await;
        write(&mut outlet, changes()).await;
        let expected = texts([number(1, 11), number(2, 22), number(3, 33)]);
        assert_eq!(subject.rows(&new).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_changed_definition_goes_back_with_its_transaction() {
    for subject in Subject::transactional().await {
        let (old, new) = (first(), with_city(Initial::Null));
        let mut outlet = subject.open_with(&old).await;
        write(&mut outlet, [chunk(&old, [two(1, "ada")])]).await;
        let changes = || [insert(&new, three(2, "Oslo", "bob"))];
        write(&mut outlet, [part(200, 1, changes(), dovetail_core::batch::Closing::Open)]).await;
        drop(outlet);
        let mut outlet = subject.open().await;
        write(
            &mut outlet,
            [transaction(150, [insert(&old, two(3, "eve"))]), transaction(200, changes())],
        )
        .await;
        let expected = [three(1, "-", "ada"), three(2, "Oslo", "bob"), three(3, "-", "eve")];
        assert_eq!(subject.rows(&new).await, texts(expected), "{:?}", subject.place);
    }
}
