//! The SQL of one table under one definition.

use std::sync::Arc;

use dovetail_core::schema::{Column, Kind, Relation, TableName};

use super::cell::declared;
use crate::outlet::table::quoted;

/// A table at the outlet, with the statements that its rows take.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) relation: Arc<Relation>,
    /// Quoted.
    name: String,
    /// Parameters: all columns.
    pub(super) put: String,
    /// Parameters: the key; without one, all columns.
    pub(super) remove: String,
    pub(super) empty: String,
}

/// `public` is what everybody means by no schema; the rest keeps its own in front. Not by whether another table of the
/// same name is captured: a name must not change when the next table is added.
pub(super) fn plain_name(table: &TableName) -> String {
    if table.namespace == "public" {
        table.name.clone()
    } else {
        format!("{}__{}", table.namespace, table.name)
    }
}

impl Table {
    pub(super) fn new(relation: &Arc<Relation>) -> Self {
        let name = quoted(&plain_name(&relation.table));
        let all = names(relation.columns.iter());
        let places = vec!["?"; all.len()].join(", ");
        let insert = format!("INSERT INTO {name} ({}) VALUES ({places})", all.join(", "));
        let put = if relation.has_key() {
            let rest = (0..relation.columns.len()).filter(|column| {
                !relation.key.contains(column) || has_two_zeros(relation, *column)
            });
            let assigned: Vec<_> = of(relation, rest)
                .map(|column| format!("{0} = excluded.{0}", quoted(&column.name)))
                .collect();
            let key = names(of(relation, relation.key.iter().copied())).join(", ");
            if assigned.is_empty() {
                format!("{insert} ON CONFLICT ({key}) DO NOTHING")
            } else {
                format!("{insert} ON CONFLICT ({key}) DO UPDATE SET {}", assigned.join(", "))
            }
        } else {
            insert
        };
        let remove = format!("DELETE FROM {name} WHERE {}", found(&name, relation));
        let empty = format!("DELETE FROM {name}");
        Self { relation: Arc::clone(relation), name, put, remove, empty }
    }

    /// Writes some columns of the row that is found by its key, or whole. Parameters: those columns, then as `remove`.
    pub(super) fn change(&self, columns: &[usize]) -> String {
        let assigned: Vec<_> = of(&self.relation, columns.iter().copied())
            .map(|column| format!("{} = ?", quoted(&column.name)))
            .collect();
        let place = found(&self.name, &self.relation);
        format!("UPDATE {} SET {} WHERE {place}", self.name, assigned.join(", "))
    }

    pub(super) fn create(&self) -> String {
        let relation = &self.relation;
        let columns: Vec<_> = relation.columns.iter().map(definition).collect();
        if relation.has_key() {
            let key = names(of(relation, relation.key.iter().copied())).join(", ");
            let (name, columns) = (&self.name, columns.join(", "));
            format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        } else {
            format!("CREATE TABLE {} ({})", self.name, columns.join(", "))
        }
    }

    pub(super) fn drop_table(&self) -> String {
        format!("DROP TABLE {}", self.name)
    }

    pub(super) fn any_row(&self) -> String {
        format!("SELECT 1 FROM {} LIMIT 1", self.name)
    }

    pub(super) fn add(&self, column: &Column) -> String {
        format!("ALTER TABLE {} ADD COLUMN {}", self.name, definition(column))
    }

    /// Parameter: the constant.
    pub(super) fn fill(&self, column: &Column) -> String {
        format!("UPDATE {} SET {} = ?", self.name, quoted(&column.name))
    }

    pub(super) fn drop_column(&self, column: &Column) -> String {
        format!("ALTER TABLE {} DROP COLUMN {}", self.name, quoted(&column.name))
    }
}

/// Zero and minus zero are one key and two values; every other value is the only one that equals it.
fn has_two_zeros(relation: &Relation, column: usize) -> bool {
    let column = relation.columns.get(column);
    column.is_some_and(|column| matches!(column.kind, Kind::Float32 | Kind::Float64))
}

fn definition(column: &Column) -> String {
    format!("{}{}", quoted(&column.name), declared(column.kind))
}

fn of(relation: &Relation, columns: impl Iterator<Item = usize>) -> impl Iterator<Item = &Column> {
    columns.filter_map(|column| relation.columns.get(column))
}

fn names<'a>(columns: impl Iterator<Item = &'a Column>) -> Vec<String> {
    columns.map(|column| quoted(&column.name)).collect()
}

/// The condition that finds one row.
fn found(name: &str, relation: &Relation) -> String {
    let equal = |columns: Vec<String>, operator: &str| {
        let terms: Vec<_> = columns.iter().map(|name| format!("{name} {operator} ?")).collect();
        terms.join(" AND ")
    };
    if relation.has_key() {
        return equal(names(of(relation, relation.key.iter().copied())), "=");
    }
    // Any of the three names means the row's number, unless a column has it.
    let number = ["rowid", "_rowid_", "oid"];
    let is_free = |name: &&str| !relation.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name));
    let number = number.into_iter().find(is_free).unwrap_or("rowid");
    let whole = equal(names(relation.columns.iter()), "IS");
    format!("{number} = (SELECT {number} FROM {name} WHERE {whole} LIMIT 1)")
}
