//! Changes, read where they lie in the batch.

use crate::frame::{RawRow, Values};
use crate::relation::Relation;
use crate::value::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A row of the scan.
    Read,
    Insert,
    Update,
    Delete,
    Truncate,
    /// PostgreSQL: `pg_logical_emit_message`.
    Message,
}

impl Operation {
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Insert, Self::Update, Self::Delete, Self::Truncate, Self::Message];
    /// Those that carry a row after the change.
    pub const ROWS: [Self; 3] = [Self::Read, Self::Insert, Self::Update];
}

/// The place of a change in the source's log; the same again when the change is delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub high: u64,
    pub low: u64,
    pub ordinal: u32,
}

/// One change.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    pub(crate) row: RawRow,
    pub(crate) values: Values<'a>,
    pub(crate) relation: Option<&'a Relation>,
}

/// `pg_logical_emit_message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub prefix: &'a str,
    pub content: &'a [u8],
    pub transactional: bool,
}

impl<'a> Event<'a> {
    pub fn operation(&self) -> Operation {
        self.row.operation
    }

    /// The table; a message has none.
    pub fn relation(&self) -> Option<&'a Relation> {
        self.relation
    }

    pub fn position(&self) -> Position {
        self.row.position
    }

    /// Microseconds since the Unix epoch; of a scanned row, the time of its view.
    pub fn commit_time_micros(&self) -> i64 {
        self.row.commit_time_micros
    }

    /// The source's number of the transaction; a scanned row has none.
    pub fn transaction(&self) -> Option<u64> {
        self.row.transaction()
    }

    /// Whether it may have been delivered before.
    pub fn is_redelivery(&self) -> bool {
        self.row.is_redelivery()
    }

    /// Whether it is one half of a key change: the delete of the old key, or the insert of the new one after it.
    pub fn is_moved(&self) -> bool {
        self.row.is_moved()
    }

    /// The row before the change, where the plugin asked for it and the source has it.
    pub fn before(&self) -> Option<Row<'a>> {
        self.image(self.row.before)
    }

    /// The row after the change; a delete and a truncate have none.
    pub fn after(&self) -> Option<Row<'a>> {
        self.image(self.row.after)
    }

    pub fn message(&self) -> Option<Message<'a>> {
        if self.row.operation != Operation::Message {
            return None;
        }
        let first = self.row.after?;
        let prefix = self.values.text(first)?;
        let content = self.values.bytes(first.checked_add(1)?)?;
        Some(Message { prefix, content, transactional: self.row.is_transactional() })
    }

    fn image(&self, first: Option<u32>) -> Option<Row<'a>> {
        Some(Row { first: first?, values: self.values, relation: self.relation? })
    }
}

/// The columns of one row that the plugin asked for.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    first: u32,
    values: Values<'a>,
    relation: &'a Relation,
}

impl<'a> Row<'a> {
    /// The value of a column; `None` for a column that the table does not have or the plugin did not ask for.
    pub fn get(&self, column: &str) -> Option<Value<'a>> {
        self.at(self.relation.column_index(column)?)
    }

    /// The value of a column by its index in [`Relation::columns`].
    pub fn at(&self, column: usize) -> Option<Value<'a>> {
        if column >= self.relation.columns.len() {
            return None;
        }
        self.values.value(self.first.checked_add(u32::try_from(column).ok()?)?)
    }

    pub fn len(&self) -> usize {
        self.relation.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.relation.columns.is_empty()
    }

    /// Names and values, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let row = *self;
        let columns = self.relation.columns.iter().enumerate();
        columns.filter_map(move |(index, column)| Some((column.name.as_str(), row.at(index)?)))
    }
}
