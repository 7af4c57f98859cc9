//! Positions, restarts and continuity on real servers.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail_tests::blockade::number;
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Lives};
use dovetail_tests::postgres::{Options, Server, Version};
use dovetail_tests::proxy::Proxy;
use dovetail_tests::trial::{Target, Trial};
use dovetail_tests::wait::{PATIENCE, until};
use dovetail_tests::workload;
use rusqlite::Connection;
use serde_json::json;
use tokio_postgres::Client;

const TABLE: &[&str] = &["public.t"];

async fn server_with_table(options: Options) -> Result<(Server, Client)> {
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)").await?;
    Ok((server, client))
}

/// Waits for the file to have at least so many lines.
async fn lines_reach(setup: &Setup, count: usize) -> Result<()> {
    until(format!("{count} lines"), PATIENCE, async || {
        Ok((lines::read(&setup.lines_file())?.len() >= count).then_some(()))
    })
    .await
}

/// The slot's acknowledged position; `NULL` is none.
async fn acknowledged(client: &Client, setup: &Setup) -> Result<Option<String>> {
    let query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = client.query_opt(query, &[&setup.name()]).await?;
    Ok(row.and_then(|row| row.get(0)))
}

async fn insert_position(client: &Client) -> Result<String> {
    Ok(client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0))
}

/// P1.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_at_one_log_position_is_repeated_from_where_it_was_cut() -> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    let setup = Setup::new("p1", &server, TABLE)?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    for delivered in 1..=10 {
        let before = lines::read(&setup.lines_file())?.len();
        let (first, last) = (delivered * 10, delivered * 10 + 9);
        client.batch_execute(&format!("COPY t (id) FROM PROGRAM 'seq {first} {last}'")).await?;
        lines_reach(&setup, before + delivered).await?;
        engine.kill()?;
        lives.begin()?;
        engine = setup.run()?;
    }

    setup.caught_up(&mut engine, &client).await?;
    lives.repeat_suffixes_only()?;
    setup.lines_equal(&client, TABLE).await
}

/// P2.
#[tokio::test(flavor = "multi_thread")]
async fn interleaved_transactions_come_one_after_the_other_in_the_order_of_their_commits()
-> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    let setup = Setup::new("p2", &server, TABLE)?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let other = server.connect().await?;
    for round in 0..5_usize {
        let before = lines::read(&setup.lines_file())?.len();
        let id = round * 10;
        client.batch_execute(&format!("BEGIN; INSERT INTO t VALUES ({id}, 'first')")).await?;
        other.batch_execute(&format!("BEGIN; INSERT INTO t VALUES ({}, 'second')", id + 1)).await?;
        client.batch_execute(&format!("INSERT INTO t VALUES ({}, 'first')", id + 2)).await?;
        other
            .batch_execute(&format!("INSERT INTO t VALUES ({}, 'second'); COMMIT", id + 3))
            .await?;
        client.batch_execute("COMMIT").await?;
        lines_reach(&setup, before + round).await?;
        engine.kill()?;
        lives.begin()?;
        engine = setup.run()?;
    }
    setup.caught_up(&mut engine, &client).await?;

    lives.repeat_suffixes_only()?;
    let mut lines = lines::read(&setup.lines_file())?;
    lines.sort_by_key(|line| line.position().expect("a position"));
    lines.dedup_by_key(|line| line.position().expect("a position"));
    let ids: Vec<_> = lines.iter().filter_map(|line| line.key_text()).collect();
    let expected = (0..5).flat_map(|round| [1, 3, 0, 2].map(|id| (round * 10 + id).to_string()));
    assert_eq!(ids, expected.collect::<Vec<_>>());
    setup.lines_equal(&client, TABLE).await
}

/// P3.
#[tokio::test(flavor = "multi_thread")]
async fn both_halves_of_a_key_change_are_behind_the_checkpoint_or_neither() -> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    client.batch_execute("INSERT INTO t VALUES (0, 'x')").await?;
    let setup = Setup::new("p3", &server, TABLE)?.to_sqlite().set("/lanes", json!(4));
    let mut random = fastrand::Rng::with_seed(workload::seed());
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    for to in 1..=20_i64 {
        let moved = format!("BEGIN; UPDATE t SET v = v || 'y'; UPDATE t SET id = {to}; COMMIT");
        client.batch_execute(&moved).await?;
        // The moment of the kill is what is random here.
        tokio::time::sleep(Duration::from_millis(random.u64(..8))).await;
        engine.kill()?;
        let shown = "SELECT count(*) * 1000000 + sum(id) FROM t";
        let shown = number(&setup.replica_file(), shown)?.context("a replica")?;
        let one_row = [1_000_000 + to - 1, 1_000_000 + to];
        ensure!(one_row.contains(&shown), "the replica shows {shown} after the move to {to}");
        engine = setup.run()?;
        setup.caught_up(&mut engine, &client).await?;
    }
    assert_eq!(number(&setup.replica_file(), "SELECT id FROM t")?, Some(20));
    Ok(())
}

/// P5.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_table_beside_busy_neighbours_does_not_hold_the_log_back() -> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    client.batch_execute("CREATE TABLE neighbour (id int)").await?;
    client.batch_execute("CREATE DATABASE other").await?;
    let other = server.connect_to(&server.url("other")).await?;
    other.batch_execute("CREATE TABLE elsewhere (id int)").await?;
    let setup = Setup::new("p5", &server, TABLE)?.to_sqlite();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    let start = insert_position(&client).await?;
    client.batch_execute("INSERT INTO neighbour SELECT generate_series(1, 20000)").await?;
    other.batch_execute("INSERT INTO elsewhere SELECT generate_series(1, 20000)").await?;
    setup.caught_up(&mut engine, &client).await?;

    // What the server keeps follows when it next notes which transactions run.
    let query =
        "SELECT restart_lsn > $2::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $1";
    until("the server to let go of its log", PATIENCE, async || {
        engine.must_run()?;
        client.batch_execute("CHECKPOINT").await?;
        let freed: bool = client.query_one(query, &[&setup.name(), &start]).await?.get(0);
        Ok(freed.then_some(()))
    })
    .await
}

/// P6. Without a spool; with one the source is told what that has synced.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_beyond_what_is_durable_whatever_the_server_asks() -> Result<()> {
    // So short that the server asks for an answer every second.
    let (server, client) =
        server_with_table(Options::default().set("wal_sender_timeout", "2s")).await?;
    client.batch_execute("CREATE TABLE neighbour (id int)").await?;
    client.batch_execute("CREATE DATABASE replica").await?;
    let setup = Setup::new("p6", &server, TABLE)?.to_postgres(&server);
    let setup = setup.set("/spool", json!("off"));
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let open = server.connect().await?;
    open.batch_execute("BEGIN; INSERT INTO t VALUES (1, 'open')").await?;

    // The outlet answers nothing, and the stream goes on meanwhile.
    let replica = server.connect_to(&server.url("replica")).await?;
    replica.batch_execute("BEGIN; LOCK TABLE public.t IN ACCESS EXCLUSIVE MODE").await?;
    client.batch_execute("INSERT INTO t VALUES (2, 'not durable')").await?;
    // Behind its commit record.
    let after = insert_position(&client).await?;
    let asked = "SELECT reply_time >= $2 FROM pg_stat_replication WHERE application_name = $1";
    for _ in 0..3 {
        let now: std::time::SystemTime =
            client.query_one("SELECT clock_timestamp()", &[]).await?.get(0);
        client.batch_execute("INSERT INTO neighbour VALUES (1)").await?;
        until("an answer to the server", PATIENCE, async || {
            engine.must_run()?;
            let row = client.query_opt(asked, &[&"dovetail", &now]).await?;
            let answered = row.and_then(|row| row.get::<_, Option<bool>>(0)).unwrap_or(false);
            Ok(answered.then_some(()))
        })
        .await?;
        let query = "SELECT confirmed_flush_lsn < $2::text::pg_lsn FROM pg_replication_slots \
                     WHERE slot_name = $1";
        let behind: bool = client.query_one(query, &[&setup.name(), &after]).await?.get(0);
        let told = acknowledged(&client, &setup).await?;
        ensure!(behind, "{told:?} is acknowledged, and a commit before {after} is not durable");
    }
    engine.kill()?;
    replica.batch_execute("ROLLBACK").await?;
    open.batch_execute("COMMIT").await?;

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let rows: i64 = replica.query_one("SELECT count(*) FROM public.t", &[]).await?.get(0);
    assert_eq!(rows, 2);
    Ok(())
}

/// A pipeline that has scanned and stopped, to spoil the state of.
async fn stopped() -> Result<(Server, Setup)> {
    let (server, client) = server_with_table(Options::default()).await?;
    client.batch_execute("INSERT INTO t VALUES (1, 'a')").await?;
    let setup = Setup::new("p11", &server, TABLE)?.to_file();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    assert_eq!(engine.terminate().await?, 143);
    client.batch_execute("INSERT INTO t VALUES (2, 'b')").await?;
    Ok((server, setup))
}

/// It must end as a failure for an operator, deliver nothing, and say each of `words`.
fn refuses(setup: &Setup, words: &[&str]) -> Result<()> {
    let before = fs::read(setup.lines_file())?;
    let ended = setup.finished("run", &[])?;
    ensure!(ended.code == 70, "exit code {}: {}", ended.code, ended.text());
    for word in words {
        ensure!(ended.stderr.contains(word), "does not say {word}: {}", ended.stderr);
    }
    ensure!(fs::read(setup.lines_file())? == before, "something was delivered");
    Ok(())
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_state_is_refused_while_the_slot_is_there() -> Result<()> {
    let (_server, setup) = stopped().await?;
    fs::remove_dir_all(setup.state())?;
    refuses(&setup, &["p11", "slot"])
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_state_is_refused() -> Result<()> {
    let (_server, setup) = stopped().await?;
    for extra in ["state.db-wal", "state.db-shm"] {
        if let Err(error) = fs::remove_file(setup.state().join(extra)) {
            ensure!(error.kind() == std::io::ErrorKind::NotFound, "{error}");
        }
    }
    fs::write(setup.state().join("state.db"), "this is no database at all".repeat(100))?;
    refuses(&setup, &["state.db"])
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_a_newer_version_is_refused() -> Result<()> {
    let (_server, setup) = stopped().await?;
    let state = Connection::open(setup.state().join("state.db"))?;
    state.pragma_update(None, "user_version", 1_000)?;
    drop(state);
    refuses(&setup, &["1000"])
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_that_is_none_is_refused() -> Result<()> {
    let (_server, setup) = stopped().await?;
    fs::remove_dir_all(setup.state())?;
    fs::write(setup.state(), "")?;
    refuses(&setup, &["state"])
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_engine_on_one_state_is_refused_and_the_first_goes_on() -> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    let setup = Setup::new("p11", &server, TABLE)?.to_file();
    let mut first = setup.run()?;
    setup.caught_up(&mut first, &client).await?;

    let second = setup.finished("run", &[])?;

    ensure!(second.code == 70, "exit code {}: {}", second.code, second.text());
    ensure!(second.stderr.contains("state"), "{}", second.stderr);
    client.batch_execute("INSERT INTO t VALUES (1, 'a')").await?;
    setup.caught_up(&mut first, &client).await?;
    setup.lines_equal(&client, TABLE).await
}

/// P7.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_dropped_is_not_made_anew_in_silence() -> Result<()> {
    let (server, setup) = stopped().await?;
    let client = server.connect().await?;
    client.execute("SELECT pg_drop_replication_slot('p11')", &[]).await?;
    refuses(&setup, &["p11"])?;
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    ensure!(slots.is_empty(), "a slot was made");
    Ok(())
}

/// One life that ends when it has caught up.
fn catches_up(setup: &Setup) -> Result<()> {
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 0, "exit code {}: {}", ended.code, ended.text());
    Ok(())
}

fn replica_rows(setup: &Setup) -> Result<Option<i64>> {
    number(&setup.replica_file(), "SELECT count(*) FROM t")
}

/// The stream of the new table begins only where it was published, and its rows from before are in no scan.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_made_again_while_the_engine_was_down_is_refused_and_can_be_scanned_again()
-> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    client
        .batch_execute("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (1, 'old')")
        .await?;
    let mut setup = Setup::new("p11", &server, &["public.t", "public.u"])?.to_sqlite();
    catches_up(&setup)?;
    client
        .batch_execute(
            "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, v text);
             INSERT INTO t VALUES (2, 'new'), (3, 'new')",
        )
        .await?;
    for publish in ["", "ALTER PUBLICATION p11 ADD TABLE t"] {
        client.batch_execute(publish).await?;
        let ended = setup.finished("run", &["--until-caught-up"])?;
        ensure!(ended.code == 70 || ended.code == 78, "{}: {}", ended.code, ended.text());
        for word in ["public.t", "lost", "put"] {
            ensure!(ended.stderr.contains(word), "does not say {word}: {}", ended.stderr);
        }
        assert_eq!(replica_rows(&setup)?, Some(1));
    }
    setup.change("/source/postgres/tables", json!(["public.u"]));
    catches_up(&setup)?;
    setup.change("/source/postgres/tables", json!(["public.t", "public.u"]));
    catches_up(&setup)?;
    assert_eq!(replica_rows(&setup)?, Some(2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mode_never_left_out_is_scanned_once_the_mode_is_another() -> Result<()> {
    let (server, client) = server_with_table(Options::default()).await?;
    client.batch_execute("INSERT INTO t VALUES (1, 'before')").await?;
    let mut setup =
        Setup::new("p11", &server, TABLE)?.to_sqlite().set("/snapshot/mode", json!("never"));
    catches_up(&setup)?;
    client.batch_execute("INSERT INTO t VALUES (2, 'streamed')").await?;
    catches_up(&setup)?;
    assert_eq!(replica_rows(&setup)?, Some(1));
    let scan = |status: &serde_json::Value| status["tables"][0]["scan"].clone();
    assert_eq!(scan(&setup.status()?), "skipped");
    setup.change("/snapshot/mode", json!("initial"));
    catches_up(&setup)?;
    assert_eq!(scan(&setup.status()?), "done");
    assert_eq!(replica_rows(&setup)?, Some(2));
    Ok(())
}

/// P13.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_is_waited_for() -> Result<()> {
    let options = workload::Options { bulk: 5_000, ..workload::Options::default() };
    let (mut trial, workload) = Trial::new(Target::Lines, options).await?;
    let mut running = workload.start();
    let mut engine = trial.launch()?;
    let client = trial.client().await?;
    trial.setup.streaming(&mut engine, &client).await?;
    for kill in [true, false, true, false] {
        running.advance(300).await?;
        engine.must_run()?;
        if kill {
            trial.server.kill()?
        } else {
            trial.server.stop()?
        }
        trial.server.restart()?;
    }
    running.advance(300).await?;
    trial.finish(running, engine).await?.clean()
}

/// P13.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_inside_a_packet_is_made_again() -> Result<()> {
    let options =
        workload::Options { bulk: 5_000, big_rows: 5_000, ..workload::Options::default() };
    let (mut trial, workload) = Trial::new(Target::Lines, options).await?;
    let proxy = Proxy::start(trial.server.port()).await?;
    through(&mut trial, &proxy);
    let client = trial.client().await?;
    let mut running = workload.start();
    let mut engine = trial.launch()?;
    trial.setup.streaming(&mut engine, &client).await?;
    for _ in 0..8 {
        running.advance(200).await?;
        engine.must_run()?;
        proxy.cut();
    }
    trial.finish(running, engine).await?.clean()
}

/// P13: nobody says that the connection is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stalls_in_silence_is_noticed() -> Result<()> {
    // The server notices as well, and frees the slot.
    let server = Options::default().set("wal_sender_timeout", "5s");
    let options = workload::Options { bulk: 5_000, ..workload::Options::default() };
    let (mut trial, workload) =
        Trial::on(Version::under_test(), server, Target::Lines, options).await?;
    let proxy = Proxy::start(trial.server.port()).await?;
    through(&mut trial, &proxy);
    let mut running = workload.start();
    let mut engine = trial.launch()?;
    let client = trial.client().await?;
    trial.setup.caught_up(&mut engine, &client).await?;
    running.advance(200).await?;
    proxy.stall();
    trial.finish(running, engine).await?.clean()
}

fn through(trial: &mut Trial, proxy: &Proxy) {
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port());
    trial.setup.change("/source/postgres/url", json!(url));
}
