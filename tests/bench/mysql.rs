//! The engine on MySQL and MariaDB: the scan against the server's own client, and the memory of both ways.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};
use dovetail_tests::engine::Setup;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use serde_json::json;

use crate::Sizes;
use crate::figure::{greatest, median, print, print_raw, say};
use crate::life::until_caught_up;

pub(crate) const FIGURES_OF_SCAN: [&str; 2] = ["mysql_scan_vs_client", "mysql_scan_peak_mb"];
pub(crate) const FIGURES_OF_TRANSACTION: [&str; 1] = ["mysql_transaction_peak_mb"];

/// The same columns as PostgreSQL's table has.
const TABLE: &str = "CREATE TABLE bench.bench (
    id bigint PRIMARY KEY, active boolean NOT NULL, name varchar(60) NOT NULL, email varchar(60) NOT NULL,
    phone varchar(20), balance decimal(12,2) NOT NULL, created timestamp NOT NULL, notes text)";

const COLUMNS: &str = "id, id % 4 <> 0, concat('Ada Lovelace ', id), concat('ada.', id, '@example.org'), \
    concat('+44 20 7946 ', id % 10000), (id % 100000) / 100.0, '2026-01-01' + INTERVAL id % 10000000 SECOND, \
    IF(id % 3 = 0, NULL, 'wrote the first program')";

/// Debian's MariaDB, and MySQL where it is installed.
pub(crate) fn versions() -> Result<Vec<Version>> {
    let mut versions = Version::installed()?;
    versions.retain(|version| *version != Version::MariaDb11_8);
    Ok(versions)
}

/// A table of the numbers from 1 to `rows`, with the column `id`.
pub(crate) fn numbers(version: Version, rows: u64) -> String {
    if version.is_mariadb() {
        return format!("(SELECT seq AS id FROM bench.seq_1_to_{rows}) AS numbers");
    }
    format!(
        "(WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < {rows}) \
         SELECT /*+ SET_VAR(cte_max_recursion_depth = 4294967295) */ id FROM n) AS numbers"
    )
}

async fn server(version: Version) -> Result<Server> {
    // Room for the table, and for a redo log that does not hold up the writing of it.
    let options = Options::default().set("innodb-buffer-pool-size", "1G");
    let options = options.set("max-binlog-size", "1G").set(
        if version.is_mariadb() { "innodb-log-file-size" } else { "innodb-redo-log-capacity" },
        "2G",
    );
    let server = Server::start_with(version, options)?;
    let mut connection = server.connect().await?;
    execute(&mut connection, &["CREATE DATABASE bench", TABLE]).await?;
    Ok(server)
}

async fn fill(server: &Server, rows: u64, is_logged: bool) -> Result<()> {
    say(format_args!("{}: writing {rows} rows", server.version()));
    let insert = format!(
        "INSERT INTO bench.bench SELECT {COLUMNS} FROM {}",
        numbers(server.version(), rows)
    );
    let log = format!("SET SESSION sql_log_bin = {}", u8::from(is_logged));
    execute(&mut server.connect().await?, &[&log, &insert]).await
}

/// Into the outlet that forgets, without plugins; all else by default.
fn pipeline(server: &Server, name: &str) -> Result<Setup> {
    let setup = Setup::mysql(name, server, &["bench.bench"])?;
    let setup = setup.without("/snapshot").without("/lanes");
    Ok(setup.set("/outlets/none", json!({ "discard": {} })))
}

pub(crate) async fn scan(sizes: &Sizes) -> Result<()> {
    let (mut ratios, mut peaks) = (vec![], vec![]);
    for version in versions()? {
        let server = server(version).await?;
        fill(&server, sizes.mysql_scan_rows, false).await?;
        // The first reader after a fill pays for what later ones find in memory.
        read(&server)?;
        let mut ratios_here = vec![];
        for repetition in 0..sizes.repetitions {
            let client = read(&server)?;
            let setup = pipeline(&server, &format!("scan_{repetition}"))?;
            let life = until_caught_up(&setup, "view opened", "streaming")?;
            print_raw(
                &format!("mysql_scan_{version}"),
                &[
                    ("scan", life.seconds, "s"),
                    ("client", client, "s"),
                    ("cpu", life.cpu_seconds, "s"),
                    ("peak", life.peak_mb, "MB"),
                ],
            );
            ratios_here.push(life.seconds / client);
            peaks.push(life.peak_mb);
        }
        ratios.push(median(ratios_here));
    }
    print("mysql_scan_vs_client", greatest(ratios), "ratio");
    print("mysql_scan_peak_mb", greatest(peaks), "MB");
    Ok(())
}

/// Seconds that the server's own client takes, unbuffered.
fn read(server: &Server) -> Result<f64> {
    let name = if server.version().is_mariadb() { "mariadb" } else { "mysql" };
    let started = Instant::now();
    let mut client = server.program(name);
    client.args(["--quick", "--batch", "--execute", "SELECT * FROM bench.bench"]);
    let status = client.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "{name}: {status}");
    Ok(started.elapsed().as_secs_f64())
}

pub(crate) async fn transaction(sizes: &Sizes) -> Result<()> {
    let mut peaks = vec![];
    for version in versions()? {
        let server = server(version).await?;
        let setup = pipeline(&server, "transaction")?;
        until_caught_up(&setup, "started", "caught up")?;
        fill(&server, sizes.mysql_transaction_rows, true).await?;
        let life = until_caught_up(&setup, "streaming", "caught up")?;
        print_raw(
            &format!("mysql_transaction_{version}"),
            &[
                ("stream", life.seconds, "s"),
                ("cpu", life.cpu_seconds, "s"),
                ("peak", life.peak_mb, "MB"),
            ],
        );
        peaks.push(life.peak_mb);
    }
    print("mysql_transaction_peak_mb", greatest(peaks), "MB");
    Ok(())
}
