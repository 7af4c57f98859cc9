//! The log is read into the spool beside a scan of MySQL and MariaDB, and may expire behind the reader.

use anyhow::{Context, Result, ensure};
use dovetail_tests::blockade::{Held, hold, number};
use dovetail_tests::content::{of_mysql, of_sqlite};
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::wait::{PATIENCE, until};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use serde_json::json;

const T: &[&str] = &["shop.t"];

/// A table, and a log that expires after two seconds.
async fn start() -> Result<(Server, Conn)> {
    let options = Options::default().set("binlog-expire-logs-seconds", "2");
    let server = Server::start_with(Version::under_test(), options)?;
    let mut connection = server.connect().await?;
    // From MariaDB 11.4 on nothing expires while no replica is there.
    let needed = "SHOW GLOBAL VARIABLES LIKE 'slave_connections_needed_for_purge'";
    if connection.query_first::<mysql_async::Row, _>(needed).await?.is_some() {
        connection.query_drop("SET GLOBAL slave_connections_needed_for_purge = 0").await?;
    }
    let depth = if Version::under_test().is_mariadb() {
        "SET SESSION max_recursive_iterations = 1000000"
    } else {
        "SET SESSION cte_max_recursion_depth = 1000000"
    };
    let fill = "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200000) \
                SELECT i, repeat('x', 500) FROM n";
    let table = "CREATE TABLE t (id bigint PRIMARY KEY, filler varchar(600))";
    execute(&mut connection, &["CREATE DATABASE shop", "USE shop", table, depth, fill]).await?;
    Ok((server, connection))
}

async fn files(connection: &mut Conn) -> Result<Vec<String>> {
    let rows: Vec<mysql_async::Row> = connection.query("SHOW BINARY LOGS").await?;
    rows.iter().map(|row| row.get(0).context("a file")).collect()
}

/// A scan that is held in the middle by its outlet, and the file of the log that its pin is in.
async fn held(setup: &Setup, connection: &mut Conn) -> Result<(Engine, Held, String)> {
    let engine = setup.run()?;
    let replica = setup.replica_file();
    until("the first rows", PATIENCE, async || {
        let rows = number(&replica, "SELECT count(*) FROM shop__t")?;
        Ok(rows.filter(|rows| *rows > 0))
    })
    .await?;
    let held = hold(&replica).await?;
    let pinned = files(connection).await?.pop().context("a file")?;
    Ok((engine, held, pinned))
}

/// Changes rows until the server has removed this file of its log.
async fn until_expired(connection: &mut Conn, file: &String) -> Result<()> {
    let mut round = 0;
    until("the log to expire", PATIENCE, async || {
        round += 1;
        let changed = format!("UPDATE t SET filler = 'round {round}' WHERE id % 500 = {round}");
        let statements = [&*changed, "DELETE FROM t WHERE id % 1001 = 1", "FLUSH BINARY LOGS"];
        execute(connection, &statements).await?;
        Ok((!files(connection).await?.contains(file)).then_some(()))
    })
    .await
}

/// H14.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_outlasts_the_log_that_the_server_keeps() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("outlast", &server, T)?.to_sqlite();
    let (mut engine, held, pinned) = held(&setup, &mut connection).await?;
    until_expired(&mut connection, &pinned).await?;
    engine.must_run()?;
    setup.scan_is(&mut engine, "shop.t", "begun").await?;
    drop(held);
    setup.mysql_caught_up(&mut engine, &server).await?;
    let log = engine.log();
    ensure!(log.matches("\"pinned\"").count() == 1, "it was pinned again: {log}");
    let source = of_mysql(&mut connection, "shop.t").await?;
    let differences = source.differences(&of_sqlite(&setup.replica_file(), "shop__t")?);
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

/// The log that expired before it was needed; killed at the worst moment, what was spooled is enough to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_a_scan_that_outlasts_the_log_keeps_the_pin() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("killed", &server, T)?.to_sqlite();
    let (engine, held, pinned) = held(&setup, &mut connection).await?;
    until_expired(&mut connection, &pinned).await?;
    engine.kill()?;
    drop(held);
    let pin = setup.status()?["pin"].clone();
    execute(&mut connection, &["DELETE FROM t WHERE id % 77 = 0"]).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    assert_eq!(setup.status()?["pin"], pin);
    let source = of_mysql(&mut connection, "shop.t").await?;
    let differences = source.differences(&of_sqlite(&setup.replica_file(), "shop__t")?);
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

/// The same without a spool: the log is gone when it is needed, and that is said.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_spool_the_same_scan_is_refused_in_the_end() -> Result<()> {
    let (server, mut connection) = start().await?;
    let setup = Setup::mysql("outlasted", &server, T)?.to_sqlite().set("/spool", json!("off"));
    let (engine, held, pinned) = held(&setup, &mut connection).await?;
    until_expired(&mut connection, &pinned).await?;
    drop(held);
    assert_eq!(engine.ended().await?, 70);
    let again = setup.finished("run", &[])?;
    ensure!(again.code == 70 && again.stderr.contains("removed its binlog"), "{}", again.text());
    Ok(())
}
