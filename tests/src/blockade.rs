//! Things that stand in an engine's way, put there by a test and taken away again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};

use crate::wait::{PATIENCE, until};

/// Holds the write lock of an SQLite replica: the outlet can be read, but refuses every write until this is dropped.
#[derive(Debug)]
pub struct Held {
    _connection: Connection,
}

/// Waits for the replica to exist, and takes its write lock between two of the engine's transactions.
pub async fn hold(replica: &Path) -> Result<Held> {
    until("the write lock of the replica", PATIENCE, async || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let Ok(connection) = Connection::open_with_flags(replica, flags) else { return Ok(None) };
        connection.busy_timeout(Duration::from_secs(5))?;
        let held = connection.execute_batch("BEGIN IMMEDIATE").ok();
        Ok(held.map(|()| Held { _connection: connection }))
    })
    .await
}

/// A number that a query of an SQLite replica gives; `None` while there is no such table.
pub fn number(replica: &Path, query: &str) -> Result<Option<i64>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(connection) = Connection::open_with_flags(replica, flags) else { return Ok(None) };
    connection.busy_timeout(Duration::from_secs(5))?;
    let Ok(mut statement) = connection.prepare(query) else { return Ok(None) };
    statement.query_row([], |row| row.get(0)).context("ask the replica")
}
