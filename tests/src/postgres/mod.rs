//! Private PostgreSQL servers.
//!
//! Every server of a test has its own data directory and its own port on the loopback interface, and belongs to the
//! test alone, which may therefore kill it, stall it, fill it or set it up wrongly. Dropping a [`Server`] ends the
//! one process that it started and removes the directory.

mod installation;
mod standby;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use installation::give_to_server_user;
pub use installation::{Installation, PASSWORD, Version, cache};
pub(crate) use installation::{is_root, shared_folder};

use crate::certificate;
use crate::wait::{PATIENCE, until_blocking};

/// What differs from the usual test server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    tls: bool,
    durable: bool,
}

impl Options {
    /// A line of `postgresql.conf`; wins over the default of the tests.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Offers TLS with a certificate for `localhost` and 127.0.0.1, signed by [`Server::authority`].
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Keeps `fsync` on. Needed only where the machine, not the server, is meant to crash: what a killed server wrote
    /// is in the kernel's hands already.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }
}

/// A running (or stopped) server of this test's own.
#[derive(Debug)]
pub struct Server {
    version: Version,
    installation: Installation,
    directory: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    pub fn start(version: Version) -> Result<Self> {
        Self::start_with(version, Options::default())
    }

    pub fn start_with(version: Version, options: Options) -> Result<Self> {
        let installation = Installation::of(version)?;
        // Between the choice of a free port and its use, another process may take it.
        for _ in 0..4 {
            let mut server = Self::initialised(version, installation.clone(), &options)?;
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(error) if server.log().contains("could not bind") => drop(error),
                Err(error) => return Err(error),
            }
        }
        bail!("PostgreSQL {} found no free port", version.major())
    }

    fn initialised(
        version: Version,
        installation: Installation,
        options: &Options,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("dovetail-postgres-").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self { version, installation, directory, port, process: None };
        let status = Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .args([server.installation.template(), &server.data()])
            .status()?;
        ensure!(status.success(), "copy the cluster to {}", server.data().display());
        if options.tls {
            certificate::issue(server.directory.path(), &server.data())?;
            give_to_server_user(&server.data())?;
        }
        let configuration = server.data().join("postgresql.conf");
        let mut lines = fs::read_to_string(&configuration)?;
        lines.push_str(&server.settings(options));
        fs::write(&configuration, lines)?;
        Ok(server)
    }

    fn settings(&self, options: &Options) -> String {
        let durable = if options.durable { "on" } else { "off" };
        let tls = if options.tls { "on" } else { "off" };
        let port = self.port.to_string();
        let defaults = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", ""),
            ("wal_level", "logical"),
            ("max_wal_senders", "20"),
            ("max_replication_slots", "20"),
            ("max_prepared_transactions", "10"),
            ("max_connections", "100"),
            ("shared_buffers", "64MB"),
            ("max_wal_size", "4GB"),
            ("fsync", durable),
            ("full_page_writes", durable),
            ("ssl", tls),
            ("logging_collector", "off"),
        ];
        let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // The last line of a name counts.
        defaults
            .into_iter()
            .chain(own)
            .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")))
            .collect()
    }

    fn launch(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.log_file())?;
        let mut process = self
            .installation
            .program("postgres")
            .arg("-D")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start postgres")?;
        let pid = process.id().to_string();
        let ready = until_blocking("PostgreSQL to accept connections", PATIENCE, || {
            if let Some(status) = process.try_wait()? {
                bail!("PostgreSQL ended at once ({status}): {}", self.log());
            }
            let state = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            let lines: Vec<_> = state.lines().map(str::trim).collect();
            // A killed server leaves its file behind, so the process id must be the new one.
            let is_ready = matches!(lines.get(7), Some(&"ready" | &"standby"));
            Ok((lines.first() == Some(&&*pid) && is_ready).then_some(()))
        });
        self.process = Some(process);
        if ready.is_err() {
            self.end(Signal::QUIT)?;
        }
        ready
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// PEM file of the authority that signed the server's certificate; there with [`Options::with_tls`].
    pub fn authority(&self) -> PathBuf {
        certificate::authority(self.directory.path())
    }

    /// What the server wrote to its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// A program of this server's version (`pg_recvlogical`, `psql` ...), told by its environment where the server is.
    /// Only version 15 has more than the server's own.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.installation.program(name);
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres").env("PGPASSWORD", PASSWORD);
        command.env("PGDATABASE", "postgres");
        command
    }

    /// URL of the superuser, password included.
    pub fn url(&self, database: &str) -> String {
        format!("postgresql://postgres:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// A connection of the superuser to the database `postgres`.
    pub async fn connect(&self) -> Result<Client> {
        self.connect_to(&self.url("postgres")).await
    }

    /// A connection as `url` says; the task behind it ends with the client.
    pub async fn connect_to(&self, url: &str) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Ends the server as an administrator would: sessions are cut, the log is flushed.
    pub fn stop(&mut self) -> Result<()> {
        self.end(Signal::INT)
    }

    /// Kills the server like the kernel would when memory runs out. Its other processes notice and end.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// Starts a stopped or killed server again, on its port.
    pub fn restart(&mut self) -> Result<()> {
        if self.process.is_some() {
            self.stop()?;
        }
        // A new postmaster refuses to start while processes of a killed one are still attached.
        until_blocking("PostgreSQL to start again", PATIENCE, || match self.launch() {
            Ok(()) => Ok(Some(())),
            Err(error) if format!("{error:#}").contains("pre-existing shared memory") => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if process.try_wait()?.is_some() {
            return Ok(());
        }
        send(process.id(), Signal::CONT)?;
        send(process.id(), signal)?;
        until_blocking("PostgreSQL to end", PATIENCE, || Ok(process.try_wait()?))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end(Signal::QUIT) {
            eprintln!("end the private PostgreSQL: {error:#}");
        }
    }
}

/// Sends a signal to a process of this test's own: the server or one of its backends.
pub fn send(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).context("not a process id")?;
    kill_process(pid, signal).with_context(|| format!("send {signal:?} to process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn number(server: &Server) -> Result<i32> {
        Ok(server.connect().await?.query_one("SELECT count(*)::int FROM t", &[]).await?.get(0))
    }

    #[tokio::test]
    async fn each_version_starts_and_survives_a_kill() -> Result<()> {
        for version in Version::ALL {
            let mut server = Server::start(version)?;
            let client = server.connect().await?;
            let row = client.query_one("SHOW server_version_num", &[]).await?;
            let shown: String = row.get(0);
            assert!(shown.starts_with(&version.major().to_string()), "{shown}");
            client.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 10) AS id").await?;
            server.kill()?;
            server.restart()?;
            assert_eq!(number(&server).await?, 10);
            server.stop()?;
            server.restart()?;
            assert_eq!(number(&server).await?, 10);
        }
        Ok(())
    }

    #[test]
    fn nothing_is_left_behind() -> Result<()> {
        let server = Server::start_with(Version::V15, Options::default().with_tls())?;
        let (directory, port) = (server.data(), server.port());
        assert!(server.authority().exists());
        drop(server);
        assert!(!directory.exists());
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        Ok(())
    }
}
