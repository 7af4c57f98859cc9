//! Consistent reads.

use std::sync::Arc;

use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};

use crate::config;

use super::failure::Failure;
use super::scan;
use super::slot::Pin;

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A table was redefined, truncated or rewritten between view and lock: open another view.
    #[error("table {table} changed while the view was opened; ...")]
    Stale { table: TableName },
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// An open, consistent read of some tables, locked against redefinition until it is dropped.
#[derive(Debug)]
pub struct View(());

impl View {
    /// The pin's own view. It holds exactly what committed before the pin, so no fence is needed.
    pub async fn pinned(
        _pin: Pin,
        _source: &config::Postgres,
        _tables: &[TableName],
    ) -> Result<Self, ViewError> {
        unimplemented!()
    }

    /// A view of now.
    pub async fn later(
        _source: &config::Postgres,
        _tables: &[TableName],
    ) -> Result<Self, ViewError> {
        unimplemented!()
    }

    /// What the view contains, as `pg_current_snapshot()` prints it; `None` for the pin's own.
    pub fn fence(&self) -> Option<&str> {
        unimplemented!()
    }

    /// Every transaction that the view contains has its commit record before this position.
    pub fn horizon(&self) -> Lsn {
        unimplemented!()
    }

    /// Microseconds since the Unix epoch, by the server's clock.
    pub fn opened_micros(&self) -> i64 {
        unimplemented!()
    }

    pub fn relations(&self) -> impl Iterator<Item = &Arc<Relation>> {
        std::iter::empty()
    }

    /// Plans the chunks of all tables of the view.
    pub async fn plan(&self, _chunk_rows: u32) -> Result<scan::Plan, Failure> {
        unimplemented!()
    }

    /// Reads the plan's chunks. The scan keeps the view until it is dropped. Rows carry the pin as their position.
    pub async fn scan(
        self,
        _plan: scan::Plan,
        _options: scan::Options,
    ) -> Result<scan::Scan, Failure> {
        unimplemented!()
    }
}
