//! One session at the outlet's server.

use std::collections::HashMap;

use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{Row, Statement};
use xxhash_rust::xxh3::xxh3_64;

use crate::config;
use crate::outlet::Error;
use crate::outlet::table::quoted;
use crate::source::postgres::connection::Session;
use crate::source::postgres::failure::{Failure, ServerError};

/// `synchronous_commit`: a commit that is answered is durable, whatever the server's default. `lock_timeout`: somebody
/// else's lock must show as a chain that waits, not as one that hangs.
const SETTINGS: &str = "SET synchronous_commit = on; SET lock_timeout = '30s'";

/// Prepared statements that are kept: about one for each table and shape of updates. Beyond it all are prepared anew.
const STATEMENTS_MAX: usize = 512;

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

#[derive(Debug)]
pub(super) struct Server {
    session: Session,
    statements: HashMap<String, Statement>,
}

impl Server {
    /// Connects, and waits until an earlier session of this pipeline is over.
    ///
    /// Load-bearing: an engine that is killed may leave a server process behind that still reads what was sent to it,
    /// its COMMIT included. Rows of that commit would come to stand behind the truncate barrier of the next scan, where
    /// nothing removes them. The lock is free once that process has ended.
    pub(super) async fn open(server: &config::Server, pipeline: &str) -> Result<Self, Error> {
        let session = Session::open(server).await.map_err(failed)?;
        let mut server = Self { session, statements: HashMap::new() };
        server.run("set up the session at the outlet", SETTINGS).await?;
        let lock = xxh3_64(format!("dovetail pipeline {pipeline}").as_bytes()).cast_signed();
        let what = "wait for an earlier session of this pipeline at the outlet to end";
        server.row(what, "SELECT pg_advisory_lock($1)", &[&lock]).await?;
        Ok(server)
    }

    pub(super) async fn run(&mut self, what: &str, sql: &str) -> Result<(), Error> {
        let done = self.session.client().batch_execute(sql).await;
        done.map_err(|error| failed(Failure::sql(what, error)))
    }

    /// A COMMIT whose answer does not come may have happened.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        let what = "commit at the outlet";
        match self.session.client().batch_execute("COMMIT").await {
            Ok(()) => Ok(()),
            Err(error) if error.as_db_error().is_some() => Err(failed(Failure::sql(what, error))),
            Err(error) => Err(Error::unknown(what, error)),
        }
    }

    pub(super) async fn row(
        &mut self,
        what: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        let row = self.session.client().query_opt(sql, parameters).await;
        row.map_err(|error| failed(Failure::sql(what, error)))
    }

    pub(super) async fn one<T: for<'a> FromSql<'a>>(
        &mut self,
        what: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<T>, Error> {
        let Some(row) = self.row(what, sql, parameters).await? else { return Ok(None) };
        row.try_get(0).map(Some).map_err(|error| failed(Failure::sql(what, error)))
    }

    pub(super) async fn rows(
        &mut self,
        what: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let rows = self.session.client().query(sql, parameters).await;
        rows.map_err(|error| failed(Failure::sql(what, error)))
    }

    pub(super) async fn execute(
        &mut self,
        what: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        let done = self.session.client().execute(sql, parameters).await;
        done.map_err(|error| failed(Failure::sql(what, error)))
    }

    /// Writes rows by a statement that stays prepared. The server's message is not kept: it may repeat a value.
    pub(super) async fn write(
        &mut self,
        table: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        let refused = |error: tokio_postgres::Error| {
            let what = format!("write to table {table} of the outlet");
            let Some(code) = error.code() else { return failed(Failure::sql(what, error)) };
            let message = "its message may repeat a row, and is left out".to_owned();
            let report = ServerError { code: code.code().to_owned(), message };
            // A zero date of MySQL's, a number too large for the operator's own type.
            if report.code.starts_with("22") {
                let remedy = "a value does not fit the type of its column there: give the column another type (text takes \
                              what the source prints) and start again, or let a plugin change the value";
                return Error::definite_because(what, remedy, report);
            }
            failed(Failure::server(what, report))
        };
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.session.client().prepare(sql).await.map_err(refused)?;
                if self.statements.len() >= STATEMENTS_MAX {
                    self.statements.clear();
                }
                self.statements.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        self.session.client().execute(&statement, parameters).await.map_err(refused)
    }

    /// Asks first, because even `IF NOT EXISTS` needs the right to create one.
    pub(super) async fn create_schema(&mut self, name: &str) -> Result<(), Error> {
        let what = format!("create schema {name} at the outlet");
        let find = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
        if self.row(&what, find, &[&name]).await?.is_none() {
            self.run(&what, &format!("CREATE SCHEMA {}", quoted(name))).await?;
        }
        Ok(())
    }
}

pub(super) fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Definite { what, advice, source } => {
            Error::Definite { what, remedy: advice, source }
        }
        Failure::Transient { what, advice, source } => {
            Error::Transient { what: format!("{what}; {advice}"), source }
        }
    }
}
