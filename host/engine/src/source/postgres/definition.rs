//! What the stream's descriptions of tables leave open, and which tables are captured at all.
//!
//! A description comes from the log, so it is of the change's own time. What it does not say, the primary key of a table
//! whose replica identity is the full row, the numbers of its columns, and what older rows hold in a new one, is looked up
//! in the catalog, which is of *now*. That can only be wrong after the definition changed again since, and then it is either noticed (a key
//! column that the description lacks) or [`Unknown`](Initial::Unknown).
//!
//! A publication may hold more tables than are captured; their changes are left out. But a captured table that goes on
//! under another name, or whose name another table has taken, is not left out in silence: it is an error.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dovetail_core::decode::pgoutput::Identity;
use dovetail_core::decode::relations::RawRelation;
use dovetail_core::schema::{Initial, Relation, RelationId, TableName};

use crate::config;

use super::catalog::{self, Supplement};
use super::connection::Session;
use super::failure::Failure;
use super::stream::StreamError;

/// For one look at the catalog. The stream waits meanwhile, and must not be taken for dead by the server.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A description of the stream, completed.
pub(super) enum Definition {
    Captured(Arc<Relation>),
    /// Changes of it are to be left out.
    Other(Arc<Relation>),
}

pub(super) struct Definitions {
    source: config::Postgres,
    session: Session,
    captured: HashSet<TableName>,
    ids: HashMap<TableName, RelationId>,
}

impl Definitions {
    pub(super) fn new(
        source: config::Postgres,
        session: Session,
        known: &[(RelationId, TableName)],
    ) -> Self {
        let captured = source.tables.iter().cloned().collect();
        let ids = known.iter().map(|(id, table)| (table.clone(), *id)).collect();
        Self { source, session, captured, ids }
    }

    pub(super) async fn complete(&mut self, raw: RawRelation) -> Result<Definition, StreamError> {
        if !is_captured(&self.captured, &mut self.ids, &raw)? {
            let relation =
                Relation::new(raw.id, raw.table.clone(), raw.columns.clone(), Vec::new());
            return Ok(Definition::Other(Arc::new(relation)));
        }
        let supplement = self.look_up(raw.id).await?;
        Ok(Definition::Captured(Arc::new(merge(raw, supplement)?)))
    }

    async fn look_up(&mut self, id: RelationId) -> Result<Supplement, Failure> {
        let lookup = async {
            if self.session.is_closed() {
                self.session = Session::open(&self.source.server).await?;
            }
            catalog::supplement(self.session.client(), id, &self.source.publication).await
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.unwrap_or_else(|_| {
            Err(Failure::transient("look up a table in the catalog", "the server does not answer"))
        })
    }
}

/// Whether the description is of a captured table, which is still the one that it was.
fn is_captured(
    captured: &HashSet<TableName>,
    ids: &mut HashMap<TableName, RelationId>,
    raw: &RawRelation,
) -> Result<bool, StreamError> {
    if !captured.contains(&raw.table) {
        let former = ids.iter().find(|(table, id)| **id == raw.id && captured.contains(*table));
        return match former {
            None => Ok(false),
            Some((former, _)) => {
                Err(StreamError::Identity(format!("table {former} was renamed to {}", raw.table)))
            }
        };
    }
    match ids.insert(raw.table.clone(), raw.id) {
        Some(id) if id != raw.id => Err(StreamError::Identity(format!(
            "another table has taken the name of {}, which was dropped or renamed",
            raw.table
        ))),
        _ => Ok(true),
    }
}

fn merge(mut raw: RawRelation, supplement: Supplement) -> Result<Relation, StreamError> {
    let Supplement { key, columns } = supplement;
    if raw.needs_primary_key() && columns.is_empty() {
        return Err(StreamError::Identity(format!(
            "table {} was dropped, and its key cannot be looked up any more",
            raw.table
        )));
    }
    for column in &mut raw.columns {
        let now = columns.get(&column.name);
        column.initial = now.map_or(Initial::Unknown, |now| now.initial.clone());
        column.number = now.and_then(|now| now.number);
    }
    let table = raw.table.clone();
    match raw.identity {
        Identity::Full | Identity::Nothing => raw.relation(&key),
        Identity::Default | Identity::Index => raw.relation(&[]),
    }
    .map_err(|missing| {
        StreamError::Identity(format!(
            "table {table} was given another key ({missing}) while its older changes were not read yet"
        ))
    })
}

#[cfg(test)]
mod tests {
    use dovetail_core::schema::{Column, Kind};

    use super::*;

    fn table(name: &str) -> TableName {
        TableName { namespace: "public".into(), name: name.into() }
    }

    fn column(name: &str, initial: Initial) -> Column {
        Column {
            name: name.into(),
            type_name: "int4".into(),
            type_modifier: -1,
            kind: Kind::Int,
            initial,
            number: None,
        }
    }

    fn raw(id: u32, name: &str, identity: Identity) -> RawRelation {
        let columns = vec![column("a", Initial::Null), column("b", Initial::Null)];
        RawRelation {
            id: RelationId(id),
            table: table(name),
            identity,
            columns,
            identifying: vec![0, 1],
        }
    }

    fn supplement(key: &[&str], columns: &[(&str, Initial)]) -> Supplement {
        Supplement {
            key: key.iter().map(|name| (*name).to_owned()).collect(),
            columns: columns
                .iter()
                .map(|(name, initial)| ((*name).into(), column(name, initial.clone())))
                .collect(),
        }
    }

    #[test]
    fn a_captured_table_cannot_go_away_in_silence() {
        let captured = HashSet::from([table("t")]);
        let mut ids = HashMap::from([(table("t"), RelationId(1))]);
        let mut judge = |id, name| is_captured(&captured, &mut ids, &raw(id, name, Identity::Full));
        assert!(judge(1, "t").expect("the same"));
        assert!(!judge(2, "other").expect("never captured"));
        assert!(judge(1, "renamed").is_err());
        assert!(judge(3, "t").is_err());
    }

    #[test]
    fn the_full_row_is_keyed_by_the_primary_key_and_an_index_by_itself() {
        let catalog = || supplement(&["b"], &[("a", Initial::Null), ("b", Initial::Null)]);
        let full = merge(raw(1, "t", Identity::Full), catalog()).expect("a key");
        assert_eq!(full.key, vec![1]);
        let index = merge(raw(1, "t", Identity::Index), catalog()).expect("a key");
        assert_eq!(index.key, vec![0, 1]);
    }

    #[test]
    fn what_the_catalog_does_not_know_any_more_is_unknown_or_an_error() {
        let five = Initial::Text("5".into());
        let catalog = supplement(&[], &[("a", five.clone())]);
        let relation = merge(raw(1, "t", Identity::Default), catalog).expect("a relation");
        let initial: Vec<Initial> =
            relation.columns.into_iter().map(|column| column.initial).collect();
        assert_eq!(initial, vec![five, Initial::Unknown]);
        assert!(merge(raw(1, "t", Identity::Full), supplement(&[], &[])).is_err());
        let other_key = supplement(&["c"], &[("c", Initial::Null)]);
        assert!(merge(raw(1, "t", Identity::Full), other_key).is_err());
    }
}
