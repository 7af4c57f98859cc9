//! Definitions of tables.

use std::sync::Arc;

use dovetail_core::schema::Relation;

/// A captured table as a view sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub relation: Arc<Relation>,
}

/// Who the server is; stored with the position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub system: u64,
    pub database: String,
}
