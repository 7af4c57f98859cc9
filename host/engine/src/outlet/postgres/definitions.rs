//! The tables at the outlet and the definitions that they follow.

use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::schema::{Initial, Relation, TableName};

use super::array::arrays;
use super::ledger;
use super::replica::Replica;
use super::statements::{Place, Table};
use crate::outlet::Error;
use crate::outlet::table::{self, Before, Known};

impl Replica {
    /// The table as it is defined at this moment of the log.
    pub(super) async fn table(&mut self, relation: &Arc<Relation>) -> Result<Arc<Table>, Error> {
        if let Some(table) = self.tables.get(&relation.id)
            && table.relation.version == relation.version
        {
            return Ok(Arc::clone(table));
        }
        let place = self.place(&relation.table);
        let known =
            ledger::definition(&mut self.server, &self.pipeline, &place, &relation.table).await?;
        if !matches!(known, Known::Nothing) && !self.exists(&place).await? {
            let name = place.quoted();
            return Err(Error::definite(
                format!(
                    "table {name} is gone from the outlet, and with it rows of {}",
                    relation.table
                ),
                "restore it, or drop the pipeline's tables, its row in _dovetail.pipelines and the state, and scan again",
            ));
        }
        self.make_ready(relation, Before::Change).await
    }

    /// Creates the table, or takes it as it stands and lets it follow the definition.
    pub(super) async fn make_ready(
        &mut self,
        relation: &Arc<Relation>,
        before: Before,
    ) -> Result<Arc<Table>, Error> {
        let place = self.place(&relation.table);
        let name = place.quoted();
        let what = format!("make table {name} of the outlet ready");
        let known =
            ledger::definition(&mut self.server, &self.pipeline, &place, &relation.table).await?;
        if self.exists(&place).await? {
            let any_row = format!("SELECT EXISTS (SELECT FROM {name})");
            let holds_rows = self.server.one::<bool>(&what, &any_row, &[]).await? == Some(true);
            if holds_rows && table::are_foreign(&known, before) {
                return Err(Error::definite(
                    format!(
                        "table {name} of the outlet already holds rows, and {} was never written there",
                        relation.table
                    ),
                    "empty or drop that table, or name another schema or database",
                ));
            }
            match known {
                Known::Definition(known) if known.version == relation.version => {}
                Known::Definition(known) => self.follow(relation, &place, &known, before).await?,
                Known::Nothing | Known::Table => {}
            }
        } else {
            self.server.create_schema(&place.schema).await?;
            self.server.run(&what, &place.create(relation)).await?;
        }
        let table = Arc::new(self.fitting(relation, &place).await?);
        ledger::define(&mut self.server, &self.pipeline, &place, relation).await?;
        self.tables.insert(relation.id, Arc::clone(&table));
        Ok(table)
    }

    /// Shows at once whether a table that was there has these columns and this key.
    async fn fitting(&mut self, relation: &Arc<Relation>, place: &Place) -> Result<Table, Error> {
        const REMEDY: &str =
            "give it the source's columns and a primary key on the source's key, or drop it";
        let misfit =
            format!("table {} of the outlet does not fit {}", place.quoted(), relation.table);
        let types = self.types(place).await?;
        let table = Table::new(relation, place, &types).map_err(|column| {
            Error::definite(format!("{misfit}: it has no column {column}"), REMEDY)
        })?;
        // Without rows: the server looks for the key's index when it plans.
        let all: Vec<usize> = (0..relation.columns.len()).collect();
        match self.execute(&table, &table.put, &arrays(&[], &all)).await {
            Ok(_) => Ok(table),
            Err(Error::Definite { source, .. }) => {
                Err(Error::Definite { what: misfit, remedy: REMEDY.to_owned(), source })
            }
            Err(error) => Err(error),
        }
    }

    /// Where it cannot, a table whose rows are about to be emptied is made anew; one whose rows stay never is, empty as
    /// it may be:
    ///
    /// 1. The stream stops at a change of type. 2. The operator empties the table, for it to be scanned again. 3. The
    ///    stream goes on, and puts its next rows into a new table. Result: all others are lost.
    async fn follow(
        &mut self,
        relation: &Relation,
        place: &Place,
        known: &Relation,
        before: Before,
    ) -> Result<(), Error> {
        let what = format!("let table {} follow its definition", relation.table);
        let there = self.types(place).await?.into_keys().collect();
        let alteration = match table::alteration(known, relation, &there, "_dovetail.tables") {
            Err(_) if before != Before::Change => {
                let again = format!("DROP TABLE {}; {}", place.quoted(), place.create(relation));
                return self.server.run(&what, &again).await;
            }
            alteration => alteration?,
        };
        for column in alteration.added {
            let constant = match &column.initial {
                Initial::Text(constant) => Some(constant.as_str()),
                Initial::Null | Initial::Unknown => None,
            };
            self.server.run(&what, &place.add(column, constant)).await?;
        }
        for column in alteration.dropped {
            self.server.run(&what, &place.drop_column(column)).await?;
        }
        for column in &relation.columns {
            let was = known.columns.iter().find(|was| was.name == column.name);
            if was.is_some_and(|was| place.kind(was) != place.kind(column)) {
                self.server.run(&what, &place.widen(column)).await?;
            }
        }
        Ok(())
    }

    pub(super) fn place(&self, table: &TableName) -> Place {
        let schema = self.schema.clone().unwrap_or_else(|| table.namespace.clone());
        Place { schema, name: table.name.clone(), source: self.source }
    }

    pub(super) async fn exists(&mut self, place: &Place) -> Result<bool, Error> {
        let find = "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = $1 AND c.relname = $2";
        let what = "read the tables of the outlet";
        Ok(self.server.row(what, find, &[&place.schema, &place.name]).await?.is_some())
    }

    /// The columns that a table takes, with their types. Load-bearing: the modifier -1 gives `bpchar` where none would
    /// give `character`, which is one character long.
    async fn types(&mut self, place: &Place) -> Result<HashMap<String, String>, Error> {
        let find = "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, -1)
                    FROM pg_catalog.pg_attribute a
                    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
                    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
                      AND a.attgenerated = ''";
        let what = "read the columns of the outlet's table";
        let rows = self.server.rows(what, find, &[&place.schema, &place.name]).await?;
        let column = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter()
            .map(column)
            .collect::<Result<_, tokio_postgres::Error>>()
            .map_err(|error| Error::definite_because(what, "see the cause", error))
    }
}
