//! A replica of a server, for tests of fail-over.

use anyhow::{Context, Result, ensure};
use mysql_async::prelude::Queryable;

use super::{Options, Server, execute};
use crate::postgres::PASSWORD;

/// How long a replica may take to have everything, in seconds.
const CATCH_UP_S: u32 = 60;

impl Server {
    /// A new server of the same version that replicates this one from the beginning of its log, by GTIDs.
    pub async fn replica(&self, options: Options) -> Result<Self> {
        let replica = Self::start_with(self.version, options)?;
        let mut connection = replica.connect().await?;
        let port = self.port;
        let statements = if self.version.is_mariadb() {
            [
                format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', \
                     MASTER_PASSWORD = '{PASSWORD}', MASTER_SSL = 0, MASTER_USE_GTID = slave_pos"
                ),
                "START SLAVE".to_owned(),
            ]
        } else {
            [
                format!(
                    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, \
                     SOURCE_USER = 'root', SOURCE_PASSWORD = '{PASSWORD}', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1"
                ),
                "START REPLICA".to_owned(),
            ]
        };
        for statement in &statements {
            // The password must not appear in a message.
            connection.query_drop(statement).await.context("begin to replicate")?;
        }
        Ok(replica)
    }

    /// Waits until this replica has applied everything that `source` has committed.
    pub async fn caught_up_with(&self, source: &Self) -> Result<()> {
        let (executed, wait) = if self.version.is_mariadb() {
            ("SELECT @@global.gtid_binlog_pos", "MASTER_GTID_WAIT")
        } else {
            ("SELECT @@global.gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET")
        };
        let committed = source.connect().await?.query_first::<String, _>(executed).await?;
        let committed = committed.context("the source's GTIDs")?;
        let query = format!("SELECT {wait}(?, {CATCH_UP_S})");
        let mut connection = self.connect().await?;
        let waited: Option<i64> = connection.exec_first(query, (&committed,)).await?;
        ensure!(waited == Some(0), "the replica did not reach {committed}: {}", self.log());
        Ok(())
    }

    /// Ends the replication; the replica is a source of its own now.
    pub async fn promote(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        let statements = if self.version.is_mariadb() {
            ["STOP SLAVE", "RESET SLAVE ALL"]
        } else {
            ["STOP REPLICA", "RESET REPLICA ALL"]
        };
        execute(&mut connection, &statements).await
    }
}
