//! Private MySQL and MariaDB servers.
//!
//! As with [`crate::postgres`]: a data directory, a port on the loopback interface and a server id of its own; the test
//! may kill it, stall it, purge it or set it up wrongly. Dropping a [`Server`] ends the one process that it started
//! and removes the directory.

mod hang;
mod installation;
pub mod log;
pub mod printed;
mod replica;
mod torn;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use rustix::process::Signal;
use tempfile::TempDir;

pub use installation::{Installation, Version};
pub use torn::Torn;

use crate::certificate;
use crate::postgres::{PASSWORD, send};
use crate::wait::{PATIENCE, until_blocking};

/// What differs from the usual test server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    tls: bool,
    durable: bool,
}

impl Options {
    /// An option of the server, without its dashes; wins over the default of the tests.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Offers TLS with a certificate for `localhost` and 127.0.0.1, signed by [`Server::authority`].
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Syncs both logs at every commit, as servers do by default. What a killed server wrote is in the kernel's hands
    /// already; only the width of the window between the two logs differs.
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
    options: Options,
    process: Option<Child>,
}

impl Server {
    /// A server with row events, whole row images and full metadata, GTIDs, and the usual checksums.
    pub fn start(version: Version) -> Result<Self> {
        Self::start_with(version, Options::default())
    }

    pub fn start_with(version: Version, options: Options) -> Result<Self> {
        let installation = Installation::of(version)?;
        // Between the choice of a free port and its use, another process may take it.
        for _ in 0..4 {
            let mut server = Self::initialised(version, installation.clone(), options.clone())?;
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(error) if server.log().contains("already in use") => drop(error),
                Err(error) => return Err(error),
            }
        }
        bail!("{version} found no free port")
    }

    fn initialised(version: Version, installation: Installation, options: Options) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("dovetail-mysql-").tempdir()?;
        // Of its own: a MariaDB that starts removes the temporary tables of all others that share it.
        fs::create_dir(directory.path().join("tmp"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self { version, installation, directory, port, options, process: None };
        let status = Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .args([server.installation.template(), &server.data()])
            .status()?;
        ensure!(status.success(), "copy the data directory to {}", server.data().display());
        if server.options.tls {
            certificate::issue(server.directory.path(), &server.data())?;
        }
        Ok(server)
    }

    fn settings(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let port = self.port.to_string();
        let mut settings: Vec<(&str, &str)> = vec![
            ("bind-address", "127.0.0.1"),
            ("port", &port),
            // Ports are as unique as server ids must be.
            ("server-id", &port),
            ("skip-name-resolve", "ON"),
            ("max-connections", "200"),
            ("innodb-buffer-pool-size", "64M"),
            ("log-bin", "binlog"),
            ("binlog-format", "ROW"),
            ("binlog-row-image", "FULL"),
            ("binlog-row-metadata", "FULL"),
            ("report-host", "127.0.0.1"),
            ("report-port", &port),
        ];
        if !self.options.durable {
            settings.extend([("sync-binlog", "0"), ("innodb-flush-log-at-trx-commit", "2")]);
        }
        if self.version.is_mariadb() {
            settings.extend([("gtid-strict-mode", "ON"), ("log-slave-updates", "ON")]);
            settings.push(("innodb-log-file-size", "64M"));
        } else {
            settings.extend([("gtid-mode", "ON"), ("enforce-gtid-consistency", "ON")]);
            // Debian's default is a folder that only its package makes.
            settings.extend([("innodb-redo-log-capacity", "128M"), ("secure-file-priv", "NULL")]);
        }
        let mut settings: Vec<_> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let files =
            [("datadir", "data"), ("tmpdir", "tmp"), ("socket", "socket"), ("pid-file", "pid")];
        for (name, file) in files {
            settings.push((name.to_owned(), path(file)));
        }
        if self.options.tls {
            for (name, file) in [("ssl-cert", "data/server.crt"), ("ssl-key", "data/server.key")] {
                settings.push((name.to_owned(), path(file)));
            }
            settings.push(("ssl-ca".to_owned(), self.authority().display().to_string()));
        }
        // The last one of a name counts.
        settings.extend(self.options.settings.iter().cloned());
        settings
    }

    fn launch(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.log_file())?;
        let begin = self.log().len();
        let settings = self.settings();
        let mut process = self
            .installation
            .server()
            .args(settings.iter().map(|(name, value)| format!("--{name}={value}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", self.version))?;
        let ready = until_blocking("the server to accept connections", PATIENCE, || {
            if let Some(status) = process.try_wait()? {
                bail!("{} ended at once ({status}): {}", self.version, self.log());
            }
            // Asked of its log: at the port, somebody else might answer.
            let log = self.log();
            let life = log.get(begin..).unwrap_or_default();
            Ok(life.contains("ready for connections").then_some(()))
        });
        self.process = Some(process);
        if ready.is_err() {
            self.end(Signal::KILL)?;
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

    /// What the server wrote to its error log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// Changes an option; it counts from the next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.options.settings.push((name.to_owned(), value.to_owned()));
    }

    /// URL of the superuser, password included.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// A client program of this server's version (`mariadb`, `mysql`), told by arguments where the server is.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.installation.program(name));
        command.args(["--no-defaults", "--host=127.0.0.1", "--user=root"]);
        command.arg(format!("--port={}", self.port)).arg(format!("--password={PASSWORD}"));
        command
    }

    /// What the server's own reader says of a binlog file, rows included: `mariadb-binlog -v` or `mysqlbinlog -v`.
    pub fn printed_log(&self, file: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.printed_bytes(file)?).into_owned())
    }

    /// Its text is in the columns' own character sets.
    fn printed_bytes(&self, file: &str) -> Result<Vec<u8>> {
        let name = if self.version.is_mariadb() { "mariadb-binlog" } else { "mysqlbinlog" };
        let output = Command::new(self.installation.program(name))
            .args(["--no-defaults", "-v", "--base64-output=DECODE-ROWS"])
            .arg(self.data().join(file))
            .output()
            .with_context(|| format!("start {name}"))?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    }

    /// A connection of the superuser, in no database.
    pub async fn connect(&self) -> Result<Conn> {
        self.connect_as("root", PASSWORD).await
    }

    pub async fn connect_as(&self, user: &str, password: &str) -> Result<Conn> {
        let options = self.options_for(user, password);
        Conn::new(options).await.with_context(|| format!("connect to {} as {user}", self.version))
    }

    /// How to connect, for those who need a connection other than the usual one.
    pub fn options_for(&self, user: &str, password: &str) -> Opts {
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(user))
            .pass(Some(password))
            // A test that kills its server must not be moved to its socket file.
            .prefer_socket(false)
            .into()
    }

    /// Ends the server as an administrator would.
    pub fn stop(&mut self) -> Result<()> {
        self.end(Signal::TERM)
    }

    /// Kills the server like the kernel would when memory runs out.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// Starts a stopped or killed server again, on its port.
    pub fn restart(&mut self) -> Result<()> {
        if self.process.is_some() {
            self.stop()?;
        }
        self.launch()
    }

    /// Lets the server do nothing any more, its connections open, until [`Server::go_on`].
    pub fn stall(&self) -> Result<()> {
        send(self.pid()?, Signal::STOP)
    }

    pub fn go_on(&self) -> Result<()> {
        send(self.pid()?, Signal::CONT)
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("the server is not running")?.id())
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if process.try_wait()?.is_some() {
            return Ok(());
        }
        send(process.id(), Signal::CONT)?;
        send(process.id(), signal)?;
        until_blocking("the server to end", PATIENCE, || Ok(process.try_wait()?))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end(Signal::KILL) {
            eprintln!("end the private {}: {error:#}", self.version);
        }
    }
}

/// Runs statements one after the other; none gives rows.
pub async fn execute(connection: &mut Conn, statements: &[&str]) -> Result<()> {
    for statement in statements {
        connection.query_drop(*statement).await.with_context(|| (*statement).to_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn number(server: &Server) -> Result<i64> {
        let mut connection = server.connect().await?;
        connection.query_first("SELECT count(*) FROM test.t").await?.context("a number")
    }

    #[tokio::test]
    async fn each_version_starts_and_survives_a_kill() -> Result<()> {
        for version in Version::installed()? {
            let mut server = Server::start(version)?;
            let mut connection = server.connect().await?;
            let shown: String = connection.query_first("SELECT @@version").await?.context("one")?;
            let number_of_it = version.name().split('-').next_back().context("a number")?;
            assert!(shown.starts_with(number_of_it), "{shown}");
            execute(
                &mut connection,
                &[
                    "CREATE DATABASE IF NOT EXISTS test",
                    "CREATE TABLE test.t (id int PRIMARY KEY)",
                    "INSERT INTO test.t VALUES (1), (2), (3)",
                ],
            )
            .await?;
            server.kill()?;
            server.restart()?;
            assert_eq!(number(&server).await?, 3);
            server.stop()?;
            server.restart()?;
            assert_eq!(number(&server).await?, 3);
            assert!(server.printed_log("binlog.000001")?.contains("### INSERT INTO `test`.`t`"));
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_replica_takes_over_with_everything() -> Result<()> {
        for version in Version::installed()? {
            let source = Server::start(version)?;
            let mut connection = source.connect().await?;
            let statements = [
                "CREATE DATABASE IF NOT EXISTS test",
                "CREATE TABLE test.t (id int PRIMARY KEY)",
                "INSERT INTO test.t VALUES (1), (2), (3)",
            ];
            execute(&mut connection, &statements).await?;
            let replica = source.replica(Options::default()).await?;
            replica.caught_up_with(&source).await?;
            replica.promote().await?;
            drop(connection);
            drop(source);
            assert_eq!(number(&replica).await?, 3);
            let mut connection = replica.connect().await?;
            execute(&mut connection, &["INSERT INTO test.t VALUES (4)"]).await?;
            assert_eq!(number(&replica).await?, 4);
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_server_with_tls_shows_the_certificate_of_its_authority() -> Result<()> {
        for version in Version::installed()? {
            let server = Server::start_with(version, Options::default().with_tls())?;
            let tls = mysql_async::SslOpts::default()
                .with_root_certs(vec![server.authority().into()])
                .with_disable_built_in_roots(true);
            let plain = server.options_for("root", PASSWORD);
            let options = OptsBuilder::from_opts(plain).ssl_opts(tls);
            let mut connection = Conn::new(options).await?;
            let query = "SHOW STATUS LIKE 'Ssl_cipher'";
            let (_, cipher): (String, String) =
                connection.query_first(query).await?.context("one")?;
            assert!(!cipher.is_empty());
        }
        Ok(())
    }
}
