//! One change, without what its transaction's run says for all of them.

use std::sync::Arc;

use serde::de::{Error as _, SeqAccess};
use serde::ser::{Serialize, SerializeTupleStruct, Serializer};

use super::array::{Array, Binary, Context, Optional, Str, next, next_by};
use super::batch::Run;
use super::value::{RowForm, RowOf};
use crate::change::{Change, Event};
use crate::position::Position;
use crate::schema::Relation;
use crate::value::Row;

/// Numbers of the cases of a change. They are in files: none is ever changed or given to another case.
/// 0 is taken: it begins a run.
mod tag {
    pub(super) const READ: u8 = 1;
    pub(super) const INSERT: u8 = 2;
    pub(super) const UPDATE: u8 = 3;
    pub(super) const DELETE: u8 = 4;
    pub(super) const TRUNCATE: u8 = 5;
    pub(super) const MESSAGE: u8 = 6;
}

/// Tag, ordinal, redelivery: what every change begins with.
const HEAD: usize = 3;

/// The fewest bytes that a change takes: array, head, and the place of a table that is emptied.
pub(super) const BYTES_MIN: usize = 5;

/// An event as it is written.
pub(super) struct EventForm<'a> {
    pub(super) event: &'a Event,
    /// Its table in the batch's list; a message has none, and does not look at it.
    pub(super) place: u32,
}

impl Serialize for EventForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.event.change {
            Change::Read { relation, after } => {
                let mut array = self.begin(serializer, tag::READ, 2)?;
                array.serialize_field(&self.place)?;
                array.serialize_field(&RowForm { row: after, relation })?;
                array.end()
            }
            Change::Insert { relation, after, moved_from } => {
                let moved_from = moved_from.as_ref().map(|row| RowForm { row, relation });
                let mut array = self.begin(serializer, tag::INSERT, 3)?;
                array.serialize_field(&self.place)?;
                array.serialize_field(&RowForm { row: after, relation })?;
                array.serialize_field(&moved_from)?;
                array.end()
            }
            Change::Update { relation, before, after } => {
                let before = before.as_ref().map(|row| RowForm { row, relation });
                let mut array = self.begin(serializer, tag::UPDATE, 3)?;
                array.serialize_field(&self.place)?;
                array.serialize_field(&before)?;
                array.serialize_field(&RowForm { row: after, relation })?;
                array.end()
            }
            Change::Delete { relation, before, moved } => {
                let mut array = self.begin(serializer, tag::DELETE, 3)?;
                array.serialize_field(&self.place)?;
                array.serialize_field(&RowForm { row: before, relation })?;
                array.serialize_field(moved)?;
                array.end()
            }
            Change::Truncate { relation: _ } => {
                let mut array = self.begin(serializer, tag::TRUNCATE, 1)?;
                array.serialize_field(&self.place)?;
                array.end()
            }
            Change::Message { prefix, content, transactional } => {
                let mut array = self.begin(serializer, tag::MESSAGE, 3)?;
                array.serialize_field(&Str(prefix))?;
                array.serialize_field(&Binary(content))?;
                array.serialize_field(transactional)?;
                array.end()
            }
        }
    }
}

impl EventForm<'_> {
    fn begin<S: Serializer>(
        &self,
        serializer: S,
        tag: u8,
        more: usize,
    ) -> Result<S::SerializeTupleStruct, S::Error> {
        // By name, so that a new field does not compile before it is written; the run has the other ones.
        let Event { position, commit_time_micros: _, transaction: _, redelivery, change: _ } =
            self.event;
        let mut array = serializer.serialize_tuple_struct("event", HEAD + more)?;
        array.serialize_field(&tag)?;
        array.serialize_field(&position.ordinal)?;
        array.serialize_field(redelivery)?;
        Ok(array)
    }
}

/// Reads an event of this run.
#[derive(Clone, Copy)]
pub(super) struct EventOf<'a> {
    pub(super) context: Context<'a>,
    pub(super) tables: &'a [Arc<Relation>],
    pub(super) run: &'a Run,
}

impl EventOf<'_> {
    /// The elements of an event behind its tag.
    pub(super) fn read<'de, A: SeqAccess<'de>>(
        self,
        tag: u8,
        array: &mut A,
    ) -> Result<Event, A::Error> {
        Ok(Event {
            position: Position { commit: self.run.commit, ordinal: next(array)? },
            redelivery: next(array)?,
            commit_time_micros: self.run.commit_time_micros,
            transaction: self.run.transaction,
            change: self.change(tag, array)?,
        })
    }

    fn change<'de, A: SeqAccess<'de>>(self, tag: u8, array: &mut A) -> Result<Change, A::Error> {
        Ok(match tag {
            tag::READ => {
                let relation = self.relation(array)?;
                Change::Read { after: self.row(array, &relation)?, relation }
            }
            tag::INSERT => {
                let relation = self.relation(array)?;
                let after = self.row(array, &relation)?;
                Change::Insert { after, moved_from: self.optional_row(array, &relation)?, relation }
            }
            tag::UPDATE => {
                let relation = self.relation(array)?;
                let before = self.optional_row(array, &relation)?;
                Change::Update { before, after: self.row(array, &relation)?, relation }
            }
            tag::DELETE => {
                let relation = self.relation(array)?;
                let before = self.row(array, &relation)?;
                Change::Delete { before, moved: next(array)?, relation }
            }
            tag::TRUNCATE => Change::Truncate { relation: self.relation(array)? },
            tag::MESSAGE => Change::Message {
                prefix: next(array)?,
                content: self.context.bytes(array)?,
                transactional: next(array)?,
            },
            unknown => return Err(self.context.unknown("change", unknown)),
        })
    }

    fn relation<'de, A: SeqAccess<'de>>(self, array: &mut A) -> Result<Arc<Relation>, A::Error> {
        let place: u32 = next(array)?;
        let relation = usize::try_from(place).ok().and_then(|place| self.tables.get(place));
        relation.cloned().ok_or_else(|| A::Error::custom("table that the batch does not list"))
    }

    fn row<'de, A: SeqAccess<'de>>(
        self,
        array: &mut A,
        relation: &Relation,
    ) -> Result<Row, A::Error> {
        next_by(array, Array(RowOf { context: self.context, relation }))
    }

    fn optional_row<'de, A: SeqAccess<'de>>(
        self,
        array: &mut A,
        relation: &Relation,
    ) -> Result<Option<Row>, A::Error> {
        next_by(array, Optional(RowOf { context: self.context, relation }))
    }
}
