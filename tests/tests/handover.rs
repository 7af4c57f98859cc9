//! From the scan to the stream without a gap, on real servers: what others lost rows by.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dovetail_tests::blockade::{hold, number};
use dovetail_tests::content::{of_postgres, of_sqlite};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line, Lives};
use dovetail_tests::postgres::{Options, Server, Version};
use dovetail_tests::session::{Repeated, create_user};
use dovetail_tests::trial::{Target, Trial};
use dovetail_tests::wait::{PATIENCE, until};
use dovetail_tests::workload;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

fn reads<'a>(lines: &'a [Line], table: &'a str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.op == "read" && line.table == table)
}

async fn hang_a_commit(server: &Server, client: &Client) -> Result<JoinHandle<Result<()>>> {
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await?;
    client.batch_execute("SELECT pg_reload_conf()").await?;
    let writer = server.connect().await?;
    until("the setting to be in force", PATIENCE, async || {
        let row = writer.query_one("SHOW synchronous_standby_names", &[]).await?;
        Ok((row.get::<_, &str>(0) == "nobody").then_some(()))
    })
    .await?;
    let insert = tokio::spawn(async move {
        writer.batch_execute("INSERT INTO t VALUES (2)").await?;
        anyhow::Ok(())
    });
    until("the insert to wait for a standby", PATIENCE, async || {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        Ok((client.query_one(query, &[]).await?.get::<_, i64>(0) == 1).then_some(()))
    })
    .await?;
    Ok(insert)
}

async fn waiting_pid(client: &Client) -> Result<String> {
    let query = "SELECT pid::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    Ok(client.query_one(query, &[]).await?.get(0))
}

/// H1: its row is in the log, and no view shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_standby_is_waited_for_and_delivered() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await?;
    client.batch_execute("CREATE PUBLICATION h1 FOR TABLE t").await?;
    let insert = hang_a_commit(&server, &client).await?;
    let setup = Setup::new("h1", &server, &["public.t"])?.to_file();

    let mut engine = setup.run()?;
    let pid = waiting_pid(&client).await?;
    engine.until_logged(&[&pid]).await?;
    client.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await?;
    client.batch_execute("SELECT pg_reload_conf()").await?;
    insert.await??;

    setup.caught_up(&mut engine, &client).await?;
    setup.lines_equal(&client, &["public.t"]).await
}

/// H1.
#[tokio::test(flavor = "multi_thread")]
async fn the_creation_of_the_slot_gives_up_after_its_time_and_leaves_no_slot() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await?;
    client.batch_execute("CREATE PUBLICATION h1 FOR TABLE t").await?;
    let blocker = server.connect().await?;
    blocker.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await?;
    blocker.batch_execute("PREPARE TRANSACTION 'left over'").await?;
    let setup = Setup::new("h1", &server, &["public.t"])?.to_file();
    let setup = setup.set("/source/postgres/pin_timeout", json!("2s"));

    let ended = setup.finished("run", &[])?;

    assert!([70, 75].contains(&ended.code), "{}: {}", ended.code, ended.text());
    assert!(ended.stderr.contains("left over"), "names what it waited for: {}", ended.stderr);
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    assert!(slots.is_empty());
    Ok(())
}

/// Rows that move from one table to another while all are scanned: in the pinned view each is in exactly one.
async fn rows_that_move_are_scanned_once(options: Options) -> Result<()> {
    const ROWS: i64 = 8_000;
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    let tables = ["public.t0", "public.t1", "public.t2", "public.t3"];
    for (number, table) in tables.iter().enumerate() {
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (id bigint PRIMARY KEY, filler text);
                 INSERT INTO {table} SELECT i, repeat('x', 200) FROM generate_series(0, {ROWS} - 1) i
                     WHERE i % 4 = {number}"
            ))
            .await?;
    }
    let mover = Repeated::start(&server, |count| {
        let (id, to) = (count * 7919 % 8_000, count / 3 % 4);
        let delete = |from: u64| {
            format!("moved{from} AS (DELETE FROM t{from} WHERE id = {id} RETURNING id, filler)")
        };
        let from: Vec<_> = (0..4).filter(|from| *from != to).collect();
        let deletes: Vec<_> = from.iter().map(|from| delete(*from)).collect();
        let all: Vec<_> = from.iter().map(|from| format!("SELECT * FROM moved{from}")).collect();
        format!("WITH {} INSERT INTO t{to} {}", deletes.join(", "), all.join(" UNION ALL "))
    })
    .await?;
    let setup = Setup::new("h3", &server, &tables)?.to_file();
    let setup = setup.set("/snapshot/workers", json!(4)).set("/snapshot/chunk_rows", json!(100));

    let mut engine = setup.run()?;
    setup.scan_is(&mut engine, "public.t3", "done").await?;
    mover.stop().await?;
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    let mut copies = BTreeMap::new();
    for line in tables.iter().flat_map(|table| reads(&lines, table)) {
        *copies.entry(line.key_text()).or_insert(0) += 1;
    }
    assert_eq!(copies.len(), usize::try_from(ROWS)?, "every row is in some table's scan");
    assert!(copies.values().all(|count| *count == 1), "and in no other");
    setup.lines_equal(&client, &tables).await
}

/// H3.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_moves_between_tables_is_in_the_view_once() -> Result<()> {
    rows_that_move_are_scanned_once(Options::default()).await
}

/// H11.
#[tokio::test(flavor = "multi_thread")]
async fn the_view_is_consistent_whatever_isolation_is_the_servers_default() -> Result<()> {
    let options = Options::default()
        .set("default_transaction_isolation", "read uncommitted")
        .set("default_transaction_deferrable", "on");
    rows_that_move_are_scanned_once(options).await
}

/// H4.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_updated_during_the_scan_never_goes_back() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL, filler text);
             INSERT INTO t SELECT i, 0, repeat('x', 200) FROM generate_series(1, 30000) i",
        )
        .await?;
    let writer =
        Repeated::start(&server, |_| "UPDATE t SET v = v + 1 WHERE id = 1".to_owned()).await?;
    let setup = Setup::new("h4", &server, &["public.t"])?.to_file();

    let mut engine = setup.run()?;
    setup.scan_is(&mut engine, "public.t", "done").await?;
    let updates = writer.stop().await?;
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    let of_the_row = lines.iter().filter(|line| line.key_text().as_deref() == Some("1"));
    let versions: Vec<_> = of_the_row.map(|line| line.after("v").and_then(Value::as_u64)).collect();
    let first = versions.first().copied().flatten().context("the row was not scanned")?;
    let expected: Vec<_> = (first..=updates).map(Some).collect();
    assert_eq!(versions, expected, "the scanned version, then each later one, once");
    setup.lines_equal(&client, &["public.t"]).await
}

/// H5: the finished table could not even be read a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_scan_repeats_only_the_unfinished_tables_from_the_same_pin() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE small (id bigint PRIMARY KEY, v text);
             INSERT INTO small SELECT i, 'old' FROM generate_series(1, 100) i;
             CREATE TABLE large (id bigint PRIMARY KEY, v text, filler text);
             INSERT INTO large SELECT i, 'old', repeat('x', 300) FROM generate_series(1, 300000) i",
        )
        .await?;
    let tables = ["public.small", "public.large"];
    create_user(&client, "capture", "h5", &tables).await?;
    let setup = Setup::new("h5", &server, &tables)?.as_user("capture", &server).to_file();
    let setup = setup.set("/snapshot/workers", json!(1));
    let mut lives = Lives::of(setup.lines_file());

    lives.begin()?;
    let mut engine = setup.run()?;
    let before = setup.scan_is(&mut engine, "public.small", "done").await?;
    until("rows of the large table", PATIENCE, async || {
        let lines = lines::read(&setup.lines_file())?;
        Ok((reads(&lines, "public.large").count() > 1_000).then_some(()))
    })
    .await?;
    engine.kill()?;
    let killed = setup.status()?;
    assert_eq!(killed["tables"][1]["scan"], "begun", "the kill came too late: {killed}");
    client
        .batch_execute(
            "UPDATE small SET v = 'new' WHERE id <= 50; DELETE FROM small WHERE id > 90;
             UPDATE large SET v = 'new' WHERE id <= 500; DELETE FROM large WHERE id BETWEEN 600 AND 700;
             REVOKE SELECT ON small FROM capture",
        )
        .await?;
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    let after = setup.status()?;
    assert_eq!(after["pin"], before["pin"], "the pin does not move");
    let lives = lives.lines()?;
    let (_, second) = lives.last().context("a second life")?;
    assert_eq!(reads(second, "public.small").count(), 0, "a finished table is not read again");
    let changes = second.iter().filter(|line| line.table == "public.small").count();
    assert_eq!(changes, 60, "what happened to delivered rows meanwhile arrives");
    let barrier = second.iter().find(|line| line.table == "public.large").map(|line| &*line.op);
    assert_eq!(barrier, Some("truncate"), "before its rows come again");
    setup.lines_equal(&client, &tables).await
}

/// H6.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_last_row_needs_no_second_scan() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY);
             INSERT INTO t SELECT generate_series(1, 5000)",
        )
        .await?;
    create_user(&client, "capture", "h6", &["public.t"]).await?;
    let setup = Setup::new("h6", &server, &["public.t"])?.as_user("capture", &server).to_file();
    let mut engine = setup.run()?;
    setup.scan_is(&mut engine, "public.t", "done").await?;
    engine.kill()?;
    client.batch_execute("REVOKE SELECT ON t FROM capture").await?;
    client.batch_execute("DELETE FROM t WHERE id <= 10; INSERT INTO t VALUES (-1)").await?;

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    assert_eq!(reads(&lines::read(&setup.lines_file())?, "public.t").count(), 5_000);
    setup.lines_equal(&client, &["public.t"]).await
}

/// H6.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_outlet_refused_are_not_taken_for_delivered() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, filler text);
             INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 200000) i",
        )
        .await?;
    let setup = Setup::new("h6", &server, &["public.t"])?.to_sqlite();
    let replica = setup.replica_file();
    let engine = setup.run()?;
    let rows = "SELECT count(*) FROM t";
    until(
        "the first rows",
        PATIENCE,
        async || Ok(number(&replica, rows)?.filter(|rows| *rows > 0)),
    )
    .await?;
    let held = hold(&replica).await?;
    let delivered = number(&replica, rows)?.context("a replica")?;
    assert!(delivered < 200_000, "the scan was over before the outlet refused");
    engine.kill()?;
    drop(held);
    client.batch_execute("DELETE FROM t WHERE id <= 100").await?;

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    let source = of_postgres(&client, "public.t").await?;
    let differences = source.differences(&of_sqlite(&replica, "t")?);
    assert!(differences.is_empty(), "{differences}");
    Ok(())
}

/// H7.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_key_is_scanned_once() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE ends (id bigint PRIMARY KEY);
             INSERT INTO ends VALUES (1), (9223372036854775807), (-9223372036854775808);
             CREATE TABLE sparse (id bigint PRIMARY KEY);
             INSERT INTO sparse SELECT 9223372036854775807 - i::bigint * i * 1000000 FROM generate_series(0, 3000) i;
             CREATE TABLE composite (a int, b text, c int, PRIMARY KEY (b, a));
             INSERT INTO composite SELECT i % 50, 'b' || i / 50, i FROM generate_series(1, 3000) i;
             CREATE TABLE words (word text PRIMARY KEY);
             INSERT INTO words SELECT md5(i::text) || chr(256 + i) FROM generate_series(1, 3000) i;
             INSERT INTO words VALUES (''), (' '), ('a,b'), (E'\\t');
             CREATE TABLE uuids (id uuid PRIMARY KEY);
             INSERT INTO uuids SELECT md5(i::text)::uuid FROM generate_series(1, 3000) i;
             CREATE TABLE floats (id float8 PRIMARY KEY);
             INSERT INTO floats SELECT 1 / i::float8 FROM generate_series(1, 3000) i;
             INSERT INTO floats VALUES ('NaN'), ('Infinity'), ('-Infinity'), (0);
             CREATE TABLE numerics (id numeric PRIMARY KEY);
             INSERT INTO numerics SELECT i / 7.0 FROM generate_series(1, 3000) i;
             CREATE TABLE keyless (v int);
             INSERT INTO keyless SELECT i / 2 FROM generate_series(1, 3000) i;
             ALTER TABLE keyless REPLICA IDENTITY FULL;
             CREATE TABLE nothing (id int PRIMARY KEY);
             CREATE TABLE parts (id int, region int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
             CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
             CREATE TABLE parts_2 (region int, id int, PRIMARY KEY (id, region));
             ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES IN (2);
             INSERT INTO parts SELECT i, 1 + i % 2 FROM generate_series(1, 3000) i;
             CREATE TABLE analyzed (id int PRIMARY KEY);
             INSERT INTO analyzed SELECT generate_series(1, 100);
             ANALYZE analyzed;
             INSERT INTO analyzed SELECT generate_series(101, 20000);",
        )
        .await?;
    let tables = [
        "public.ends",
        "public.sparse",
        "public.composite",
        "public.words",
        "public.uuids",
        "public.floats",
        "public.numerics",
        "public.keyless",
        "public.nothing",
        "public.parts",
        "public.analyzed",
    ];
    let setup = Setup::new("h7", &server, &tables)?.to_file();
    let setup = setup.set("/snapshot/chunk_rows", json!(500));

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    for table in tables {
        let count = format!("SELECT count(*) FROM {table}");
        let rows: i64 = client.query_one(&count, &[]).await?.get(0);
        assert_eq!(reads(&lines, table).count(), usize::try_from(rows)?, "{table}");
    }
    let but_floats: Vec<_> = tables.into_iter().filter(|table| *table != "public.floats").collect();
    setup.lines_equal(&client, &but_floats).await
}

/// H13.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_emptied_during_its_scan_leaves_no_ghosts() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    for table in ["t", "u"] {
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (id bigint PRIMARY KEY, filler text);
                 INSERT INTO {table} SELECT i, repeat('x', 300) FROM generate_series(1, 100000) i"
            ))
            .await?;
    }
    let tables = ["public.t", "public.u"];
    let setup = Setup::new("h13", &server, &tables)?.to_file();
    let mut engine = setup.run()?;
    setup.scanning(&mut engine, &client).await?;
    let truncating = server.connect().await?;
    // The scan holds the table, so this may have to wait for its end; the scan must not wait for this in turn.
    let truncate = tokio::spawn(async move {
        truncating.batch_execute("TRUNCATE t").await?;
        truncating.batch_execute("INSERT INTO t VALUES (1, 'new')").await
    });
    client.batch_execute("DELETE FROM u; INSERT INTO u VALUES (1, 'new')").await?;
    truncate.await??;

    setup.caught_up(&mut engine, &client).await?;
    let lines = lines::read(&setup.lines_file())?;
    assert!(reads(&lines, "public.t").count() > 1, "the table was empty before it was scanned");
    setup.lines_equal(&client, &tables).await
}

/// H14.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_key_changes_during_the_scan_is_neither_lost_nor_doubled() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, filler text);
             INSERT INTO t SELECT i, i, repeat('x', 300) FROM generate_series(1, 50000) i",
        )
        .await?;
    let mover = Repeated::start(&server, |count| {
        let (up, down) = (count * 37 % 50_000, count * 53 % 50_000);
        let moves = |from: String, to: String| {
            format!("UPDATE t SET id = {to} WHERE id = {from} AND NOT EXISTS (SELECT FROM t WHERE id = {to});")
        };
        let far = |id: u64| (id + 100_000).to_string();
        moves(up.to_string(), far(up)) + &moves(far(down), down.to_string())
    })
    .await?;
    let setup = Setup::new("h14", &server, &["public.t"])?.to_file();
    let setup = setup.set("/snapshot/chunk_rows", json!(500));

    let mut engine = setup.run()?;
    setup.scan_is(&mut engine, "public.t", "done").await?;
    mover.stop().await?;
    setup.caught_up(&mut engine, &client).await?;

    setup.lines_equal(&client, &["public.t"]).await
}

/// H15.
#[tokio::test(flavor = "multi_thread")]
async fn an_outlet_that_holds_for_longer_than_the_sender_timeout_does_not_cost_the_stream()
-> Result<()> {
    let options = Options::default().set("wal_sender_timeout", "2s");
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, filler text)").await?;
    client.batch_execute("INSERT INTO t VALUES (0, 'first')").await?;
    let setup = Setup::new("h15", &server, &["public.t"])?.to_sqlite();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    let held = hold(&setup.replica_file()).await?;
    let insert = "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i";
    client.batch_execute(insert).await?;
    // Nothing happens that could be waited for: three times the server's patience pass.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    engine.must_run()?;
    drop(held);
    setup.caught_up(&mut engine, &client).await?;

    let log = server.log();
    assert!(!log.contains("replication timeout"), "{log}");
    let source = of_postgres(&client, "public.t").await?;
    assert!(source.differences(&of_sqlite(&setup.replica_file(), "t")?).is_empty());
    Ok(())
}

/// All of the above at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_under_every_kind_of_change_is_judged_clean() -> Result<()> {
    for target in Target::ALL {
        let options = workload::Options { big_rows: 2_000, ..workload::Options::default() };
        let (mut trial, workload) = Trial::new(target, options).await?;
        let mut running = workload.start();
        running.advance(200).await?;
        let engine = trial.launch()?;
        running.advance(3_000).await?;
        trial.finish(running, engine).await?.clean()?;
    }
    Ok(())
}
