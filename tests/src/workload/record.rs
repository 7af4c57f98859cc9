//! What the writers did.

use anyhow::{Context, Result};
use tokio_postgres::Client;

use crate::wait::{PATIENCE, until};

/// All transactions of a workload; those of one writer in their order.
#[derive(Debug, Default)]
pub struct Record {
    pub transactions: Vec<Transaction>,
}

#[derive(Debug)]
pub struct Transaction {
    /// Unique in the workload; a row of the table `marker` carries it.
    pub marker: i64,
    /// PostgreSQL's 64-bit id of the top-level transaction; other servers give none to the session. A server that crashes may give the id of a transaction
    /// that left nothing in the log to another one; at most one of them is committed.
    pub xid: Option<u64>,
    pub outcome: Outcome,
    /// In order, without those that a savepoint took back.
    pub changes: Vec<Change>,
    /// What a savepoint took back; must never be seen.
    pub undone: Vec<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    RolledBack,
    /// The connection broke between the `COMMIT` and its answer.
    Unknown,
}

/// One changed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub table: &'static str,
    /// Text of the key; of a row without one its `line`. Empty for a truncate.
    pub key: String,
    pub what: What,
    /// Of the row after the change; of a delete, the version that this writer would have written.
    pub version: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Insert,
    Update,
    /// An update that gives the row another key: a delete of the old one and an insert.
    Move {
        from: String,
    },
    Delete,
    Truncate,
}

impl Record {
    /// Asks the server about every unknown outcome: a transaction is committed iff its marker is there.
    pub(super) async fn resolve(&mut self, client: &Client) -> Result<()> {
        let unknown = self.transactions.iter_mut().filter(|tx| tx.outcome == Outcome::Unknown);
        for transaction in unknown {
            let ended = "SELECT coalesce(pg_xact_status($1::text::xid8), '') <> 'in progress'";
            let there = "SELECT EXISTS (SELECT FROM marker WHERE id = $1)";
            let xid = transaction.xid.context("a transaction of PostgreSQL")?.to_string();
            let outcome =
                until("a transaction of a lost connection to end", PATIENCE, async || {
                    // In this order: once it has ended, the marker's absence is final.
                    if !client.query_one(ended, &[&xid]).await?.get::<_, bool>(0) {
                        return Ok(None);
                    }
                    let committed = client.query_one(there, &[&transaction.marker]).await?.get(0);
                    Ok(Some(if committed { Outcome::Committed } else { Outcome::RolledBack }))
                });
            transaction.outcome = outcome.await?;
        }
        Ok(())
    }

    pub fn committed(&self) -> impl Iterator<Item = &Transaction> {
        self.transactions.iter().filter(|transaction| transaction.outcome == Outcome::Committed)
    }

    /// Rows changed by committed transactions; a move counts as the two changes that it is delivered as.
    pub fn changes(&self) -> u64 {
        let changes = self.committed().flat_map(|transaction| &transaction.changes);
        changes.map(|change| if matches!(change.what, What::Move { .. }) { 2 } else { 1 }).sum()
    }
}
