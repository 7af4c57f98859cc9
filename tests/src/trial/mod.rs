//! One engine against one server and one workload, over all its lives, and the verdict.
//!
//! A trial notes where each life begins in the lines of the `file` outlet. At the end it lets the engine catch up, and
//! has the checker judge the whole history: what the writers say they committed, in the order that the server's witness
//! gives, against every line that was ever delivered. Beside that, the rows at both ends are compared column by column.

mod history;
mod source;

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use dovetail_core::position::Lsn;
use tokio_postgres::Client;

pub use source::{Moment, Source};

use crate::checker::judge;
use crate::content::{Content, of_postgres, of_sqlite};
use crate::engine::{Engine, Setup};
use crate::lines::{Line, Lives, fold};
use crate::postgres::{Options as ServerOptions, Server, Version};
use crate::workload::{Options, Running, Workload};

/// Where the changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Lines in a file: the whole history can be judged.
    Lines,
    /// Both ends can be compared.
    Sqlite,
    /// As for SQLite; the replica is another database of the same server. Of PostgreSQL only.
    Postgres,
}

impl Target {
    pub const ALL: [Self; 3] = [Self::Lines, Self::Sqlite, Self::Postgres];
}

#[derive(Debug)]
pub struct Trial {
    pub server: Source,
    pub setup: Setup,
    target: Target,
    lives: Lives,
    /// Per life: the checkpoint that it goes on from.
    checkpoints: Vec<Option<Lsn>>,
}

/// How long an engine may take to catch up with all that a workload wrote.
const CATCH_UP: Duration = Duration::from_secs(180);

impl Trial {
    /// A server with the tables of a workload, and a pipeline that captures all of them.
    pub async fn new(target: Target, options: Options) -> Result<(Self, Workload)> {
        Self::on(Version::under_test(), ServerOptions::default(), target, options).await
    }

    pub async fn on(
        version: Version,
        server: ServerOptions,
        target: Target,
        options: Options,
    ) -> Result<(Self, Workload)> {
        Self::at(Source::Postgres(Server::start_with(version, server)?), target, options).await
    }

    /// A trial of any kind of server.
    pub async fn at(server: Source, target: Target, options: Options) -> Result<(Self, Workload)> {
        let workload = server.prepare(options).await?;
        let setup = server.setup("trial")?;
        let setup = match target {
            Target::Lines => setup.to_file(),
            Target::Sqlite => setup.to_sqlite(),
            Target::Postgres => {
                server.client().await?.batch_execute("CREATE DATABASE replica").await?;
                setup.to_postgres(server.postgres()?)
            }
        };
        let lives = Lives::of(setup.lines_file());
        Ok((Self { server, setup, target, lives, checkpoints: Vec::new() }, workload))
    }

    /// A connection to a PostgreSQL server.
    pub async fn client(&self) -> Result<Client> {
        self.server.client().await
    }

    /// Starts a life of the engine.
    pub fn launch(&mut self) -> Result<Engine> {
        self.checkpoints.push(self.setup.checkpoint()?);
        self.lives.begin()?;
        self.setup.run()
    }

    /// Lines delivered so far, of all lives.
    pub fn lines(&self) -> Result<Vec<Line>> {
        crate::lines::read(&self.setup.lines_file())
    }

    /// Stops the writers, lets `engine` catch up and stop, and judges everything.
    pub async fn finish(self, running: Running, mut engine: Engine) -> Result<Verdict> {
        let workload = running.stop().await?;
        self.server.caught_up_within(CATCH_UP, &self.setup, &mut engine).await?;
        let log = engine.log();
        let code = engine.terminate().await?;
        ensure!(code == 143 || code == 0, "exit code {code} after SIGTERM: {log}");
        self.verdict(workload).await
    }

    /// Judges a history at rest: the writers have stopped and the engine has caught up and ended.
    pub async fn verdict(self, mut workload: Workload) -> Result<Verdict> {
        let sum = workload.sum();
        let record = self.server.record(&mut workload).await?;
        let commits = self.server.commits(record).await?;
        let mut verdict = Verdict { changes: record.changes(), ..Verdict::default() };
        verdict.lives = self.checkpoints.len();
        let mut folded = None;
        if self.target == Target::Lines {
            self.lives.repeat_suffixes_only()?;
            let lives = self.lives.lines()?.into_iter();
            let lives: Vec<_> = lives
                .map(|(process, lines)| (self.checkpoints.get(process).copied().flatten(), lines))
                .collect();
            let lines: Vec<_> = lives.iter().flat_map(|(_, lines)| lines).cloned().collect();
            verdict.delivered = lines.len();
            verdict.redelivered = lines.iter().filter(|line| line.redelivery).count();
            verdict.scanned = lines.iter().filter(|line| line.op == "read").count();
            let source = self.server.images().await?;
            let history = history::of(record, &commits, &lives, source)?;
            verdict.violations.extend(judge(&history).iter().map(ToString::to_string));
            folded = Some(fold(&lines)?);
        }
        for table in self.server.tables() {
            let source = self.server.content(table).await?;
            let replica = match &mut folded {
                Some(tables) => tables.remove(table).unwrap_or_default(),
                None => self.replica(table).await?,
            };
            verdict.rows += source.len();
            let differences = source.differences(&replica);
            if !differences.is_empty() {
                verdict.violations.push(format!("source and replica of {table}: {differences}"));
            }
        }
        let balance = self.server.balance().await?;
        ensure!(balance == sum, "the workload itself lost money: {balance} instead of {sum}");
        Ok(verdict)
    }

    /// What the replica holds of a table of the source.
    pub async fn replica(&self, table: &str) -> Result<Content> {
        match self.target {
            Target::Lines => Ok(fold(&self.lines()?)?.remove(table).unwrap_or_default()),
            Target::Sqlite => {
                of_sqlite(&self.setup.replica_file(), &self.server.replica_table(table))
            }
            Target::Postgres => {
                let server = self.server.postgres()?;
                let client = server.connect_to(&server.url("replica")).await?;
                of_postgres(&client, table).await
            }
        }
    }
}

/// What came of a trial.
#[derive(Debug, Default)]
pub struct Verdict {
    pub lives: usize,
    /// Rows of the source at the end.
    pub rows: u64,
    /// Row changes that the writers committed.
    pub changes: u64,
    /// Lines, where the outlet is a file.
    pub delivered: usize,
    pub scanned: usize,
    pub redelivered: usize,
    pub violations: Vec<String>,
}

impl Verdict {
    /// Sums up several trials.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.rows += other.rows;
        self.changes += other.changes;
        self.delivered += other.delivered;
        self.scanned += other.scanned;
        self.redelivered += other.redelivered;
        self.violations.extend(other.violations);
    }

    /// An error with the violations, if there are any.
    pub fn clean(&self) -> Result<()> {
        ensure!(self.violations.is_empty(), "{self}");
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lives {}, rows {}, changes {}, lines {}, scanned {}, redelivered {}, violations {}",
            self.lives,
            self.rows,
            self.changes,
            self.delivered,
            self.scanned,
            self.redelivered,
            self.violations.len()
        )?;
        self.violations.iter().take(20).try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
