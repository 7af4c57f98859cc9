//! A scan that takes long.

use anyhow::{Context, Result, ensure};
use dovetail_tests::content::of_postgres;
use dovetail_tests::engine::Setup;
use dovetail_tests::postgres::{Options, Server, Version};
use dovetail_tests::wait::{PATIENCE, until};
use serde_json::json;
use tokio_postgres::Client;

const SENDER_TIMEOUT_SECONDS: u32 = 3;

const TABLE: &str = "\
    CREATE TABLE t (id bigint PRIMARY KEY, v bigint, filler text);
    INSERT INTO t SELECT i, 0, repeat('x', 500) FROM generate_series(1, 200000) i";

/// An outlet bears a lock for half a minute, then the attempt is given up.
const HELD_SECONDS: i64 = 10;

/// For how long the outlet is kept busy. Four of the server's timeouts, unless somebody has a minute and more to spare.
fn seconds() -> Result<u32> {
    match std::env::var("DOVETAIL_SCAN_SECONDS") {
        Ok(text) => text.parse().context("DOVETAIL_SCAN_SECONDS"),
        Err(_) => Ok(4 * SENDER_TIMEOUT_SECONDS),
    }
}

async fn rows(client: &Client) -> Result<i64> {
    let there = client.query_one("SELECT to_regclass('public.t') IS NOT NULL", &[]).await?;
    match there.get(0) {
        true => Ok(client.query_one("SELECT count(*) FROM public.t", &[]).await?.get(0)),
        false => Ok(0),
    }
}

async fn change(client: &Client, number: i64) -> Result<()> {
    client.execute("UPDATE t SET v = v + 1 WHERE id % 997 = $1", &[&number]).await?;
    client.execute("UPDATE t SET id = -id WHERE id = $1", &[&(number * 613)]).await?;
    client.execute("DELETE FROM t WHERE id % 991 = $1", &[&number]).await?;
    client.execute("INSERT INTO t VALUES ($1, 1, 'new')", &[&(300_000 + number)]).await?;
    Ok(())
}

/// H15. The scan takes that long because its outlet does: somebody holds a lock of the replica's table nearly all the
/// time. A worker whose rows nobody takes does not read its socket, so all of the scan stands still, in the middle of its
/// table, while others write to it; nothing of the log is read meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_many_sender_timeouts_loses_nothing_of_the_stream_behind_it() -> Result<()> {
    let seconds = seconds()?;
    let options =
        Options::default().set("wal_sender_timeout", &format!("{SENDER_TIMEOUT_SECONDS}s"));
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    client.batch_execute(TABLE).await?;
    client.batch_execute("CREATE DATABASE replica").await?;
    let replica = server.connect_to(&server.url("replica")).await?;
    let setup = Setup::new("h15", &server, &["public.t"])?.to_postgres(&server);
    let setup = setup.set("/snapshot/chunk_rows", json!(5_000));
    let mut engine = setup.run()?;
    until("the first rows", PATIENCE, async || Ok((rows(&replica).await? > 0).then_some(())))
        .await?;
    // By the server's own clock, as its patience is.
    for second in 1..=i64::from(seconds) {
        if second % HELD_SECONDS == 1 {
            // What waited lands, one transaction of the outlet; the next one waits behind this lock.
            replica.batch_execute("COMMIT; BEGIN; LOCK TABLE public.t IN EXCLUSIVE MODE").await?;
        }
        change(&client, second).await?;
        client.batch_execute("SELECT pg_sleep(1)").await?;
        engine.must_run()?;
    }
    let landed = rows(&replica).await?;
    ensure!(landed < 200_000, "the scan was not held");
    setup.scan_is(&mut engine, "public.t", "begun").await?;
    replica.batch_execute("COMMIT").await?;

    setup.caught_up(&mut engine, &client).await?;
    let log = engine.log();
    ensure!(log.matches("view opened").count() == 1, "it was another scan: {log}");
    ensure!(!server.log().contains("replication timeout"), "{}", server.log());
    let source = of_postgres(&client, "public.t").await?;
    let differences = source.differences(&of_postgres(&replica, "public.t").await?);
    ensure!(differences.is_empty(), "{differences}");
    println!("after {seconds} s {landed} of 200000 rows had landed");
    Ok(())
}
