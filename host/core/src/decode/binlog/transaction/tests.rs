use super::super::tables::CatalogTable;
use super::super::tests::{COMMON, MARIADB, MARIADB_11, MYSQL, MYSQL_MINIMAL, events};
use super::*;
use crate::change::Operation;
use crate::decode::mysql::{ColumnDefinition, Server};

mod closing;
mod parts;

use self::parts::unchecked_format;

fn table(name: &str) -> TableName {
    TableName { namespace: "d".into(), name: name.into() }
}

fn builder(captured: &[&str]) -> Builder {
    Builder::new(Start {
        from: Lsn::binlog(0, 1, 4),
        captured: captured.iter().map(|name| table(name)).collect(),
        folds_names: false,
        prepared_bytes_max: 1 << 20,
        view: None,
    })
}

/// What came out: changes, and where something was closed.
#[derive(Debug)]
enum Out {
    Change(Box<Event>),
    Commit { closed: Lsn, end: Lsn, transaction: Option<TransactionId> },
}

/// Defines what is described as the log has it; the catalog is asked for the keys of tables without one.
fn read(builder: &mut Builder, log: &[Bytes]) -> Result<Vec<Out>, (Vec<Out>, Error)> {
    let mut out = Vec::new();
    let mut appended = Vec::new();
    for event in log {
        builder.give(event.clone());
        loop {
            let step = match builder.next(&mut appended) {
                Ok(step) => step,
                Err(error) => return Err((out, error)),
            };
            out.extend(appended.drain(..).map(|event| Out::Change(Box::new(event))));
            match step {
                Step::More => {}
                Step::Done => break,
                Step::Table(description) => {
                    let definition = description.define(&CatalogTable::default()).unwrap();
                    builder.define(definition).unwrap();
                }
                Step::Emptied(table) => {
                    let id = crate::schema::RelationId::of_name(&table);
                    builder.know(Arc::new(Relation::new(id, table, Vec::new(), Vec::new())));
                }
                Step::Commit { closed, end, transaction } => {
                    out.push(Out::Commit { closed, end, transaction });
                }
            }
        }
    }
    Ok(out)
}

const ALL: [&str; 7] = ["plain", "wide", "keyless", "special", "doc", "mem", "selected"];

/// Whatever comes of it, but in a bounded number of steps.
pub(in crate::decode::binlog) fn read_all(log: &[Bytes]) {
    let mut builder = builder(&ALL);
    let mut appended = Vec::new();
    for event in log {
        builder.give(event.clone());
        for step in 0.. {
            assert!(step < 10_000, "the builder does not come to an end");
            match builder.next(&mut appended) {
                Err(_) => return,
                Ok(Step::Done) => break,
                Ok(Step::Table(description)) => {
                    let Ok(definition) = description.define(&CatalogTable::default()) else {
                        return;
                    };
                    builder.define(definition).unwrap();
                }
                Ok(Step::Emptied(table)) => {
                    let id = crate::schema::RelationId::of_name(&table);
                    builder.know(Arc::new(Relation::new(id, table, Vec::new(), Vec::new())));
                }
                Ok(Step::More | Step::Commit { .. }) => {}
            }
        }
    }
}

fn changes(out: &[Out]) -> Vec<&Event> {
    out.iter()
        .filter_map(|out| match out {
            Out::Change(event) => Some(&**event),
            Out::Commit { .. } => None,
        })
        .collect()
}

fn commits(out: &[Out]) -> Vec<Lsn> {
    let closed = |out: &Out| match out {
        Out::Commit { closed, .. } => Some(*closed),
        Out::Change(_) => None,
    };
    out.iter().filter_map(closed).collect()
}

/// `operation first-column`, in order.
fn summary(out: &[Out]) -> Vec<String> {
    let one = |event: &&Event| {
        let row = event.change.keyed_row();
        let first =
            row.and_then(|row| row.get(0)).map_or(String::new(), |value| format!(" {value:?}"));
        format!("{}{first}", event.change.operation().name())
    };
    changes(out).iter().map(one).collect()
}

#[test]
fn changes_of_a_plain_table_on_both_servers() {
    for (file, _) in COMMON {
        let mut log = events(file);
        log.pop();
        let out = read(&mut builder(&["plain"]), &log).unwrap();
        let expected = [
            "insert Int(1)",
            "insert Int(2)",
            "insert Int(3)",
            "update Int(1)",
            "update Int(2)",
            "delete Int(2)",
            "insert Int(20)",
            "delete Int(3)",
            "update Int(1)",
            "delete Int(20)",
            "insert Int(6)",
        ];
        assert_eq!(summary(&out)[..expected.len()], expected);
        for pair in changes(&out).windows(2) {
            assert!(pair[0].position < pair[1].position);
        }
        let moved = changes(&out)[6];
        assert!(matches!(&moved.change, Change::Insert { moved_from: Some(_), .. }));
        assert_eq!(moved.position.ordinal, 2);
    }
}

#[test]
fn closed_positions_grow_and_changes_lie_before_them() {
    for (file, _) in COMMON {
        let out = read(&mut builder(&ALL), &without_rename(&events(file))).unwrap();
        let mut open: Option<Lsn> = None;
        let mut last = Lsn::ZERO;
        for out in &out {
            match out {
                Out::Change(event) => {
                    assert!(event.position.commit >= last);
                    assert!(open.is_none_or(|open| open == event.position.commit));
                    open = Some(event.position.commit);
                }
                Out::Commit { end, closed, transaction } => {
                    assert!(last < *end && closed <= end);
                    assert!(open.is_none_or(|open| open < *end));
                    assert!(open.is_none() || transaction.is_some(), "changes end with theirs");
                    (open, last) = (None, *end);
                }
            }
        }
        assert_eq!(last, Lsn::binlog(0, 2, 4), "the file ends with a rotation");
    }
}

#[test]
fn prepared_transactions_are_emitted_at_their_commit_or_never() {
    for (file, _) in COMMON {
        let mut builder = builder(&["keyless"]);
        let mut floors = Vec::new();
        let mut out = Vec::new();
        for event in without_rename(&events(file)) {
            out.extend(read(&mut builder, std::slice::from_ref(&event)).unwrap());
            floors.push(builder.resume_floor());
        }
        floors.dedup();
        let oldest: Vec<Lsn> = floors.iter().copied().flatten().collect();
        assert_eq!((floors.len(), oldest.len()), (5, 2), "two were prepared, one after the other");
        let inserted: Vec<_> = summary(&out);
        assert_eq!(
            inserted,
            ["insert Int(1)", "insert Int(2)", "insert Int(10)", "insert Int(12)", "truncate"]
        );
        let prepared = changes(&out)[2];
        assert!(prepared.position.commit > oldest[0]);
        assert_eq!(prepared.position.ordinal, 1);
        let held_back = out.iter().filter(|out| {
            matches!(out, Out::Commit { closed, end, .. } if closed < end && oldest.contains(closed))
        });
        assert_eq!(held_back.count(), 2, "each PREPARE closes nothing behind its own start");
    }
}

#[test]
fn a_commit_of_what_was_prepared_before_the_stream_stops_it() {
    let log = events(MYSQL[0]);
    let prepared = log.iter().position(|event| event[4] == super::super::kind::XA_PREPARE).unwrap();
    let rest = [&log[..1], &log[prepared + 1..]].concat();
    let (_, error) = read(&mut builder(&["keyless"]), &rest).unwrap_err();
    assert!(matches!(error, Error::UnknownPrepared), "{error}");
}

#[test]
fn a_prepared_transaction_beyond_the_limit_stops() {
    let mut builder = Builder::new(Start {
        from: Lsn::binlog(0, 1, 4),
        captured: [table("keyless")].into(),
        folds_names: false,
        prepared_bytes_max: 10,
        view: None,
    });
    let (_, error) = read(&mut builder, &events(MYSQL[0])).unwrap_err();
    assert!(matches!(error, Error::PreparedTooLarge { limit_bytes: 10, .. }), "{error}");
}

#[test]
fn minimal_images_are_completed_by_what_has_not_changed() {
    for (file, _) in COMMON {
        let out = read(&mut builder(&["plain"]), &events(file)).unwrap();
        let update = changes(&out)[8];
        assert_eq!(update.change.operation(), Operation::Update);
        let after = update.change.after().unwrap();
        let expected = [Value::Int(1), Value::text("uno"), Value::Unavailable, Value::Unavailable];
        assert_eq!(after.values(), expected);
        assert_eq!(update.change.before(), None);
    }
}

#[test]
fn compressed_and_tagged_transactions_have_their_place_and_name() {
    let out = read(&mut builder(&["special"]), &events(MYSQL[0])).unwrap();
    assert_eq!(
        summary(&out),
        ["insert Int(1)", "insert Int(2)", "insert Int(3)", "insert Int(4)", "insert Int(7)"]
    );
    let names: Vec<String> =
        changes(&out).iter().map(|event| event.transaction.unwrap().to_string()).collect();
    assert!(names[1].ends_with(":reports:1"), "{names:?}");
    assert_eq!(names[2], names[3]);
    let [third, fourth] = [2, 3].map(|index| changes(&out)[index].position);
    assert_eq!((third.commit, third.ordinal, fourth.ordinal), (fourth.commit, 1, 2));
}

#[test]
fn compressed_rows_of_mariadb() {
    for file in [MARIADB[0], MARIADB_11[0]] {
        let out = read(&mut builder(&["special"]), &events(file)).unwrap();
        let operations: Vec<String> = summary(&out);
        assert_eq!(
            operations,
            ["insert Int(1)", "insert Int(2)", "insert Int(3)", "update Int(3)", "delete Int(3)"]
        );
        let text = changes(&out)[3].change.after().unwrap().get(4).cloned();
        assert_eq!(text, Some(Value::text("y".repeat(300))));
        assert_eq!(changes(&out)[1].transaction.unwrap().to_string(), "7-1-1");
    }
}

#[test]
fn statement_format_stops_before_anything_of_it_is_emitted() {
    for file in [MYSQL[1], MARIADB[1], MARIADB_11[1]] {
        let mut builder = Builder::new(Start {
            from: Lsn::binlog(0, 2, 4),
            captured: [table("special")].into(),
            folds_names: false,
            prepared_bytes_max: 0,
            view: None,
        });
        let (out, error) = read(&mut builder, &events(file)).unwrap_err();
        assert_eq!(summary(&out), ["insert Int(8)"]);
        assert!(
            matches!(error, Error::Statement { table: Some(name) } if name == table("special"))
        );
    }
}

/// Without the statement that gives a table another name, and what announces it.
fn without_rename(log: &[Bytes]) -> Vec<Bytes> {
    let is_rename = |event: &Bytes| event.windows(12).any(|text| text == b"RENAME TABLE");
    let rename = log.iter().position(is_rename).unwrap();
    [&log[..rename - 1], &log[rename + 1..]].concat()
}

#[test]
fn another_name_of_a_captured_table_stops() {
    for (file, _) in COMMON {
        for captured in ["keyless", "other"] {
            let (_, error) = read(&mut builder(&[captured]), &events(file)).unwrap_err();
            assert!(matches!(error, Error::Renamed { .. }), "{error}");
        }
        read(&mut builder(&["plain"]), &events(file)).unwrap();
    }
}

#[test]
fn tables_that_are_dropped() {
    let log = without_rename(&events(MYSQL[0]));
    let out = read(&mut builder(&["mem", "keyless", "other"]), &log).unwrap();
    let emptied: Vec<String> = changes(&out)
        .iter()
        .filter(|event| event.change.operation() == Operation::Truncate)
        .map(|event| event.change.relation().unwrap().table.name.clone())
        .collect();
    assert_eq!(emptied, ["keyless", "mem", "other"]);
}

#[test]
fn rows_of_a_table_that_was_not_defined_are_not_read() {
    let mut builder = builder(&["plain"]);
    let mut appended = Vec::new();
    for event in events(MYSQL[0]) {
        builder.give(event);
        loop {
            match builder.next(&mut appended) {
                Ok(Step::Done) => break,
                Ok(_) => {}
                Err(error) => {
                    assert!(matches!(error, Error::Undefined { .. }), "{error}");
                    assert!(appended.is_empty());
                    return;
                }
            }
        }
    }
    panic!("the rows were passed over");
}

#[test]
fn a_transaction_without_an_end_stops_at_the_end_of_its_file() {
    let mut log = events(MYSQL[0]);
    let rotate = log.pop().unwrap();
    let first_commit = log.iter().position(|event| event[4] == super::super::kind::XID).unwrap();
    log.truncate(first_commit);
    log.push(rotate);
    let (_, error) = read(&mut builder(&["plain"]), &log).unwrap_err();
    assert!(matches!(error, Error::Place(_) | Error::Inside { .. }), "{error}");
}

#[test]
fn minimal_metadata_is_defined_by_the_catalog_and_again_after_every_ddl() {
    let column = |name, column_type, charset| {
        ColumnDefinition::from_catalog(name, Server::MySql, column_type, charset).unwrap()
    };
    let plain = |title| CatalogTable {
        columns: vec![
            column("id", "int unsigned", None),
            column(title, "varchar(40)", Some("utf8mb4")),
        ],
        key: vec!["id".into()],
        ..CatalogTable::default()
    };
    let part = CatalogTable {
        columns: vec![column("id", "int", None)],
        key: vec!["id".into()],
        ..CatalogTable::default()
    };
    let mut titles = ["name", "title"].into_iter();
    let mut builder = builder(&["plain", "part"]);
    let (mut out, mut error) = (Vec::new(), None);
    'log: for event in events(MYSQL_MINIMAL) {
        builder.give(event);
        loop {
            match builder.next(&mut out) {
                Ok(Step::Done) => break,
                Ok(Step::Table(description)) => {
                    assert!(!description.has_names());
                    assert!(description.define(&CatalogTable::default()).is_err());
                    let catalog = match description.table.name.as_str() {
                        "plain" => plain(titles.next().unwrap()),
                        _ => part.clone(),
                    };
                    builder.define(description.define(&catalog).unwrap()).unwrap();
                }
                Ok(_) => {}
                Err(stop) => {
                    error = Some(stop);
                    break 'log;
                }
            }
        }
    }
    assert_eq!(titles.next(), None, "described before and after the renamed column");
    let out: Vec<Out> = out.into_iter().map(|event| Out::Change(Box::new(event))).collect();
    assert_eq!(
        summary(&out),
        [
            "insert Uint(4000000000)",
            "insert Uint(2)",
            "update Uint(2)",
            "insert Int(1)",
            "insert Int(11)",
            "delete Int(1)",
            "insert Int(12)",
            "truncate",
            "truncate",
            "insert Int(3)",
        ]
    );
    let places = changes(&out)
        .iter()
        .all(|event| event.transaction == Some(TransactionId::Place(event.position.commit)));
    assert!(places, "without a GTID a transaction goes by its place");
    assert!(matches!(error, Some(Error::Unlogged { table: name }) if name == table("part")));
}

/// An event without a checksum.
fn event(kind: u8, end: u32, body: &[u8]) -> Bytes {
    let size = u32::try_from(19 + body.len()).unwrap();
    let header: [&[u8]; 6] =
        [&[0; 4], &[kind], &[1, 0, 0, 0], &size.to_le_bytes(), &end.to_le_bytes(), &[0; 2]];
    Bytes::from([&header.concat()[..], body].concat())
}

#[test]
fn a_statement_finds_a_table_whose_name_the_server_folds() {
    let statement = |text: &str| {
        let fixed = [&[0; 8][..], &[1], &[0; 4], b"D\0"].concat();
        event(super::super::kind::QUERY, 0, &[&fixed[..], text.as_bytes()].concat())
    };
    let format = unchecked_format();
    for (folds_names, expected) in [(true, vec!["truncate"]), (false, vec![])] {
        let mut builder = Builder::new(Start {
            from: Lsn::binlog(0, 1, 4),
            captured: [table("plain")].into(),
            folds_names,
            prepared_bytes_max: 0,
            view: None,
        });
        let log = [format.clone(), statement("TRUNCATE TABLE Plain")];
        assert_eq!(summary(&read(&mut builder, &log).unwrap()), expected);
    }
}

#[test]
fn a_commit_that_the_view_contains_needs_no_rows() {
    let log = events(MYSQL[0]);
    let prepared = log.iter().position(|event| event[4] == super::super::kind::XA_PREPARE).unwrap();
    let rest = [&log[..1], &log[prepared + 1..prepared + 3]].concat();
    let with = |view| {
        let mut builder = Builder::new(Start {
            from: Lsn::binlog(0, 1, 4),
            captured: [table("keyless")].into(),
            folds_names: false,
            prepared_bytes_max: 1 << 20,
            view,
        });
        read(&mut builder, &rest)
    };
    assert!(matches!(with(None), Err((_, Error::UnknownPrepared))));
    let out = with(Some(Fence::Before(Lsn::binlog(0, 1, 1 << 30)))).unwrap();
    let named = |out: &&Out| matches!(out, Out::Commit { transaction: Some(_), .. });
    assert_eq!((summary(&out).len(), out.iter().filter(named).count()), (0, 1));
}
