//! Rounds of SIGKILL under a writing workload.
//!
//! `kill --server postgres-15 --rounds 60 --seed 7` (by way of `tests/run kill`); `mariadb-10.11` and `mysql-9.7` are
//! servers as well. Rounds come in episodes: one pipeline,
//! from its first start until it has caught up at the end, with kills in the start, in the scan and in the stream. After
//! each episode the checker judges the whole history and both ends are compared. Which moment is hit is what the engine's log
//! says just before the kill.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dovetail_tests::trial::{Moment, Source, Target, Trial, Verdict};
use dovetail_tests::workload::{Options, seed};
use fastrand::Rng;

/// Kills of one episode: three may fall into the scan, the others into the stream.
const ROUNDS_PER_EPISODE: u32 = 6;

#[derive(Debug)]
struct Arguments {
    /// Its name, such as `mysql-9.7`.
    server: String,
    rounds: u32,
    seed: u64,
}

impl Arguments {
    fn parse() -> Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let (mut server, mut rounds, mut given) = ("postgres-15".to_owned(), 60, None);
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--server" => server = value,
                "--rounds" => rounds = value.parse().context("--rounds takes a number")?,
                "--seed" => given = Some(value.parse().context("--seed takes a number")?),
                _ => bail!("{name}: there are --server postgres-15, --rounds 60 and --seed 7"),
            }
        }
        Ok(Self { server, rounds, seed: given.unwrap_or_else(seed) })
    }
}

/// Rounds by the moment that was hit.
#[derive(Debug, Default)]
struct Hits {
    start: u32,
    scan: u32,
    stream: u32,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse()?;
    let mut random = Rng::with_seed(arguments.seed);
    let mut hits = Hits::default();
    let mut total = Verdict::default();
    let mut left = arguments.rounds;
    let targets = if arguments.server.starts_with("postgres") {
        Target::ALL.to_vec()
    } else {
        vec![Target::Lines, Target::Sqlite]
    };
    for (episode, target) in targets.into_iter().cycle().enumerate() {
        if left == 0 {
            break;
        }
        let rounds = left.min(ROUNDS_PER_EPISODE);
        left -= rounds;
        let verdict = play(&arguments, target, rounds, &mut random, &mut hits)
            .await
            .with_context(|| format!("episode {episode} ({target:?}), seed {}", arguments.seed))?;
        println!("episode {episode} {target:?}: {verdict}");
        total.add(verdict);
    }
    let Hits { start, scan, stream } = hits;
    println!(
        "kill: server {}, rounds {}, seed {}: hit {start} in the start, {scan} in the scan, {stream} in the \
         stream; {} rows, {} changes, {} redelivered, {} violations",
        arguments.server,
        start + scan + stream,
        arguments.seed,
        total.rows,
        total.changes,
        total.redelivered,
        total.violations.len()
    );
    // Rounds that never hit what they are for prove nothing.
    let pointless = arguments.rounds >= 2 * ROUNDS_PER_EPISODE && (scan == 0 || stream == 0);
    if pointless {
        println!("kill: neither the scan nor the stream may be spared");
    }
    let failed = pointless || arguments.rounds == 0 || !total.violations.is_empty();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn play(
    arguments: &Arguments,
    target: Target,
    rounds: u32,
    random: &mut Rng,
    hits: &mut Hits,
) -> Result<Verdict> {
    let options = Options {
        writers: 3,
        bulk: 100_000,
        big_rows: 25_000,
        pace: Duration::from_millis(4),
        ..Options::seeded(random.u64(..))
    };
    let server = Source::start(&arguments.server)?;
    let (mut trial, workload) = Trial::at(server, target, options).await?;
    let running = workload.start();
    for round in 0..rounds {
        let moment = match round {
            0 => Moment::Start,
            1 | 2 => Moment::Scan,
            _ => Moment::Stream,
        };
        let mut engine = trial.launch()?;
        if moment != Moment::Start {
            let reached = trial.server.reach(moment, &mut engine).await;
            reached.with_context(|| format!("round {round}"))?;
        }
        // The moment of the kill itself is what is random here.
        let longest = if moment == Moment::Stream { 1_500 } else { 250 };
        tokio::time::sleep(Duration::from_millis(random.u64(..longest))).await;
        engine.must_run()?;
        match Moment::of(&engine) {
            Moment::Start => hits.start += 1,
            Moment::Scan => hits.scan += 1,
            Moment::Stream => hits.stream += 1,
        }
        engine.kill()?;
    }
    let engine = trial.launch()?;
    trial.finish(running, engine).await
}
