//! The gap ledger: which changes a pipeline could not have, and what was done about it.
//!
//! A pipeline whose log is gone stops (I7), and before its process ends it writes down here what is missing. The same
//! stop again is the same gap. What becomes of a gap is written beside it: an operator *accepted* it, and the tables were
//! scanned again from a new pin; or it is *closed*, because the log was there after all (a server lagged behind, or was the
//! wrong one).
//!
//! **Append-only**: triggers of the file itself refuse to change or remove a line, whoever asks. A gap that was accepted is
//! a fact about every copy that was made of the data before.

use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::Serialize;

pub(super) const CREATE: &str = "
CREATE TABLE gaps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    seen TEXT NOT NULL,
    loss TEXT NOT NULL,
    gap_from TEXT NOT NULL,
    gap_to TEXT,
    tables TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE gap_ends (
    gap INTEGER NOT NULL REFERENCES gaps (id),
    at TEXT NOT NULL,
    what TEXT NOT NULL CHECK (what IN ('accepted', 'pinned', 'closed')),
    position TEXT
);
CREATE TRIGGER gaps_stay BEFORE UPDATE ON gaps BEGIN SELECT raise(ABORT, 'the gap ledger is append-only'); END;
CREATE TRIGGER gaps_remain BEFORE DELETE ON gaps BEGIN SELECT raise(ABORT, 'the gap ledger is append-only'); END;
CREATE TRIGGER gap_ends_stay BEFORE UPDATE ON gap_ends BEGIN SELECT raise(ABORT, 'the gap ledger is append-only'); END;
CREATE TRIGGER gap_ends_remain BEFORE DELETE ON gap_ends BEGIN SELECT raise(ABORT, 'the gap ledger is append-only'); END;";

/// Coordinated universal time, by the clock of this machine.
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')";
/// Nothing has become of it yet.
const OPEN: &str = "NOT EXISTS (SELECT 1 FROM gap_ends WHERE gap = gaps.id)";

/// One line of the ledger, with what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    pub id: i64,
    /// When it was written down.
    pub seen: String,
    /// See [`seam::Loss`].
    pub loss: String,
    /// The last position up to which nothing is missing.
    pub from: String,
    /// Where the log went on, as far as it was known.
    pub to: Option<String>,
    pub tables: Vec<String>,
    /// What happened and what to do, as it was said then.
    pub reason: String,
    #[serde(flatten)]
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    Open,
    Accepted {
        accepted: String,
        /// The new pin, from which the tables were scanned again; none yet where that has not come to it.
        pin: Option<String>,
    },
    /// The log was there after all.
    Closed {
        closed: String,
    },
}

impl Gap {
    pub fn is_open(&self) -> bool {
        self.fate == Fate::Open
    }
}

/// Oldest first.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<Gap>> {
    let end = |what: &str, column: &str| {
        format!("(SELECT {column} FROM gap_ends WHERE gap = gaps.id AND what = '{what}')")
    };
    let query = format!(
        "SELECT id, seen, loss, gap_from, gap_to, tables, reason, {}, {}, {} FROM gaps ORDER BY id",
        end("accepted", "at"),
        end("pinned", "position"),
        end("closed", "at"),
    );
    let gap = |row: &Row<'_>| {
        let tables: String = row.get(5)?;
        let fate = match (row.get(7)?, row.get(9)?) {
            (Some(accepted), _) => Fate::Accepted { accepted, pin: row.get(8)? },
            (None, Some(closed)) => Fate::Closed { closed },
            (None, None) => Fate::Open,
        };
        Ok(Gap {
            id: row.get(0)?,
            seen: row.get(1)?,
            loss: row.get(2)?,
            from: row.get(3)?,
            to: row.get(4)?,
            tables: serde_json::from_str(&tables).unwrap_or_default(),
            reason: row.get(6)?,
            fate,
        })
    };
    connection.prepare(&query)?.query_map([], gap)?.collect()
}

/// The number of this gap, which is written down where it is not open already.
pub(super) fn enter(
    transaction: &Transaction<'_>,
    gap: seam::Gap,
    tables: &[TableName],
    reason: &str,
) -> rusqlite::Result<i64> {
    let (loss, from) = (gap.loss.name(), gap.from.to_string());
    let known = format!("SELECT id FROM gaps WHERE loss = ? AND gap_from = ? AND {OPEN}");
    let known = transaction.query_row(&known, params![loss, from], |row| row.get(0)).optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    let names: Vec<String> = tables.iter().map(TableName::to_string).collect();
    let names = serde_json::to_string(&names).expect("texts have a JSON form");
    let insert = format!(
        "INSERT INTO gaps (seen, loss, gap_from, gap_to, tables, reason) VALUES ({NOW}, ?, ?, ?, ?, ?)"
    );
    let to = gap.to.map(|lsn| lsn.to_string());
    transaction.execute(&insert, params![loss, from, to, names, reason])?;
    Ok(transaction.last_insert_rowid())
}

/// The log is there: whatever was open is closed.
pub(super) fn close(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    end_open(transaction, "closed").map(drop)
}

/// An operator takes it as it is, and with it whatever else is open: it is one scan that answers all of them. `false`
/// where this one is not open.
pub(super) fn accept(transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<bool> {
    let query = format!("SELECT EXISTS (SELECT 1 FROM gaps WHERE id = ? AND {OPEN})");
    let is_open: bool = transaction.query_row(&query, [id], |row| row.get(0))?;
    if is_open {
        end_open(transaction, "accepted")?;
    }
    Ok(is_open)
}

/// The pin that takes the place of one that was given up.
pub(super) fn pinned(transaction: &Transaction<'_>, pin: Lsn) -> rusqlite::Result<()> {
    let insert = format!(
        "INSERT INTO gap_ends SELECT gap, {NOW}, 'pinned', ? FROM gap_ends accepted WHERE what = 'accepted'
         AND NOT EXISTS (SELECT 1 FROM gap_ends WHERE gap = accepted.gap AND what = 'pinned')"
    );
    transaction.execute(&insert, [pin.to_string()]).map(drop)
}

fn end_open(transaction: &Transaction<'_>, what: &str) -> rusqlite::Result<usize> {
    let insert = format!("INSERT INTO gap_ends SELECT id, {NOW}, ?, NULL FROM gaps WHERE {OPEN}");
    transaction.execute(&insert, [what])
}
