//! From records to writes on tables: what the outlets that hold tables share.
//!
//! A table at an outlet is the source's table of the same name, and folding the records into it gives the source's
//! rows. Three things make that more than "insert, update, delete":
//!
//! - **A column that was not in the log keeps its value.** It is never written, least of all as null. Where there is no
//!   row that holds it, the write is refused: nothing at this outlet can supply it.
//! - **A key change is one move.** Its delete is held until its insert comes; applied at once it would take with it
//!   the only copy of what the insert lacks. Should the insert not come next (a plugin took it), the delete is due.
//! - **A row of a table without a key is found by its whole old image**, and one such row is written, not all.

use std::collections::HashSet;
use std::sync::Arc;

use dovetail_core::change::Change;
use dovetail_core::outcome::{Body, Payload, Record};
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Column, Initial, Relation};
use dovetail_core::value::{Row, Value};

use super::mysql_types::TypeName;
use super::{Delivery, Error};

/// One write on the table of `relation`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::outlet) struct Write<'a> {
    pub(in crate::outlet) relation: &'a Arc<Relation>,
    pub(in crate::outlet) action: Action<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::outlet) enum Action<'a> {
    /// What the row has replaces what stands under its key; without a key it is added.
    Put(&'a Row),
    /// The row of this key goes; without a key, one that equals this row.
    Remove(&'a Row),
    /// A row takes the place of another: of another key, or, without a key, of one that equals `from`.
    Replace { from: &'a Row, to: &'a Row },
    /// First half of a key change.
    Leave(&'a Row),
    /// Second half of a key change.
    Arrive { from: &'a Row, to: &'a Row },
    /// All rows go. Of a table that is gone from the source the relation may have no columns: the outlet's table is then
    /// emptied as it stands, and follows no definition.
    Empty,
}

/// Whether the outlet already holds this record's transaction. Rows of a scan are never behind: see the outlets' doc.
pub(in crate::outlet) fn is_behind(record: &Record, recorded: Option<Lsn>) -> bool {
    let position = record.position();
    position.ordinal > 0 && recorded.is_some_and(|recorded| position.commit < recorded)
}

/// The table that a record is about; a message is about none.
pub(in crate::outlet) fn relation(record: &Record) -> Option<&Arc<Relation>> {
    match &record.body {
        Body::Event(event) => event.change.relation(),
        Body::Emission { relation, .. } => relation.as_ref(),
    }
}

/// What a record asks of a table; `None` for a message, which no table holds.
pub(in crate::outlet) fn asked(record: &Record) -> Result<Option<Write<'_>>, Error> {
    let (relation, action) = match &record.body {
        Body::Event(event) => match &event.change {
            Change::Message { .. } => return Ok(None),
            Change::Truncate { relation } => (relation, Action::Empty),
            Change::Read { relation, after } => (relation, Action::Put(after)),
            Change::Insert { relation, after, moved_from: None } => (relation, Action::Put(after)),
            Change::Insert { relation, after, moved_from: Some(from) } => {
                (relation, Action::Arrive { from, to: after })
            }
            Change::Update { relation, before: Some(from), after }
                if !is_same_key(relation, from, after) =>
            {
                (relation, Action::Replace { from, to: after })
            }
            Change::Update { relation, after, .. } => (relation, Action::Put(after)),
            Change::Delete { relation, before, moved: true } => (relation, Action::Leave(before)),
            Change::Delete { relation, before, moved: false } => (relation, Action::Remove(before)),
        },
        Body::Emission { relation, input, emission, position, .. } => {
            let Some(relation) = relation else {
                return Err(unfit(&format!("an emission for the message at {position}")));
            };
            match (&emission.payload, input) {
                _ if emission.key.is_some() => {
                    return Err(unfit(&format!("an emission with a key of its own at {position}")));
                }
                (Payload::Row(row), _) => (relation, Action::Put(row)),
                (Payload::Tombstone, Some(row)) => (relation, Action::Remove(row)),
                _ => return Err(unfit(&format!("an emission of bytes at {position}"))),
            }
        }
    };
    Ok(Some(Write { relation, action }))
}

fn unfit(what: &str) -> Error {
    Error::definite(
        format!("{what} has no row for a table"),
        "let the plugin route it to an outlet of lines, or emit rows",
    )
}

/// Without a key no two images have the same one. Spelled differently (numeric 1.0 and 1.00) is another key here,
/// because the outlet compares what it stored.
fn is_same_key(relation: &Relation, left: &Row, right: &Row) -> bool {
    relation.has_key() && relation.key.iter().all(|&column| left.get(column) == right.get(column))
}

/// The half of a key change that waits for the other.
#[derive(Debug, Default)]
pub(in crate::outlet) struct Move(Option<(Arc<Relation>, Row)>);

/// What is to be done now that this write has come.
#[derive(Debug, PartialEq)]
pub(in crate::outlet) enum Due<'a> {
    Nothing,
    Write(Write<'a>),
    /// The row under the held key becomes this one.
    Move {
        relation: &'a Arc<Relation>,
        from: Row,
        to: &'a Row,
    },
}

impl Move {
    /// Takes the next write. Call [`Move::overdue`] first.
    pub(in crate::outlet) fn next<'a>(&mut self, write: Write<'a>) -> Due<'a> {
        match write.action {
            Action::Leave(row) => {
                self.0 = Some((Arc::clone(write.relation), row.clone()));
                Due::Nothing
            }
            Action::Arrive { to, .. } => match self.0.take() {
                Some((_, from)) => Due::Move { relation: write.relation, from, to },
                None => Due::Write(Write { relation: write.relation, action: Action::Put(to) }),
            },
            _ => Due::Write(write),
        }
    }

    /// The held row, to be removed, if `next` is not its other half; `None` stands for the end of the transaction.
    pub(in crate::outlet) fn overdue(
        &mut self,
        next: Option<&Write<'_>>,
    ) -> Option<(Arc<Relation>, Row)> {
        let (held, _) = self.0.as_ref()?;
        match next {
            Some(Write { relation, action: Action::Arrive { .. } }) if relation.id == held.id => {
                None
            }
            _ => self.0.take(),
        }
    }
}

/// Columns of a row that were in the log.
pub(in crate::outlet) fn available(row: &Row) -> Vec<usize> {
    let values = row.values().iter().enumerate();
    values.filter(|(_, value)| **value != Value::Unavailable).map(|(column, _)| column).collect()
}

/// No row at the outlet has what the log left out.
pub(in crate::outlet) fn incomplete(relation: &Relation) -> Error {
    Error::definite(
        format!(
            "an update of {} leaves out unchanged columns, and the row that holds them is not at the outlet",
            relation.table
        ),
        "set REPLICA IDENTITY FULL on the source table if a plugin drops rows, or scan the table again",
    )
}

/// A row that the source had is not at the outlet.
pub(in crate::outlet) fn missing_row(relation: &Relation) -> Error {
    Error::definite(
        format!("no row of {} at the outlet equals the old row of a change", relation.table),
        format!(
            "the table has no key, so a row is found by all its columns, and not where a plugin changed or dropped it \
             before: give the source table a primary key, or keep plugins from the rows of this table; if there are none, \
             somebody else wrote to the table at the outlet: {SCAN_AGAIN}"
        ),
    )
}

/// What an outlet has noted of one of its tables.
#[derive(Debug)]
pub(in crate::outlet) enum Known {
    /// Nothing: whatever rows are in it are somebody else's.
    Nothing,
    /// That it is this pipeline's. Its definition was cleared by the operator, so it is taken as it stands.
    Table,
    /// Under what definition it was last written.
    Definition(Relation),
}

/// Why a table is made ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::outlet) enum Before {
    /// Nothing of it was ever delivered.
    FirstScan,
    /// A truncate barrier is the next that comes.
    NextScan,
    /// Its rows stay.
    Change,
}

impl Before {
    pub(in crate::outlet) fn scan(fresh: bool) -> Self {
        if fresh { Self::FirstScan } else { Self::NextScan }
    }
}

/// Whether rows that are there belong to somebody else. Load-bearing: not by `FirstScan` alone.
///
/// 1. The table holds foreign rows; the state saves that a scan is attempted, and the outlet refuses. 2. The pipeline is
///    started again, and as rows of the first attempt may be there, this is the next scan. Result: foreign rows are
///    emptied.
pub(in crate::outlet) fn are_foreign(known: &Known, before: Before) -> bool {
    before == Before::FirstScan || matches!(known, Known::Nothing)
}

/// The state marks a table that is not wanted as one to be scanned again.
const SCAN_AGAIN: &str = "scan the table again: take it out of `tables`, start the pipeline, put it back, start it again";

/// How a table follows a changed definition.
#[derive(Debug, PartialEq)]
pub(in crate::outlet) struct Alteration<'a> {
    pub(in crate::outlet) added: Vec<&'a Column>,
    pub(in crate::outlet) dropped: Vec<&'a Column>,
}

/// The way from one definition to the next. `there` has the names of the columns that the table has at the outlet, and
/// `ledger` names the engine's own table that remembers definitions.
///
/// # Errors
/// Definite where following could lose something: a rename cannot be told from a drop and an add, columns never change
/// places but by being renamed or made anew, and what a cast does to old rows only the operator can judge. What the operator has done at the outlet meanwhile is not done again, and a
/// table whose noted definition was cleared is taken as it stands: so there is a way on from each of these.
pub(in crate::outlet) fn alteration<'a>(
    old: &'a Relation,
    new: &'a Relation,
    there: &HashSet<String>,
    ledger: &str,
) -> Result<Alteration<'a>, Error> {
    let stop = |what: String| {
        Error::definite(
            format!("the definition of {} changed: {what}", new.table),
            format!(
                "make the same change to the table at the outlet and set its definition in {ledger} to '' (the row \
                 stays), so that the table is taken as it then stands; or {SCAN_AGAIN}"
            ),
        )
    };
    let keys = |relation: &'a Relation| -> Vec<&'a str> {
        let column = |&column: &usize| relation.columns.get(column);
        relation.key.iter().filter_map(column).map(|column| column.name.as_str()).collect()
    };
    let (mut old_key, mut new_key) = (keys(old), keys(new));
    old_key.sort_unstable();
    new_key.sort_unstable();
    let shared = |one: &'a Relation, other: &'a Relation| -> Vec<&'a str> {
        let names = one.columns.iter().map(|column| column.name.as_str());
        names.filter(|name| other.column_index(name).is_some()).collect()
    };
    let (was, is) = (shared(old, new), shared(new, old));
    if was != is {
        let (was, is) = (was.join(", "), is.join(", "));
        return Err(stop(format!("columns changed places: were ({was}), are ({is})")));
    }
    let lacks =
        |relation: &Relation, column: &Column| relation.column_index(&column.name).is_none();
    let mut added: Vec<_> = new.columns.iter().filter(|column| lacks(old, column)).collect();
    let dropped: Vec<_> = old
        .columns
        .iter()
        .filter(|column| lacks(new, column) && there.contains(&column.name))
        .collect();
    if let (Some(added), Some(dropped)) = (added.first(), dropped.first()) {
        let (added, dropped) = (&added.name, &dropped.name);
        return Err(stop(format!("column {dropped} went and {added} came, perhaps a rename")));
    }
    let is_renamed = old_key.iter().any(|name| !there.contains(*name));
    if old_key != new_key && !is_renamed {
        let (old, new) = (old_key.join(", "), new_key.join(", "));
        return Err(stop(format!("its key was ({old}), is ({new})")));
    }
    for column in &new.columns {
        let was = old.columns.iter().find(|was| was.name == column.name);
        let numbers = was.and_then(|was| was.number).zip(column.number);
        if numbers.is_some_and(|(was, is)| was != is) {
            return Err(stop(format!("column {} is another one of the same name", column.name)));
        }
        if let Some(was) = was.filter(|was| !keeps_values(was, column)) {
            let (was, is) = (type_of(was), type_of(column));
            return Err(stop(format!("column {} was of type {was}, is {is}", column.name)));
        }
    }
    added.retain(|column| !there.contains(&column.name));
    for column in &added {
        check_initial(new, column)?;
    }
    Ok(Alteration { added, dropped })
}

/// Whether a change of type leaves every row as it was. Where the modifier changes otherwise, the source has rewritten
/// its rows (`numeric(10,2)` to `numeric(10,4)` makes `1.00` into `1.0000`), of which the log says nothing.
fn keeps_values(was: &Column, is: &Column) -> bool {
    let (from, to) = (was.type_modifier, is.type_modifier);
    if was.type_name != is.type_name {
        let names = (TypeName::parse(&is.type_name), TypeName::parse(&was.type_name));
        return matches!(names, (Some(is), Some(was)) if is.widens(&was));
    }
    if from == to {
        return true;
    }
    match was.type_name.as_str() {
        _ if to == -1 => true,
        "varchar" | "varbit" | "time" | "timetz" | "timestamp" | "timestamptz" => {
            from != -1 && to > from
        }
        // The scale is in the lower half.
        "numeric" => from != -1 && to > from && (to - 4) & 0xFFFF == (from - 4) & 0xFFFF,
        _ => false,
    }
}

fn type_of(column: &Column) -> String {
    match column.type_modifier {
        -1 => column.type_name.clone(),
        modifier => format!("{} with modifier {modifier}", column.type_name),
    }
}

/// Whether a batch has changes under a definition that the outlet has not met yet in this life. What is before it must
/// be committed first:
///
/// 1. A column is renamed; rows under both names are in one group. 2. The outlet stops at the rename, and rolls back.
/// 3. The operator renames the column at the outlet. Result: the rows under the old name fit no more, and come first.
pub(in crate::outlet) fn redefines(
    delivery: &Delivery,
    target: u16,
    is_met: impl Fn(&Relation) -> bool,
) -> bool {
    let mut last: Option<&Arc<Relation>> = None;
    delivery.records_for(target).any(|record| {
        let Some(relation) = relation(record).filter(|it| !it.columns.is_empty()) else {
            return false;
        };
        // Neighbours share it, so that most rows cost one comparison.
        if last.is_some_and(|last| Arc::ptr_eq(last, relation)) {
            return false;
        }
        last = Some(relation);
        !is_met(relation)
    })
}

/// Refuses a column of which only the source knows what its older rows hold.
fn check_initial(relation: &Relation, column: &Column) -> Result<(), Error> {
    match column.initial {
        Initial::Null | Initial::Text(_) => Ok(()),
        Initial::Unknown => Err(Error::definite(
            format!(
                "column {} came to {} with a value of its own in every older row",
                column.name, relation.table
            ),
            format!(
                "add the column to the table at the outlet by hand and fill it, or {SCAN_AGAIN}"
            ),
        )),
    }
}

/// An identifier of SQL, the same in SQLite and PostgreSQL.
pub(in crate::outlet) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
