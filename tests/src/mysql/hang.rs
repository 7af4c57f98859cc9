//! Commits that are in the log and not visible: semi-synchronous replication that waits for a replica which there is not.

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;

use super::{Server, execute};
use crate::wait::{PATIENCE, until};

impl Server {
    /// From now on a commit is written to the log, and hangs before anybody can see it.
    pub async fn hang_commits(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        let name = self.semisync();
        if !self.version().is_mariadb() {
            let install = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
            execute(&mut connection, &[install]).await?;
        }
        for setting in ["timeout = 3600000", "wait_point = 'AFTER_SYNC'", "enabled = ON"] {
            execute(&mut connection, &[&format!("SET GLOBAL {name}_{setting}")]).await?;
        }
        Ok(())
    }

    /// Waits until so many commits hang.
    pub async fn hanging(&self, commits: u32) -> Result<()> {
        let query = format!("SHOW GLOBAL STATUS LIKE '{}_wait_sessions'", self.semisync());
        let mut connection = self.connect().await?;
        until("commits to hang", PATIENCE, async || {
            let row: Option<(String, u32)> = connection.query_first(&query).await?;
            let (_, hanging) = row.context("a number")?;
            Ok((hanging >= commits).then_some(()))
        })
        .await
    }

    /// They become visible, and later ones do so at once.
    pub async fn let_commits_go(&self) -> Result<()> {
        let statement = format!("SET GLOBAL {}_enabled = OFF", self.semisync());
        execute(&mut self.connect().await?, &[&statement]).await
    }

    fn semisync(&self) -> &'static str {
        if self.version().is_mariadb() { "rpl_semi_sync_master" } else { "rpl_semi_sync_source" }
    }
}
