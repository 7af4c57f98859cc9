//! The tables of `state.db`, from version to version.
//!
//! A file of an older engine is brought up to the newest version by the first engine that opens it for writing, in one
//! transaction. Who only reads (`status`, beside an older engine perhaps) has to understand every version.

use std::path::Path;

use rusqlite::{Connection, Row, Transaction};

use super::gaps::{self, Gap};
use super::{Error, Notes};

/// `PRAGMA user_version`. 1: sources of PostgreSQL only. 2: any kind, and what the source notes for itself. 3: the gap
/// ledger.
const VERSION: i64 = 3;

/// `PRAGMA application_id`: "Dvtl".
const APPLICATION: i64 = 0x4476_746C;

const CREATE: &str = "
CREATE TABLE pipeline (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    system TEXT NOT NULL,
    database TEXT NOT NULL,
    pin TEXT NOT NULL,
    pin_note TEXT,
    checkpoint TEXT,
    checkpoint_note TEXT,
    former_note TEXT,
    finished INTEGER NOT NULL
);
CREATE TABLE tables (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    scan TEXT NOT NULL CHECK (scan IN ('due', 'done', 'skipped')),
    attempts INTEGER,
    relation INTEGER,
    fence TEXT,
    fence_horizon TEXT,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE outlets (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL
) WITHOUT ROWID;";

/// From 1 to 2.
const NOTES: &str = "
ALTER TABLE pipeline ADD COLUMN kind TEXT NOT NULL DEFAULT 'postgres';
ALTER TABLE pipeline ADD COLUMN pin_note TEXT;
ALTER TABLE pipeline ADD COLUMN checkpoint_note TEXT;";

/// From 2 to 3, beside the ledger.
const FORMER: &str = "ALTER TABLE pipeline ADD COLUMN former_note TEXT;";

/// What is in the file.
pub(super) enum Found {
    /// Nothing was ever written there.
    Nothing,
    Version(i64),
}

/// Whether this is a state that can be trusted and understood.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<Found, Error> {
    let failed = |error| Error::database(path, error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id").map_err(failed)?;
    let version = version(connection).map_err(failed)?;
    let objects = number("SELECT count(*) FROM sqlite_schema").map_err(failed)?;
    if (application, version, objects) == (0, 0, 0) {
        return Ok(Found::Nothing);
    }
    if application != APPLICATION {
        return Err(Error::Foreign { path: path.to_owned() });
    }
    if version > VERSION {
        return Err(Error::Newer { path: path.to_owned(), found: version, known: VERSION });
    }
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if verdict != "ok" {
        return Err(Error::Damaged { path: path.to_owned(), what: verdict });
    }
    Ok(Found::Version(version))
}

pub(super) fn create(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(CREATE)?;
    transaction.execute_batch(gaps::CREATE)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)
}

pub(super) fn migrate(transaction: &Transaction<'_>, version: i64) -> rusqlite::Result<()> {
    if version < 2 {
        transaction.execute_batch(NOTES)?;
    }
    if version < 3 {
        transaction.execute_batch(FORMER)?;
        transaction.execute_batch(gaps::CREATE)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}

/// The one row of table `pipeline`, as texts.
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) system: String,
    pub(super) database: String,
    pub(super) pin: String,
    pub(super) checkpoint: Option<String>,
    pub(super) finished: bool,
    pub(super) notes: Notes,
}

pub(super) fn pipeline(connection: &Connection) -> rusqlite::Result<Pipeline> {
    const NEWEST: &str = "SELECT name, kind, system, database, pin, checkpoint, finished, \
         pin_note, checkpoint_note, former_note FROM pipeline";
    const SECOND: &str = "SELECT name, kind, system, database, pin, checkpoint, finished, \
         pin_note, checkpoint_note, NULL FROM pipeline";
    const FIRST: &str = "SELECT name, 'postgres', system, database, pin, checkpoint, finished, \
         NULL, NULL, NULL FROM pipeline";
    let query = match version(connection)? {
        ..2 => FIRST,
        2 => SECOND,
        3.. => NEWEST,
    };
    let read = |row: &Row<'_>| {
        Ok(Pipeline {
            name: row.get(0)?,
            kind: row.get(1)?,
            system: row.get(2)?,
            database: row.get(3)?,
            pin: row.get(4)?,
            checkpoint: row.get(5)?,
            finished: row.get(6)?,
            notes: notes(row)?,
        })
    };
    connection.query_row(query, [], read)
}

fn notes(row: &Row<'_>) -> rusqlite::Result<Notes> {
    let (pin, former): (Option<String>, Option<String>) = (row.get(7)?, row.get(9)?);
    let system = if pin.is_none() && former.is_none() { None } else { Some(row.get(2)?) };
    Ok(Notes { pin, checkpoint: row.get(8)?, former, system })
}

/// The gap ledger, which older files do not have.
pub(super) fn gaps(connection: &Connection) -> rusqlite::Result<Vec<Gap>> {
    if version(connection)? < 3 { Ok(Vec::new()) } else { gaps::list(connection) }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}
