//! The scan, against `COPY ... TO STDOUT` of the same table.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};
use dovetail_tests::postgres::Server;

use crate::Sizes;
use crate::bed::{Bed, COLUMNS};
use crate::figure::{greatest, median, print, print_raw, say};
use crate::life::until_caught_up;

pub(crate) const FIGURES: [&str; 4] =
    ["scan_vs_copy", "scan_rows_per_s", "scan_cpu_s_per_million", "scan_peak_rss_mb"];

pub(crate) async fn run(sizes: &Sizes) -> Result<()> {
    let bed = Bed::make().await?;
    say(format_args!("filling a table with {} rows", sizes.scan_rows));
    let fill = format!(
        "INSERT INTO bench SELECT {COLUMNS} FROM generate_series(1, {}) id",
        sizes.scan_rows
    );
    bed.client.batch_execute(&fill).await?;
    bed.client.batch_execute("VACUUM (FREEZE, ANALYZE) bench").await?;
    // The first reader after a fill pays for what later ones find in memory.
    copy(&bed.server)?;

    let millions = sizes.scan_rows as f64 / 1e6;
    let (mut ratios, mut speeds, mut cpu, mut peaks) = (vec![], vec![], vec![], vec![]);
    for repetition in 0..sizes.repetitions {
        say(format_args!("scan, repetition {}", repetition + 1));
        let copied = copy(&bed.server)?;
        let setup = bed.pipeline(&format!("scan_{repetition}"))?;
        let life = until_caught_up(&setup, "view opened", "streaming")?;
        print_raw(
            "scan",
            &[
                ("scan", life.seconds, "s"),
                ("copy", copied, "s"),
                ("from_process_start", life.seconds_from_start, "s"),
                ("cpu", life.cpu_seconds, "s"),
                ("peak", life.peak_mb, "MB"),
            ],
        );
        let drop_slot = "SELECT pg_drop_replication_slot($1)";
        bed.client.execute(drop_slot, &[&setup.name()]).await?;
        ratios.push(life.seconds / copied);
        speeds.push(sizes.scan_rows as f64 / life.seconds);
        cpu.push(life.cpu_seconds / millions);
        peaks.push(life.peak_mb);
    }
    print("scan_vs_copy", median(ratios), "ratio");
    print("scan_rows_per_s", median(speeds), "rows/s");
    print("scan_cpu_s_per_million", median(cpu), "s");
    print("scan_peak_rss_mb", greatest(peaks), "MB");
    Ok(())
}

/// Seconds that `psql` takes.
fn copy(server: &Server) -> Result<f64> {
    let started = Instant::now();
    let mut psql = server.program("psql");
    let status = psql.args(["-X", "-c", "COPY bench TO STDOUT"]).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "psql: {status}");
    Ok(started.elapsed().as_secs_f64())
}
