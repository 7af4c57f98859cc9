//! The stream, against `pg_recvlogical` on a slot of its own over the same range of the log.
//!
//! All slots are made before the changes are, one for each run of either side, so that every run reads the same bytes.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};
use dovetail_tests::engine::Setup;

use crate::Sizes;
use crate::bed::{Bed, COLUMNS};
use crate::figure::{greatest, median, print, print_raw, say};
use crate::life::{Life, until_caught_up};

pub(crate) const FIGURES: [&str; 4] = [
    "stream_vs_recvlogical",
    "stream_rows_per_s",
    "stream_cpu_s_per_million",
    "stream_peak_rss_mb",
];
pub(crate) const FIGURES_OF_SMALL: [&str; 3] =
    ["stream_small_vs_recvlogical", "stream_small_rows_per_s", "stream_small_cpu_s_per_million"];

/// Which changes are streamed.
#[derive(Debug, Clone, Copy)]
enum Changes {
    /// Transactions of 1,000 rows, inserted and updated by turns.
    Large(u64),
    /// Transactions of one row.
    Small(u64),
}

pub(crate) async fn run(sizes: &Sizes) -> Result<()> {
    let changes = Changes::Large(sizes.stream_rows);
    let peaks = measure("stream", changes, sizes.repetitions).await?;
    print("stream_peak_rss_mb", greatest(peaks), "MB");
    Ok(())
}

pub(crate) async fn run_small(sizes: &Sizes) -> Result<()> {
    let changes = Changes::Small(sizes.small_rows);
    measure("stream_small", changes, sizes.repetitions).await?;
    Ok(())
}

/// Returns the peak of memory in each repetition.
async fn measure(name: &str, changes: Changes, repetitions: u32) -> Result<Vec<f64>> {
    let bed = Bed::make().await?;
    let mut runs = Vec::new();
    for repetition in 0..repetitions {
        runs.push(Run::prepare(&bed, repetition).await?);
    }
    let rows = changes.rows();
    say(format_args!("{name}: making {rows} changes"));
    bed.client.batch_execute(&changes.statement()).await?;
    let end: String =
        bed.client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await?.get(0);

    let (mut ratios, mut speeds, mut cpu, mut peaks) = (vec![], vec![], vec![], vec![]);
    for run in &runs {
        say(format_args!("{name}, pipeline {}", run.setup.name()));
        let received = run.receive(&bed, &end)?;
        let life = run.stream()?;
        print_raw(
            name,
            &[
                ("engine", life.seconds, "s"),
                ("recvlogical", received, "s"),
                ("cpu", life.cpu_seconds, "s"),
                ("peak", life.peak_mb, "MB"),
            ],
        );
        ratios.push(received / life.seconds);
        speeds.push(rows as f64 / life.seconds);
        cpu.push(life.cpu_seconds / (rows as f64 / 1e6));
        peaks.push(life.peak_mb);
    }
    print(&format!("{name}_vs_recvlogical"), median(ratios), "ratio");
    print(&format!("{name}_rows_per_s"), median(speeds), "rows/s");
    print(&format!("{name}_cpu_s_per_million"), median(cpu), "s");
    Ok(peaks)
}

impl Changes {
    fn rows(self) -> u64 {
        match self {
            Self::Large(rows) => rows.div_ceil(2_000) * 2_000,
            Self::Small(rows) => rows,
        }
    }

    fn statement(self) -> String {
        match self {
            Self::Large(_) => format!(
                "DO $$ BEGIN FOR block IN 0..{} LOOP
                   INSERT INTO bench SELECT {COLUMNS} FROM generate_series(block * 1000 + 1, block * 1000 + 1000) id;
                   COMMIT;
                   UPDATE bench SET balance = balance + 1, active = NOT active
                     WHERE id BETWEEN block * 1000 + 1 AND block * 1000 + 1000;
                   COMMIT;
                 END LOOP; END $$",
                self.rows() / 2_000 - 1
            ),
            Self::Small(rows) => format!(
                "DO $$ BEGIN FOR row IN 1..{rows} LOOP
                   INSERT INTO bench SELECT {COLUMNS} FROM (SELECT row::bigint AS id) one;
                   COMMIT;
                 END LOOP; END $$"
            ),
        }
    }
}

/// One repetition: a pipeline that has finished its hand-over, and a second slot beside it.
struct Run {
    setup: Setup,
    second_slot: String,
}

impl Run {
    async fn prepare(bed: &Bed, repetition: u32) -> Result<Self> {
        let setup = bed.pipeline(&format!("stream_{repetition}"))?;
        until_caught_up(&setup, "started", "caught up")?;
        let second_slot = format!("receive_{repetition}");
        let create = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')";
        bed.client.execute(create, &[&second_slot]).await?;
        Ok(Self { setup, second_slot })
    }

    fn stream(&self) -> Result<Life> {
        until_caught_up(&self.setup, "streaming", "caught up")
    }

    /// Seconds that `pg_recvlogical` takes.
    fn receive(&self, bed: &Bed, end: &str) -> Result<f64> {
        let publication = format!("publication_names={}", self.setup.name());
        let started = Instant::now();
        let status = bed
            .server
            .program("pg_recvlogical")
            .args(["-d", "postgres", "--start", "--no-loop", "-f", "/dev/null"])
            .args(["-S", &self.second_slot, "--endpos", end])
            .args(["-o", "proto_version=1", "-o", &publication, "-o", "messages=true"])
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "pg_recvlogical: {status}");
        Ok(started.elapsed().as_secs_f64())
    }
}
