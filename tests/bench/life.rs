//! One life of the engine, watched from outside: its log says when, the kernel says how much.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dovetail_tests::engine::Setup;
use dovetail_tests::wait::until_blocking;

/// The longest that a run of the largest size may take.
const LIMIT: Duration = Duration::from_secs(1_800);

/// The kernel counts time of processes in hundredths of a second, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// What it took from one line of the log to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) seconds: f64,
    /// From the start of the process on, so with connecting, preflight and the loading of the plugin.
    pub(crate) seconds_from_start: f64,
    /// User and system time of all threads. Exact to a look, which is taken every 20 ms.
    pub(crate) cpu_seconds: f64,
    /// The most memory that was resident at one time in this life.
    pub(crate) peak_mb: f64,
}

/// Runs the engine until it has caught up, and measures from the line `from` to the line `to`.
pub(crate) fn until_caught_up(setup: &Setup, from: &str, to: &str) -> Result<Life> {
    let started = Instant::now();
    let mut engine = setup.run_with(&["--until-caught-up"])?;
    let pid = engine.pid();
    let (mut before, mut cpu, mut peak_mb, mut from_start) = (None, 0.0, 0.0, None);
    let status = until_blocking("the engine to catch up", LIMIT, || {
        // In this order: what has ended keeps its times until somebody has asked for its status.
        cpu = cpu_seconds(pid)?;
        peak_mb = peak(pid).unwrap_or(peak_mb);
        let log = engine.log();
        if before.is_none() && log.contains(from) {
            before = Some(cpu);
        }
        if from_start.is_none() && log.contains(to) {
            from_start = Some(started.elapsed().as_secs_f64());
        }
        engine.exit()
    })?;
    ensure!(status.success(), "the engine ended ({status}): {}", engine.log());
    let lines = engine.log_lines();
    let moment = |message: &str| {
        let line = lines.iter().find(|line| line["message"] == message);
        let line = line.with_context(|| format!("no line {message:?}: {}", engine.log()))?;
        line["timestamp"].as_str().and_then(second_of_day).context("a line without a time")
    };
    let seconds = (moment(to)? - moment(from)?).rem_euclid(86_400.0);
    Ok(Life {
        seconds,
        seconds_from_start: from_start.unwrap_or_else(|| started.elapsed().as_secs_f64()),
        cpu_seconds: cpu - before.unwrap_or(0.0),
        peak_mb,
    })
}

/// Of `2026-11-30T02:40:12.345678Z`.
fn second_of_day(timestamp: &str) -> Option<f64> {
    let (_, time) = timestamp.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.splitn(3, ':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    Some(next()? * 3_600.0 + next()? * 60.0 + next()?)
}

/// User and system time of a process so far.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in parentheses, and may hold anything; user and system time are 14 and 15.
    let (_, fields) = stat.rsplit_once(')').context("read the times of the engine")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
}

/// None once it has ended.
fn peak(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_log_is_understood() {
        assert_eq!(second_of_day("2026-11-30T01:01:01.5Z"), Some(3_661.5));
        assert_eq!(second_of_day("2026-11-30"), None);
    }

    #[test]
    fn the_kernel_answers_for_this_process() -> Result<()> {
        let own = std::process::id();
        assert!(cpu_seconds(own)? >= 0.0);
        assert!(peak(own).context("memory")? > 0.1);
        Ok(())
    }
}
