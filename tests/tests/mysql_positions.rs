//! Positions in the log of MySQL and MariaDB: restarts, lost logs, other servers, broken connections.

use anyhow::{Context, Result, ensure};
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::lines;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::proxy::Proxy;
use dovetail_tests::trial::{Moment, Source, Target, Trial};
use dovetail_tests::wait::{PATIENCE, until};
use dovetail_tests::workload;
use mysql_async::prelude::Queryable;
use serde_json::json;

const DEFINITE: i32 = 70;
const T: &[&str] = &["shop.t"];

async fn start() -> Result<(Server, Setup, Engine)> {
    let server = Server::start(Version::under_test())?;
    let statements = [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id bigint PRIMARY KEY, label varchar(40))",
        "INSERT INTO shop.t VALUES (1, 'one'), (2, 'two')",
    ];
    execute(&mut server.connect().await?, &statements).await?;
    let setup = Setup::mysql("positions", &server, T)?.to_file();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    Ok((server, setup, engine))
}

fn pointer(path: &str) -> String {
    let kind = if Version::under_test().is_mariadb() { "mariadb" } else { "mysql" };
    format!("/source/{kind}/{path}")
}

/// Starts it, and sees it refuse for good without a line more.
fn refused(setup: &Setup, words: &[&str]) -> Result<()> {
    let before = lines::read(&setup.lines_file())?.len();
    for _ in 0..2 {
        let ended = setup.finished("run", &[])?;
        ensure!(ended.code == DEFINITE, "exit code {}: {}", ended.code, ended.text());
        for word in words {
            ensure!(ended.stderr.contains(word), "does not say {word:?}: {}", ended.stderr);
        }
    }
    ensure!(lines::read(&setup.lines_file())?.len() == before, "something was delivered");
    Ok(())
}

/// P7.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_purged_is_a_gap_that_is_said() -> Result<()> {
    let (server, setup, engine) = start().await?;
    engine.terminate().await?;
    let mut connection = server.connect().await?;
    let statements = [
        "INSERT INTO shop.t VALUES (3, 'lost')",
        "FLUSH BINARY LOGS",
        "INSERT INTO shop.t VALUES (4, 'there')",
        "FLUSH BINARY LOGS",
    ];
    execute(&mut connection, &statements).await?;
    server.purge_to_the_end().await?;
    refused(&setup, &["removed its binlog", "binlog_expire_logs_seconds", "--accept-gap 1"])?;
    accepted(&server, &setup, "purged").await
}

/// The gap is in the ledger, once; accepted, everything is copied again, and goes on.
async fn accepted(server: &Server, setup: &Setup, loss: &str) -> Result<()> {
    let gaps = || -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&setup.finished("gaps", &["--format", "json"])?.stdout)?)
    };
    let open = gaps()?;
    assert_eq!((open[0]["loss"].as_str(), open[0]["fate"].as_str()), (Some(loss), Some("open")));
    assert_eq!(open.as_array().map(Vec::len), Some(1));
    let mut engine = setup.run_with(&["--accept-gap", "1"])?;
    setup.mysql_caught_up(&mut engine, server).await?;
    let mut connection = server.connect().await?;
    execute(&mut connection, &["INSERT INTO shop.t VALUES (7, 'behind the gap')"]).await?;
    setup.mysql_caught_up(&mut engine, server).await?;
    engine.kill()?;
    execute(&mut connection, &["DELETE FROM shop.t WHERE id = 7"]).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, server).await?;
    let gaps = gaps()?;
    assert_eq!(gaps[0]["fate"], "accepted");
    let pin = gaps[0]["pin"].as_str().context("a pin")?;
    ensure!(pin.starts_with("1."), "{pin} is past every position of the log before");
    setup.mysql_lines_equal(server, T).await
}

/// By the server's clock, in seconds.
async fn now(server: &Server) -> Result<i64> {
    let seconds = server.connect().await?.query_first("SELECT unix_timestamp()").await?;
    seconds.context("a time")
}

/// P8.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_begins_anew_under_the_same_names_is_recognised() -> Result<()> {
    let (server, setup, engine) = start().await?;
    engine.terminate().await?;
    let passed = server.log_end().await?;
    let mut connection = server.connect().await?;
    // A file that is begun anew in the same second has the same head, and on MySQL nothing else is known of this position.
    let began = now(&server).await?;
    until("the next second", PATIENCE, async || Ok((now(&server).await? > began).then_some(())))
        .await?;
    let reset = if Version::under_test().is_mariadb() {
        "RESET MASTER"
    } else {
        "RESET BINARY LOGS AND GTIDS"
    };
    execute(&mut connection, &[reset]).await?;
    let mut id = 100;
    while server.log_end().await? <= passed {
        id += 1;
        let insert = format!("INSERT INTO shop.t VALUES ({id}, 'in the new log')");
        execute(&mut connection, &[&insert]).await?;
    }
    refused(&setup, &["reset"])?;
    accepted(&server, &setup, "reset").await
}

/// P9.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_has_everything_is_gone_on_from() -> Result<()> {
    let (server, mut setup, engine) = start().await?;
    let replica = server.replica(Options::default()).await?;
    execute(&mut server.connect().await?, &["INSERT INTO shop.t VALUES (3, 'before')"]).await?;
    engine.terminate().await?;
    execute(&mut server.connect().await?, &["UPDATE shop.t SET label = 'down'"]).await?;
    replica.caught_up_with(&server).await?;
    replica.promote().await?;
    drop(server);
    let mut connection = replica.connect().await?;
    execute(&mut connection, &["INSERT INTO shop.t VALUES (4, 'on the replica')"]).await?;
    setup.change(&pointer("url"), json!(format!("mysql://root@127.0.0.1:{}", replica.port())));
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &replica).await?;
    execute(&mut connection, &["DELETE FROM shop.t WHERE id = 1"]).await?;
    setup.mysql_caught_up(&mut engine, &replica).await?;
    setup.mysql_lines_equal(&replica, T).await
}

/// P9.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lacks_what_was_delivered_is_refused() -> Result<()> {
    let (server, mut setup, mut engine) = start().await?;
    let replica = server.replica(Options::default()).await?;
    replica.caught_up_with(&server).await?;
    replica.promote().await?;
    for id in 10..20 {
        let insert = format!("INSERT INTO shop.t VALUES ({id}, 'only here')");
        execute(&mut server.connect().await?, &[&insert]).await?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;
    drop(server);
    setup.change(&pointer("url"), json!(format!("mysql://root@127.0.0.1:{}", replica.port())));
    refused(&setup, &["behind"])?;
    accepted(&replica, &setup, "behind").await
}

/// P14.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_may_be_purged_and_the_server_restarted() -> Result<()> {
    let (mut server, setup, mut engine) = start().await?;
    let mut connection = server.connect().await?;
    for id in 1_000..3_000 {
        let insert = "INSERT INTO shop.t VALUES (?, 'many')";
        connection.exec_drop(insert, (id,)).await?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    server.restart()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;
    let mut connection = server.connect().await?;
    server.purge_to_the_end().await?;
    execute(&mut connection, &["INSERT INTO shop.t VALUES (5, 'new')"]).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let scanned = lines.iter().filter(|line| line.op == "read").count();
    assert_eq!(scanned, 2, "nothing is copied again");
    setup.mysql_lines_equal(&server, T).await
}

/// P11: a state of one server is not used with another.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_refused() -> Result<()> {
    let (_server, mut setup, engine) = start().await?;
    engine.terminate().await?;
    let other = Server::start(Version::under_test())?;
    let statements = [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id bigint PRIMARY KEY, label varchar(40))",
        "INSERT INTO shop.t VALUES (7, 'somebody else')",
    ];
    execute(&mut other.connect().await?, &statements).await?;
    setup.change(&pointer("url"), json!(format!("mysql://root@127.0.0.1:{}", other.port())));
    refused(&setup, &[])
}

async fn trial(options: workload::Options) -> Result<(Trial, workload::Workload)> {
    let server = Source::start(Version::under_test().name())?;
    Trial::at(server, Target::Lines, options).await
}

/// P13.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_is_waited_for() -> Result<()> {
    let options = workload::Options { bulk: 5_000, ..workload::Options::default() };
    let (mut trial, workload) = trial(options).await?;
    let mut running = workload.start();
    let mut engine = trial.launch()?;
    trial.server.reach(Moment::Stream, &mut engine).await?;
    for kill in [true, false, true, false] {
        running.advance(300).await?;
        engine.must_run()?;
        if kill {
            trial.server.kill()?;
        } else {
            trial.server.stop()?;
        }
        trial.server.restart()?;
    }
    running.advance(300).await?;
    trial.finish(running, engine).await?.clean()
}

/// P13.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_inside_a_packet_is_made_again() -> Result<()> {
    through_a_proxy(8, |proxy| proxy.cut()).await
}

/// P13: nobody says that the connection is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stalls_in_silence_is_noticed() -> Result<()> {
    through_a_proxy(1, |proxy| proxy.stall()).await
}

async fn through_a_proxy(times: u32, disturb: impl Fn(&Proxy)) -> Result<()> {
    let options =
        workload::Options { bulk: 5_000, big_rows: 5_000, ..workload::Options::default() };
    let (mut trial, workload) = trial(options).await?;
    let proxy = Proxy::start(trial.server.port()).await?;
    let url = format!("mysql://root@127.0.0.1:{}", proxy.port());
    trial.setup.change(&pointer("url"), json!(url));
    let mut running = workload.start();
    let mut engine = trial.launch()?;
    trial.server.reach(Moment::Stream, &mut engine).await.context("the stream")?;
    for _ in 0..times {
        running.advance(200).await?;
        engine.must_run()?;
        disturb(&proxy);
    }
    trial.finish(running, engine).await?.clean()
}
