//! The server under a trial, of either kind.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use tokio_postgres::Client;

use super::history::{self, Commit};
use crate::checker::history::Rows;
use crate::content::{Content, of_mysql, of_postgres};
use crate::engine::{Engine, Setup};
use crate::wait::{PATIENCE, until};
use crate::workload::{Options, Record, TABLES, Workload, mysql as mysql_workload, witness};
use crate::{mysql, postgres};

#[derive(Debug)]
pub enum Source {
    Postgres(postgres::Server),
    MySql(mysql::Server),
}

/// What an engine is doing, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    Start,
    Scan,
    Stream,
}

impl Moment {
    /// By the engine's own word: to a server of MySQL, a scan looks like any session that reads, and a look at the log
    /// like a stream.
    pub fn of(engine: &Engine) -> Self {
        let log = engine.log();
        let says = |message: &str| log.contains(&format!(r#""message":"{message}""#));
        match (says("streaming"), says("view opened")) {
            (true, _) => Self::Stream,
            (false, true) => Self::Scan,
            (false, false) => Self::Start,
        }
    }
}

impl Source {
    /// With the usual settings, by a name such as `mysql-9.7`.
    pub fn start(name: &str) -> Result<Self> {
        if name.starts_with("postgres") {
            return Ok(Self::Postgres(postgres::Server::start(name.parse()?)?));
        }
        Ok(Self::MySql(mysql::Server::start(name.parse()?)?))
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// The PostgreSQL server that it is.
    pub fn postgres(&self) -> Result<&postgres::Server> {
        match self {
            Self::Postgres(server) => Ok(server),
            Self::MySql(server) => bail!("{} is no PostgreSQL", server.version()),
        }
    }

    /// A connection to the PostgreSQL server that it is.
    pub async fn client(&self) -> Result<Client> {
        self.postgres()?.connect().await
    }

    pub fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::MySql(server) => server.port(),
        }
    }

    pub fn stop(&mut self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.stop(),
            Self::MySql(server) => server.stop(),
        }
    }

    pub fn kill(&mut self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MySql(server) => server.kill(),
        }
    }

    pub fn restart(&mut self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.restart(),
            Self::MySql(server) => server.restart(),
        }
    }

    /// Names of the workload's tables.
    pub fn tables(&self) -> [&'static str; 5] {
        match self {
            Self::Postgres(_) => TABLES,
            Self::MySql(_) => mysql_workload::TABLES,
        }
    }

    /// What the SQLite replica calls a table.
    pub(super) fn replica_table(&self, table: &str) -> String {
        match self {
            Self::Postgres(_) => table.trim_start_matches("public.").to_owned(),
            Self::MySql(_) => table.replace('.', "__"),
        }
    }

    /// Begins to witness, and makes the workload's tables.
    pub(super) async fn prepare(&self, options: Options) -> Result<Workload> {
        match self {
            Self::Postgres(server) => {
                witness::begin(&server.connect().await?).await?;
                Workload::prepare(server, options).await
            }
            // The log is the witness.
            Self::MySql(server) => Workload::prepare_mysql(server, options).await,
        }
    }

    /// A pipeline that captures the workload's tables.
    pub(super) fn setup(&self, name: &str) -> Result<Setup> {
        match self {
            Self::Postgres(server) => Setup::new(name, server, &TABLES),
            Self::MySql(server) => Setup::mysql(name, server, &mysql_workload::TABLES),
        }
    }

    pub async fn caught_up_within(
        &self,
        limit: Duration,
        setup: &Setup,
        engine: &mut Engine,
    ) -> Result<()> {
        match self {
            Self::Postgres(server) => {
                setup.caught_up_within(limit, engine, &server.connect().await?).await
            }
            Self::MySql(server) => setup.mysql_caught_up_within(limit, engine, server).await,
        }
    }

    /// What the workload committed, every outcome known.
    pub(super) async fn record<'a>(&self, workload: &'a mut Workload) -> Result<&'a Record> {
        match self {
            Self::Postgres(server) => workload.record(&server.connect().await?).await,
            Self::MySql(server) => workload.record_mysql(server).await,
        }
    }

    /// The workload's transactions, in the order in which they were committed.
    pub(super) async fn commits(&self, record: &Record) -> Result<Vec<Commit>> {
        match self {
            Self::Postgres(server) => {
                let commits = witness::commits(&server.connect().await?).await?;
                let marker = |xid| record.committed().find(|it| it.xid == Some(xid));
                Ok(commits
                    .into_iter()
                    .filter_map(|(xid, _)| {
                        Some(Commit { id: xid, marker: marker(xid)?.marker, name: None })
                    })
                    .collect())
            }
            Self::MySql(server) => {
                let commits = mysql_workload::commits(server).await?;
                Ok((1..)
                    .zip(commits)
                    .map(|(id, commit)| {
                        let place = commit.transaction.start.to_string();
                        let name = Some(commit.transaction.gtid.unwrap_or(place));
                        Commit { id, marker: commit.marker, name }
                    })
                    .collect())
            }
        }
    }

    /// What a table holds.
    pub(super) async fn content(&self, table: &str) -> Result<Content> {
        match self {
            Self::Postgres(server) => of_postgres(&server.connect().await?, table).await,
            Self::MySql(server) => of_mysql(&mut server.connect().await?, table).await,
        }
    }

    /// Every row that has a key, by its version.
    pub(super) async fn images(&self) -> Result<Rows> {
        let mut rows = Rows::new();
        for table in self.tables().into_iter().filter(|table| !history::is_keyless(table)) {
            let versions: Vec<(String, i64)> = match self {
                Self::Postgres(server) => {
                    let query = format!("SELECT id::text, version FROM {table}");
                    let rows = server.connect().await?.query(&query, &[]).await?;
                    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
                }
                Self::MySql(server) => {
                    let query = format!("SELECT CAST(id AS CHAR), version FROM {table}");
                    server.connect().await?.query(query).await?
                }
            };
            for (key, version) in versions {
                rows.insert(history::row_key(table, &key), history::image(version)?);
            }
        }
        Ok(rows)
    }

    pub(super) async fn balance(&self) -> Result<i64> {
        match self {
            Self::Postgres(server) => {
                let query = "SELECT sum(balance)::bigint FROM account";
                Ok(server.connect().await?.query_one(query, &[]).await?.get(0))
            }
            Self::MySql(server) => {
                let query = "SELECT CAST(sum(balance) AS SIGNED) FROM trial.account";
                server.connect().await?.query_first(query).await?.context("a sum")
            }
        }
    }

    /// Waits until an engine is at this moment, or past it.
    pub async fn reach(&self, moment: Moment, engine: &mut Engine) -> Result<()> {
        let reached = until(format!("{moment:?}"), PATIENCE, async || {
            engine.must_run()?;
            // A scan that is over counts: there will not be another one.
            Ok((Moment::of(engine) >= moment).then_some(()))
        });
        reached.await.with_context(|| engine.log())
    }
}
