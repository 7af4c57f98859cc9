//! One session at the outlet's server.

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Params, Value as Bound};
use xxhash_rust::xxh3::xxh3_64;

use super::failure::{failed, refused};
use crate::config::MySqlServer;
use crate::outlet::Error;
use crate::source::mysql::connection::{Session, Version};
use crate::source::mysql::failure;
use crate::source::mysql::identifier::quote;

/// How long an earlier session of this pipeline, or somebody else's lock, may take. It must show as a chain that waits,
/// not as one that hangs.
const LOCK_SECONDS: u32 = 30;

/// In addition to what every session of the engine has.
///
/// - Strict for every engine: what does not fit is refused. No backslash is special. Load-bearing: a zero is a value
///   (`NO_AUTO_VALUE_ON_ZERO`), where an operator's table counts by itself. Zero and impossible dates of a source of
///   the same kind are kept.
/// - `READ COMMITTED`: there is one writer, and it needs no locks on gaps.
/// - Foreign keys are the source's affair: a replica gets its tables in an order of its own.
const SETTINGS: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_BACKSLASH_ESCAPES,\
                        NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', foreign_key_checks = 0";
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Prepared statements that are kept: about ten for each table, one for each power of two of rows and kind of write.
const STATEMENTS_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct Server {
    session: Session,
    /// Names of tables are one where they differ in case only.
    folds_names: bool,
    packet_bytes_max: usize,
}

impl Server {
    /// Connects, and waits until an earlier session of this pipeline is over.
    ///
    /// Load-bearing: an engine that is killed may leave a session behind whose COMMIT the server still reads. Rows of that
    /// commit would come to stand behind the truncate barrier of the next scan, where nothing removes them. The lock is
    /// free once that session has ended.
    pub(super) async fn open(
        server: &MySqlServer,
        database: &str,
        pipeline: &str,
    ) -> Result<Self, Error> {
        let session = Session::open_keeping(server, STATEMENTS_MAX).await.map_err(failed)?;
        let mut server = Self { session, folds_names: true, packet_bytes_max: 0 };
        let what = "set up the session at the outlet";
        server
            .run(
                &format!("open database {database} at the outlet"),
                &format!("USE {}", quote(database)),
            )
            .await?;
        server.run(what, SETTINGS).await?;
        server.run(what, ISOLATION).await?;
        let locks = format!(
            "SET SESSION lock_wait_timeout = {LOCK_SECONDS}, innodb_lock_wait_timeout = {LOCK_SECONDS}"
        );
        server.run(what, &locks).await?;
        let asked = "SELECT @@lower_case_table_names, @@max_allowed_packet, @@innodb_flush_log_at_trx_commit";
        let (folds, packet, flushed): (u64, u64, u64) =
            server.row(what, asked, Params::Empty).await?.ok_or_else(|| silent(what))?;
        server.folds_names = folds != 0;
        server.packet_bytes_max = usize::try_from(packet).unwrap_or(usize::MAX);
        if flushed != 1 {
            tracing::warn!(
                innodb_flush_log_at_trx_commit = flushed,
                "the outlet's server may lose commits when its machine fails; set it to 1"
            );
        }
        let lock =
            format!("dovetail.{:016x}", xxh3_64(format!("{database}\0{pipeline}").as_bytes()));
        let what = "wait for an earlier session of this pipeline at the outlet to end";
        let ask = format!("SELECT GET_LOCK(?, {LOCK_SECONDS})");
        let got: Option<(Option<i64>,)> = server.row(what, &ask, (lock,)).await?;
        if got != Some((Some(1),)) {
            return Err(Error::transient(what, "another session holds the pipeline's lock"));
        }
        Ok(server)
    }

    pub(super) fn version(&self) -> Version {
        self.session.version()
    }

    pub(super) fn folds_names(&self) -> bool {
        self.folds_names
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// A statement without parameters and without a result. A definition's change ends the transaction that is open.
    pub(super) async fn run(&mut self, what: &str, sql: &str) -> Result<(), Error> {
        let done = self.session.connection().query_drop(sql).await;
        done.map_err(|error| failed(failure::sql(what, error)))
    }

    /// A COMMIT whose answer does not come may have happened.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        let what = "commit at the outlet";
        match self.session.connection().query_drop("COMMIT").await {
            Ok(()) => Ok(()),
            Err(error @ mysql_async::Error::Server(_)) => Err(failed(failure::sql(what, error))),
            Err(error) => Err(Error::unknown(what, error)),
        }
    }

    pub(super) async fn row<T: FromRow + Send + 'static>(
        &mut self,
        what: &str,
        sql: &str,
        parameters: impl Into<Params> + Send,
    ) -> Result<Option<T>, Error> {
        Ok(self.rows(what, sql, parameters).await?.into_iter().next())
    }

    pub(super) async fn rows<T: FromRow + Send + 'static>(
        &mut self,
        what: &str,
        sql: &str,
        parameters: impl Into<Params> + Send,
    ) -> Result<Vec<T>, Error> {
        self.session.rows_with(what, sql, parameters).await.map_err(failed)
    }

    /// Rows that the statement found.
    pub(super) async fn execute(
        &mut self,
        what: &str,
        sql: &str,
        parameters: impl Into<Params> + Send,
    ) -> Result<u64, Error> {
        let connection = self.session.connection();
        let done = connection.exec_drop(sql, parameters).await;
        done.map_err(|error| failed(failure::sql(what, error)))?;
        Ok(connection.affected_rows())
    }

    /// Writes rows by a statement that stays prepared, and says how many it found. The server's message is not kept: it may
    /// repeat a value.
    pub(super) async fn write(
        &mut self,
        table: &str,
        sql: &str,
        values: Vec<Bound>,
    ) -> Result<u64, Error> {
        let connection = self.session.connection();
        let done = connection.exec_drop(sql, Params::Positional(values)).await;
        done.map_err(|error| refused(format!("write to table {table} of the outlet"), error))?;
        Ok(connection.affected_rows())
    }
}

fn silent(what: &str) -> Error {
    Error::definite(
        format!("{what}: the server does not answer as MySQL or MariaDB do"),
        "check that host and port are those of a MySQL or MariaDB server",
    )
}
