//! The log is read into the spool, whatever becomes of scan and outlets, and the server need not keep it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dovetail_core::position::Lsn;
use dovetail_tests::content::of_postgres;
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::postgres::{Options, Server, Version};
use dovetail_tests::wait::{PATIENCE, until};
use serde_json::json;
use tokio_postgres::Client;

const TABLE: &str = "\
    CREATE TABLE t (id bigint PRIMARY KEY, v bigint, filler text);
    ALTER TABLE t ALTER filler SET STORAGE PLAIN;
    INSERT INTO t SELECT i, 0, repeat('x', 500) FROM generate_series(1, 200000) i;
    CREATE DATABASE replica";

/// About 10 MB of the log, with the pages that are written in full behind a checkpoint.
fn round(number: u32) -> String {
    let first = number % 25 * 8_000;
    format!("UPDATE t SET v = v + 1 WHERE id > {first} AND id <= {}", first + 8_000)
}

async fn source(options: Options) -> Result<(Server, Client)> {
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    for statement in TABLE.split(';') {
        client.batch_execute(statement).await?;
    }
    Ok((server, client))
}

/// A slot that is left behind by so much loses its log at the next checkpoint.
fn short_log() -> Options {
    let options = Options::default().set("max_slot_wal_keep_size", "64MB");
    options.set("max_wal_size", "64MB").set("min_wal_size", "32MB")
}

async fn log_end(client: &Client) -> Result<Lsn> {
    let row = client.query_one("SELECT pg_current_wal_lsn()::text", &[]).await?;
    Ok(row.get::<_, &str>(0).parse()?)
}

async fn slot(client: &Client, setup: &Setup) -> Result<(String, Option<Lsn>)> {
    const QUERY: &str = "SELECT wal_status, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = client.query_one(QUERY, &[&setup.name()]).await?;
    let confirmed = row.get::<_, Option<&str>>(1).map(str::parse).transpose()?;
    Ok((row.get(0), confirmed))
}

/// Writes rounds, behind each of which the slot has to follow while nothing is delivered.
async fn outlast(client: &Client, setup: &Setup, engine: &mut Engine, rounds: u32) -> Result<u64> {
    let begun = log_end(client).await?;
    for number in 0..rounds {
        client.batch_execute(&round(number)).await?;
        let written = log_end(client).await?;
        until("the slot to follow", PATIENCE, async || {
            engine.must_run()?;
            let (_, confirmed) = slot(client, setup).await?;
            Ok((confirmed >= Some(written)).then_some(()))
        })
        .await?;
        client.batch_execute("CHECKPOINT").await?;
    }
    let (status, _) = slot(client, setup).await?;
    ensure!(status == "reserved", "the slot is {status}");
    Ok(log_end(client).await?.offset() - begun.offset())
}

async fn is_copied(client: &Client, replica: &Client) -> Result<()> {
    let source = of_postgres(client, "public.t").await?;
    let differences = source.differences(&of_postgres(replica, "public.t").await?);
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

/// H14. The scan stands still, held at its outlet, until more than twice the log is written that a slot may keep.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_outlasts_the_log_that_the_server_keeps() -> Result<()> {
    let (server, client) = source(short_log()).await?;
    // On another server: here the outlet's own transaction would keep the slot from letting go of the log.
    let other = Server::start(Version::under_test())?;
    other.connect().await?.batch_execute("CREATE DATABASE replica").await?;
    let replica = other.connect_to(&other.url("replica")).await?;
    let setup = Setup::new("outlast", &server, &["public.t"])?.to_postgres(&other);
    let setup = setup.set("/snapshot/chunk_rows", json!(5_000));
    let mut engine = setup.run()?;
    hold_scan(&replica, &mut engine).await?;
    let written = outlast(&client, &setup, &mut engine, 25).await?;
    ensure!(written > 2 * (64 << 20), "only {written} bytes were written");
    setup.scan_is(&mut engine, "public.t", "begun").await?;
    replica.batch_execute("COMMIT").await?;
    setup.caught_up(&mut engine, &client).await?;
    let log = engine.log();
    ensure!(log.matches("\"pinned\"").count() == 1, "it was pinned again: {log}");
    is_copied(&client, &replica).await
}

/// The same without a spool: the slot is lost, the scan's end brings nothing that is not whole, and a restart refuses.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_spool_the_same_scan_is_refused_in_the_end() -> Result<()> {
    let (server, client) = source(short_log()).await?;
    let replica = server.connect_to(&server.url("replica")).await?;
    let setup = Setup::new("outlasted", &server, &["public.t"])?.to_postgres(&server);
    let setup = setup.set("/snapshot/chunk_rows", json!(5_000)).set("/spool", json!("off"));
    let mut engine = setup.run()?;
    hold_scan(&replica, &mut engine).await?;
    let mut number = 0;
    until("the slot to be lost", PATIENCE, async || {
        number += 1;
        client.batch_execute(&round(number)).await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok((slot(&client, &setup).await?.0 == "lost").then_some(()))
    })
    .await?;
    replica.batch_execute("COMMIT").await?;
    assert_eq!(engine.ended().await?, 70);
    let again = setup.finished("run", &[])?;
    ensure!(again.code == 70 && again.stderr.contains("is gone"), "{}", again.text());
    Ok(())
}

/// Lets the scan begin, and keeps its outlet busy from then on.
async fn hold_scan(replica: &Client, engine: &mut Engine) -> Result<()> {
    until("the first rows", PATIENCE, async || {
        engine.must_run()?;
        let there = replica.query_one("SELECT to_regclass('public.t') IS NOT NULL", &[]).await?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        let rows: i64 = replica.query_one("SELECT count(*) FROM public.t", &[]).await?.get(0);
        Ok((rows > 0).then_some(()))
    })
    .await?;
    Ok(replica.batch_execute("BEGIN; LOCK TABLE public.t IN EXCLUSIVE MODE").await?)
}

fn peak_bytes(engine: &Engine) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", engine.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes << 10)
}

/// An outlet's server is down while the source writes more than what a slot may keep; nothing of the source waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_outlet_that_is_down_is_not_noticed_by_the_source() -> Result<()> {
    let (server, client) = source(short_log()).await?;
    let mut other = Server::start(Version::under_test())?;
    other.connect().await?.batch_execute("CREATE DATABASE replica").await?;
    let setup = Setup::new("outage", &server, &["public.t"])?.to_postgres(&other);
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    other.kill()?;
    let written = outlast(&client, &setup, &mut engine, 25).await?;
    ensure!(written > 2 * (64 << 20), "only {written} bytes were written");
    other.restart()?;
    setup.caught_up(&mut engine, &client).await?;
    let replica = other.connect_to(&other.url("replica")).await?;
    is_copied(&client, &replica).await?;
    let peak = peak_bytes(&engine)?;
    ensure!(peak < 256 << 20, "a peak of {peak} bytes");
    let spooled = setup.status()?["spool_bytes"].as_u64().context("a number")?;
    ensure!(spooled < 2 * (64 << 20) + (1 << 20), "{spooled} bytes are left in the spool");
    Ok(())
}

/// The outlet's server is still down when the source's comes back: nothing but the source is needed to read on.
#[tokio::test(flavor = "multi_thread")]
async fn reading_goes_on_though_the_outlet_is_down_when_the_source_comes_back() -> Result<()> {
    let (mut server, client) = source(short_log()).await?;
    let mut other = Server::start(Version::under_test())?;
    other.connect().await?.batch_execute("CREATE DATABASE replica").await?;
    let setup = Setup::new("both", &server, &["public.t"])?.to_postgres(&other);
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    other.kill()?;
    client.batch_execute(&round(0)).await?;
    server.kill()?;
    engine.until_logged(&["another one follows"]).await?;
    server.restart()?;
    let client = server.connect().await?;
    let written = outlast(&client, &setup, &mut engine, 12).await?;
    ensure!(written > 64 << 20, "only {written} bytes were written");
    // Nor does a start need the outlet, unless it is to end by itself.
    assert_eq!(engine.terminate().await?, 143);
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 75, "exit code {}: {}", ended.code, ended.text());
    let mut engine = setup.run()?;
    outlast(&client, &setup, &mut engine, 2).await?;
    other.restart()?;
    setup.caught_up(&mut engine, &client).await?;
    let replica = other.connect_to(&other.url("replica")).await?;
    is_copied(&client, &replica).await
}

fn segments(setup: &Setup) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(setup.state().join("spool"))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension() == Some("spool".as_ref())).collect();
    paths.sort();
    Ok(paths)
}

/// A pipeline that has more in its spool than at its outlet, and was killed.
async fn killed_with_a_backlog() -> Result<(Server, Client, Client, Setup)> {
    let (server, client) = source(Options::default()).await?;
    let replica = server.connect_to(&server.url("replica")).await?;
    let setup = Setup::new("backlog", &server, &["public.t"])?.to_postgres(&server);
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    replica.batch_execute("BEGIN; LOCK TABLE public.t IN EXCLUSIVE MODE").await?;
    outlast(&client, &setup, &mut engine, 3).await?;
    engine.kill()?;
    replica.batch_execute("COMMIT").await?;
    Ok((server, client, replica, setup))
}

/// What was acknowledged is in the spool and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_survives_a_kill_and_a_torn_end() -> Result<()> {
    let (_server, client, replica, setup) = killed_with_a_backlog().await?;
    let newest = segments(&setup)?.pop().context("a segment")?;
    tear(&newest)?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    is_copied(&client, &replica).await
}

/// What a machine that loses its power leaves behind what was synced.
fn tear(segment: &Path) -> Result<()> {
    use std::io::Write;
    let mut file = fs::File::options().append(true).open(segment)?;
    Ok(file.write_all(&[0x5A; 1000])?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_damaged_spool_is_refused() -> Result<()> {
    let (_server, client, replica, mut setup) = killed_with_a_backlog().await?;
    let spool = setup.state().join("spool");
    let aside = setup.state().join("aside");
    let before = of_postgres(&replica, "public.t").await?;

    fs::rename(&spool, &aside)?;
    let gone = setup.finished("run", &[])?;
    ensure!(gone.code == 70 && gone.stderr.contains("are lost"), "{}", gone.text());
    fs::remove_dir_all(&spool)?;
    fs::rename(&aside, &spool)?;

    setup.change("/spool", json!("off"));
    let off = setup.finished("run", &[])?;
    ensure!(off.code == 70 && off.stderr.contains("leave behind"), "{}", off.text());
    setup.change("/spool", json!({}));

    // A bit that was synced.
    let path = segments(&setup)?.into_iter().next().context("a segment")?;
    let mut bytes = fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes)?;
    let damaged = setup.finished("run", &[])?;
    ensure!(damaged.code == 70, "{}", damaged.text());
    bytes[middle] ^= 1;
    fs::write(&path, &bytes)?;
    ensure!(before.differences(&of_postgres(&replica, "public.t").await?).is_empty(), "delivered");

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    is_copied(&client, &replica).await
}
