//! What the spool costs: the same stream with and without it, by turns.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dovetail_tests::engine::Setup;
use serde_json::json;

use crate::Sizes;
use crate::bed::{Bed, COLUMNS, NAME};
use crate::figure::{median, print, print_raw, say};
use crate::life::until_caught_up;

pub(crate) const FIGURES: [&str; 2] = ["spool_cpu_s_per_million", "spool_latency_ms"];

/// For one change to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(sizes: &Sizes) -> Result<()> {
    throughput(sizes).await?;
    latency(sizes).await
}

/// Seconds of CPU over a backlog, in transactions of 1,000.
async fn throughput(sizes: &Sizes) -> Result<()> {
    let bed = Bed::make().await?;
    let mut pairs = Vec::new();
    for repetition in 0..sizes.repetitions {
        let with = bed.pipeline(&format!("with_{repetition}"))?;
        let without = bed.pipeline(&format!("without_{repetition}"))?;
        let without = without.set("/spool", json!("off"));
        for setup in [&with, &without] {
            until_caught_up(setup, "started", "caught up")?;
        }
        pairs.push((with, without));
    }
    let blocks = sizes.stream_rows.div_ceil(1_000);
    say(format_args!("spool: making {blocks} transactions of 1,000"));
    let statement = format!(
        "DO $$ BEGIN FOR block IN 1..{blocks} LOOP
           INSERT INTO bench SELECT {COLUMNS} FROM generate_series(block * 1000, block * 1000 + 999) id;
           COMMIT;
         END LOOP; END $$"
    );
    bed.client.batch_execute(&statement).await?;
    let millions = (blocks * 1_000) as f64 / 1e6;
    let mut costs = Vec::new();
    for (with, without) in &pairs {
        let with = until_caught_up(with, "started", "caught up")?;
        let without = until_caught_up(without, "started", "caught up")?;
        print_raw(
            "spool",
            &[
                ("with", with.seconds, "s"),
                ("cpu", with.cpu_seconds, "s"),
                ("peak", with.peak_mb, "MB"),
                ("without", without.seconds, "s"),
                ("cpu", without.cpu_seconds, "s"),
                ("peak", without.peak_mb, "MB"),
            ],
        );
        costs.push((with.cpu_seconds - without.cpu_seconds) / millions);
    }
    print("spool_cpu_s_per_million", median(costs), "s");
    Ok(())
}

/// From the commit to the line in a file, one change after the other.
async fn latency(sizes: &Sizes) -> Result<()> {
    let bed = Bed::make().await?;
    let mut added = Vec::new();
    for repetition in 0..sizes.repetitions {
        let with = Setup::new(&format!("quick_{repetition}"), &bed.server, &[NAME])?.to_file();
        let without = Setup::new(&format!("plain_{repetition}"), &bed.server, &[NAME])?.to_file();
        let without = without.set("/spool", json!("off"));
        let with = arrivals(&bed, &with, sizes.latency_rows).await?;
        let without = arrivals(&bed, &without, sizes.latency_rows).await?;
        print_raw("spool_latency", &[("with", with, "ms"), ("without", without, "ms")]);
        added.push(with - without);
    }
    print("spool_latency_ms", median(added), "ms");
    Ok(())
}

/// The median, in milliseconds.
async fn arrivals(bed: &Bed, setup: &Setup, rows: u64) -> Result<f64> {
    let mut engine = setup.run()?;
    setup.streaming(&mut engine, &bed.client).await?;
    setup.caught_up(&mut engine, &bed.client).await?;
    let mut lines = fs::File::open(setup.lines_file())?;
    let mut text = String::new();
    lines.read_to_string(&mut text)?;
    let mut times = Vec::new();
    for row in 0..rows {
        let insert =
            format!("INSERT INTO bench SELECT {COLUMNS} FROM (SELECT -{row}::bigint AS id) one");
        bed.client.batch_execute(&insert).await?;
        let committed = Instant::now();
        text.clear();
        while !text.ends_with('\n') {
            ensure!(committed.elapsed() < PATIENCE, "a change did not arrive: {}", engine.log());
            lines.read_to_string(&mut text)?;
            std::thread::yield_now();
        }
        times.push(committed.elapsed().as_secs_f64() * 1e3);
        bed.client.batch_execute(&format!("DELETE FROM bench WHERE id = -{row}")).await?;
        text.clear();
        while !text.ends_with('\n') {
            ensure!(committed.elapsed() < PATIENCE, "a change did not arrive: {}", engine.log());
            lines.read_to_string(&mut text)?;
            std::thread::yield_now();
        }
    }
    engine.terminate().await?;
    Ok(median(times))
}
