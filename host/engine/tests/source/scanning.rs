//! Chunks of a view.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use dovetail::source::Options;
use dovetail::source::postgres::slot;
use dovetail::source::postgres::view::{View, ViewError};
use dovetail_core::batch::ChunkId;
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::value::Row;

use dovetail_tests::wait::{PATIENCE, until};
use tokio_postgres::Client;

use super::{WORKERS, server, source};

const TABLE: &str = "\
    CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' FROM generate_series(1, 2000) g;
    CREATE PUBLICATION dovetail FOR TABLE t";

/// All rows of a view by table, and the chunks that were closed.
async fn read(
    view: View,
    chunk_rows: u32,
) -> Result<(BTreeMap<TableName, Vec<Row>>, BTreeSet<ChunkId>)> {
    let plan = view.plan(chunk_rows).await?;
    let planned: u32 = plan.tables().map(|(_, chunks)| chunks).sum();
    let mut scan = view.scan(plan, Options { pin: Lsn::new(1), redelivery: false });
    let (mut rows, mut chunks) = (BTreeMap::<_, Vec<Row>>::new(), BTreeSet::new());
    while let Some(piece) = scan.next().await? {
        let table = rows.entry(piece.relation.table.clone()).or_default();
        table.extend(piece.events.into_iter().filter_map(|event| event.change.after().cloned()));
        if let Some(chunk) = piece.chunk {
            assert!(chunks.insert(chunk), "{chunk:?} twice");
        }
    }
    assert_eq!(chunks.len(), usize::try_from(planned)?);
    let counted: u64 = scan.progress().iter().map(|progress| progress.rows()).sum();
    assert_eq!(counted, u64::try_from(rows.values().map(Vec::len).sum::<usize>())?);
    Ok((rows, chunks))
}

#[tokio::test]
async fn every_row_of_the_pin_is_read_once_while_writers_move_rows_about() -> Result<()> {
    let (server, application) = server(
        "CREATE TABLE t (id bigint PRIMARY KEY, v int) WITH (fillfactor = 50);
         INSERT INTO t SELECT g, 0 FROM generate_series(1, 20000) g;
         CREATE TABLE empty (id int PRIMARY KEY);
         CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE leaf1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
         CREATE TABLE leaf2 (v text, gone int, id int NOT NULL);
         ALTER TABLE leaf2 DROP COLUMN gone;
         ALTER TABLE parted ATTACH PARTITION leaf2 FOR VALUES FROM (100) TO (200);
         INSERT INTO parted SELECT g, 'v' || g FROM generate_series(0, 199) g;
         CREATE PUBLICATION dovetail FOR TABLE t, empty, parted
             WITH (publish_via_partition_root = true);",
    )
    .await?;
    let source = source(&server, &["t", "empty", "parted"]);
    let pin = slot::create(&source, |_| {}).await?;
    // After the pin: every row moves, some go, some come, and keys change.
    application
        .batch_execute(
            "UPDATE t SET v = 1; UPDATE t SET v = 2, id = id + 1000000 WHERE id % 3 = 0;
             DELETE FROM t WHERE id % 5 = 0; INSERT INTO t SELECT -g, 9 FROM generate_series(1, 999) g;
             INSERT INTO empty VALUES (1); UPDATE parted SET v = 'new'",
        )
        .await?;
    let view = View::pinned(pin, &source, &source.tables, WORKERS).await?;

    let (rows, chunks) = read(view, 500).await?;

    let ids: BTreeSet<String> =
        rows[&super::table("t")].iter().map(|row| format!("{:?}", row.values())).collect();
    let expected: BTreeSet<String> =
        (1..=20_000).map(|id| format!("[Int({id}), Int(0)]")).collect();
    assert_eq!((rows[&super::table("t")].len(), ids), (20_000, expected));
    assert!(chunks.len() > 20, "{} chunks", chunks.len());
    assert!(rows.get(&super::table("empty")).is_none_or(Vec::is_empty));
    let parted: BTreeSet<String> =
        rows[&super::table("parted")].iter().map(|row| format!("{:?}", row.values())).collect();
    let expected: BTreeSet<String> =
        (0..200).map(|id| format!("[Int({id}), Text(\"v{id}\")]")).collect();
    assert_eq!(parted, expected);
    Ok(())
}

#[tokio::test]
async fn a_lost_worker_is_a_lost_view() -> Result<()> {
    let (server, application) = server(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text);
         INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 60000) g;
         CREATE PUBLICATION dovetail FOR TABLE t",
    )
    .await?;
    let source = source(&server, &["t"]);
    let view = View::later(&source, &source.tables, WORKERS).await?;
    let plan = view.plan(1_000).await?;
    let mut scan = view.scan(plan, Options { pin: Lsn::new(1), redelivery: true });
    let first = scan.next().await?.expect("a piece");
    assert!(first.events.iter().all(|event| event.redelivery));

    application
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'",
            &[],
        )
        .await?;

    let error = loop {
        match scan.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the scan ended as if it had read everything"),
            Err(error) => break error,
        }
    };
    assert!(error.is_transient(), "{error:?}");
    Ok(())
}

/// Sessions of the application that wait for a lock of `t`.
async fn waiting(application: &Client, sessions: usize) -> Result<()> {
    let what = format!("{sessions} sessions to wait for the table");
    until(what, PATIENCE, async || {
        let query = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted";
        let row = application.query_one(query, &[]).await?;
        Ok((usize::try_from(row.get::<_, i64>(0))? >= sessions).then_some(()))
    })
    .await
}

/// H13: a lock that a worker takes after the view was announced would queue behind the TRUNCATE.
#[tokio::test]
async fn a_truncate_that_waits_for_the_view_does_not_keep_its_workers_out() -> Result<()> {
    let (server, application) = server(TABLE).await?;
    let source = source(&server, &["t"]);
    let view = View::later(&source, &source.tables, WORKERS).await?;
    let truncating = server.connect().await?;
    let truncating = tokio::spawn(async move { truncating.batch_execute("TRUNCATE t").await });
    waiting(&application, 1).await?;

    // The scan, and with it the view, is over at the end of this.
    let (rows, _) = read(view, 500).await?;

    assert_eq!(rows[&super::table("t")].len(), 2_000);
    tokio::time::timeout(PATIENCE, truncating).await???;
    let left: i64 = application.query_one("SELECT count(*) FROM t", &[]).await?.get(0);
    assert_eq!(left, 0);
    Ok(())
}

/// H13: the TRUNCATE comes between the lock of the view and those of its workers.
#[tokio::test]
async fn a_truncate_among_the_locks_of_a_view_makes_it_stale_and_passes() -> Result<()> {
    let (server, application) = server(TABLE).await?;
    let source = source(&server, &["t"]);
    let holding = server.connect().await?;
    holding.batch_execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await?;
    let opening = tokio::spawn({
        let source = source.clone();
        async move { View::later(&source, &source.tables, WORKERS).await }
    });
    waiting(&application, 1).await?;
    let truncating = server.connect().await?;
    let truncating = tokio::spawn(async move { truncating.batch_execute("TRUNCATE t").await });
    waiting(&application, 2).await?;

    holding.batch_execute("COMMIT").await?;

    let view = tokio::time::timeout(PATIENCE, opening).await??;
    assert!(matches!(view, Err(ViewError::Stale { .. })), "{view:?}");
    tokio::time::timeout(PATIENCE, truncating).await???;
    Ok(())
}
