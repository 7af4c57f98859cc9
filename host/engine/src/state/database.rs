//! `state.db`: the record, and what the source notes beside it, as tables that a person can read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::seam::{self, Fenced, Pin, Record, Scan, Step};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use super::schema::{self, Found};
use super::{Content, Error, gaps};
use crate::origin::{Kind, Origin, Source};

const FILE: &str = "state.db";

/// Somebody who copies the file (a backup) may hold it this long.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
}

impl Database {
    /// Opens the file for writing, or begins it.
    pub(super) fn open(directory: &Path, origin: &Origin) -> Result<(Self, Content), Error> {
        let (mut database, found) = Self::of_file(directory)?;
        if let Found::Nothing = found {
            database.begin(origin)?;
        }
        let content = content(&database.connection, &database.path)?;
        if content.origin != *origin {
            let (saved, now) = (Box::new(content.origin), Box::new(origin.clone()));
            return Err(Error::OtherOrigin { path: database.path, saved, now });
        }
        Ok((database, content))
    }

    /// Opens what is there for writing, whatever its source is.
    pub(super) fn open_of(directory: &Path, pipeline: &str) -> Result<Self, Error> {
        let (database, _) = Self::of_file(directory)?;
        let owner = content(&database.connection, &database.path)?.origin.pipeline;
        if owner != pipeline {
            return Err(Error::OtherPipeline { path: database.path, owner });
        }
        Ok(database)
    }

    /// Of the newest version, if there is anything in it.
    fn of_file(directory: &Path) -> Result<(Self, Found), Error> {
        let path = directory.join(FILE);
        let failed = |error| Error::database(&path, error);
        let connection = Connection::open(&path).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        let found = schema::check(&connection, &path)?;
        connection
            .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
            .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
            .map_err(failed)?;
        let mut database = Self { connection, path };
        if let Found::Version(version) = found {
            database.transact(|transaction| schema::migrate(transaction, version))?;
        }
        Ok((database, found))
    }

    /// Reads the file, whoever writes it.
    pub(super) fn read(directory: &Path) -> Result<Option<Content>, Error> {
        let path = directory.join(FILE);
        if !path.try_exists().map_err(|error| Error::directory(directory, error))? {
            return Ok(None);
        }
        let failed = |error| Error::database(&path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // One moment: a step between two queries would give a record that never was.
        let moment = connection.transaction().map_err(failed)?;
        if let Found::Nothing = schema::check(&moment, &path)? {
            return Ok(None);
        }
        content(&moment, &path).map(Some)
    }

    /// Saves what a step leaves of the part of the record that it changes. Not the whole record: with thousands of
    /// tables, a write for each of them that is done would be millions of rows. `note` is the source's of the pin.
    pub(super) fn write(
        &mut self,
        step: &Step,
        part: &Record,
        note: Option<&str>,
    ) -> Result<(), Error> {
        self.transact(|transaction| {
            transaction.execute(
                "UPDATE pipeline SET pin = ?, checkpoint = ?, finished = ?, pin_note = coalesce(?, pin_note)",
                params![
                    pin_text(part.pin),
                    part.checkpoint.map(|lsn| lsn.to_string()),
                    part.finished,
                    note
                ],
            )?;
            if let Step::Pin(pin) = step {
                gaps::pinned(transaction, *pin)?;
            }
            if *step == Step::Finish {
                transaction.execute("UPDATE tables SET fence = NULL, fence_horizon = NULL", [])?;
            }
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO tables (namespace, name, scan, attempts, relation, fence, fence_horizon)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (table, scan) in &part.tables {
                let (word, attempts, relation, fenced) = match scan {
                    Scan::Due { attempts } => ("due", Some(*attempts), None, None),
                    Scan::Done { relation, fenced } => ("done", None, Some(relation.0), fenced.as_ref()),
                    Scan::Skipped { relation } => ("skipped", None, Some(relation.0), None),
                };
                insert.execute(params![
                    table.namespace,
                    table.name,
                    word,
                    attempts,
                    relation,
                    fenced.map(|fenced| fenced.fence.to_string()),
                    fenced.map(|fenced| fenced.horizon.to_string()),
                ])?;
            }
            Ok(())
        })
    }

    /// The one step that comes often. Without a new note the older one stays.
    pub(super) fn write_checkpoint(
        &mut self,
        checkpoint: Lsn,
        note: Option<&str>,
    ) -> Result<(), Error> {
        self.transact(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE pipeline SET checkpoint = ?, checkpoint_note = coalesce(?, checkpoint_note)",
                )?
                .execute(params![checkpoint.to_string(), note])
                .map(drop)
        })
    }

    pub(super) fn write_note(&mut self, note: &str) -> Result<(), Error> {
        self.transact(|transaction| {
            transaction.execute("UPDATE pipeline SET checkpoint_note = ?", [note]).map(drop)
        })
    }

    pub(super) fn enter_gap(
        &mut self,
        gap: seam::Gap,
        tables: &[TableName],
        reason: &str,
    ) -> Result<i64, Error> {
        self.transact(|transaction| gaps::enter(transaction, gap, tables, reason))
    }

    pub(super) fn close_gaps(&mut self) -> Result<(), Error> {
        self.transact(gaps::close)
    }

    /// What [`Record::given_up`] says, with the acceptance; `false` where the gap is not open.
    pub(super) fn accept_gap(&mut self, id: i64) -> Result<bool, Error> {
        self.transact(|transaction| {
            if !gaps::accept(transaction, id)? {
                return Ok(false);
            }
            transaction.execute(
                "UPDATE pipeline SET pin = ?, checkpoint = NULL, finished = FALSE,
                 former_note = coalesce(checkpoint_note, pin_note, former_note), pin_note = NULL, checkpoint_note = NULL",
                [pin_text(Pin::Intended)],
            )?;
            transaction.execute(
                "UPDATE tables SET attempts = CASE scan WHEN 'due' THEN max(attempts, 1) ELSE 1 END, scan = 'due',
                 relation = NULL, fence = NULL, fence_horizon = NULL",
                [],
            )?;
            Ok(true)
        })
    }

    /// The names and kinds of the outlets that everything so far went to.
    pub(super) fn outlets(&self) -> Result<BTreeMap<String, String>, Error> {
        self.connection
            .prepare("SELECT name, kind FROM outlets")
            .and_then(|mut statement| {
                let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect()
            })
            .map_err(|error| Error::database(&self.path, error))
    }

    pub(super) fn write_outlets(
        &mut self,
        outlets: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        self.transact(|transaction| {
            transaction.execute("DELETE FROM outlets", [])?;
            for (name, kind) in outlets {
                transaction.execute("INSERT INTO outlets VALUES (?, ?)", [name, kind])?;
            }
            Ok(())
        })
    }

    fn begin(&mut self, origin: &Origin) -> Result<(), Error> {
        self.transact(|transaction| {
            schema::create(transaction)?;
            transaction
                .execute(
                    "INSERT INTO pipeline (id, name, kind, system, database, pin, finished) VALUES (1, ?, ?, ?, ?, ?, FALSE)",
                    params![
                        origin.pipeline,
                        origin.source.kind.name(),
                        origin.source.system,
                        origin.source.database,
                        pin_text(Pin::None)
                    ],
                )
                .map(drop)
        })
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            })
            .map_err(|error| Error::database(&self.path, error))
    }
}

fn content(connection: &Connection, path: &Path) -> Result<Content, Error> {
    let damaged = |what: String| Error::Damaged { path: path.to_owned(), what };
    // A query that fails on what check() passed is damage as well: a table that is missing, a value of a wrong type.
    let unreadable = |error: rusqlite::Error| match Error::database(path, error) {
        Error::Access { source, .. } => damaged(source.to_string()),
        other => other,
    };
    let pipeline = schema::pipeline(connection).map_err(unreadable)?;
    let schema::Pipeline { name, kind, system, database, pin, checkpoint, finished, notes } =
        pipeline;
    let kind = Kind::by_name(&kind).ok_or_else(|| damaged(format!("the kind {kind}")))?;
    let origin = Origin { pipeline: name, source: Source { kind, system, database } };
    let position = |text: &str| text.parse::<Lsn>().map_err(|error| damaged(error.to_string()));
    let pin = match pin.as_str() {
        "none" => Pin::None,
        "intended" => Pin::Intended,
        text => Pin::At(position(text)?),
    };
    let checkpoint = checkpoint.as_deref().map(position).transpose()?;
    let mut record = Record { pin, checkpoint, finished, ..Record::default() };
    let mut statement = connection
        .prepare(
            "SELECT namespace, name, scan, attempts, relation, fence, fence_horizon FROM tables",
        )
        .map_err(unreadable)?;
    let rows = statement
        .query_map([], |row| {
            let table = TableName { namespace: row.get(0)?, name: row.get(1)? };
            let of_scan: (Option<u32>, Option<u32>, Option<String>, Option<String>) =
                (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
            Ok((table, row.get::<_, String>(2)?, of_scan))
        })
        .map_err(unreadable)?;
    for row in rows {
        let (table, word, of_scan) = row.map_err(unreadable)?;
        let scan = match (word.as_str(), of_scan) {
            ("due", (Some(attempts), None, None, None)) => Scan::Due { attempts },
            ("skipped", (None, Some(relation), None, None)) => {
                Scan::Skipped { relation: RelationId(relation) }
            }
            ("done", (None, Some(relation), None, None)) => {
                Scan::Done { relation: RelationId(relation), fenced: None }
            }
            ("done", (None, Some(relation), Some(fence), Some(horizon))) => {
                let fence = fence.parse().map_err(|_| damaged(format!("the fence of {table}")))?;
                let horizon = position(&horizon)?;
                let fenced = Some(Fenced { fence, horizon });
                Scan::Done { relation: RelationId(relation), fenced }
            }
            _ => return Err(damaged(format!("the row of {table}"))),
        };
        record.tables.insert(table, scan);
    }
    let gaps = schema::gaps(connection).map_err(unreadable)?;
    Ok(Content { origin, record, notes, gaps })
}

fn pin_text(pin: Pin) -> String {
    match pin {
        Pin::None => "none".to_owned(),
        Pin::Intended => "intended".to_owned(),
        Pin::At(lsn) => lsn.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_refused_and_the_saved_record_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = Source { kind: Kind::Postgres, system: "1".into(), database: "d".into() };
        let origin = Origin { pipeline: "p".into(), source };
        let (mut database, Content { record: empty, .. }) =
            Database::open(directory.path(), &origin).expect("open");
        let pages: i64 = database
            .connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .expect("pages");
        database.connection.pragma_update(None, "max_page_count", pages).expect("a limit");
        let name =
            |number| TableName { namespace: "public".into(), name: format!("table_{number}") };
        let step = Step::Attempt((0..10_000).map(name).collect());
        let record = empty.clone().with(&step);
        assert!(matches!(database.write(&step, &record, None), Err(Error::DiskFull { .. })));
        drop(database);
        let (mut database, Content { record: record_now, .. }) =
            Database::open(directory.path(), &origin).expect("open");
        assert_eq!(record_now, empty);
        database.write(&step, &record, None).expect("room again");
        assert_eq!(content(&database.connection, &database.path).expect("content").record, record);
    }
}
