//! Transactions in the log of MySQL and MariaDB, cut by kills.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail_tests::blockade::number;
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::lines::{self, Lives};
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::wait::{PATIENCE, until};
use dovetail_tests::workload;
use mysql_async::Conn;
use serde_json::json;

const T: &[&str] = &["shop.t"];
const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(200))";
const NUMBERS: &str =
    "WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 24999)";

async fn start() -> Result<(Server, Conn)> {
    let server = Server::start(Version::under_test())?;
    let mut connection = server.connect().await?;
    let depth = if Version::under_test().is_mariadb() {
        "SET SESSION max_recursive_iterations = 100000"
    } else {
        "SET SESSION cte_max_recursion_depth = 100000"
    };
    execute(&mut connection, &["CREATE DATABASE shop", "USE shop", TABLE, depth]).await?;
    Ok((server, connection))
}

async fn lines_reach(setup: &Setup, engine: &mut Engine, lines: usize) -> Result<()> {
    let reached = until(format!("{lines} lines"), PATIENCE, async || {
        engine.must_run()?;
        Ok((lines::read(&setup.lines_file())?.len() >= lines).then_some(()))
    });
    reached.await.with_context(|| engine.log())
}

fn another_life(setup: &Setup, lives: &mut Lives, engine: Engine) -> Result<Engine> {
    engine.kill()?;
    lives.begin()?;
    setup.run()
}

/// P1: ten rows at one position.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_many_rows_is_repeated_from_where_it_was_cut() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("p1", &server, T)?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    for delivered in 1..=10_usize {
        let before = lines::read(&setup.lines_file())?.len();
        let rows: Vec<_> = (0..10).map(|row| format!("({}, 'x')", delivered * 10 + row)).collect();
        let insert = format!("INSERT INTO t VALUES {}", rows.join(", "));
        execute(&mut connection, &[&insert]).await?;
        lines_reach(&setup, &mut engine, before + delivered).await?;
        engine = another_life(&setup, &mut lives, engine)?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    lives.repeat_suffixes_only()?;
    setup.mysql_lines_equal(&server, T).await
}

/// P2.
#[tokio::test(flavor = "multi_thread")]
async fn interleaved_transactions_come_one_after_the_other_in_the_order_of_their_commits()
-> Result<()> {
    let (server, mut first) = start().await?;
    let setup = Setup::mysql("p2", &server, T)?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let mut second = server.connect().await?;
    execute(&mut second, &["USE shop"]).await?;
    for round in 0..5_usize {
        let before = lines::read(&setup.lines_file())?.len();
        let insert = |row: usize| format!("INSERT INTO t VALUES ({}, 'x')", round * 10 + row);
        execute(&mut first, &["BEGIN", &insert(0)]).await?;
        execute(&mut second, &["BEGIN", &insert(1)]).await?;
        execute(&mut first, &[&insert(2)]).await?;
        execute(&mut second, &[&insert(3), "COMMIT"]).await?;
        execute(&mut first, &["COMMIT"]).await?;
        lines_reach(&setup, &mut engine, before + round).await?;
        engine = another_life(&setup, &mut lives, engine)?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    lives.repeat_suffixes_only()?;
    let mut lines = lines::read(&setup.lines_file())?;
    lines.sort_by_key(|line| line.position().expect("a position"));
    lines.dedup_by_key(|line| line.position().expect("a position"));
    let ids: Vec<_> = lines.iter().filter_map(|line| line.key_text()).collect();
    let expected = (0..5).flat_map(|round| [1, 3, 0, 2].map(|id| (round * 10 + id).to_string()));
    assert_eq!(ids, expected.collect::<Vec<_>>());
    setup.mysql_lines_equal(&server, T).await
}

/// P3.
#[tokio::test(flavor = "multi_thread")]
async fn both_halves_of_a_key_change_are_behind_the_checkpoint_or_neither() -> Result<()> {
    let (server, mut connection) = start().await?;
    execute(&mut connection, &["INSERT INTO t VALUES (0, 'x')"]).await?;
    let setup = Setup::mysql("p3", &server, T)?.to_sqlite().set("/lanes", json!(4));
    let mut random = fastrand::Rng::with_seed(workload::seed());
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    for to in 1..=20_i64 {
        let moved = format!("UPDATE t SET id = {to}");
        let statements = ["BEGIN", "UPDATE t SET v = concat(v, 'y')", &moved, "COMMIT"];
        execute(&mut connection, &statements).await?;
        // The moment of the kill is what is random here.
        tokio::time::sleep(Duration::from_millis(random.u64(..8))).await;
        engine.kill()?;
        let shown = "SELECT count(*) * 1000000 + sum(id) FROM shop__t";
        let shown = number(&setup.replica_file(), shown)?.context("a replica")?;
        let one_row = [1_000_000 + to - 1, 1_000_000 + to];
        ensure!(one_row.contains(&shown), "the replica shows {shown} after the move to {to}");
        engine = setup.run()?;
        setup.mysql_caught_up(&mut engine, &server).await?;
    }
    assert_eq!(number(&setup.replica_file(), "SELECT id FROM shop__t")?, Some(20));
    Ok(())
}

/// H16, P4.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_many_batches_is_never_half_forgotten() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("h16", &server, T)?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    lives.begin()?;
    let mut engine = setup.run()?;
    for round in 0..4_usize {
        setup.mysql_caught_up(&mut engine, &server).await?;
        let before = lines::read(&setup.lines_file())?.len();
        let insert = format!("INSERT INTO t {NUMBERS} SELECT {} + i, 'x' FROM n", round * 25_000);
        execute(&mut connection, &[&insert]).await?;
        lines_reach(&setup, &mut engine, before + round * 7_000 + 1).await?;
        engine = another_life(&setup, &mut lives, engine)?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    lives.repeat_suffixes_only()?;
    setup.mysql_lines_equal(&server, T).await
}

/// H16, I5.
#[tokio::test(flavor = "multi_thread")]
async fn a_transactional_replica_never_shows_half_a_transaction() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("h16", &server, T)?.to_sqlite();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    for round in 0..3 {
        let insert = format!("INSERT INTO t {NUMBERS} SELECT {} + i, 'x' FROM n", round * 25_000);
        execute(&mut connection, &[&insert]).await?;
    }
    until("all rows in the replica", PATIENCE, async || {
        engine.must_run()?;
        let rows = number(&setup.replica_file(), "SELECT count(*) FROM shop__t")?.unwrap_or(0);
        ensure!(rows % 25_000 == 0, "{rows} rows are visible");
        Ok((rows == 75_000).then_some(()))
    })
    .await
}

/// L6: what a foreign key does to the children is in the log, or said to be missing.
#[tokio::test(flavor = "multi_thread")]
async fn what_foreign_keys_do_is_delivered_or_refused() -> Result<()> {
    let (server, mut connection) = start().await?;
    let statements = [
        "CREATE TABLE child (id bigint PRIMARY KEY, t bigint, \
         FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "INSERT INTO t VALUES (1, 'x'), (2, 'x')",
        "INSERT INTO child VALUES (10, 1), (11, 1), (20, 2)",
    ];
    execute(&mut connection, &statements).await?;
    let tables = &["shop.t", "shop.child"];
    let setup = Setup::mysql("l6", &server, tables)?.to_file();
    if Version::under_test().is_mariadb() {
        let ended = setup.finished("run", &[])?;
        assert_eq!(ended.code, 70, "{}", ended.text());
        assert!(ended.text().contains("ignore_cascades"), "{}", ended.text());
        let setup = setup.set("/source/mariadb/ignore_cascades", json!(true));
        let mut engine = setup.run()?;
        setup.mysql_caught_up(&mut engine, &server).await?;
        return setup.mysql_lines_equal(&server, tables).await;
    }
    let by_engine = Options::default().set("innodb-native-foreign-keys", "ON");
    let other = Server::start_with(Version::under_test(), by_engine)?;
    let definitions = [&["CREATE DATABASE shop", "USE shop", TABLE], &statements[..]].concat();
    execute(&mut other.connect().await?, &definitions).await?;
    let ended = Setup::mysql("l6", &other, tables)?.to_file().finished("run", &[])?;
    assert!(ended.code == 70 && ended.text().contains("ignore_cascades"), "{}", ended.text());

    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    execute(&mut connection, &["DELETE FROM t WHERE id = 1"]).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let of_children = |line: &&lines::Line| line.op == "delete" && line.table == "shop.child";
    assert_eq!(lines.iter().filter(of_children).count(), 2);
    setup.mysql_lines_equal(&server, tables).await
}
