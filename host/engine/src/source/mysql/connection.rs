//! Sessions for SQL.
//!
//! Every session is made here, with the same settings, which are read back: a session whose settings are not those
//! that the values were decoded for is an error at the login, not a wrong value later.
//!
//! **What the client library would do otherwise.** It prefers the server's socket file over the network once it is
//! logged in, and so would leave TLS, and this machine: switched off. It answers a server that asks for a local file
//! only if a handler was set: none is. Under `verify-ca` it looks for a word in the text of the verifier's error, which
//! the verifier does not use any more, but it does repeat the name that was expected: so the word is given as that
//! name. Without the trick the certificate is refused, never accepted. A connection that is dropped in the middle of a
//! result reads the rest of it in the background; [`Session::drop`] ends such a connection at the server instead.
//!
//! `prefer` tries with TLS, unverified, and once more in the clear where the server offers none or the handshake fails.
//! Without TLS a password of `caching_sha2_password` is sent encrypted with a key that the server gives; whoever can
//! answer for the server learns it, so a mode that verifies is the default for other machines.

use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{
    Conn, DriverError, Error, IoError, Opts, OptsBuilder, Params, Row, SslOpts, from_row_opt,
    from_value_opt,
};
use tokio::time::timeout;

use super::failure::{self, Failure};
use crate::config::{MySqlServer, SslMode};

/// For name resolution, TCP, TLS and login together, as for PostgreSQL.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// When an idle connection is first asked whether its peer is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// For a statement that is answered from the catalog or from variables. A server that takes longer is not well.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// For the last words of a session that is given up.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Plans and scans have a few statements each; a cache of more would only keep the server's memory.
const STATEMENTS: usize = 8;
/// Load-bearing: see the module's text on `verify-ca`.
const NAME_THAT_IS_NOT_CHECKED: &str = "NotValidForName";

/// A setting of every session: how it is set, how it is asked for, and what the answer must be.
type Setting = (&'static str, &'static str, &'static str);

/// The mode of SQL has neither `PAD_CHAR_TO_FULL_LENGTH` (values would differ from the log's) nor `NO_ZERO_DATE` (a zero
/// date is a legal key to go on from). Limits that a server may set for everybody would cut a table short, or a view.
const SETTINGS: [Setting; 9] = [
    ("sql_mode = 'ALLOW_INVALID_DATES'", "@@SESSION.sql_mode", "ALLOW_INVALID_DATES"),
    ("time_zone = '+00:00'", "@@SESSION.time_zone", "+00:00"),
    ("character_set_results = NULL", "ifnull(@@SESSION.character_set_results, '')", ""),
    ("autocommit = 1", "@@SESSION.autocommit + 0", "1"),
    ("sql_auto_is_null = 0", "@@SESSION.sql_auto_is_null + 0", "0"),
    ("sql_big_selects = 1", "@@SESSION.sql_big_selects + 0", "1"),
    (
        "sql_select_limit = 18446744073709551615",
        "@@SESSION.sql_select_limit",
        "18446744073709551615",
    ),
    // A scan that waits for the outlets, or a view that waits for its turn, is not a dead client.
    ("net_write_timeout = 86400", "@@SESSION.net_write_timeout", "86400"),
    ("wait_timeout = 604800", "@@SESSION.wait_timeout", "604800"),
];

const MARIA_DB: [Setting; 3] = [
    ("max_statement_time = 0", "floor(@@SESSION.max_statement_time)", "0"),
    ("idle_transaction_timeout = 0", "@@SESSION.idle_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout = 0", "@@SESSION.idle_readonly_transaction_timeout", "0"),
];

const MYSQL: [Setting; 2] = [
    ("max_execution_time = 0", "@@SESSION.max_execution_time", "0"),
    // Sizes of tables as they are, not as they were a day ago.
    ("information_schema_stats_expiry = 0", "@@SESSION.information_schema_stats_expiry", "0"),
];

/// From 8.0.30 on: a generated primary key is a column as any other, in the log too.
const MYSQL_GENERATED_KEYS: [Setting; 1] = [(
    "show_gipk_in_create_table_and_information_schema = 1",
    "@@SESSION.show_gipk_in_create_table_and_information_schema + 0",
    "1",
)];

/// Results of several statements, with every column as text.
pub(crate) type Sets = [Vec<Vec<Option<String>>>];

/// Which server is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub maria_db: bool,
    pub number: (u16, u16, u16),
}

/// A session with the engine's settings; ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    /// Taken by `drop` only.
    connection: Option<Conn>,
    server: MySqlServer,
    version: Version,
    /// A result is being read.
    reading: bool,
}

impl Session {
    /// Connects, logs in and settles the session's variables.
    ///
    /// # Errors
    /// Definite: refused login or TLS. Transient: unreachable, starting, out of connections.
    pub async fn open(server: &MySqlServer) -> Result<Self, Failure> {
        Self::open_keeping(server, STATEMENTS).await
    }

    /// As [`open`](Self::open); so many statements stay prepared.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_keeping(server: &MySqlServer, statements: usize) -> Result<Self, Failure> {
        let what = format!("open a session at {}:{}", server.host, server.port);
        let connection = connect(server, &what, statements).await?;
        let version = Version { maria_db: false, number: (0, 0, 0) };
        let server = server.clone();
        let mut session = Self { connection: Some(connection), server, version, reading: false };
        session.settle().await?;
        Ok(session)
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        let what = "set up the session";
        self.run(what, "SET NAMES utf8mb4").await?;
        self.set(&SETTINGS).await?;
        self.run(what, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
        let text: String = self.one(what, "SELECT version()").await?;
        self.version = Version::parse(&text).ok_or_else(|| not_understood(what))?;
        let isolation = match self.version {
            Version { maria_db: true, .. } => {
                self.set(&MARIA_DB).await?;
                "@@SESSION.tx_isolation"
            }
            Version { number, .. } => {
                self.set(&MYSQL).await?;
                if number >= (8, 0, 30) {
                    self.set(&MYSQL_GENERATED_KEYS).await?;
                }
                "@@SESSION.transaction_isolation"
            }
        };
        let isolation: String = self.one(what, &format!("SELECT {isolation}")).await?;
        if isolation == "REPEATABLE-READ" { Ok(()) } else { Err(not_kept(what)) }
    }

    async fn set(&mut self, settings: &[Setting]) -> Result<(), Failure> {
        let what = "set up the session";
        let statements: Vec<String> =
            settings.iter().map(|(set, ..)| format!("SESSION {set}")).collect();
        self.run(what, &format!("SET {}", statements.join(", "))).await?;
        let asked: Vec<String> =
            settings.iter().map(|(_, ask, _)| format!("cast({ask} AS char)")).collect();
        let query = format!("SELECT concat_ws('|', {})", asked.join(", "));
        let found: String = self.one(what, &query).await?;
        let wanted: Vec<&str> = settings.iter().map(|(.., value)| *value).collect();
        if found == wanted.join("|") { Ok(()) } else { Err(not_kept(what)) }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn server(&self) -> &MySqlServer {
        &self.server
    }

    /// The server's number of this session.
    pub fn id(&self) -> u32 {
        self.connection.as_ref().map_or(0, Conn::id)
    }

    pub(crate) fn connection(&mut self) -> &mut Conn {
        self.connection.as_mut().expect("there until it is dropped")
    }

    /// Runs a statement without a result.
    ///
    /// # Errors
    /// By the server's number.
    pub async fn run(&mut self, what: &str, statement: &str) -> Result<(), Failure> {
        self.run_within(what, statement, ANSWER_TIMEOUT).await
    }

    /// As [`run`](Self::run), for what may take longer.
    pub(crate) async fn run_within(
        &mut self,
        what: &str,
        statement: &str,
        limit: Duration,
    ) -> Result<(), Failure> {
        let done = timeout(limit, self.connection().query_drop(statement)).await;
        done.map_err(|_| silent(what))?.map_err(|error| failure::sql(what, error))
    }

    /// Every row of a small result, by the text protocol.
    ///
    /// # Errors
    /// By the server's number; definite where the columns are of other types.
    pub async fn rows<T>(&mut self, what: &str, query: &str) -> Result<Vec<T>, Failure>
    where
        T: FromRow + Send + 'static,
    {
        let rows = timeout(ANSWER_TIMEOUT, self.connection().query::<Row, _>(query)).await;
        let rows = rows.map_err(|_| silent(what))?.map_err(|error| failure::sql(what, error))?;
        rows.into_iter().map(|row| take(row, what)).collect()
    }

    /// As [`rows`](Self::rows), with bound values.
    pub async fn rows_with<T>(
        &mut self,
        what: &str,
        query: &str,
        values: impl Into<Params>,
    ) -> Result<Vec<T>, Failure>
    where
        T: FromRow + Send + 'static,
    {
        let values = values.into();
        let rows =
            timeout(ANSWER_TIMEOUT, self.connection().exec::<Row, _, _>(query, values)).await;
        let rows = rows.map_err(|_| silent(what))?.map_err(|error| failure::sql(what, error))?;
        rows.into_iter().map(|row| take(row, what)).collect()
    }

    /// The first row of a result that has one.
    pub async fn one<T>(&mut self, what: &str, query: &str) -> Result<T, Failure>
    where
        T: FromRow + Send + 'static,
    {
        let rows = self.rows(what, query).await?;
        rows.into_iter().next().ok_or_else(|| not_understood(what))
    }

    /// The results of several statements that are sent in one go; a statement without rows has an empty one.
    pub(crate) async fn texts(
        &mut self,
        what: &str,
        statements: &str,
    ) -> Result<Vec<Vec<Vec<Option<String>>>>, Failure> {
        let connection = self.connection();
        let ask = async {
            let mut result = connection.query_iter(statements).await?;
            let mut sets = Vec::new();
            loop {
                sets.push(result.collect::<Row>().await?);
                if result.is_empty() {
                    return Ok(sets);
                }
            }
        };
        let sets = timeout(ANSWER_TIMEOUT, ask).await;
        let sets: Vec<Vec<Row>> =
            sets.map_err(|_| silent(what))?.map_err(|error| failure::sql(what, error))?;
        let text = |value: mysql_async::Value| from_value_opt::<Option<String>>(value);
        let row = |row: Row| row.unwrap().into_iter().map(text).collect::<Result<Vec<_>, _>>();
        sets.into_iter()
            .map(|rows| rows.into_iter().map(row).collect::<Result<Vec<_>, _>>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| not_understood(what))
    }

    /// Begins to read a result that is too large to hold; the caller says when it is over.
    pub(crate) fn begin_reading(&mut self) -> &mut Conn {
        self.reading = true;
        self.connection()
    }

    pub(crate) fn end_reading(&mut self) {
        self.reading = false;
    }
}

impl Drop for Session {
    /// Ends the connection. In the middle of a result the library would read the rest first, with the view held open
    /// meanwhile. It does so by the runtime of its thread; without one it closes the socket, at which the server ends the
    /// session. (It is not asked to: `KILL` takes a number, which behind an address that leads to several servers is
    /// somebody else's, and now and then it made MariaDB 10.11 crash.)
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.reading {
            // Where there is no thread to be had, it ends here, the long way.
            _ = std::thread::Builder::new().spawn(move || drop(connection));
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Unwatched: nothing depends on a farewell.
            runtime.spawn(timeout(FAREWELL_TIMEOUT, connection.disconnect()));
        }
    }
}

impl Version {
    /// Of `version()`: `9.7.4`, `8.0.41-log`, `10.11.19-MariaDB-0+deb12u1-log`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let mut parts = number.split('.').map(str::parse);
        let mut part = || parts.next()?.ok();
        let number = (part()?, part()?, part().unwrap_or(0));
        // MySQL never names the other in its version; MariaDB always does itself.
        Some(Self { maria_db: text.contains("MariaDB"), number })
    }
}

fn take<T: FromRow>(row: Row, what: &str) -> Result<T, Failure> {
    from_row_opt(row).map_err(|_| not_understood(what))
}

fn not_understood(what: &str) -> Failure {
    Failure::definite(
        format!("{what}: the server's answer has another form"),
        "check that host and port are those of a MySQL or MariaDB server",
    )
}

fn not_kept(what: &str) -> Failure {
    Failure::definite(
        format!("{what}: the server keeps other settings than those that were set"),
        "look for a proxy between this machine and the server, and connect without it",
    )
}

fn silent(what: &str) -> Failure {
    Failure::transient(
        format!("{what}: no answer in {} s", ANSWER_TIMEOUT.as_secs()),
        "the connection is given up and made anew",
    )
}

async fn connect(server: &MySqlServer, what: &str, statements: usize) -> Result<Conn, Failure> {
    let tls = tls(server, what)?;
    let encrypted = tls.is_some();
    let attempt = |tls| async move {
        let made = timeout(LOGIN_TIMEOUT, Conn::new(options(server, tls, statements))).await;
        made.map_err(|_| {
            let seconds = LOGIN_TIMEOUT.as_secs();
            Failure::transient(
                format!("{what}: no answer in {seconds} s"),
                "check that the server runs and that the network lets this machine reach it",
            )
        })
    };
    match attempt(tls).await? {
        Ok(connection) => Ok(connection),
        Err(error) if encrypted && passes_in_the_clear(server, &error) => {
            attempt(None).await?.map_err(|error| failure::sql(what, error))
        }
        Err(error) => Err(failure::sql(what, error)),
    }
}

/// Whether `prefer` goes on without TLS after this.
fn passes_in_the_clear(server: &MySqlServer, error: &Error) -> bool {
    let by_tls = matches!(
        error,
        Error::Io(IoError::Tls(_)) | Error::Driver(DriverError::NoClientSslFlagFromServer)
    );
    server.tls.mode == SslMode::Prefer && (by_tls || failure::is_refused_handshake(error))
}

fn options(server: &MySqlServer, tls: Option<SslOpts>, statements: usize) -> Opts {
    OptsBuilder::default()
        .ip_or_hostname(server.host.clone())
        .tcp_port(server.port)
        .user(Some(server.user.clone()))
        .pass(server.password.as_ref().map(|password| password.reveal().to_owned()))
        .ssl_opts(tls)
        .prefer_socket(false)
        .tcp_keepalive(Some(KEEPALIVE))
        .tcp_nodelay(true)
        // An update that changes nothing has found its row, and says so.
        .client_found_rows(true)
        .stmt_cache_size(Some(statements))
        .into()
}

/// How to encrypt; `None` where nothing is.
fn tls(server: &MySqlServer, what: &str) -> Result<Option<SslOpts>, Failure> {
    let roots = server.tls.root_certificates.as_ref();
    let unverified = || SslOpts::default().with_danger_accept_invalid_certs(true);
    let options = match (server.tls.mode, roots) {
        (SslMode::Disable, _) => return Ok(None),
        (SslMode::Prefer, _) | (SslMode::Require, None) => unverified(),
        (SslMode::Require | SslMode::VerifyCa, _) => trusting(server, what)?
            .with_danger_skip_domain_validation(true)
            .with_danger_tls_hostname_override(Some(NAME_THAT_IS_NOT_CHECKED)),
        (SslMode::VerifyFull, _) => trusting(server, what)?,
    };
    Ok(Some(options))
}

/// Trusts the authorities of the file, or those of the system.
fn trusting(server: &MySqlServer, what: &str) -> Result<SslOpts, Failure> {
    let certificates = crate::tls::authorities(&server.tls).map_err(|error| Failure::Definite {
        what: what.to_owned(),
        advice: "the connection must be encrypted in the way that sslmode says".into(),
        source: Some(error.into()),
    })?;
    let roots = certificates.into_iter().map(|der| der.as_ref().to_vec().into()).collect();
    Ok(SslOpts::default().with_disable_built_in_roots(true).with_root_certs(roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_servers_say() {
        let parse = |text| Version::parse(text).map(|it| (it.maria_db, it.number));
        assert_eq!(parse("9.7.4"), Some((false, (9, 7, 4))));
        assert_eq!(parse("8.0.41-32.log"), Some((false, (8, 0, 41))));
        assert_eq!(parse("10.11.19-MariaDB-0+deb12u1-log"), Some((true, (10, 11, 19))));
        assert_eq!(parse("11.8.2-MariaDB"), Some((true, (11, 8, 2))));
        assert_eq!(parse("none"), None);
    }
}
