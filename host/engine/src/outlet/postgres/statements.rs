//! The SQL of one table under one definition.

use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::schema::{Column, Relation};

use super::types::created_for;
use crate::origin;
use crate::outlet::table::quoted;
use crate::source::postgres::identifier::literal;

/// A table at the outlet: where it is, and what its columns are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) schema: String,
    pub(super) name: String,
    /// Whose type names the relation has.
    pub(super) source: origin::Kind,
}

impl Place {
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    pub(super) fn create(&self, relation: &Relation) -> String {
        let mut parts: Vec<_> = relation.columns.iter().map(|it| self.definition(it)).collect();
        if relation.has_key() {
            let key: Vec<_> = of(relation, &relation.key).map(|it| quoted(&it.name)).collect();
            parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        format!("CREATE TABLE {} ({})", self.quoted(), parts.join(", "))
    }

    /// With a constant, which older rows get without being rewritten; it is no default from then on.
    pub(super) fn add(&self, column: &Column, constant: Option<&str>) -> String {
        let (table, name) = (self.quoted(), quoted(&column.name));
        let add = format!("ALTER TABLE {table} ADD COLUMN {}", self.definition(column));
        match constant {
            None => add,
            Some(constant) => format!(
                "{add} DEFAULT {}::{}; ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT",
                literal(constant),
                self.kind(column)
            ),
        }
    }

    /// For a column whose values are the same in the wider type.
    pub(super) fn widen(&self, column: &Column) -> String {
        let (table, name, kind) = (self.quoted(), quoted(&column.name), self.kind(column));
        format!("ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}")
    }

    /// What a column becomes that the outlet creates.
    pub(super) fn kind(&self, column: &Column) -> String {
        created_for(self.source, &column.type_name)
    }

    fn definition(&self, column: &Column) -> String {
        format!("{} {}", quoted(&column.name), self.kind(column))
    }

    pub(super) fn drop_column(&self, column: &Column) -> String {
        format!("ALTER TABLE {} DROP COLUMN {}", self.quoted(), quoted(&column.name))
    }
}

fn of<'a>(relation: &'a Relation, columns: &[usize]) -> impl Iterator<Item = &'a Column> {
    columns.iter().filter_map(|&column| relation.columns.get(column))
}

/// A table with the statements that its rows take.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) relation: Arc<Relation>,
    name: String,
    /// Quoted names and types there, in the order of the relation's columns.
    columns: Vec<(String, String)>,
    /// Parameters: an array for every column.
    pub(super) put: String,
    /// Parameters: an array for every key column; without a key, a text for every column.
    pub(super) remove: String,
    pub(super) empty: String,
}

impl Table {
    /// `types` are those that the columns have there, by name.
    ///
    /// # Errors
    /// The name of a column that is not there.
    pub(super) fn new(
        relation: &Arc<Relation>,
        place: &Place,
        types: &HashMap<String, String>,
    ) -> Result<Self, String> {
        let column = |column: &Column| match types.get(&column.name) {
            Some(kind) => Ok((quoted(&column.name), kind.clone())),
            None => Err(column.name.clone()),
        };
        let columns = relation.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let mut table = Self {
            relation: Arc::clone(relation),
            name: place.quoted(),
            columns,
            put: String::new(),
            remove: String::new(),
            empty: format!("DELETE FROM {}", place.quoted()),
        };
        table.put = table.put_statement();
        table.remove = if relation.has_key() {
            let key = &relation.key;
            let found = table.equal(key);
            format!("DELETE FROM {} AS t USING {} WHERE {found}", table.name, unnested(key.len()))
        } else {
            format!("DELETE FROM {} WHERE {}", table.name, table.whole(1))
        };
        Ok(table)
    }

    fn put_statement(&self) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let names: Vec<_> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let insert = format!(
            "INSERT INTO {} ({}) SELECT {} FROM {}",
            self.name,
            names.join(", "),
            self.cast(&all).join(", "),
            unnested(all.len())
        );
        if !self.relation.has_key() {
            return insert;
        }
        let key: Vec<_> = self.of(&self.relation.key).map(|(name, _)| name.as_str()).collect();
        // The key too: equal keys can be spelled differently (1.0 and 1.00).
        let assigned: Vec<_> =
            names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        format!("{insert} ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), assigned.join(", "))
    }

    /// Writes some columns of rows that are found by their key. Parameters: an array for each of those columns, then
    /// for every key column.
    pub(super) fn change(&self, columns: &[usize]) -> String {
        let key = &self.relation.key;
        let cast = self.cast(columns);
        let assigned: Vec<_> = self
            .of(columns)
            .zip(cast)
            .map(|((name, _), cast)| format!("{name} = {cast}"))
            .collect();
        let found: Vec<_> = self
            .of(key)
            .zip(columns.len()..)
            .map(|((name, kind), number)| format!("t.{name} = u.c{number}::{kind}"))
            .collect();
        format!(
            "UPDATE {} AS t SET {} FROM {} WHERE {}",
            self.name,
            assigned.join(", "),
            unnested(columns.len() + key.len()),
            found.join(" AND ")
        )
    }

    /// Writes some columns of one row that equals another. Parameters: a text for each of those columns, then for every
    /// column.
    pub(super) fn change_whole(&self, columns: &[usize]) -> String {
        let assigned: Vec<_> = self
            .of(columns)
            .zip(1..)
            .map(|((name, kind), number)| format!("{name} = ${number}::text::{kind}"))
            .collect();
        let found = self.whole(columns.len() + 1);
        format!("UPDATE {} SET {} WHERE {found}", self.name, assigned.join(", "))
    }

    fn of(&self, columns: &[usize]) -> impl Iterator<Item = &(String, String)> {
        columns.iter().filter_map(|&column| self.columns.get(column))
    }

    fn cast(&self, columns: &[usize]) -> Vec<String> {
        self.of(columns)
            .zip(0..)
            .map(|((_, kind), number)| format!("u.c{number}::{kind}"))
            .collect()
    }

    fn equal(&self, columns: &[usize]) -> String {
        let terms = self.of(columns).zip(self.cast(columns));
        let terms: Vec<_> = terms.map(|((name, _), cast)| format!("t.{name} = {cast}")).collect();
        terms.join(" AND ")
    }

    /// Finds one row by all its columns, whose texts are parameters from this number on. By text, because some types
    /// have no equality; both sides are printed by the same server.
    fn whole(&self, from: usize) -> String {
        let terms: Vec<_> = self
            .columns
            .iter()
            .zip(from..)
            .map(|((name, kind), number)| {
                format!("{name}::text IS NOT DISTINCT FROM ${number}::text::{kind}::text")
            })
            .collect();
        let (name, terms) = (&self.name, terms.join(" AND "));
        format!("ctid = (SELECT ctid FROM {name} WHERE {terms} LIMIT 1)")
    }
}

/// One row for every place of `count` arrays of text.
fn unnested(count: usize) -> String {
    let arrays: Vec<_> = (1..=count).map(|number| format!("${number}::text[]")).collect();
    let names: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    format!("unnest({}) AS u({})", arrays.join(", "), names.join(", "))
}
