//! Logs that are gone, and servers that took over: what is written down, and how it goes on.

use anyhow::{Context, Result, ensure};
use dovetail_tests::blockade::number;
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::lines;
use dovetail_tests::postgres::{Server, Version};
use serde_json::{Value, json};
use tokio_postgres::Client;

const TABLE: &[&str] = &["public.t"];
const DEFINITE: i32 = 70;

/// A pipeline that has caught up.
async fn start() -> Result<(Server, Client, Setup, Engine)> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one')",
        )
        .await?;
    let setup = Setup::new("gaps", &server, TABLE)?.to_file();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    Ok((server, client, setup, engine))
}

/// It ends for an operator, says each of the words, and delivers nothing.
fn refuses(setup: &Setup, arguments: &[&str], words: &[&str]) -> Result<()> {
    let before = std::fs::read(setup.lines_file()).unwrap_or_default();
    let ended = setup.finished("run", arguments)?;
    ensure!(ended.code == DEFINITE, "exit code {}: {}", ended.code, ended.text());
    for word in words {
        ensure!(ended.stderr.contains(word), "does not say {word}: {}", ended.stderr);
    }
    let after = std::fs::read(setup.lines_file()).unwrap_or_default();
    ensure!(after == before, "something was delivered");
    Ok(())
}

/// What `dovetail gaps` lists.
fn gaps(setup: &Setup) -> Result<Vec<Value>> {
    let finished = setup.finished("gaps", &["--format", "json"])?;
    serde_json::from_str(&finished.stdout).with_context(|| finished.text())
}

fn towards(setup: &mut Setup, server: &Server) {
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", server.port());
    setup.change("/source/postgres/url", json!(url));
}

/// P7.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_dropped_is_a_gap_until_it_is_accepted() -> Result<()> {
    let (_server, client, setup, engine) = start().await?;
    assert_eq!(gaps(&setup)?, Vec::<Value>::new());
    engine.terminate().await?;
    client.execute("SELECT pg_drop_replication_slot('gaps')", &[]).await?;
    client.batch_execute("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (2, 'two')").await?;
    for _ in 0..2 {
        refuses(&setup, &[], &["the replication slot is gone", "--accept-gap 1"])?;
    }
    let listed = gaps(&setup)?;
    let [gap] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&gap["loss"], &gap["fate"]), (&json!("slot missing"), &json!("open")));
    assert_eq!(gap["tables"], json!(["public.t"]));
    assert_eq!(gap["from"], setup.status()?["spooled"], "what was read is not missing");
    assert_eq!(setup.status()?["open_gaps"], json!([1]));
    let checked = setup.finished("check", &[])?;
    ensure!(checked.stdout.contains("gap 1 is open"), "{}", checked.text());
    refuses(&setup, &["--accept-gap", "2"], &["gap 2 is not open"])?;

    let mut engine = setup.run_with(&["--accept-gap", "1"])?;
    setup.caught_up(&mut engine, &client).await?;
    client.batch_execute("INSERT INTO t VALUES (3, 'three')").await?;
    setup.caught_up(&mut engine, &client).await?;
    engine.kill()?;
    let listed = gaps(&setup)?;
    assert_eq!(listed[0]["fate"], "accepted");
    assert_eq!(listed[0]["pin"], setup.status()?["pin"]);
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    ensure!(slots.len() == 1 && setup.status()?["spooled"].is_string(), "a new slot and spool");
    assert_eq!(setup.status()?["open_gaps"], json!([]));
    refuses(&setup, &["--accept-gap", "1"], &["gap 1 is not open"])?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    setup.lines_equal(&client, TABLE).await
}

/// P7: the engine notices while it runs, and writes it down before it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_taken_away_from_a_running_engine_is_written_down() -> Result<()> {
    let (_server, client, setup, engine) = start().await?;
    let dropped = "SELECT pg_terminate_backend(active_pid), pg_drop_replication_slot(slot_name)
        FROM pg_replication_slots, LATERAL (SELECT pg_sleep(0)) AS waited";
    // The walsender ends a moment later; until then the slot is in use.
    dovetail_tests::wait::until(
        "the slot to be dropped",
        dovetail_tests::wait::PATIENCE,
        async || {
            let dropped = client.batch_execute(dropped).await;
            let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
            Ok((dropped.is_ok() && slots.is_empty()).then_some(()))
        },
    )
    .await?;
    assert_eq!(engine.ended().await?, DEFINITE);
    let listed = gaps(&setup)?;
    assert_eq!((listed.len(), &listed[0]["loss"]), (1, &json!("slot missing")));
    Ok(())
}

/// P10.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_was_promoted_with_everything_is_gone_on_from() -> Result<()> {
    let (mut server, _, mut setup, engine) = start().await?;
    engine.terminate().await?;
    let standby = server.standby()?;
    let client = server.connect().await?;
    let mut engine = setup.run()?;
    client.batch_execute("INSERT INTO t VALUES (2, 'delivered')").await?;
    setup.caught_up(&mut engine, &client).await?;
    engine.terminate().await?;
    client.batch_execute("INSERT INTO t VALUES (3, 'while it is down')").await?;
    standby.caught_up_with(&server).await?;
    drop(server);
    standby.promote().await?;
    let client = standby.connect().await?;
    client.batch_execute("INSERT INTO t VALUES (4, 'promoted')").await?;
    towards(&mut setup, &standby);
    for _ in 0..2 {
        let mut engine = setup.run()?;
        setup.caught_up(&mut engine, &client).await?;
        client.batch_execute("UPDATE t SET v = v || '!'").await?;
        setup.caught_up(&mut engine, &client).await?;
        engine.terminate().await?;
    }
    let lines = lines::read(&setup.lines_file())?;
    assert_eq!(lines.iter().filter(|line| line.op == "read").count(), 1, "nothing is copied again");
    assert_eq!(gaps(&setup)?, Vec::<Value>::new());
    setup.lines_equal(&client, TABLE).await
}

/// P10. The replica is ahead of the standby; its position has to be forgotten with the gap.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_was_promoted_without_what_was_delivered_is_a_gap() -> Result<()> {
    let (mut server, _, setup, engine) = start().await?;
    engine.terminate().await?;
    let mut setup = setup.without("/outlets/lines").without("/deliver").to_sqlite();
    setup.change("/state", json!("another"));
    setup.change("/source/postgres/slot", json!("another"));
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 0, "{}", ended.text());
    let mut standby = server.standby()?;
    standby.caught_up_with(&server).await?;
    standby.stop()?;
    let client = server.connect().await?;
    let lost = "INSERT INTO t SELECT n, 'lost' FROM generate_series(10, 20000) AS n";
    client.batch_execute(lost).await?;
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 0, "{}", ended.text());
    drop(server);
    standby.restart()?;
    standby.promote().await?;
    let client = standby.connect().await?;
    client.batch_execute("INSERT INTO t VALUES (2, 'promoted')").await?;
    towards(&mut setup, &standby);
    for _ in 0..2 {
        refuses(&setup, &[], &["left the one that was read", "--accept-gap 1"])?;
    }
    let listed = gaps(&setup)?;
    assert_eq!((listed.len(), &listed[0]["loss"]), (1, &json!("diverged")));
    let rows = |setup: &Setup| number(&setup.replica_file(), "SELECT count(*) FROM t");
    assert_eq!(rows(&setup)?, Some(19_992));

    let ended = setup.finished("run", &["--until-caught-up", "--accept-gap", "1"])?;
    ensure!(ended.code == 0, "{}", ended.text());
    assert_eq!(rows(&setup)?, Some(2), "what the server has");
    client.batch_execute("INSERT INTO t VALUES (3, 'streamed')").await?;
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 0, "{}", ended.text());
    assert_eq!(rows(&setup)?, Some(3), "streamed at a position before that of the replica");
    Ok(())
}
