//! How far the scans of one view are.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::ChunkId;
use crate::schema::{RelationId, TableName};

/// The tables that are being scanned in one view, and which of their chunks are durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Scanning {
    tables: BTreeMap<TableName, Progress>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Progress {
    first_chunk: u32,
    plan: Option<Plan>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Plan {
    relation: RelationId,
    /// One past the last chunk's number.
    end: u32,
    durable: BTreeSet<u32>,
}

/// A table whose last chunk has become durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Complete {
    pub(super) table: TableName,
    pub(super) relation: RelationId,
}

impl Scanning {
    pub(super) fn begin(tables: impl IntoIterator<Item = (TableName, u32)>) -> Self {
        let start = |(table, first_chunk)| (table, Progress { first_chunk, plan: None });
        Self { tables: tables.into_iter().map(start).collect() }
    }

    /// Takes the plan of a table; `Err` where it has none to take. Answers with one past its last chunk's number, and
    /// the table where it has no rows.
    pub(super) fn planned(
        &mut self,
        table: TableName,
        relation: RelationId,
        count: u32,
    ) -> Result<(u32, Option<Complete>), ()> {
        let progress = self.tables.get_mut(&table).filter(|it| it.plan.is_none()).ok_or(())?;
        let end = progress.first_chunk.checked_add(count).ok_or(())?;
        progress.plan = Some(Plan { relation, end, durable: BTreeSet::new() });
        let complete = (count == 0).then(|| {
            self.tables.remove(&table);
            Complete { table, relation }
        });
        Ok((end, complete))
    }

    /// News of a chunk that is not of these scans is late news of an abandoned one, and says nothing.
    pub(super) fn durable(&mut self, chunk: ChunkId) -> Option<Complete> {
        let of_relation = |progress: &Progress| {
            progress.plan.as_ref().is_some_and(|plan| plan.relation == chunk.table)
        };
        let (table, progress) = self.tables.iter_mut().find(|(_, it)| of_relation(it))?;
        let plan = progress.plan.as_mut()?;
        if !(progress.first_chunk..plan.end).contains(&chunk.number) {
            return None;
        }
        plan.durable.insert(chunk.number);
        let count = usize::try_from(plan.end - progress.first_chunk).ok()?;
        if plan.durable.len() < count {
            return None;
        }
        let table = table.clone();
        self.tables.remove(&table);
        Some(Complete { table, relation: chunk.table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELATION: RelationId = RelationId(7);

    fn table() -> TableName {
        TableName { namespace: "public".into(), name: "t".into() }
    }

    fn chunk(number: u32) -> ChunkId {
        ChunkId { table: RELATION, number }
    }

    #[test]
    fn a_table_is_complete_with_its_last_chunk_in_any_order() {
        let mut scanning = Scanning::begin([(table(), 0)]);
        assert_eq!(scanning.planned(table(), RELATION, 3), Ok((3, None)));
        assert_eq!(scanning.durable(chunk(2)), None);
        assert_eq!(scanning.durable(chunk(0)), None);
        assert_eq!(scanning.durable(chunk(0)), None, "news twice is one chunk");
        let complete = Complete { table: table(), relation: RELATION };
        assert_eq!(scanning.durable(chunk(1)), Some(complete));
    }

    #[test]
    fn an_empty_table_is_complete_when_it_is_planned() {
        let mut scanning = Scanning::begin([(table(), 4)]);
        let complete = Complete { table: table(), relation: RELATION };
        assert_eq!(scanning.planned(table(), RELATION, 0), Ok((4, Some(complete))));
        assert_eq!(scanning.planned(table(), RELATION, 0), Err(()), "only once");
    }

    #[test]
    fn late_news_of_an_abandoned_scan_completes_nothing() {
        let mut scanning = Scanning::begin([(table(), 2)]);
        assert_eq!(scanning.durable(chunk(0)), None, "before there is a plan");
        assert_eq!(scanning.planned(table(), RELATION, 1), Ok((3, None)));
        assert_eq!(scanning.durable(chunk(0)), None);
        assert_eq!(scanning.durable(chunk(1)), None);
        assert!(scanning.durable(chunk(2)).is_some());
    }
}
