//! The stream.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use dovetail::config::{self, Postgres};
use dovetail::origin::{Kind, Origin, Source};
use dovetail::outlet::{Delivery, Landed, Outlet};
use dovetail::source::Item;
use dovetail::source::postgres::catalog;
use dovetail::source::postgres::connection::Session;
use dovetail::source::postgres::slot;
use dovetail::source::postgres::stream::{Stream, StreamError};
use dovetail::state::{Saved, Store};
use dovetail_core::batch::Closing;
use dovetail_core::change::{Change, Event, Operation};
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Initial, Relation, TableName};
use dovetail_core::value::Value;
use std::sync::Arc;

use dovetail_tests::postgres::{Options, Server, Version};
use dovetail_tests::wait::{PATIENCE, until};

use super::{server, source, table};

/// Everything up to a message with the prefix `end`.
struct Read {
    events: Vec<Event>,
    relations: Vec<Arc<Relation>>,
    closed: Vec<Lsn>,
}

impl Read {
    fn latest(&self) -> BTreeMap<TableName, Arc<Relation>> {
        let pairs =
            self.relations.iter().map(|relation| (relation.table.clone(), relation.clone()));
        pairs.collect()
    }
}

/// The only way to a position that may be acknowledged: an outlet proves it, the state saves it.
async fn saved(position: Lsn) -> Result<Saved<Lsn>> {
    let directory = tempfile::tempdir()?;
    let source = Source { kind: Kind::Postgres, system: "1".into(), database: "d".into() };
    let origin = Origin { pipeline: "p".into(), source };
    let mut outlet = Outlet::open(&config::Outlet::Discard, &origin, 0).await?;
    let closing = Closing::Commit(position);
    let delivery = Delivery { number: 0, records: Vec::new(), closing };
    let landed = outlet.write(&Arc::from([delivery])).await?;
    let [Landed::Commit(durable)] = landed[..] else { bail!("one commit lands: {landed:?}") };
    Ok(Store::open(directory.path(), &origin).await?.save_checkpoint(durable, None).await?)
}

async fn read(stream: &mut Stream) -> Result<Read> {
    let mut read = Read { events: Vec::new(), relations: Vec::new(), closed: Vec::new() };
    // A batch may be cut between the message and the commit that closes it: the server sends them one by one.
    let mut ended = false;
    let all = async {
        loop {
            match stream.next().await? {
                Item::Relation(relation) => read.relations.push(relation),
                Item::Batch { events, closing } => {
                    ended |= events.iter().any(|event| {
                        matches!(&event.change, Change::Message { prefix, .. } if prefix == "end")
                    });
                    read.events.extend(events);
                    if let Closing::Commit(position) = closing {
                        read.closed.push(position);
                        if ended {
                            return anyhow::Ok(());
                        }
                    }
                }
            }
        }
    };
    match tokio::time::timeout(PATIENCE, all).await {
        Ok(done) => done?,
        Err(_) => bail!(
            "no end after {} events (the message among them: {ended}), the latest commit at {:?}",
            read.events.len(),
            read.closed.last(),
        ),
    }
    Ok(read)
}

const END: &str = "SELECT pg_logical_emit_message(true, 'end', '')";

/// The pin of a new slot, whose connection is over.
async fn pin(source: &Postgres) -> Result<Lsn> {
    Ok(slot::create(source, |_| {}).await?.position())
}

#[tokio::test]
async fn scan_and_stream_describe_a_table_alike() -> Result<()> {
    let (server, application) = server(
        "CREATE DOMAIN money_like AS numeric(10, 2); CREATE DOMAIN nested AS money_like;
         CREATE TYPE mood AS ENUM ('sad', 'glad');
         CREATE TABLE wide (\"Odd \"\"name\" nested, m mood, ms mood[], a int[], \"日本\" varchar(20),
             bits bit(3), n numeric(5, 1), g int GENERATED ALWAYS AS (1) STORED, gone int,
             k int NOT NULL, k2 text NOT NULL, PRIMARY KEY (k2, k) INCLUDE (a));
         ALTER TABLE wide DROP COLUMN gone;
         CREATE TABLE full_keyed (id int PRIMARY KEY, v text); CREATE TABLE full_keyless (v text);
         CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int);
         CREATE TABLE nothing (id int PRIMARY KEY, v int);
         ALTER TABLE full_keyed REPLICA IDENTITY FULL; ALTER TABLE full_keyless REPLICA IDENTITY FULL;
         ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key;
         ALTER TABLE nothing REPLICA IDENTITY NOTHING;
         CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE leaf (v text, id int NOT NULL);
         ALTER TABLE parted ATTACH PARTITION leaf FOR VALUES FROM (0) TO (200);
         CREATE PUBLICATION dovetail FOR TABLE wide, full_keyed, full_keyless, by_index, nothing, parted
             WITH (publish_via_partition_root = true);",
    )
    .await?;
    let tables = ["wide", "full_keyed", "full_keyless", "by_index", "nothing", "parted"];
    let source = source(&server, &tables);
    let from = pin(&source).await?;
    application
        .batch_execute(&format!(
            "INSERT INTO wide (k, k2, m) VALUES (1, 'x', 'glad'); INSERT INTO full_keyed VALUES (1, 'a');
             INSERT INTO full_keyless VALUES ('a'); INSERT INTO by_index VALUES (1, 'c', 2);
             INSERT INTO nothing VALUES (1, 1); INSERT INTO parted VALUES (1, 'p'); {END}"
        ))
        .await?;

    let mut stream = Stream::open(&source, from, &[]).await?;
    let streamed = read(&mut stream).await?.latest();

    let session = Session::open(&source.server).await?;
    let seen = catalog::tables(session.client(), &source.tables, &source.publication).await?;
    assert_eq!((seen.len(), streamed.len()), (tables.len(), tables.len()));
    for table in seen {
        assert_eq!(streamed.get(&table.relation.table), Some(&table.relation));
    }
    assert_eq!(streamed[&table("wide")].key, vec![7, 8]);
    assert_eq!(streamed[&table("by_index")].key, vec![1]);
    assert!(streamed[&table("full_keyless")].key.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_added_column_comes_with_what_older_rows_hold() -> Result<()> {
    let (server, application) = server(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE PUBLICATION dovetail FOR TABLE t",
    )
    .await?;
    let source = source(&server, &["t"]);
    let from = pin(&source).await?;
    application
        .batch_execute(&format!(
            "INSERT INTO t VALUES (2); ALTER TABLE t ADD COLUMN volatile float8 DEFAULT random();
             ALTER TABLE t ADD COLUMN taken float8 NOT NULL DEFAULT random();
             ALTER TABLE t ALTER COLUMN taken DROP DEFAULT;
             ALTER TABLE t ADD COLUMN plain int, ADD COLUMN list int[] DEFAULT '{{1,2}}';
             INSERT INTO t (id, taken) VALUES (3, 0); {END}"
        ))
        .await?;

    let mut stream = Stream::open(&source, from, &[]).await?;
    let read = read(&mut stream).await?;

    let initial: Vec<Initial> =
        read.latest()[&table("t")].columns.iter().map(|column| column.initial.clone()).collect();
    let list = Initial::Text("{1,2}".into());
    // The key was always there, so nobody will ask for it.
    let unknown = || Initial::Unknown;
    assert_eq!(initial, vec![unknown(), unknown(), unknown(), Initial::Null, list]);
    let widths: Vec<usize> = read
        .events
        .iter()
        .filter_map(|event| event.change.after())
        .map(|row| row.values().len())
        .collect();
    assert_eq!(widths, vec![1, 5]);
    Ok(())
}

#[tokio::test]
async fn only_what_was_acknowledged_is_forgotten_and_the_rest_comes_again() -> Result<()> {
    let (server, application) =
        server("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION dovetail FOR TABLE t")
            .await?;
    let source = source(&server, &["t"]);
    let from = pin(&source).await?;
    application.batch_execute("INSERT INTO t VALUES (1)").await?;
    application
        .batch_execute("BEGIN; INSERT INTO t SELECT generate_series(2, 3000); COMMIT")
        .await?;
    application.batch_execute(END).await?;

    let mut stream = Stream::open(&source, from, &[]).await?;
    let first = read(&mut stream).await?;
    stream.acknowledge(saved(first.closed[0]).await?.into());
    stream.close().await?;

    let session = Session::open(&source.server).await?;
    let confirmed = slot::inspect(&session, &source.slot).await?.expect("a slot").confirmed;
    assert_eq!(confirmed, Some(first.closed[0]));

    let mut stream = Stream::open(&source, first.closed[0], &[]).await?;
    let second = read(&mut stream).await?;
    let suffix = first.events.iter().filter(|event| event.position.commit >= first.closed[0]);
    assert_eq!(second.events, suffix.cloned().collect::<Vec<_>>());

    // What lies behind the slot's position cannot be had again, and the server would not say so.
    stream.close().await?;
    let error = Stream::open(&source, from, &[]).await.expect_err("behind the slot");
    assert!(matches!(error, StreamError::Lost { .. }), "{error}");
    slot::drop(&session, &source.slot).await?;
    let error = Stream::open(&source, first.closed[0], &[]).await.expect_err("no slot");
    assert!(matches!(error, StreamError::Lost { .. }) && !error.is_transient(), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_position_advances_while_only_others_write() -> Result<()> {
    let (server, application) = server(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE busy (id int);
         CREATE PUBLICATION dovetail FOR TABLE t",
    )
    .await?;
    let source = source(&server, &["t"]);
    let from = pin(&source).await?;
    let mut stream = Stream::open(&source, from, &[]).await?;
    application.batch_execute("INSERT INTO busy SELECT generate_series(1, 1000)").await?;
    let row = application.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?;
    let target: Lsn = row.get::<_, String>(0).parse()?;

    let advance = async {
        loop {
            if let Item::Batch { events, closing: Closing::Commit(position) } =
                stream.next().await?
            {
                assert!(events.is_empty());
                stream.acknowledge(saved(position).await?.into());
                if position >= target {
                    return anyhow::Ok(());
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, advance).await??;

    // Passed on by itself, without an end of the stream.
    until("the slot to advance", PATIENCE, async || {
        let session = Session::open(&source.server).await?;
        let slot = slot::inspect(&session, &source.slot).await?;
        Ok(slot.and_then(|slot| slot.confirmed).filter(|confirmed| *confirmed >= target))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_consumer_that_takes_nothing_does_not_cost_the_connection() -> Result<()> {
    let options = Options::default().set("wal_sender_timeout", "2s");
    let server = Server::start_with(Version::under_test(), options)?;
    let application = server.connect().await?;
    application
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION dovetail FOR TABLE t",
        )
        .await?;
    let source = source(&server, &["t"]);
    let from = pin(&source).await?;
    application
        .batch_execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 60000) g")
        .await?;
    application.batch_execute(END).await?;
    let mut stream = Stream::open(&source, from, &[]).await?;

    // Nothing is taken until, by the server's own clock, several of its timeouts are over.
    application.batch_execute("SELECT pg_sleep(7)").await?;

    let read = read(&mut stream).await?;
    let inserts = read.events.iter().filter(|event| event.change.operation() == Operation::Insert);
    assert_eq!(inserts.count(), 60_000);
    Ok(())
}

#[tokio::test]
async fn a_slot_in_use_is_waited_for_and_changes_of_other_tables_are_left_out() -> Result<()> {
    let (server, application) = server(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY);
         CREATE PUBLICATION dovetail FOR ALL TABLES",
    )
    .await?;
    let source = source(&server, &["t"]);
    let from = pin(&source).await?;
    application
        .batch_execute(&format!(
            "INSERT INTO other VALUES (1); INSERT INTO t VALUES (1, 'a'); TRUNCATE other; {END}"
        ))
        .await?;
    let first = Stream::open(&source, from, &[]).await?;
    let second = tokio::spawn({
        let source = source.clone();
        async move { Stream::open(&source, from, &[]).await }
    });
    until("the second to be refused", PATIENCE, async || {
        Ok(server.log().contains("is active for PID").then_some(()))
    })
    .await?;
    drop(first);

    let mut second = tokio::time::timeout(Duration::from_secs(70), second).await???;
    let read = read(&mut second).await?;
    let values: Vec<&[Value]> = read
        .events
        .iter()
        .filter_map(|event| event.change.after())
        .map(|row| row.values())
        .collect();
    assert_eq!(values, [[Value::Int(1), Value::text("a")]]);
    assert_eq!(read.events.len(), 2, "the insert and the message");

    application.batch_execute("ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (2, 'b')").await?;
    let error = loop {
        match second.next().await {
            Ok(Item::Batch { events, .. }) if events.is_empty() => {}
            Ok(item) => bail!("{item:?} instead of an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StreamError::Identity(_)), "{error}");
    Ok(())
}
