//! Standbys, and what becomes of them.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Result, ensure};

use super::installation::give_to_server_user;
use super::{PASSWORD, Server};
use crate::wait::{PATIENCE, until};

impl Server {
    /// A copy of this server, which is stopped for it and started again, as its standby. A cold one, so that it has the
    /// replication slots too, as those have that keep them in step.
    pub fn standby(&mut self) -> Result<Self> {
        self.stop()?;
        let directory = tempfile::Builder::new().prefix("dovetail-postgres-").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (version, installation) = (self.version, self.installation.clone());
        let mut standby = Self { version, installation, directory, port, process: None };
        let copied = Command::new("cp").arg("-a").args([self.data(), standby.data()]).status()?;
        ensure!(copied.success(), "copy the cluster to {}", standby.data().display());
        self.launch()?;
        let source = format!("host=127.0.0.1 port={} user=postgres password={PASSWORD}", self.port);
        let configuration = standby.data().join("postgresql.conf");
        let mut configuration = fs::File::options().append(true).open(configuration)?;
        writeln!(configuration, "port = {port}\nprimary_conninfo = '{source}'")?;
        fs::write(standby.data().join("standby.signal"), "")?;
        give_to_server_user(&standby.data())?;
        standby.launch()?;
        Ok(standby)
    }

    /// Waits until a standby has replayed all that its source has written.
    pub async fn caught_up_with(&self, source: &Self) -> Result<()> {
        let end = "SELECT pg_current_wal_flush_lsn()::text";
        let end: String = source.connect().await?.query_one(end, &[]).await?.get(0);
        let client = self.connect().await?;
        let query = "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)";
        until("the standby to catch up", PATIENCE, async || {
            let reached: bool = client.query_one(query, &[&end]).await?.get(0);
            Ok(reached.then_some(()))
        })
        .await
    }

    /// Makes a standby a server of its own, with what it has.
    pub async fn promote(&self) -> Result<()> {
        let client = self.connect().await?;
        let promoted: bool = client.query_one("SELECT pg_promote()", &[]).await?.get(0);
        ensure!(promoted, "it was not promoted in time: {}", self.log());
        Ok(())
    }
}
