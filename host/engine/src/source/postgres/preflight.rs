//! Checks before anything is touched.

use crate::config;

use super::connection::Session;
use super::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub title: String,
    pub detail: String,
    pub fix_sql: Option<String>,
}

/// What the state already says about the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// No pin yet: a slot of that name is somebody else's.
    Absent,
    /// Intended or pinned: the slot may be there.
    Ours,
}

pub async fn inspect(
    _session: &Session,
    _source: &config::Postgres,
    _slot: SlotState,
) -> Result<Vec<Finding>, Failure> {
    Ok(vec![])
}

/// Creates the publication, or adds the tables that it lacks; only with the operator's consent in the configuration.
pub async fn prepare_publication(
    _session: &Session,
    _source: &config::Postgres,
) -> Result<(), Failure> {
    Ok(())
}
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title)
    }
}
