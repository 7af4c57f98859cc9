//! What the log's descriptions of tables leave open, from the catalog.
//!
//! A description comes from the log, so it is of the change's own time. What it does not say (a key that is no primary
//! key, what older rows hold in a new column, under minimal metadata nearly everything) is looked up in the catalog, which
//! is of *now*. Whether the two can be of one definition is checked where they are put together.
//!
//! The lookup is by a session of its own, and the log waits for it. A table that has been dropped meanwhile is not an
//! error here: under full metadata the log describes it well enough, and its end comes in the log.

use std::sync::Arc;

use dovetail_core::decode::binlog::tables::{CatalogTable, Definition, Description};
use dovetail_core::schema::{Relation, RelationId, TableName};

use super::catalog::{self, Table};
use super::connection::Session;
use super::failure::Failure;
use super::stream::StreamError;
use crate::config::MySqlServer;

pub(super) struct Definitions {
    server: MySqlServer,
    /// Made anew where the server has ended it: tables are described seldom.
    session: Option<Session>,
}

impl Definitions {
    pub(super) fn new(server: MySqlServer, session: Session) -> Self {
        Self { server, session: Some(session) }
    }

    /// The table as the log describes it, completed.
    pub(super) async fn define(
        &mut self,
        described: &Description,
    ) -> Result<Definition, StreamError> {
        let catalog = self.look_up(&described.table).await?.as_ref().map(record);
        described
            .define(&catalog.unwrap_or_default())
            .map_err(|source| StreamError::Undefinable { source: source.into() })
    }

    /// The table as it is now, for a change that concerns all of it; without columns where it has been dropped.
    pub(super) async fn relation(
        &mut self,
        table: &TableName,
    ) -> Result<Arc<Relation>, StreamError> {
        let dropped = || {
            let id = RelationId::of_name(table);
            Arc::new(Relation::new(id, table.clone(), Vec::new(), Vec::new()))
        };
        Ok(self.look_up(table).await?.map_or_else(dropped, |found| found.relation))
    }

    async fn look_up(&mut self, table: &TableName) -> Result<Option<Table>, Failure> {
        if let Some(session) = &mut self.session {
            match catalog::table(session, table).await {
                Err(failure) if failure.is_transient() => self.session = None,
                found => return found,
            }
        }
        let mut session = Session::open(&self.server).await?;
        let found = catalog::table(&mut session, table).await;
        self.session = Some(session);
        found
    }
}

/// In the decoder's terms.
fn record(table: &Table) -> CatalogTable {
    let columns = &table.relation.columns;
    let name = |index: &usize| columns.get(*index).map(|column| column.name.clone());
    CatalogTable {
        columns: table.definitions.to_vec(),
        key: table.relation.key.iter().filter_map(name).collect(),
        initial: columns
            .iter()
            .map(|column| (column.name.clone(), column.initial.clone()))
            .collect(),
        hidden: table.hidden,
    }
}
