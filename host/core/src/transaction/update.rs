//! What an update of a row amounts to: a change of that row, or a row that leaves its key and one that arrives at another.
//!
//! Keys are how everything behind the decoder finds a row: its lane, its chunk, its place at an outlet. An update that
//! changes the key therefore is a delete and an insert, each judged by its own key; they stay adjacent, because what the
//! new row lacks only the old one can supply.

use std::sync::Arc;

use crate::change::Change;
use crate::key::Key;
use crate::schema::Relation;
use crate::value::{Row, Value};

#[derive(Debug)]
pub(crate) enum Update {
    Same(Change),
    Moved { delete: Change, insert: Change },
}

/// The log does not hold the key of a row: it has no lane then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoKey {
    pub(crate) table: String,
}

impl NoKey {
    fn of(relation: &Relation) -> Self {
        Self { table: relation.table.to_string() }
    }
}

/// `before` is the old row, if the log has one, and whether all of it is there.
pub(crate) fn update(
    relation: Arc<Relation>,
    before: Option<(Row, bool)>,
    after: Row,
) -> Result<Update, NoKey> {
    require_key(&relation, &after)?;
    let Some((before, is_whole)) = before else {
        return Ok(Update::Same(Change::Update { relation, before: None, after }));
    };
    require_old_key(&relation, &before)?;
    if same_key(&relation, &before, &after) {
        // A key that is spelled anew (1.0 as 1.00) is found by its old spelling where keys are compared as text.
        let is_spelled_anew = |column: &usize| before.get(*column) != after.get(*column);
        let is_needed = is_whole || relation.key.iter().any(is_spelled_anew);
        let before = is_needed.then_some(before);
        return Ok(Update::Same(Change::Update { relation, before, after }));
    }
    let moved_from = Some(before.clone());
    let delete = Change::Delete { relation: relation.clone(), before, moved: true };
    Ok(Update::Moved { delete, insert: Change::Insert { relation, after, moved_from } })
}

pub(crate) fn delete(relation: Arc<Relation>, before: Row) -> Result<Change, NoKey> {
    require_old_key(&relation, &before)?;
    Ok(Change::Delete { relation, before, moved: false })
}

/// A change whose key is not in the log (PostgreSQL before 14.2 left out an unchanged out-of-line key) has no lane.
pub(crate) fn require_key(relation: &Relation, row: &Row) -> Result<(), NoKey> {
    let missing = |column: &usize| matches!(row.get(*column), None | Some(Value::Unavailable));
    if relation.key.iter().any(missing) { Err(NoKey::of(relation)) } else { Ok(()) }
}

/// No column of a key is ever null, so a null there is a value that was left out: a partition with another replica
/// identity than its root logs its own key under the description of the root.
fn require_old_key(relation: &Relation, row: &Row) -> Result<(), NoKey> {
    let null = |column: &usize| row.get(*column) == Some(&Value::Null);
    if relation.key.iter().any(null) {
        Err(NoKey::of(relation))
    } else {
        require_key(relation, row)
    }
}

/// By the canonical bytes, so that a change of spelling (`1.0` to `1.00`) is no move; most keys are the same without
/// asking for them. A table without a key has nothing that could move.
fn same_key(relation: &Relation, before: &Row, after: &Row) -> bool {
    relation.key.iter().all(|column| before.get(*column) == after.get(*column))
        || Key::of(relation, before) == Key::of(relation, after)
}
