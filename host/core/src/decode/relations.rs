//! The tables that a stream has described, and rows read under their definition.
//!
//! The stream describes a table before its first row and again whenever its definition may have changed. What it does
//! not say, the primary key of a table whose replica identity is the full row, and what older rows hold in a new
//! column, only the catalog knows: the definition therefore goes to the caller as a [`RawRelation`], and comes back by
//! [`Builder::define`](crate::transaction::Builder::define). Until then a row of that table is an error, so that none
//! is read under the wrong columns.
//!
//! A tuple says less than a row: an old key has nulls where it has nothing, and an unchanged out-of-line value is left
//! out. Neither is a null. Where the old tuple holds what the new one leaves out, that value is taken: under
//! `REPLICA IDENTITY FULL` it is the only full copy there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pgoutput::{Definition, Field, Identity, Old, Tuple};
use super::text::{self, InvalidText};
use super::types::{self, Type};
use crate::schema::{Column, Initial, Relation, RelationId, TableName};
use crate::value::{Row, Value};

/// A table as the stream describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRelation {
    pub id: RelationId,
    pub table: TableName,
    pub identity: Identity,
    /// `initial` is not known here.
    pub columns: Vec<Column>,
    /// Indices of the columns of the replica identity: all under [`Identity::Full`], none without an identity.
    pub identifying: Vec<usize>,
}

impl RawRelation {
    /// Whether the key is not in the stream, so that [`relation`](Self::relation) wants the primary key.
    pub fn needs_primary_key(&self) -> bool {
        matches!(self.identity, Identity::Full | Identity::Nothing)
    }

    /// The relation, with the primary key's columns where the stream does not name a key; empty without one.
    ///
    /// # Errors
    /// With the name of a key column that the table, as the stream describes it, does not have: it has changed since.
    pub fn relation(&self, primary_key: &[String]) -> Result<Relation, MissingKeyColumn> {
        let key = if self.needs_primary_key() {
            let mut key = Vec::with_capacity(primary_key.len());
            for name in primary_key {
                let index = self.columns.iter().position(|column| column.name == *name);
                key.push(index.ok_or_else(|| MissingKeyColumn(name.clone()))?);
            }
            key.sort_unstable();
            key
        } else {
            self.identifying.clone()
        };
        Ok(Relation::new(self.id, self.table.clone(), self.columns.clone(), key))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("primary key column {0} is not in the table as the stream describes it")]
pub struct MissingKeyColumn(pub String);

/// Definite: the stream and the definitions do not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRow {
    #[error("row of table {0:?}, which the stream has not described")]
    Undescribed(RelationId),
    #[error("row of {found} columns for the {expected} of {table}")]
    Width { table: String, expected: usize, found: usize },
    #[error("column {column} of {table} has a value that its type does not print")]
    Value { table: String, column: String, source: InvalidText },
}

/// Definite: a column's type is neither built in nor described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of {table} has type {id}, which the stream has not described")]
pub struct UnknownType {
    pub table: String,
    pub column: String,
    pub id: u32,
}

/// Whoever defines it has mistaken the table, or not asked for its description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("definition of {table} without a description in the stream that it answers")]
pub struct NotDescribed {
    pub table: String,
}

#[derive(Debug)]
struct Known {
    relation: Arc<Relation>,
    /// Per column, whether an old key has it.
    identifies: Vec<bool>,
}

/// Everything that the stream has described so far.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    types: BTreeMap<u32, Type>,
    /// Described and not yet defined: per column, whether an old key has it.
    described: BTreeMap<RelationId, Vec<bool>>,
    known: BTreeMap<RelationId, Arc<Known>>,
    /// The table of the latest row: the next row is mostly of the same.
    latest: Option<Arc<Known>>,
}

impl Relations {
    pub(crate) fn name_type(&mut self, id: u32, namespace: &str, name: &str) {
        self.types.insert(id, types::named(namespace, name));
    }

    /// Forgets what was known of the table: its rows wait for [`define`](Self::define).
    pub(crate) fn describe(&mut self, raw: &Definition<'_>) -> Result<RawRelation, UnknownType> {
        let table = TableName { namespace: raw.namespace.into(), name: raw.name.into() };
        let mut columns = Vec::with_capacity(raw.columns.len());
        let mut identifying = Vec::new();
        for (index, column) in raw.columns.iter().enumerate() {
            let id = column.type_id;
            let Some(Type { name, kind }) =
                types::built_in(id).or_else(|| self.types.get(&id).cloned())
            else {
                let (table, column) = (table.to_string(), column.name.into());
                return Err(UnknownType { table, column, id });
            };
            columns.push(Column {
                name: column.name.into(),
                type_name: name,
                type_modifier: column.type_modifier,
                kind,
                initial: Initial::Null,
                number: None,
            });
            if column.identifies {
                identifying.push(index);
            }
        }
        self.latest = None;
        self.known.remove(&raw.id);
        let identifies = raw.columns.iter().map(|column| column.identifies).collect();
        self.described.insert(raw.id, identifies);
        Ok(RawRelation { id: raw.id, table, identity: raw.identity, columns, identifying })
    }

    /// Answers the latest description of this table.
    pub(crate) fn define(&mut self, relation: Arc<Relation>) -> Result<(), NotDescribed> {
        let width = relation.columns.len();
        let described = self.described.remove(&relation.id);
        let Some(identifies) = described.filter(|columns| columns.len() == width) else {
            return Err(NotDescribed { table: relation.table.to_string() });
        };
        self.latest = None;
        self.known.insert(relation.id, Arc::new(Known { relation, identifies }));
        Ok(())
    }

    pub(crate) fn get(&mut self, id: RelationId) -> Result<Arc<Relation>, InvalidRow> {
        self.known(id).map(|known| known.relation.clone())
    }

    fn known(&mut self, id: RelationId) -> Result<&Known, InvalidRow> {
        let latest = self.latest.take().filter(|known| known.relation.id == id);
        let known = match latest {
            Some(known) => known,
            None => self.known.get(&id).cloned().ok_or(InvalidRow::Undescribed(id))?,
        };
        Ok(self.latest.insert(known))
    }

    /// The row after an insert or an update.
    pub(crate) fn new_row(&mut self, id: RelationId, tuple: &Tuple<'_>) -> Result<Row, InvalidRow> {
        read(&self.known(id)?.relation, tuple)
    }

    /// The row before an update or a delete, and whether it is whole.
    pub(crate) fn old_row(
        &mut self,
        id: RelationId,
        old: &Old<'_>,
    ) -> Result<Option<OldRow>, InvalidRow> {
        let known = self.known(id)?;
        match old {
            Old::None => Ok(None),
            Old::Full(tuple) => Ok(Some(OldRow { row: read(&known.relation, tuple)?, full: true })),
            Old::Key(tuple) => {
                let mut values = read(&known.relation, tuple)?.into_values();
                for (value, identifies) in values.iter_mut().zip(&known.identifies) {
                    if !identifies {
                        *value = Value::Unavailable;
                    }
                }
                Ok(Some(OldRow { row: Row::new(values), full: false }))
            }
        }
    }
}

/// A row before its change.
#[derive(Debug)]
pub(crate) struct OldRow {
    pub(crate) row: Row,
    /// From a full replica identity, not only its key.
    pub(crate) full: bool,
}

impl OldRow {
    /// Puts what the old row has where the new one has nothing. An unchanged out-of-line value was never null: a null
    /// in the old row is then one that the log left out (a partition with another replica identity than its root logs
    /// no more than its key, under the description of the root).
    pub(crate) fn complete(&self, new: &mut Row) {
        for (column, old) in self.row.values().iter().enumerate() {
            if *old == Value::Null {
                continue;
            }
            if let Some(missing @ Value::Unavailable) = new.get_mut(column) {
                missing.clone_from(old);
            }
        }
    }
}

fn read(relation: &Relation, tuple: &Tuple<'_>) -> Result<Row, InvalidRow> {
    let (expected, found) = (relation.columns.len(), tuple.len());
    if expected != found {
        return Err(InvalidRow::Width { table: relation.table.to_string(), expected, found });
    }
    let mut values = Vec::with_capacity(expected);
    for (column, field) in relation.columns.iter().zip(tuple.fields()) {
        match field {
            Field::Null => values.push(Value::Null),
            Field::Unchanged => values.push(Value::Unavailable),
            Field::Text(range) => {
                text::push(column.kind, tuple.message(), range, &mut values).map_err(|source| {
                    let (table, column) = (relation.table.to_string(), column.name.clone());
                    InvalidRow::Value { table, column, source }
                })?;
            }
        }
    }
    Ok(Row::new(values))
}
