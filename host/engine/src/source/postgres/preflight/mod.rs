//! What would make a pipeline impossible, or hurt the application, found before anything is touched.
//!
//! Everything is looked at in a few round trips, and everything that is wrong is reported at once, each with the SQL
//! that mends it. The engine itself changes nothing, with one exception that the operator has to agree to in the
//! configuration: it creates the publication, or adds tables to it. It never adds a table without a usable replica
//! identity, because from then on the application's own UPDATE and DELETE would fail.

mod partition;
mod publication;
mod server;
mod table;

use std::collections::BTreeSet;

use dovetail_core::schema::TableName;

use crate::config;
use crate::source::finding::Finding;

use super::connection::Session;
use super::failure::Failure;

pub use publication::{Prepared, prepare as prepare_publication};

/// What the state already says about the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Neither intended nor pinned: a slot of that name is somebody else's.
    Absent,
    /// Intended: it may be there.
    Intended,
    /// Pinned: it has to be there.
    Pinned,
}

/// Everything that is to be said, errors first. `due` are the tables of which rows will be scanned, `continuing` those
/// that go on by the stream alone; it is `None` before there is a pin.
///
/// # Errors
/// When the server cannot be asked; what it answers is a finding.
pub async fn inspect(
    session: &Session,
    source: &config::Postgres,
    slot: SlotState,
    due: &BTreeSet<TableName>,
    continuing: Option<&BTreeSet<TableName>>,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    // On a server that is too old the other questions would not even be understood.
    if server::inspect(session, source, slot, &mut findings).await? {
        let tables = table::inspect(session, &source.tables, due, &mut findings).await?;
        publication::inspect(session, source, &tables, continuing, &mut findings).await?;
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}
