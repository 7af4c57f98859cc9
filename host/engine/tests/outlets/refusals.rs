//! What an outlet does not take, it refuses before it writes, and says what to do.

use std::error::Error as _;

use bytes::Bytes;
use dovetail::origin::Origin;
use dovetail::outlet::Error;
use dovetail_core::outcome::{Body, Emission, Payload, Record};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::seam::Recorded;
use dovetail_core::value::Row;

use crate::subject::{Place, Subject, origin, try_write, write};
use crate::text::texts;
use crate::world::*;

fn definite<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    let Err(error @ Error::Definite { .. }) = result else { panic!("not definite: {result:?}") };
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    assert!(text.contains(words), "{words:?} is not in {text:?}");
}

#[tokio::test]
async fn a_table_of_somebody_else_that_holds_rows_is_not_written_to() {
    for subject in Subject::transactional().await {
        let people = people();
        subject.open().await.close().await.expect("closed");
        subject
            .operate(
                "CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT, note TEXT);
                 INSERT INTO people VALUES (1, 'theirs', NULL)",
            )
            .await;
        let mut outlet = subject.open().await;
        definite(outlet.prepare(&people, true).await, "already holds rows");
        outlet.close().await.expect("closed");
        // The same command once more: by now the state says that a scan was attempted.
        let mut outlet = subject.open().await;
        definite(outlet.prepare(&people, false).await, "already holds rows");
        outlet.close().await.expect("closed");
        let mut outlet = subject.open().await;
        let changes = [insert(&people, row(1, "ours", "-"))];
        definite(try_write(&mut outlet, [transaction(200, changes)]).await, "already holds rows");
        outlet.close().await.expect("closed");
        assert_eq!(
            subject.rows(&people).await,
            texts([row(1, "theirs", "-")]),
            "{:?}",
            subject.place
        );
    }
}

#[tokio::test]
async fn an_empty_table_of_the_operator_is_used_if_it_fits() {
    for subject in Subject::transactional().await {
        let people = people();
        subject.open().await.close().await.expect("closed");
        subject
            .operate(
                "CREATE TABLE people (note TEXT, extra TEXT, id BIGINT PRIMARY KEY, name TEXT)",
            )
            .await;
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a")])]).await;
        assert_eq!(subject.rows(&people).await, texts([row(1, "ada", "a")]), "{:?}", subject.place);
        outlet.close().await.expect("closed");
        for misfit in ["(id BIGINT, name TEXT, note TEXT)", "(id BIGINT PRIMARY KEY, name TEXT)"] {
            let subject = Subject::new(subject.place).await;
            subject.open().await.close().await.expect("closed");
            subject.operate(&format!("CREATE TABLE people {misfit}")).await;
            let mut outlet = subject.open().await;
            definite(outlet.prepare(&people, true).await, "does not fit");
        }
    }
}

#[tokio::test]
async fn a_replica_of_another_source_is_refused() {
    for subject in Subject::transactional().await {
        subject.open().await.close().await.expect("closed");
        let mut other = origin();
        other.source.system = "9999".into();
        definite(subject.try_open(&other).await, "system 7301");
        // Another pipeline has a place of its own.
        let neighbour = Origin { pipeline: "neighbour".into(), ..other };
        assert_eq!(subject.try_open(&neighbour).await.expect("open").recorded(), Recorded::Empty);
    }
}

#[tokio::test]
async fn two_pipelines_do_not_share_a_table() {
    for subject in Subject::transactional().await {
        let people = people();
        subject.open_with(&people).await.close().await.expect("closed");
        let neighbour = Origin { pipeline: "neighbour".into(), ..origin() };
        let mut outlet = subject.try_open(&neighbour).await.expect("open");
        definite(outlet.prepare(&people, true).await, "pipeline test");
    }
}

#[tokio::test]
async fn a_table_that_somebody_dropped_is_missed() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a")])]).await;
        outlet.close().await.expect("closed");
        subject.operate("DROP TABLE people").await;
        let mut outlet = subject.open().await;
        let result =
            try_write(&mut outlet, [transaction(200, [insert(&people, row(2, "bob", "b"))])]).await;
        definite(result, "is gone");
    }
}

fn emission(payload: Payload, key: Option<Bytes>) -> Record {
    let body = Body::Emission {
        position: Position { commit: Lsn::new(200), ordinal: 1 },
        redelivery: false,
        relation: Some(people()),
        input: Some(row(1, "ada", "a")),
        emission: Emission {
            topic: Some("t".into()),
            key,
            payload,
            headers: vec![("h".into(), Bytes::new())],
        },
    };
    Record { body, route: None }
}

#[tokio::test]
async fn emissions_are_rows_or_tombstones_for_a_table_and_anything_for_lines() {
    let payloads = || {
        let moved = Row::clone(&row(5, "emitted", "x"));
        [Payload::Row(moved), Payload::Tombstone, Payload::Bytes(Bytes::from_static(b"\x01"))]
    };
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a")])]).await;
        let [put, gone, bytes] = payloads().map(|payload| emission(payload, None));
        let deliver = |records: Vec<Record>| {
            let mut delivery = transaction(200, []);
            delivery.records = records;
            delivery
        };
        if subject.place == Place::File {
            write(&mut outlet, [deliver(vec![put, gone, bytes])]).await;
            let lines = subject.lines();
            let [.., put, gone, bytes] = lines.as_slice() else { panic!("four lines") };
            assert_eq!(put["after"]["name"], "emitted");
            assert_eq!(gone["tombstone"], true);
            assert_eq!(bytes["payload"], "\\x01");
            assert_eq!(bytes["headers"][0][0], "h");
            let ids = [&put["id"], &gone["id"], &bytes["id"]];
            assert_eq!(ids, ["7301:shop:0/C8+1/0", "7301:shop:0/C8+1/1", "7301:shop:0/C8+1/2"]);
            continue;
        }
        write(&mut outlet, [deliver(vec![put, gone])]).await;
        assert_eq!(
            subject.rows(&people).await,
            texts([row(5, "emitted", "x")]),
            "{:?}",
            subject.place
        );
        let mut later = bytes;
        let Body::Emission { position, .. } = &mut later.body else { panic!("an emission") };
        position.commit = Lsn::new(300);
        definite(try_write(&mut outlet, [deliver(vec![later])]).await, "bytes at 0/12C+1");
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_refused() {
    use dovetail::config;
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing").join("replica");
    for config in
        [config::Outlet::File { path: missing.clone() }, config::Outlet::Sqlite { path: missing }]
    {
        definite(dovetail::outlet::Outlet::open(&config, &origin(), 0).await, "make its directory");
    }
    let garbage = directory.path().join("garbage");
    std::fs::write(&garbage, "this is not a database, but long enough to look like one".repeat(20))
        .expect("write");
    let config = config::Outlet::Sqlite { path: garbage };
    definite(
        dovetail::outlet::Outlet::open(&config, &origin(), 0).await,
        "not an intact SQLite database",
    );
}

#[tokio::test]
async fn a_file_has_one_writer() {
    let subject = Subject::new(Place::File).await;
    let theirs = std::fs::File::create(subject.path()).expect("a file");
    theirs.lock().expect("a lock");
    definite(subject.try_open(&origin()).await, "another process");
    drop(theirs);
    // One of our own may hang, and lets go at last.
    let first = subject.open().await;
    let refused = subject.try_open(&origin()).await;
    assert!(matches!(refused, Err(Error::Transient { .. })), "{refused:?}");
    first.close().await.expect("closed");
    subject.open().await.close().await.expect("closed");
}

#[tokio::test]
async fn sqlite_names_that_differ_only_in_case_are_refused() {
    let subject = Subject::new(Place::Sqlite).await;
    let (lower, upper) = (
        relation("t", vec![column("a", "int8")], &[0]),
        relation("T", vec![column("a", "int8")], &[0]),
    );
    let mut outlet = subject.open_with(&lower).await;
    definite(outlet.prepare(&upper, true).await, "public.T has no place");
}
