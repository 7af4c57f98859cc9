//! What the source is told, what an outlet holds, and what nobody may read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail_core::position::Lsn;
use dovetail_tests::blockade::hold;
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::Lives;
use dovetail_tests::postgres::{Options as ServerOptions, PASSWORD, Server, Version};
use dovetail_tests::trial::{Target, Trial};
use dovetail_tests::wait::{PATIENCE, until};
use dovetail_tests::workload::{self, Options};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::json;
use tokio_postgres::Client;

async fn acknowledged(client: &Client, slot: &str) -> Result<Lsn> {
    let query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = client.query_one(query, &[&slot]).await?;
    row.get::<_, &str>(0).parse().context("a log position")
}

/// The checkpoint that a replica holds beside its rows.
fn replica_checkpoint(replica: &Path) -> Result<Option<Lsn>> {
    let connection = Connection::open(replica)?;
    // An engine that was killed at its start may have left the file empty.
    let begun = "SELECT count(*) FROM sqlite_schema WHERE name = '_dovetail'";
    if connection.query_row(begun, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(None);
    }
    let query = "SELECT max(checkpoint) FROM _dovetail";
    let text: Option<String> = connection.query_row(query, [], |row| row.get(0))?;
    text.map(|text| text.parse().context("a log position")).transpose()
}

/// D2. Without a spool; with one the source is told what that has synced.
#[tokio::test(flavor = "multi_thread")]
async fn the_source_is_never_told_more_than_the_replica_holds() -> Result<()> {
    let options = Options { bulk: 5_000, pace: Duration::from_millis(1), ..Options::default() };
    let (mut trial, workload) = Trial::new(Target::Sqlite, options).await?;
    trial.setup.change("/spool", json!("off"));
    let client = trial.client().await?;
    let mut running = workload.start();
    for round in 0..6 {
        let mut engine = trial.launch()?;
        trial.setup.streaming(&mut engine, &client).await?;
        running.advance(400).await?;
        engine.must_run()?;
        if round % 2 == 0 {
            engine.kill()?;
        } else {
            assert_eq!(engine.terminate().await?, 143);
        }
        let told = acknowledged(&client, trial.setup.name()).await?;
        let held = replica_checkpoint(&trial.setup.replica_file())?;
        // Before its first checkpoint the source was told of the pin at most.
        let status = trial.setup.status()?;
        let pin: Lsn = status["pin"].as_str().context("a pin")?.parse()?;
        ensure!(told <= held.unwrap_or(pin).max(pin), "told {told}, held {held:?}, pin {pin}");
    }
    let engine = trial.launch()?;
    trial.finish(running, engine).await?.clean()
}

/// D3.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_the_middle_of_everything_loses_nothing() -> Result<()> {
    let options = Options { bulk: 50_000, big_rows: 5_000, ..Options::default() };
    let (mut trial, workload) = Trial::new(Target::Lines, options).await?;
    let client = trial.client().await?;
    let mut running = workload.start();
    // Into the scan, then into the stream: had anything been acknowledged and not flushed, the checker would miss it.
    let mut engine = trial.launch()?;
    trial.setup.scanning(&mut engine, &client).await?;
    assert_eq!(engine.terminate().await?, 143);
    for _ in 0..4 {
        let mut engine = trial.launch()?;
        running.advance(400).await?;
        engine.must_run()?;
        assert_eq!(engine.terminate().await?, 143);
        let bytes = fs::read(trial.setup.lines_file())?;
        ensure!(bytes.last() == Some(&b'\n'), "a graceful stop leaves whole lines");
    }
    let engine = trial.launch()?;
    trial.finish(running, engine).await?.clean()
}

/// D3: nobody has to wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_an_engine_that_cannot_drain() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)").await?;
    let setup = Setup::new("d3", &server, &["public.t"])?.to_sqlite();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let held = hold(&setup.replica_file()).await?;
    client.batch_execute("INSERT INTO t SELECT generate_series(1, 1000)").await?;
    engine.signal(Signal::INT)?;
    engine.until_logged(&["signal"]).await?;
    engine.signal(Signal::INT)?;
    assert_eq!(engine.ended_within(Duration::from_secs(10)).await?, 130);
    drop(held);

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let rows = dovetail_tests::blockade::number(&setup.replica_file(), "SELECT count(*) FROM t")?;
    assert_eq!(rows, Some(1_000));
    Ok(())
}

/// D4.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_delivered_again_has_the_same_id() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint)").await?;
    client.batch_execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i").await?;
    let setup = Setup::new("d4", &server, &["public.t"])?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    let mut random = fastrand::Rng::with_seed(workload::seed());
    let mut repeated = 0;
    for _ in 0..30 {
        lives.begin()?;
        let mut engine = setup.run()?;
        setup.caught_up(&mut engine, &client).await?;
        let before = fs::metadata(setup.lines_file())?.len();
        client.batch_execute("UPDATE t SET v = v + 1").await?;
        let some = before + random.u64(1..1_000_000);
        until("some of the transaction", PATIENCE, async || {
            Ok((fs::metadata(setup.lines_file())?.len() > some).then_some(()))
        })
        .await?;
        engine.kill()?;
        lives.begin()?;
        let mut engine = setup.run()?;
        setup.caught_up(&mut engine, &client).await?;
        engine.kill()?;
        repeated = lives.repeat_suffixes_only()?;
        if repeated > 0 {
            break;
        }
    }
    ensure!(repeated > 0, "no kill ever led to a repetition: this test proves nothing");
    let lines = lives.lines()?;
    let streamed = lines.iter().flat_map(|(_, lines)| lines).filter(|line| line.xid.is_some());
    let places: BTreeSet<_> =
        streamed.clone().map(|line| line.position()).collect::<Result<_>>()?;
    let ids: BTreeSet<_> = streamed.filter_map(|line| line.id.as_deref()).collect();
    assert_eq!(ids.len(), places.len(), "each change has an id of its own");
    Ok(())
}

/// Every file below a directory, apart from the configuration.
fn files(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.file_name().is_some_and(|name| name != "pipeline.yaml") {
            all.push((path.display().to_string(), fs::read(&path)?));
        }
    }
    Ok(all)
}

/// D6.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_shows_anywhere() -> Result<()> {
    let server = Server::start_with(Version::under_test(), ServerOptions::default())?;
    let client = server.connect().await?;
    client
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1)")
        .await?;
    client.batch_execute("CREATE DATABASE replica").await?;
    let in_url = |port: u16, password: &str| {
        json!(format!("postgresql://postgres:{password}@127.0.0.1:{port}/postgres"))
    };
    let wrong = "wr0ng-but-secret";
    let base = || Setup::new("d6", &server, &["public.t"]).map(Setup::to_file);
    let filtered = |setup: Setup| setup.environment("RUST_LOG", "trace");
    let url = "/source/postgres/url";
    let with_url = |port, password: &str| -> Result<Setup> {
        let setup = base()?.without("/source/postgres/password");
        Ok(filtered(setup.set(url, in_url(port, password))))
    };
    // A run that succeeds, one whose password is refused, one that reaches nobody, and one that is misconfigured.
    let good = filtered(base()?.to_postgres(&server));
    let setups = [
        good,
        with_url(server.port(), wrong)?,
        with_url(1, wrong)?,
        filtered(base()?.set(url, json!(format!("postgresql://postgres:{wrong}@[bad/postgres")))),
        filtered(base()?.set("/source/postgres/sslmode", json!("${SOURCE_PASSWORD}"))),
    ];
    for setup in setups {
        let arguments = ["--until-caught-up"];
        for (command, arguments) in
            [("check", &[][..]), ("run", &arguments[..]), ("status", &[][..])]
        {
            let ended = setup.finished(command, arguments)?;
            for secret in [PASSWORD, wrong] {
                ensure!(!ended.text().contains(secret), "{command} shows it: {}", ended.code);
                for (name, content) in files(setup.directory())? {
                    let found = content.windows(secret.len()).any(|part| part == secret.as_bytes());
                    ensure!(!found, "{secret} is in {name} after {command}");
                }
            }
        }
        client
            .batch_execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            .await?;
    }
    Ok(())
}
