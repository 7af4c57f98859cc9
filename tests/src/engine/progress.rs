//! How far a pipeline is, asked of the source and of `dovetail status`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail_core::position::Lsn;
use serde_json::Value;
use tokio_postgres::Client;

use super::{Engine, Setup};
use crate::content::{of_mysql, of_postgres};
use crate::lines::{fold, read};
use crate::mysql::Server as MySqlServer;
use crate::wait::{PATIENCE, until};

impl Setup {
    /// Waits until everything that is committed now is durable at the outlets and acknowledged to the source.
    pub async fn caught_up(&self, engine: &mut Engine, source: &Client) -> Result<()> {
        self.caught_up_within(PATIENCE, engine, source).await
    }

    pub async fn caught_up_within(
        &self,
        limit: Duration,
        engine: &mut Engine,
        source: &Client,
    ) -> Result<()> {
        let end = source.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await?;
        let end: Lsn = end.get::<_, &str>(0).parse()?;
        // So that the server is told of it as well, where there is no spool.
        let query = "SELECT EXISTS (SELECT FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid \
                     WHERE slot_name = $1 AND state = 'streaming' AND confirmed_flush_lsn >= $2::text::pg_lsn)";
        let wait = until(format!("the checkpoint to be at {end}"), limit, async || {
            engine.must_run()?;
            if self.checkpoint()? < Some(end) {
                return Ok(None);
            }
            let told = source.query_one(query, &[&self.name(), &end.to_string()]).await?;
            Ok(told.get::<_, bool>(0).then_some(()))
        });
        wait.await.with_context(|| engine.log())
    }

    /// Where the next life will go on; `None` before there is anything.
    pub fn checkpoint(&self) -> Result<Option<Lsn>> {
        let status = self.status()?;
        let text = status["checkpoint"].as_str();
        text.map(|text| text.parse().context("a checkpoint")).transpose()
    }

    /// Waits until everything that is in the log of a MySQL or MariaDB server now is durable at the outlets.
    pub async fn mysql_caught_up(&self, engine: &mut Engine, source: &MySqlServer) -> Result<()> {
        self.mysql_caught_up_within(PATIENCE, engine, source).await
    }

    pub async fn mysql_caught_up_within(
        &self,
        limit: Duration,
        engine: &mut Engine,
        source: &MySqlServer,
    ) -> Result<()> {
        let end = source.log_end().await?;
        let what = format!("the checkpoint to be at {end}");
        let wait = until(what, limit, async || {
            engine.must_run()?;
            let checkpoint = self.checkpoint()?.map(|lsn| (lsn.number(), lsn.offset()));
            Ok((checkpoint >= Some((end.file, end.offset))).then_some(()))
        });
        wait.await.with_context(|| engine.log())
    }

    /// Waits until `status` says that a table's scan is in `state`; that status.
    pub async fn scan_is(&self, engine: &mut Engine, table: &str, state: &str) -> Result<Value> {
        let reached = until(format!("the scan of {table} to be {state}"), PATIENCE, async || {
            engine.must_run()?;
            let status = self.status()?;
            let tables = status["tables"].as_array().context("tables")?;
            let reached = tables.iter().any(|it| it["table"] == table && it["scan"] == state);
            Ok(reached.then_some(status))
        });
        reached.await.with_context(|| engine.log())
    }

    /// Waits until the scan of every table is done.
    pub async fn scanned(&self, engine: &mut Engine) -> Result<()> {
        let scanned = until("all tables to be scanned", PATIENCE, async || {
            engine.must_run()?;
            let status = self.status()?;
            let tables = status["tables"].as_array().context("tables")?;
            Ok(tables.iter().all(|it| it["scan"] == "done").then_some(()))
        });
        scanned.await.with_context(|| engine.log())
    }

    /// Waits until the scan is over and the log is being streamed.
    pub async fn streaming(&self, engine: &mut Engine, source: &Client) -> Result<()> {
        let query = "SELECT EXISTS (SELECT FROM pg_replication_slots \
                     JOIN pg_stat_replication ON pid = active_pid \
                     WHERE slot_name = $1 AND state IN ('catchup', 'streaming'))";
        let streaming = until("the stream", PATIENCE, async || {
            engine.must_run()?;
            if !engine.log().contains("\"streaming\"") {
                return Ok(None);
            }
            Ok(source.query_one(query, &[&self.name()]).await?.get::<_, bool>(0).then_some(()))
        });
        streaming.await.with_context(|| engine.log())
    }

    /// Waits until workers are reading rows, or have read them: on a busy machine nobody may have looked in between.
    pub async fn scanning(&self, engine: &mut Engine, source: &Client) -> Result<()> {
        let query = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'dovetail' \
                     AND state = 'active' AND query LIKE 'COPY%')";
        let scanning = until("a worker to read rows", PATIENCE, async || {
            engine.must_run()?;
            let reads: bool = source.query_one(query, &[]).await?.get(0);
            Ok((reads || engine.log().contains("scan read")).then_some(()))
        });
        scanning.await.with_context(|| engine.log())
    }

    /// [`Setup::lines_equal`] for a MySQL or MariaDB server.
    pub async fn mysql_lines_equal(&self, source: &MySqlServer, tables: &[&str]) -> Result<()> {
        let mut connection = source.connect().await?;
        let mut folded = fold(&read(&self.lines_file())?)?;
        for table in tables {
            let there = folded.remove(*table).unwrap_or_default();
            let differences = of_mysql(&mut connection, table).await?.differences(&there);
            ensure!(differences.is_empty(), "{table}: {differences}");
        }
        Ok(())
    }

    /// Fails where the tables that the lines fold to are not those of the source.
    pub async fn lines_equal(&self, source: &Client, tables: &[&str]) -> Result<()> {
        let mut folded = fold(&read(&self.lines_file())?)?;
        for table in tables {
            let there = folded.remove(*table).unwrap_or_default();
            let differences = of_postgres(source, table).await?.differences(&there);
            ensure!(differences.is_empty(), "{table}: {differences}");
        }
        Ok(())
    }
}
