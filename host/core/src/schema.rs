//! Tables, as they were at the time of a change.
//!
//! A relation is described once per schema version and then referred to by every change; a change is read under the
//! columns of its own time. The version is a digest of the definition, so that the scan, the stream and a restarted
//! engine give the same table the same version without having to remember one.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The source's own number of a table: PostgreSQL's OID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RelationId(pub u32);

/// A table's schema and name, unquoted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TableName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace, self.name)
    }
}

/// Which [`Value`](crate::value::Value) a column's text becomes. Types without a kind of their own are `Raw`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    Boolean,
    Int,
    Uint,
    Float32,
    Float64,
    Decimal,
    Text,
    Bytes,
    Json,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Bits,
    Raw,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    /// The source's name of the base type: a domain is the type that it stands on. Built-in types stand without a
    /// schema (`int4`, `numeric`, `_text` for an array of text), others with theirs (`public.mood`).
    pub type_name: String,
    /// PostgreSQL's `atttypmod`; -1 without one.
    pub type_modifier: i32,
    pub kind: Kind,
    pub initial: Initial,
    /// The source's own number of the column, which a rename keeps and no other column of the table ever gets. The log
    /// does not say it; `None` where the catalog did not either (the column is gone by now).
    #[serde(default)]
    pub number: Option<i16>,
}

/// What the rows hold that were there before a column was added to a live table. The log does not say it, so the
/// source asks the catalog when the definition changes, and an outlet fills its rows, or stops.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Initial {
    /// Nothing to fill: the column was always there, or is null in older rows.
    #[default]
    Null,
    /// The same constant in every older row, in the source's text form.
    Text(String),
    /// Written row by row (a volatile default rewrites the table): only a new scan can tell.
    Unknown,
}

/// A table under one definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Relation {
    pub id: RelationId,
    /// Digest of the definition below.
    pub version: u32,
    pub table: TableName,
    pub columns: Vec<Column>,
    /// Indices into `columns` that identify a row, in column order: the replica identity, or the primary key where
    /// the identity is the full row. Empty for a table without a key.
    pub key: Vec<usize>,
}

impl Relation {
    pub fn new(id: RelationId, table: TableName, columns: Vec<Column>, key: Vec<usize>) -> Self {
        let mut digest = Xxh3::new();
        let mut part = |bytes: &[u8]| {
            digest.update(&(bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        part(table.namespace.as_bytes());
        part(table.name.as_bytes());
        for (index, column) in columns.iter().enumerate() {
            part(column.name.as_bytes());
            part(column.type_name.as_bytes());
            part(&column.type_modifier.to_le_bytes());
            part(&column.number.unwrap_or_default().to_le_bytes());
            part(&[u8::from(key.contains(&index))]);
        }
        let version = (digest.digest() & u64::from(u32::MAX)) as u32;
        Self { id, version, table, columns, key }
    }

    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str) -> Column {
        Column {
            name: name.into(),
            type_name: "int4".into(),
            type_modifier: -1,
            kind: Kind::Int,
            initial: Initial::Null,
            number: None,
        }
    }

    fn relation(columns: Vec<Column>, key: Vec<usize>) -> Relation {
        let table = TableName { namespace: "public".into(), name: "t".into() };
        Relation::new(RelationId(1), table, columns, key)
    }

    #[test]
    fn a_version_is_a_digest_of_the_definition() {
        let two = relation(vec![column("a"), column("b")], vec![0]);
        assert_eq!(two.version, relation(vec![column("a"), column("b")], vec![0]).version);
        assert_ne!(two.version, relation(vec![column("b"), column("a")], vec![0]).version);
        assert_ne!(two.version, relation(vec![column("a"), column("b")], vec![1]).version);
        assert_ne!(two.version, relation(vec![column("ab"), column("")], vec![0]).version);
        let another_b = Column { number: Some(3), ..column("b") };
        assert_ne!(two.version, relation(vec![column("a"), another_b], vec![0]).version);
    }
}
