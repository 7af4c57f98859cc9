//! From the scan to the stream without a gap, on real MySQL and MariaDB servers.

use anyhow::{Context, Result, ensure};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::trial::{Moment, Source, Target, Trial};
use dovetail_tests::workload;
use serde_json::json;

async fn trial(target: Target, options: Options) -> Result<()> {
    let server = Source::MySql(Server::start_with(Version::under_test(), options)?);
    let options =
        workload::Options { bulk: 60_000, big_rows: 10_000, ..workload::Options::default() };
    let (mut trial, workload) = Trial::at(server, target, options).await?;
    let mut running = workload.start();
    running.advance(100).await?;
    let mut engine = trial.launch()?;
    trial.server.reach(Moment::Scan, &mut engine).await?;
    engine.kill()?;
    let mut engine = trial.launch()?;
    trial.server.reach(Moment::Stream, &mut engine).await?;
    running.advance(300).await?;
    engine.kill()?;
    let engine = trial.launch()?;
    running.advance(100).await?;
    trial.finish(running, engine).await?.clean()
}

/// H3, H4, H5, H13, H14, H16.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_between_scan_and_stream() -> Result<()> {
    for target in [Target::Lines, Target::Sqlite] {
        trial(target, Options::default()).await.with_context(|| format!("{target:?}"))?;
    }
    Ok(())
}

/// H11: the server's default isolation is weaker than a view needs; and the rung without GTIDs.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_under_other_settings_of_the_server() -> Result<()> {
    let options = Options::default().set("transaction-isolation", "READ-COMMITTED");
    let options = if Version::under_test().is_mariadb() {
        options.set("gtid-strict-mode", "OFF")
    } else {
        options.set("gtid-mode", "OFF").set("enforce-gtid-consistency", "OFF")
    };
    trial(Target::Lines, options).await
}

/// H7.
#[tokio::test(flavor = "multi_thread")]
async fn every_row_once_whatever_its_key() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let mut connection = server.connect().await?;
    let numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)";
    let tables = [
        ("unsigned", "id bigint unsigned PRIMARY KEY", "18446744073709551616 - i"),
        ("sparse", "id bigint PRIMARY KEY", "9223372036854775807 - i * 10000000000000000"),
        ("pair", "a int, b varchar(20), PRIMARY KEY (a, b)", "i % 7, concat('b', i)"),
        (
            "words",
            "id varchar(40) COLLATE utf8mb4_general_ci PRIMARY KEY",
            "concat(char(65 + i % 26), ' ', i)",
        ),
        ("bytes", "id varbinary(20) PRIMARY KEY", "unhex(left(sha2(i, 256), 32))"),
        ("money", "id decimal(30,10) PRIMARY KEY", "i / 7"),
        (
            "moment",
            "id datetime(6) PRIMARY KEY",
            "'2020-01-01' + INTERVAL i * 1010 + 1 MICROSECOND",
        ),
        ("doubles", "id double PRIMARY KEY", "i / 3 - 100"),
        ("unique_only", "id int NOT NULL UNIQUE", "i"),
        ("keyless", "id int, t text", "i % 3, 'x'"),
        ("nothing", "id int PRIMARY KEY", ""),
    ];
    execute(&mut connection, &["CREATE DATABASE h7", "USE h7"]).await?;
    let mut names = Vec::new();
    for (name, columns, values) in tables {
        execute(&mut connection, &[&format!("CREATE TABLE `{name}` ({columns})")]).await?;
        if !values.is_empty() {
            let insert = format!("INSERT INTO `{name}` {numbers} SELECT {values} FROM n");
            execute(&mut connection, &[&insert]).await?;
        }
        names.push(format!("h7.{name}"));
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let setup = Setup::mysql("h7", &server, &names)?.to_file();
    let setup = setup.set("/snapshot/chunk_rows", json!(100));
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    for name in &names {
        let rows = lines.iter().filter(|line| line.op == "read" && line.table == *name).count();
        let expected = if name.ends_with("nothing") { 0 } else { 900 };
        ensure!(rows == expected, "{name}: {rows} rows were read instead of {expected}");
    }
    // A double has more digits in JSON than in the server's text.
    let exact: Vec<_> = names.into_iter().filter(|name| !name.ends_with("doubles")).collect();
    setup.mysql_lines_equal(&server, &exact).await
}

/// H4, where all that is known of a view is a lower bound. The row of our own takes a captured one with it: behind the
/// bound, and in the view.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_view_may_hold_already_comes_again_as_a_redelivery() -> Result<()> {
    let version = Version::under_test();
    let server = Server::start(version)?;
    let mut connection = server.connect().await?;
    let statements = [
        "CREATE DATABASE h4",
        "CREATE TABLE h4.t (id bigint PRIMARY KEY)",
        "CREATE TABLE h4.own (id int PRIMARY KEY, touched bigint NOT NULL)",
        "CREATE TRIGGER h4.i AFTER INSERT ON h4.own FOR EACH ROW INSERT INTO h4.t VALUES (NEW.touched)",
        "CREATE TRIGGER h4.u AFTER UPDATE ON h4.own FOR EACH ROW INSERT INTO h4.t VALUES (NEW.touched)",
    ];
    execute(&mut connection, &statements).await?;
    let kind = if version.is_mariadb() { "mariadb" } else { "mysql" };
    let setup = Setup::mysql("bound", &server, &["h4.t"])?
        .to_file()
        .set(&format!("/source/{kind}/pin"), json!("own_row"))
        .set(&format!("/source/{kind}/own_table"), json!("h4.own"));
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    execute(&mut connection, &["INSERT INTO h4.t VALUES (100)"]).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;
    let lines = lines::read(&setup.lines_file())?;
    let shown = lines.iter().filter(|line| line.table == "h4.t");
    let shown: Vec<_> = shown
        .map(|line| (line.op.as_str(), line.key_text().unwrap_or_default(), line.redelivery))
        .collect();
    // Once for the pin, once for the view.
    let expected = [
        ("read", "1", false),
        ("read", "2", false),
        ("insert", "2", true),
        ("insert", "100", false),
    ];
    let expected = expected.map(|(op, key, redelivery)| (op, key.to_owned(), redelivery));
    assert_eq!(shown, expected);
    Ok(())
}
