//! The transaction in which rows and checkpoint land together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dovetail_core::batch::Closing;
use dovetail_core::decode::text;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Initial, Relation, RelationId};
use dovetail_core::value::{Row, Value};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, params_from_iter};

use super::cell::Cell;
use super::failure::Doing;
use super::ledger;
use super::statements::{Table, plain_name};
use crate::origin::Origin;
use crate::outlet::table::{
    self, Action, Before, Due, Known, Move, Write, available, incomplete, is_behind, missing_row,
};
use crate::outlet::{Delivery, Error, Landed, landed, last_end};

/// How long another process (a reader that checkpoints, a backup) may hold the file before the chain is told.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages that a transaction changed stay in memory up to here, then go to the log.
const CACHE_KIB: i64 = 16 * 1024;

/// Statements stay prepared for about this many tables and shapes of updates.
const STATEMENTS: usize = 128;

#[derive(Debug)]
pub(super) struct Replica {
    connection: Connection,
    pipeline: String,
    target: u16,
    recorded: Option<Lsn>,
    tables: HashMap<RelationId, Arc<Table>>,
    held: Move,
    /// A transaction of SQLite's is open.
    open: bool,
    /// It holds half of a source transaction, so it may not end here.
    half: bool,
}

impl Replica {
    pub(super) fn open(path: &Path, origin: Origin, target: u16) -> Result<Self, Error> {
        let what = format!("open the replica {}", path.display());
        let doing = Doing::new(&what);
        let connection = Connection::open(path).map_err(|error| doing.failed(error))?;
        configure(&connection).map_err(|error| doing.failed(error))?;
        let mut replica = Self {
            connection,
            pipeline: origin.pipeline.clone(),
            target,
            recorded: None,
            tables: HashMap::new(),
            held: Move::default(),
            open: false,
            half: false,
        };
        replica.begin()?;
        replica.recorded = ledger::enter(&replica.connection, &origin)?;
        replica.commit(None)?;
        Ok(replica)
    }

    pub(super) fn forget(&mut self) -> Result<(), Error> {
        self.begin()?;
        ledger::forget(&self.connection, &self.pipeline)?;
        self.commit(None)?;
        self.recorded = None;
        Ok(())
    }

    pub(super) fn recorded(&self) -> Option<Lsn> {
        self.recorded
    }

    pub(super) fn prepare(&mut self, relation: &Arc<Relation>, fresh: bool) -> Result<(), Error> {
        self.begin()?;
        self.make_ready(relation, Before::scan(fresh))?;
        if !self.half {
            self.commit(None)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, group: &[Delivery]) -> Result<Vec<Landed>, Error> {
        let end = last_end(self.half, group);
        let mut results = Vec::new();
        let mut checkpoint = None;
        for (index, delivery) in group.iter().enumerate() {
            if self.open && !self.half && self.redefines(delivery) {
                self.commit(checkpoint)?;
            }
            self.begin()?;
            for record in delivery.records_for(self.target) {
                if !is_behind(record, self.recorded)
                    && let Some(write) = table::asked(record)?
                {
                    self.take(write)?;
                }
            }
            match delivery.closing {
                Closing::Open => self.half = true,
                Closing::Commit(lsn) => {
                    self.half = false;
                    checkpoint = checkpoint.max(Some(lsn));
                }
                Closing::Rows | Closing::Chunk(_) => {}
            }
            if Some(index) == end {
                self.commit(checkpoint)?;
                results = group.iter().take(index + 1).filter_map(|d| landed(d.closing)).collect();
            }
        }
        Ok(results)
    }

    fn redefines(&self, delivery: &Delivery) -> bool {
        table::redefines(delivery, self.target, |relation| {
            let table = self.tables.get(&relation.id);
            table.is_some_and(|table| table.relation.version == relation.version)
        })
    }

    fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            let doing = Doing::new("begin a transaction in the replica");
            // At once for writing: a transaction that becomes a writer later cannot wait for another one.
            let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
            begun.map_err(|error| doing.failed(error))?;
            self.open = true;
        }
        Ok(())
    }

    fn commit(&mut self, checkpoint: Option<Lsn>) -> Result<(), Error> {
        if let Some((relation, row)) = self.held.overdue(None) {
            self.remove(&relation, &row)?;
        }
        let ahead = checkpoint.filter(|lsn| self.recorded.is_none_or(|recorded| *lsn > recorded));
        if let Some(lsn) = ahead {
            ledger::advance(&self.connection, &self.pipeline, self.recorded, lsn)?;
        }
        let doing = Doing::new("commit to the replica");
        self.connection.execute_batch("COMMIT").map_err(|error| doing.commit_failed(error))?;
        self.open = false;
        self.recorded = ahead.or(self.recorded);
        Ok(())
    }

    fn take(&mut self, write: Write<'_>) -> Result<(), Error> {
        if let Some((relation, row)) = self.held.overdue(Some(&write)) {
            self.remove(&relation, &row)?;
        }
        match self.held.next(write) {
            Due::Nothing => Ok(()),
            Due::Move { relation, from, to } => self.replace(relation, &from, to),
            Due::Write(Write { relation, action }) => match action {
                Action::Put(row) => self.put(relation, row),
                Action::Remove(row) | Action::Leave(row) => self.remove(relation, row),
                Action::Replace { from, to } | Action::Arrive { from, to } => {
                    self.replace(relation, from, to)
                }
                Action::Empty if relation.columns.is_empty() => self.empty_as_it_stands(relation),
                Action::Empty => {
                    let table = self.table(relation)?;
                    self.execute(&table, &table.empty, []).map(drop)
                }
            },
        }
    }

    fn empty_as_it_stands(&mut self, relation: &Arc<Relation>) -> Result<(), Error> {
        let name = plain_name(&relation.table);
        let known = ledger::definition(&self.connection, &self.pipeline, &name, &relation.table)?;
        if matches!(known, Known::Nothing) || !self.exists(&name)? {
            return Ok(());
        }
        let table = Table::new(relation);
        self.execute(&table, &table.empty, []).map(drop)
    }

    fn put(&mut self, relation: &Arc<Relation>, row: &Row) -> Result<(), Error> {
        let table = self.table(relation)?;
        if row.is_whole() {
            return self.execute(&table, &table.put, row.values()).map(drop);
        }
        if !relation.has_key() {
            return Err(incomplete(relation));
        }
        let columns = available(row);
        let values = of(row, &columns).chain(of(row, &relation.key));
        match self.execute(&table, &table.change(&columns), values)? {
            0 => Err(incomplete(relation)),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, relation: &Arc<Relation>, row: &Row) -> Result<(), Error> {
        let table = self.table(relation)?;
        if relation.has_key() {
            return self.execute(&table, &table.remove, of(row, &relation.key)).map(drop);
        }
        match self.execute(&table, &table.remove, row.values())? {
            0 => Err(missing_row(relation)),
            _ => Ok(()),
        }
    }

    /// In place, so that columns that were not in the log keep their values.
    fn replace(&mut self, relation: &Arc<Relation>, from: &Row, to: &Row) -> Result<(), Error> {
        let table = self.table(relation)?;
        if relation.has_key() && to.is_whole() {
            self.remove(relation, from)?;
            return self.put(relation, to);
        }
        let columns = available(to);
        if !relation.has_key() {
            let values = of(to, &columns).chain(from.values());
            return match self.execute(&table, &table.change(&columns), values)? {
                0 => Err(missing_row(relation)),
                _ => Ok(()),
            };
        }
        // Whatever stands under the new key gives way, as it would to a put.
        let is_elsewhere = relation.key.iter().any(|&column| from.get(column) != to.get(column));
        if is_elsewhere {
            self.remove(relation, to)?;
        }
        let values = of(to, &columns).chain(of(from, &relation.key));
        match self.execute(&table, &table.change(&columns), values)? {
            0 => Err(incomplete(relation)),
            _ => Ok(()),
        }
    }

    fn execute<'a>(
        &self,
        table: &Table,
        sql: &str,
        values: impl IntoIterator<Item = &'a Value>,
    ) -> Result<usize, Error> {
        let values = values.into_iter().map(Cell);
        let written = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params_from_iter(values)));
        written.map_err(|error| {
            Doing::new(&format!("write to table {} of the replica", table.relation.table))
                .failed(error)
        })
    }

    /// The table as it is defined at this moment of the log.
    fn table(&mut self, relation: &Arc<Relation>) -> Result<Arc<Table>, Error> {
        if let Some(table) = self.tables.get(&relation.id)
            && table.relation.version == relation.version
        {
            return Ok(Arc::clone(table));
        }
        let name = plain_name(&relation.table);
        let known = ledger::definition(&self.connection, &self.pipeline, &name, &relation.table)?;
        if !matches!(known, Known::Nothing) && !self.exists(&name)? {
            return Err(Error::definite(
                format!(
                    "table {name} is gone from the replica, and with it rows of {}",
                    relation.table
                ),
                "restore it, or delete the replica and the state, and scan again",
            ));
        }
        self.make_ready(relation, Before::Change)
    }

    /// Creates the table, or takes it as it stands and lets it follow the definition.
    fn make_ready(
        &mut self,
        relation: &Arc<Relation>,
        before: Before,
    ) -> Result<Arc<Table>, Error> {
        let name = plain_name(&relation.table);
        let what = format!("make table {name} of the replica ready");
        let doing = Doing::new(&what);
        let table = Arc::new(Table::new(relation));
        let known = ledger::definition(&self.connection, &self.pipeline, &name, &relation.table)?;
        if self.exists(&name)? {
            let holds_rows = self
                .connection
                .prepare(&table.any_row())
                .and_then(|mut statement| statement.exists([]))
                .map_err(|error| doing.failed(error))?;
            if holds_rows && table::are_foreign(&known, before) {
                return Err(Error::definite(
                    format!(
                        "table {name} of the replica already holds rows, and {} was never written there",
                        relation.table
                    ),
                    "empty or drop that table, or name another replica",
                ));
            }
            match known {
                Known::Definition(known) if known.version == relation.version => {}
                Known::Definition(known) => self.follow(&table, &known, before)?,
                Known::Nothing | Known::Table => {}
            }
        } else {
            self.connection.execute_batch(&table.create()).map_err(|error| doing.failed(error))?;
        }
        // Shows at once whether a table that was there has these columns and this key.
        for sql in [&table.put, &table.remove] {
            self.connection.prepare_cached(sql).map_err(|error| {
                Error::definite_because(
                    format!("table {name} of the replica does not fit {}", relation.table),
                    "give it the source's columns and a primary key on the source's key, or drop it",
                    error,
                )
            })?;
        }
        ledger::define(&self.connection, &self.pipeline, &name, relation)?;
        self.tables.insert(relation.id, Arc::clone(&table));
        Ok(table)
    }

    /// Where it cannot, a table whose rows are about to be emptied is made anew; one whose rows stay never is, empty as
    /// it may be:
    ///
    /// 1. The stream stops at a change of type. 2. The operator empties the table, for it to be scanned again. 3. The
    ///    stream goes on, and puts its next rows into a new table. Result: all others are lost.
    fn follow(&self, table: &Table, known: &Relation, before: Before) -> Result<(), Error> {
        let relation = &table.relation;
        let what = format!("let table {} follow its definition", relation.table);
        let doing = Doing::new(&what);
        let name = plain_name(&relation.table);
        let there = self
            .connection
            .prepare("SELECT name FROM pragma_table_info(?)")
            .and_then(|mut statement| statement.query_map([&name], |row| row.get(0))?.collect())
            .map_err(|error| doing.failed(error))?;
        let alteration = match table::alteration(known, relation, &there, "_dovetail_tables") {
            Err(_) if before != Before::Change => {
                let again = format!("{}; {}", table.drop_table(), table.create());
                return self.connection.execute_batch(&again).map_err(|error| doing.failed(error));
            }
            alteration => alteration?,
        };
        for column in alteration.added {
            let add = self.connection.execute_batch(&table.add(column));
            add.map_err(|error| doing.failed(error))?;
            if let Initial::Text(constant) = &column.initial {
                let constant = Bytes::copy_from_slice(constant.as_bytes());
                let value = text::value_of(column.kind, &constant).map_err(|error| {
                    Error::definite_because(
                        format!("the default of column {} of {}", column.name, relation.table),
                        "add the column to the replica by hand and fill it",
                        error,
                    )
                })?;
                self.execute(table, &table.fill(column), [&value])?;
            }
        }
        for column in alteration.dropped {
            let dropped = self.connection.execute_batch(&table.drop_column(column));
            dropped.map_err(|error| doing.failed(error))?;
        }
        Ok(())
    }

    fn exists(&self, name: &str) -> Result<bool, Error> {
        self.connection
            .prepare_cached(
                "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE",
            )
            .and_then(|mut statement| statement.exists([name]))
            .map_err(|error| Doing::new("read the tables of the replica").failed(error))
    }
}

fn of<'a>(row: &'a Row, columns: &[usize]) -> impl Iterator<Item = &'a Value> {
    columns.iter().map(|&column| row.get(column).unwrap_or(&Value::Unavailable))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // A misspelled identifier must not become a string.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}
