//! Deals out the chunks of the tables to the workers.
//!
//! The worker that takes a chunk finds its end, in its own connection to the view, while it has the table to itself; the
//! others read theirs meanwhile. So boundaries are found ahead of those who read, by nobody in particular, and as many
//! as there are chunks under way.

use std::sync::Arc;

use dovetail_core::batch::ChunkId;
use tokio::sync::Mutex;

use super::catalog::Table;
use super::chunk::{Key, Statements};
use super::connection::Session;
use super::failure::Failure;
use crate::progress::Table as Progress;

/// A table of the scan.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) table: Table,
    pub(super) statements: Statements,
    pub(super) progress: Arc<Progress>,
    chunks: u32,
    cut: Mutex<Cut>,
}

/// How far it is dealt out.
#[derive(Debug, Default)]
struct Cut {
    next: u32,
    after: Option<Key>,
    /// No row is behind `after`.
    ended: bool,
}

/// What there is to read.
#[derive(Debug)]
pub(super) enum Range {
    /// Nothing: the index ended before.
    Empty,
    /// Up to and with the key.
    Upto(Option<Key>, Key),
    /// All that is left, in pages.
    Rest(Option<Key>),
    /// The whole table in one pass.
    Whole,
}

impl Task {
    pub(super) fn new(table: Table, chunks: u32, progress: Arc<Progress>) -> Self {
        let statements = Statements::new(&table);
        Self { table, statements, progress, chunks, cut: Mutex::default() }
    }

    /// The next chunk; `None` when all are dealt out.
    pub(super) async fn take(
        &self,
        session: &mut Session,
        chunk_rows: u32,
    ) -> Result<Option<(ChunkId, Range)>, Failure> {
        let mut cut = self.cut.lock().await;
        if cut.next >= self.chunks {
            return Ok(None);
        }
        let id = ChunkId { table: self.table.relation.id, number: cut.next };
        cut.next += 1;
        if cut.ended {
            return Ok(Some((id, Range::Empty)));
        }
        let after = cut.after.clone();
        let Some((statement, values)) = self.statements.boundary(after.as_ref(), chunk_rows) else {
            cut.ended = true;
            return Ok(Some((id, Range::Whole)));
        };
        if cut.next < self.chunks {
            let what = format!("cut {}", self.table.relation.table);
            let rows: Vec<mysql_async::Row> = session.rows_with(&what, &statement, values).await?;
            if let Some(row) = rows.into_iter().next() {
                let end: Key = row.unwrap();
                cut.after = Some(end.clone());
                return Ok(Some((id, Range::Upto(after, end))));
            }
        }
        cut.ended = true;
        Ok(Some((id, Range::Rest(after))))
    }
}
