//! The workload on MySQL and MariaDB.
//!
//! The same tables and promises as on PostgreSQL. What is different there:
//!
//! - A transaction does not know its own name, so it is told by the row that it adds to `marker`. A `TRUNCATE` is a
//!   transaction of its own; its marker stands in a comment, which the log keeps.
//! - Some transactions are committed in two phases, by XA. One that is left over prepared by a broken connection is
//!   committed by its writer when it is back, and rolled back at the end where it is not.
//! - Beside the captured tables stands one without transactions, `journal`, whose rows the log closes in its own way.

mod table;
mod writer;

use anyhow::{Context, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

pub use table::TABLES;
pub(super) use table::create;
pub(super) use writer::Writer;

use super::{Outcome, Record};
use crate::mysql::Server;
use crate::mysql::log::{Transaction, What};
use crate::wait::{PATIENCE, until};

/// The database of the tables.
pub const DATABASE: &str = "trial";

/// A transaction of a workload, as the server's log has it.
#[derive(Debug)]
pub struct Commit {
    pub marker: i64,
    pub transaction: Transaction,
}

/// What of the workload is in the log, in the order of the commits.
pub async fn commits(server: &Server) -> Result<Vec<Commit>> {
    let logged = server.logged().await?;
    Ok(logged
        .into_iter()
        .filter_map(|transaction| marker(&transaction).map(|marker| Commit { marker, transaction }))
        .collect())
}

fn marker(transaction: &Transaction) -> Option<i64> {
    let row = transaction.rows.iter().find(|row| row.table == "trial.marker");
    if let Some(row) = row.filter(|row| row.what == What::Insert) {
        return row.first;
    }
    let statement = transaction.statement.as_deref().filter(|text| text.starts_with("TRUNCATE"))?;
    let (_, comment) = statement.split_once("/* ")?;
    comment.split_once(" */")?.0.parse().ok()
}

/// The text of a connection's truncate.
fn truncate(marker: i64) -> String {
    format!("TRUNCATE TABLE trial.scratch /* {marker} */")
}

impl Record {
    /// Asks the server about every unknown outcome: a transaction is committed iff its log has it.
    pub(super) async fn resolve_by_log(&mut self, server: &Server) -> Result<()> {
        let mut connection = server.connect().await?;
        roll_back_prepared(&mut connection).await?;
        let ended = "SELECT count(*) FROM information_schema.processlist \
                     WHERE db = 'trial' AND id <> connection_id() AND command <> 'Binlog Dump'";
        until("the writers' sessions to end", PATIENCE, async || {
            let left: Option<i64> = connection.query_first(ended).await?;
            Ok((left == Some(0)).then_some(()))
        })
        .await?;
        // Those that a session left over while it ended.
        roll_back_prepared(&mut connection).await?;
        let committed = commits(server).await?;
        let unknown = self.transactions.iter_mut().filter(|it| it.outcome == Outcome::Unknown);
        for transaction in unknown {
            let there = committed.iter().any(|commit| commit.marker == transaction.marker);
            transaction.outcome = if there { Outcome::Committed } else { Outcome::RolledBack };
        }
        Ok(())
    }
}

async fn roll_back_prepared(connection: &mut Conn) -> Result<()> {
    let prepared: Vec<mysql_async::Row> = connection.query("XA RECOVER").await?;
    for row in prepared {
        let id: String = row.get("data").context("the id of a prepared transaction")?;
        connection.query_drop(format!("XA ROLLBACK '{id}'")).await?;
    }
    Ok(())
}
