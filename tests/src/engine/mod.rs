//! The `dovetail` program as its users meet it: a configuration file, a process, its exit code and its log.
//!
//! Nothing here links the engine, so that a test cannot reach behind the command line, and `SIGKILL` is the real one.

mod progress;
mod setup;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

pub use setup::{Finished, Setup};

use crate::postgres::send;
use crate::wait::{PATIENCE, until, until_blocking};

/// The program under test: what `DOVETAIL_BIN` names, else the one beside this test's own program.
pub fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("DOVETAIL_BIN") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(3).map(|folder| folder.join("dovetail"));
    found
        .into_iter()
        .find(|program| program.is_file())
        .context("no dovetail beside the tests: run `cargo build --release -p dovetail` first")
}

/// A running `dovetail run`. Dropping it kills it.
#[derive(Debug)]
pub struct Engine {
    process: Child,
    log: PathBuf,
    /// Where this life's part of the log begins.
    log_start: u64,
}

impl Engine {
    /// Starts `command` with its standard error appended to `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let file = fs::File::options().create(true).append(true).open(log)?;
        let log_start = file.metadata()?.len();
        let process = command.stderr(file).spawn().context("start dovetail")?;
        Ok(Self { process, log: log.to_owned(), log_start })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where it, and the lives before it, write their standard error.
    pub fn log_file(&self) -> PathBuf {
        self.log.clone()
    }

    /// `None` while it runs.
    pub fn exit(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// Kills it at once, as the kernel would, and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(self.pid(), signal)
    }

    /// Asks it to stop as an operator does and waits for its end.
    pub async fn terminate(self) -> Result<i32> {
        self.signal(Signal::TERM)?;
        self.ended().await
    }

    /// Waits until it ends by itself; the exit code (128 + signal where a signal ended it).
    pub async fn ended(self) -> Result<i32> {
        self.ended_within(PATIENCE).await
    }

    pub async fn ended_within(mut self, limit: Duration) -> Result<i32> {
        use std::os::unix::process::ExitStatusExt;
        let status = until("the engine to end", limit, async || self.exit()).await;
        let status = status.with_context(|| self.log())?;
        status.code().or(status.signal().map(|signal| 128 + signal)).context("no exit code")
    }

    /// Fails, with the log, when it ended although it should run.
    pub fn must_run(&mut self) -> Result<()> {
        let exit = self.exit()?;
        ensure!(exit.is_none(), "the engine ended ({exit:?}): {}", self.log());
        Ok(())
    }

    /// What this life wrote to standard error.
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let start = usize::try_from(self.log_start).unwrap_or(usize::MAX);
        String::from_utf8_lossy(log.get(start..).unwrap_or_default()).into_owned()
    }

    /// The log's lines as they are in `--log-format json`.
    pub fn log_lines(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until a line of the log contains every one of `words`; the engine must go on running meanwhile.
    pub async fn until_logged(&mut self, words: &[&str]) -> Result<String> {
        let what = format!("a line of the log with {words:?}");
        let found = until(what, PATIENCE, async || {
            let log = self.log();
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
            if line.is_none() {
                self.must_run()?;
            }
            Ok(line.map(str::to_owned))
        });
        found.await.with_context(|| self.log())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let killed = self.process.kill().and_then(|()| self.process.wait());
            if let Err(error) = killed {
                eprintln!("end the engine: {error}");
            }
        }
    }
}

/// Runs `process` to its end, at the latest after `limit`.
fn finish(mut process: Child, what: &str, limit: Duration) -> Result<ExitStatus> {
    let status = until_blocking(format!("the end of {what}"), limit, || Ok(process.try_wait()?));
    if status.is_err() {
        process.kill()?;
        process.wait()?;
    }
    status
}
