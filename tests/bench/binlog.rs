//! The decoder of the binary log alone: from events in memory to changes, in this process.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use dovetail_core::decode::binlog::tables::CatalogTable;
use dovetail_core::decode::binlog::transaction::{Builder, Start, Step};
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_tests::mysql::{Options, Server, Version, execute};

use crate::Sizes;
use crate::figure::{least, print, print_raw, say};
use crate::life::cpu_seconds;
use crate::mysql::{numbers, versions};

pub(crate) const FIGURES: [&str; 1] = ["binlog_rows_per_cpu_s"];

/// The clock of processes goes in hundredths of a second.
const CPU_SECONDS_MIN: f64 = 1.0;

pub(crate) async fn run(sizes: &Sizes) -> Result<()> {
    let mut speeds = Vec::new();
    for version in versions()? {
        say(format_args!("decoding {} updates of {version}", sizes.binlog_rows));
        let events = updates(version, sizes.binlog_rows).await?;
        for _ in 0..sizes.repetitions {
            let speed = decode(&events, sizes.binlog_rows)?;
            print_raw("binlog", &[(version.name(), speed, "rows/s")]);
            speeds.push(speed);
        }
    }
    print("binlog_rows_per_cpu_s", least(speeds), "rows/s");
    Ok(())
}

/// The events of a file that holds one update of every row of a table with four columns.
async fn updates(version: Version, rows: u64) -> Result<Vec<Bytes>> {
    let options = Options::default().set("max-binlog-size", "1G");
    let options = options.set("innodb-buffer-pool-size", "512M");
    let server = Server::start_with(version, options)?;
    let mut connection = server.connect().await?;
    let fill = format!(
        "INSERT INTO bench.four SELECT id, id % 1000, concat('Ada Lovelace ', id), \
         '2026-01-01' + INTERVAL id SECOND FROM {}",
        numbers(version, rows)
    );
    let statements = [
        "CREATE DATABASE bench",
        "CREATE TABLE bench.four (id bigint PRIMARY KEY, number int NOT NULL, name varchar(40) NOT NULL, \
         changed datetime NOT NULL)",
        "SET SESSION sql_log_bin = 0",
        &fill,
        "SET SESSION sql_log_bin = 1",
        "FLUSH BINARY LOGS",
        "UPDATE bench.four SET number = number + 1, changed = changed + INTERVAL 1 SECOND",
    ];
    execute(&mut connection, &statements).await?;
    let file = std::fs::read(server.data().join("binlog.000002"))?;
    events(Bytes::from(file))
}

fn events(file: Bytes) -> Result<Vec<Bytes>> {
    let mut events = Vec::new();
    let mut at = 4;
    while at < file.len() {
        let size = file.get(at + 9..at + 13).context("the head of an event")?;
        let size = usize::try_from(u32::from_le_bytes(size.try_into()?))?;
        ensure!(size > 0 && at + size <= file.len(), "an event of {size} bytes");
        // Each in memory of its own, as a connection has them.
        events.push(Bytes::copy_from_slice(&file[at..at + size]));
        at += size;
    }
    Ok(events)
}

/// Rows in a second of CPU.
fn decode(events: &[Bytes], rows: u64) -> Result<f64> {
    let own = std::process::id();
    let before = cpu_seconds(own)?;
    let mut decoded = 0;
    loop {
        let once = decode_once(events)?;
        ensure!(once == rows, "{once} changes instead of {rows}");
        decoded += once;
        let spent = cpu_seconds(own)? - before;
        if spent >= CPU_SECONDS_MIN {
            return Ok(decoded as f64 / spent);
        }
    }
}

fn decode_once(events: &[Bytes]) -> Result<u64> {
    let table = TableName { namespace: "bench".into(), name: "four".into() };
    let mut builder = Builder::new(Start {
        from: Lsn::binlog(0, 2, 4),
        captured: [table].into(),
        folds_names: false,
        prepared_bytes_max: 1 << 20,
        view: None,
    });
    let (mut changes, mut rows) = (Vec::new(), 0);
    for event in events {
        builder.give(event.clone());
        loop {
            let step = builder.next(&mut changes)?;
            rows += u64::try_from(changes.len())?;
            changes.clear();
            match step {
                Step::Done => break,
                Step::Table(description) => {
                    builder.define(description.define(&CatalogTable::default())?)?;
                }
                Step::More | Step::Commit { .. } | Step::Emptied(_) => {}
            }
        }
    }
    Ok(rows)
}
