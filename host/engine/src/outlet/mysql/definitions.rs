//! The tables at the outlet and the definitions that they follow.
//!
//! **A change of definition ends the transaction that is open**, in MySQL and MariaDB alike; half of a source transaction
//! would be visible. So a table changes between transactions only, and what it has becomes more before it becomes less:
//!
//! 1. Definitions that a batch brings are met before its first row is written. Columns that come are added then, and stay
//!    if the transaction does not: rows under the old definition name their columns, and leave the new ones alone.
//! 2. Columns that go are dropped after the commit. Until then the old definition stays noted, so that a crash in
//!    between leaves the drop to the next start.
//! 3. A definition that comes when half of its transaction is written already: that half is rolled back, the table is
//!    changed, and the transaction comes again, when there is nothing left to change.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use dovetail_core::decode::text;
use dovetail_core::schema::{Column, Initial, Relation, RelationId, TableName};

use super::form::Form;
use super::ledger;
use super::replica::Replica;
use super::statements::{self, Table, There};
use super::types::{self, Made};
use crate::origin;
use crate::outlet::Error;
use crate::outlet::table::{self, Before, Known};
use crate::source::mysql::identifier::quote;

const REMEDY: &str = "give it the source's columns, and a primary key and no other unique index on the source's key, or drop it";

/// What this life has met.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// By relation and version: inside of one source transaction there may be several.
    tables: HashMap<(RelationId, u32), Arc<Table>>,
    latest: HashMap<RelationId, u32>,
    leaving: Vec<Leaving>,
}

/// Columns that go once the transaction is committed.
#[derive(Debug)]
struct Leaving {
    relation: Arc<Relation>,
    columns: Vec<String>,
}

impl Definitions {
    pub(super) fn is_met(&self, relation: &Relation) -> bool {
        self.tables.contains_key(&(relation.id, relation.version))
    }
}

impl Replica {
    /// The table under a definition.
    pub(super) async fn table(&mut self, relation: &Arc<Relation>) -> Result<Arc<Table>, Error> {
        let key = (relation.id, relation.version);
        if let Some(table) = self.definitions.tables.get(&key) {
            return Ok(Arc::clone(table));
        }
        self.meet(&[relation], Before::Change).await?;
        let table = self.definitions.tables.get(&key).map(Arc::clone);
        table.ok_or_else(|| Error::definite("a table was not made ready", "report this"))
    }

    /// Of a table that is gone from the source.
    pub(super) async fn empty_as_it_stands(&mut self, relation: &Relation) -> Result<(), Error> {
        let name = self.place(&relation.table);
        let known =
            ledger::definition(&mut self.server, &self.pipeline, &name, &relation.table).await?;
        if matches!(known, Known::Nothing) || self.engine(&name).await?.is_none() {
            return Ok(());
        }
        self.begin().await?;
        let sql = format!("DELETE FROM {}", quote(&name));
        self.server.write(&relation.table.to_string(), &sql, Vec::new()).await.map(drop)
    }

    /// Makes tables ready for rows under these definitions. First all of them are changed, then all are noted, in the
    /// transaction of their rows.
    pub(super) async fn meet(
        &mut self,
        relations: &[&Arc<Relation>],
        before: Before,
    ) -> Result<(), Error> {
        for relation in relations {
            self.adapt(relation, before).await?;
        }
        self.begin().await?;
        for relation in relations {
            let name = self.place(&relation.table);
            let table = self.fitting(relation, &name).await?;
            if !self.definitions.leaving.iter().any(|it| it.relation.version == relation.version) {
                ledger::define(&mut self.server, &self.pipeline, &name, relation).await?;
            }
            let key = (relation.id, relation.version);
            self.definitions.tables.insert(key, Arc::new(table));
            self.definitions.latest.insert(relation.id, relation.version);
        }
        Ok(())
    }

    /// Behind a commit: drops the columns that are not needed any more.
    pub(super) async fn let_go(&mut self) -> Result<(), Error> {
        let Definitions { tables, latest, leaving } = &mut self.definitions;
        tables.retain(|(id, version), _| latest.get(id) == Some(version));
        for Leaving { relation, columns } in std::mem::take(leaving) {
            let name = self.place(&relation.table);
            let there = self.columns(&name).await?;
            for column in columns.iter().filter(|column| there.contains_key(*column)) {
                let drop = format!("ALTER TABLE {} DROP COLUMN {}", quote(&name), quote(column));
                self.server.run(&following(&relation), &drop).await?;
            }
            ledger::define(&mut self.server, &self.pipeline, &name, &relation).await?;
        }
        Ok(())
    }

    /// A statement that ends the transaction: see the module's doc.
    async fn alter(&mut self, what: &str, sql: &str) -> Result<(), Error> {
        if !self.open {
            return self.server.run(what, sql).await;
        }
        self.server.run("roll back at the outlet", "ROLLBACK").await?;
        self.open = false;
        self.server.run(what, sql).await?;
        Err(Error::transient(
            format!("{what}, in the middle of a source transaction"),
            "the transaction is delivered again",
        ))
    }

    /// Creates the table, or takes it as it stands and lets it follow the definition.
    async fn adapt(&mut self, relation: &Arc<Relation>, before: Before) -> Result<(), Error> {
        let name = self.place(&relation.table);
        let what = format!("make table {name} of the outlet ready");
        let known =
            ledger::definition(&mut self.server, &self.pipeline, &name, &relation.table).await?;
        let Some(engine) = self.engine(&name).await? else {
            if before == Before::Change && !matches!(known, Known::Nothing) {
                return Err(Error::definite(
                    format!(
                        "table {name} is gone from the outlet, and with it rows of {}",
                        relation.table
                    ),
                    "restore it, or drop the pipeline's tables, its row in _dovetail and the state, and scan again",
                ));
            }
            let types = self.created(relation)?;
            let create = statements::create(relation, &name, &types, self.server.version());
            return self.alter(&what, &create).await;
        };
        if !engine.eq_ignore_ascii_case("InnoDB") {
            return Err(Error::definite(
                format!("{}: its engine is {engine}", misfit(relation, &name)),
                "make it a table of InnoDB: rows and checkpoint have to land together",
            ));
        }
        let any_row = format!("SELECT EXISTS (SELECT 1 FROM {})", quote(&name));
        let holds_rows = self.server.row::<(bool,)>(&what, &any_row, ()).await? == Some((true,));
        if holds_rows && table::are_foreign(&known, before) {
            return Err(Error::definite(
                format!(
                    "table {name} of the outlet already holds rows, and {} was never written there",
                    relation.table
                ),
                "empty or drop that table, or name another database",
            ));
        }
        match known {
            Known::Definition(known) if known.version != relation.version => {
                self.follow(relation, &name, &known, before).await
            }
            Known::Definition(_) | Known::Nothing | Known::Table => Ok(()),
        }
    }

    /// Where it cannot, a table whose rows are about to be emptied is made anew; one whose rows stay never is, empty as
    /// it may be:
    ///
    /// 1. The stream stops at a change of type. 2. The operator empties the table, for it to be scanned again. 3. The
    ///    stream goes on, and puts its next rows into a new table. Result: all others are lost.
    async fn follow(
        &mut self,
        relation: &Arc<Relation>,
        name: &str,
        known: &Relation,
        before: Before,
    ) -> Result<(), Error> {
        let what = following(relation);
        let columns = self.columns(name).await?;
        let there = columns.keys().cloned().collect();
        let types = self.created(relation)?;
        let alteration = match table::alteration(known, relation, &there, ledger::TABLES) {
            Err(_) if before != Before::Change => {
                self.alter(&what, &format!("DROP TABLE {}", quote(name))).await?;
                let create = statements::create(relation, name, &types, self.server.version());
                return self.alter(&what, &create).await;
            }
            alteration => alteration?,
        };
        for column in &alteration.added {
            let kind = relation.column_index(&column.name).and_then(|index| types.get(index));
            let kind = kind.map_or("longtext", String::as_str);
            let held = held(relation, column, kind)?;
            self.alter(&what, &statements::add(name, column, kind, held.as_ref())).await?;
        }
        self.widen(relation, name, known, &columns).await?;
        let dropped = alteration.dropped.iter().map(|column| column.name.clone());
        let columns: Vec<_> = dropped.collect();
        if !columns.is_empty() {
            self.definitions.leaving.push(Leaving { relation: Arc::clone(relation), columns });
        }
        Ok(())
    }

    /// Lets columns that this outlet made take what their wider type at the source holds. A column that the operator
    /// gave another type is left alone.
    async fn widen(
        &mut self,
        relation: &Relation,
        name: &str,
        known: &Relation,
        there: &HashMap<String, There>,
    ) -> Result<(), Error> {
        let (was, is) = (self.created(known)?, self.created(relation)?);
        for (index, column) in relation.columns.iter().enumerate() {
            let before = known.column_index(&column.name).and_then(|index| was.get(index));
            let (Some(before), Some(after)) = (before, is.get(index)) else { continue };
            let is_ours = there.get(&column.name).is_some_and(|it| it.form == Form::of(before));
            if before == after || !is_ours {
                continue;
            }
            let null = if relation.key.contains(&index) { "NOT NULL" } else { "NULL" };
            let column = quote(&column.name);
            let modify =
                format!("ALTER TABLE {} MODIFY COLUMN {column} {after} {null}", quote(name));
            self.alter(&following(relation), &modify).await?;
        }
        Ok(())
    }

    /// Shows at once whether a table that was there has these columns and this key.
    async fn fitting(&mut self, relation: &Arc<Relation>, name: &str) -> Result<Table, Error> {
        let misfit = || misfit(relation, name);
        let there = self.columns(name).await?;
        let table =
            Table::new(relation, name, &there, self.server.version()).map_err(|column| {
                Error::definite(format!("{}: it has no column {column}", misfit()), REMEDY)
            })?;
        if let Some((column, collation)) = table.unsafe_collation() {
            return Err(Error::definite(
                format!(
                    "{}: the collation {collation} of column {column} takes different texts for one",
                    misfit()
                ),
                format!(
                    "give that column the collation {}",
                    statements::collation(self.server.version())
                ),
            ));
        }
        let mut has_key = !relation.has_key();
        for (index, columns) in self.unique_indexes(name).await? {
            let mut columns = columns;
            let mut key: Vec<_> = relation
                .key
                .iter()
                .filter_map(|&it| relation.columns.get(it))
                .map(|it| Some(it.name.clone()))
                .collect();
            key.sort_unstable();
            columns.sort_unstable();
            let is_written = |column: &Option<String>| {
                column.as_ref().is_none_or(|column| relation.column_index(column).is_some())
            };
            if relation.has_key() && key == columns {
                has_key = true;
            } else if columns.iter().any(is_written) {
                return Err(Error::definite(
                    format!(
                        "{}: its index {index} is unique, and a row would replace another by it",
                        misfit()
                    ),
                    REMEDY,
                ));
            }
        }
        if !has_key {
            return Err(Error::definite(
                format!("{}: it has no unique index on the key", misfit()),
                REMEDY,
            ));
        }
        Ok(table)
    }

    fn created(&self, relation: &Relation) -> Result<Vec<String>, Error> {
        let version = self.server.version();
        let made = relation.columns.iter().map(|column| match self.source {
            origin::Kind::Postgres => types::from_postgres(column),
            from @ (origin::Kind::MySql | origin::Kind::MariaDb) => {
                types::from_mysql(column, from, version)
            }
        });
        types::created(relation, &made.collect::<Vec<Made>>())
    }

    /// A table keeps its name; whose it is says the ledger.
    fn place(&self, table: &TableName) -> String {
        if self.server.folds_names() { table.name.to_lowercase() } else { table.name.clone() }
    }

    /// The engine of a table; none if it is not there.
    async fn engine(&mut self, name: &str) -> Result<Option<String>, Error> {
        let what = "read the tables of the outlet";
        let find = "SELECT table_name, ifnull(engine, table_type) FROM information_schema.tables
                    WHERE table_schema = database() AND table_name = ?";
        let found: Vec<(String, String)> = self.server.rows(what, find, (name,)).await?;
        Ok(found.into_iter().find(|(found, _)| found == name).map(|(_, engine)| engine))
    }

    /// The columns that a table takes. The catalog finds names without case, and says how they are written.
    async fn columns(&mut self, name: &str) -> Result<HashMap<String, There>, Error> {
        let what = "read the columns of the outlet's table";
        let find = "SELECT table_name, column_name, column_type, collation_name
                    FROM information_schema.columns
                    WHERE table_schema = database() AND table_name = ?
                      AND ifnull(generation_expression, '') = ''";
        let found: Vec<(String, String, String, Option<String>)> =
            self.server.rows(what, find, (name,)).await?;
        let column = |(_, column, kind, collation): (_, String, String, Option<String>)| {
            (column, There { form: Form::of(&kind), kind, collation })
        };
        Ok(found.into_iter().filter(|(found, ..)| found == name).map(column).collect())
    }

    /// The unique indexes with their columns; none stands for an expression, or for the beginning of a column.
    async fn unique_indexes(
        &mut self,
        name: &str,
    ) -> Result<HashMap<String, Vec<Option<String>>>, Error> {
        let what = "read the indexes of the outlet's table";
        let find = "SELECT table_name, index_name, if(sub_part IS NULL, column_name, NULL)
                    FROM information_schema.statistics
                    WHERE table_schema = database() AND table_name = ? AND non_unique = 0";
        let found: Vec<(String, String, Option<String>)> =
            self.server.rows(what, find, (name,)).await?;
        let mut indexes: HashMap<String, Vec<Option<String>>> = HashMap::new();
        for (_, index, column) in found.into_iter().filter(|(found, ..)| found == name) {
            indexes.entry(index).or_default().push(column);
        }
        Ok(indexes)
    }
}

/// What older rows hold in a column that came.
fn held(
    relation: &Relation,
    column: &Column,
    kind: &str,
) -> Result<Option<mysql_async::Value>, Error> {
    let Initial::Text(constant) = &column.initial else { return Ok(None) };
    let unusable = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::definite_because(
            format!("the default of column {} of {}", column.name, relation.table),
            "add the column to the table at the outlet by hand and fill it",
            error,
        )
    };
    let constant = Bytes::copy_from_slice(constant.as_bytes());
    let value = text::value_of(column.kind, &constant).map_err(|error| unusable(error.into()))?;
    Form::of(kind).bind(&value).map(Some).map_err(|error| unusable(error.into()))
}

fn following(relation: &Relation) -> String {
    format!("let table {} follow its definition", relation.table)
}

fn misfit(relation: &Relation, name: &str) -> String {
    format!("table {name} of the outlet does not fit {}", relation.table)
}
