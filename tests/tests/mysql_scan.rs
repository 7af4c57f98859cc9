//! Scans of MySQL and MariaDB that are refused, disturbed, or held up.

use anyhow::{Context, Result, ensure};
use dovetail_tests::blockade::{hold, number};
use dovetail_tests::content::{of_mysql, of_sqlite};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::PASSWORD;
use dovetail_tests::wait::{PATIENCE, until};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use serde_json::json;

const T: &[&str] = &["shop.t"];

/// A table of so many rows of half a kilobyte.
async fn start(rows: u32, options: Options) -> Result<(Server, Conn)> {
    let server = Server::start_with(Version::under_test(), options)?;
    let mut connection = server.connect().await?;
    let depth = if Version::under_test().is_mariadb() {
        "SET SESSION max_recursive_iterations = 1000000"
    } else {
        "SET SESSION cte_max_recursion_depth = 1000000"
    };
    let fill = format!(
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         SELECT i, repeat('x', 500) FROM n"
    );
    let table = "CREATE TABLE t (id bigint PRIMARY KEY, filler varchar(600))";
    execute(&mut connection, &["CREATE DATABASE shop", "USE shop", table, depth, &fill]).await?;
    Ok((server, connection))
}

/// An account that may read, and follow the log; nothing else.
async fn as_reader(setup: Setup, server: &Server, connection: &mut Conn) -> Result<Setup> {
    let create = format!("CREATE USER reader IDENTIFIED BY '{PASSWORD}'");
    let statements = [
        &create,
        "GRANT SELECT ON shop.* TO reader",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader",
    ];
    execute(connection, &statements).await?;
    let kind = if server.version().is_mariadb() { "mariadb" } else { "mysql" };
    let url = format!("mysql://reader@127.0.0.1:{}", server.port());
    Ok(setup.set(&format!("/source/{kind}/url"), json!(url)))
}

async fn replica_equals(setup: &Setup, server: &Server) -> Result<()> {
    let source = of_mysql(&mut server.connect().await?, "shop.t").await?;
    let differences = source.differences(&of_sqlite(&setup.replica_file(), "shop__t")?);
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

async fn first_rows(setup: &Setup) -> Result<()> {
    until("the first rows", PATIENCE, async || {
        let rows = number(&setup.replica_file(), "SELECT count(*) FROM shop__t")?;
        Ok(rows.filter(|rows| *rows > 0))
    })
    .await
    .map(drop)
}

/// H6, H12: all of it by an account that may hardly do anything, and nothing is read twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_last_row_needs_no_second_scan() -> Result<()> {
    let (server, mut connection) = start(5_000, Options::default()).await?;
    let setup = Setup::mysql("h6", &server, T)?.to_file();
    let setup = as_reader(setup, &server, &mut connection).await?;
    let checked = setup.finished("check", &[])?;
    ensure!(checked.text().contains("the pin will be taken by"), "{}", checked.text());
    let mut engine = setup.run()?;
    setup.scan_is(&mut engine, "shop.t", "done").await?;
    engine.kill()?;
    let statements = [
        "REVOKE SELECT ON shop.* FROM reader",
        // Or the server would not even tell what the table is. Its rows cannot be read by that.
        "GRANT SELECT (id) ON shop.t TO reader",
        "DELETE FROM t WHERE id <= 10",
        "INSERT INTO t VALUES (-1, 'new')",
    ];
    execute(&mut connection, &statements).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    assert_eq!(lines.iter().filter(|line| line.op == "read").count(), 5_000);
    setup.mysql_lines_equal(&server, T).await
}

/// H6.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_outlet_refused_are_not_taken_for_delivered() -> Result<()> {
    let (server, mut connection) = start(100_000, Options::default()).await?;
    let setup = Setup::mysql("h6", &server, T)?.to_sqlite();
    let replica = setup.replica_file();
    let engine = setup.run()?;
    first_rows(&setup).await?;
    let held = hold(&replica).await?;
    let delivered = number(&replica, "SELECT count(*) FROM shop__t")?.context("a replica")?;
    assert!(delivered < 100_000, "the scan was over before the outlet refused");
    engine.kill()?;
    drop(held);
    execute(&mut connection, &["DELETE FROM t WHERE id <= 100"]).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    replica_equals(&setup, &server).await
}

/// H7: names that a collation takes for equal, and others that it orders by their blanks.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_equal_to_their_collation_are_read_once_each() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let mut connection = server.connect().await?;
    let collation = match Version::under_test().is_mariadb() {
        true => "utf8mb4_unicode_520_nopad_ci",
        false => "utf8mb4_0900_ai_ci",
    };
    let table = format!(
        "CREATE TABLE t (k char(10) CHARACTER SET utf8mb4 COLLATE {collation}, n int, PRIMARY KEY (k, n))"
    );
    let rows = "INSERT INTO t VALUES ('Strasse', 1), ('Straße', 1), ('Strasse', 2), ('Straße', 2), \
                ('Strasse', 3), ('Straße', 3), ('Strata', 1)";
    let statements = ["SET NAMES utf8mb4", "CREATE DATABASE shop", "USE shop", &table, rows];
    if Version::under_test().is_mariadb() {
        execute(&mut connection, &statements).await?;
    } else {
        // To this one `ß` and `ss` are the same key.
        let rows = rows.replace("Straße', ", "Straßen', ");
        execute(&mut connection, &[&statements[..4], &[&rows]].concat()).await?;
    }
    let _: Vec<mysql_async::Row> = connection.query("ANALYZE TABLE t").await?;
    let setup = Setup::mysql("h7", &server, T)?.to_file();
    let setup = setup.set("/snapshot/chunk_rows", json!(1));
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    assert_eq!(lines::read(&setup.lines_file())?.len(), 7);
    setup.mysql_lines_equal(&server, T).await
}

/// H8: a table that is redefined while it is scanned waits, or is scanned again; no row lies under wrong columns.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_redefined_in_the_scan_has_every_row_under_its_columns() -> Result<()> {
    let (server, mut connection) = start(100_000, Options::default()).await?;
    let setup = Setup::mysql("h8", &server, T)?.to_sqlite();
    let mut engine = setup.run()?;
    first_rows(&setup).await?;
    let statements = [
        "SET SESSION lock_wait_timeout = 60",
        "ALTER TABLE t ADD COLUMN z int",
        "UPDATE t SET z = id WHERE id % 1000 = 0",
        "INSERT INTO t VALUES (-1, 'new', 7)",
    ];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    replica_equals(&setup, &server).await
}

/// H15: a session whose rows nobody takes for many times the server's patience.
#[tokio::test(flavor = "multi_thread")]
async fn an_outlet_that_holds_for_longer_than_the_servers_timeout_does_not_cost_the_scan()
-> Result<()> {
    let options = Options::default().set("net-write-timeout", "1").set("net-read-timeout", "1");
    let (server, mut connection) = start(200_000, options).await?;
    let setup = Setup::mysql("h15", &server, T)?.to_sqlite();
    let mut engine = setup.run()?;
    first_rows(&setup).await?;
    let held = hold(&setup.replica_file()).await?;
    let update = "UPDATE t SET filler = 'changed' WHERE id % 500 = 0";
    // By the server's own clock, as its patience is.
    execute(&mut connection, &[update, "DO sleep(4)"]).await?;
    engine.must_run()?;
    drop(held);
    setup.mysql_caught_up(&mut engine, &server).await?;
    let log = engine.log();
    ensure!(log.matches("view opened").count() == 1, "it was another scan: {log}");
    replica_equals(&setup, &server).await
}
