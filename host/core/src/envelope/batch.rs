//! A batch: what it closes, the tables of its changes, and the changes in runs that share their transaction.
//!
//! Most changes of a batch share commit, commit time and transaction with the one before; these take up to eighty bytes,
//! so they are written once, in front of a run of such changes and in one array with them: its length tells how many
//! events to make room for. A run is no unit of meaning: it begins where one of the three differs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{Error as _, SeqAccess};
use serde::ser::{Serialize, SerializeSeq, SerializeTupleStruct, Serializer};

use super::array::{Array, Context, Elements, Optional, next, next_by};
use super::change::{self, EventForm, EventOf};
use super::relation::Digest;
use super::transaction::{TransactionForm, TransactionOf, lsn, write_lsn};
use super::{Entry, Malformed, tag as entry};
use crate::batch::{ChunkId, Closing};
use crate::change::{Event, TransactionId};
use crate::position::Lsn;
use crate::schema::{Relation, RelationId};

/// Numbers of the cases of what is closed. They are in files: none is ever changed or given to another case.
mod tag {
    pub(super) const OPEN: u8 = 1;
    pub(super) const ROWS: u8 = 2;
    pub(super) const CHUNK: u8 = 3;
    pub(super) const COMMIT: u8 = 4;
}

/// Stands where a change has its tag, which is never 0.
const RUN: u8 = 0;

/// A batch as it is written.
pub(super) struct BatchForm<'a> {
    pub(super) events: &'a [Event],
    /// Whose definitions the events refer to.
    pub(super) tables: &'a [Digest],
    /// For each event, which of `tables` is its own.
    pub(super) places: &'a [u32],
    pub(super) closing: Closing,
}

impl Serialize for BatchForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_tuple_struct("batch", 4)?;
        array.serialize_field(&entry::BATCH)?;
        array.serialize_field(&ClosingForm(self.closing))?;
        array.serialize_field(&Tables(self.tables))?;
        array.serialize_field(&Items(self))?;
        array.end()
    }
}

struct Tables<'a>(&'a [Digest]);

impl Serialize for Tables<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|table| table.number()))
    }
}

struct Items<'a>(&'a BatchForm<'a>);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let BatchForm { events, places, .. } = self.0;
        let runs = events.chunk_by(same_run).count();
        let mut array = serializer.serialize_seq(Some(runs + events.len()))?;
        let mut latest = None;
        for (event, place) in events.iter().zip(*places) {
            if !latest.is_some_and(|latest| same_run(latest, event)) {
                array.serialize_element(&RunForm(event))?;
            }
            latest = Some(event);
            array.serialize_element(&EventForm { event, place: *place })?;
        }
        array.end()
    }
}

fn same_run(one: &Event, next: &Event) -> bool {
    one.position.commit == next.position.commit
        && one.commit_time_micros == next.commit_time_micros
        && one.transaction == next.transaction
}

/// By its first event.
struct RunForm<'a>(&'a Event);

impl Serialize for RunForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_tuple_struct("run", 5)?;
        array.serialize_field(&RUN)?;
        write_lsn(self.0.position.commit, &mut array)?;
        array.serialize_field(&self.0.commit_time_micros)?;
        array.serialize_field(&self.0.transaction.as_ref().map(TransactionForm))?;
        array.end()
    }
}

struct ClosingForm(Closing);

impl Serialize for ClosingForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let begin = |tag: u8, more: usize| {
            let mut array = serializer.serialize_tuple_struct("closing", 1 + more)?;
            array.serialize_field(&tag)?;
            Ok(array)
        };
        match self.0 {
            Closing::Open => begin(tag::OPEN, 0)?.end(),
            Closing::Rows => begin(tag::ROWS, 0)?.end(),
            Closing::Chunk(ChunkId { table: RelationId(table), number }) => {
                let mut array = begin(tag::CHUNK, 2)?;
                array.serialize_field(&table)?;
                array.serialize_field(&number)?;
                array.end()
            }
            Closing::Commit(lsn) => {
                let mut array = begin(tag::COMMIT, 2)?;
                write_lsn(lsn, &mut array)?;
                array.end()
            }
        }
    }
}

/// What a run says for all its events.
pub(super) struct Run {
    pub(super) commit: Lsn,
    pub(super) commit_time_micros: i64,
    pub(super) transaction: Option<TransactionId>,
}

/// The elements of a batch behind its tag.
pub(super) fn read<'de, A: SeqAccess<'de>>(
    array: &mut A,
    context: Context<'_>,
    known: &BTreeMap<Digest, Arc<Relation>>,
) -> Result<Entry, A::Error> {
    let closing = next_by(array, Array(ClosingOf(context)))?;
    let tables = next_by(array, Array(TablesOf { context, known }))?;
    let events = next_by(array, Array(ItemsOf { context, tables: &tables }))?;
    Ok(Entry::Batch { events, closing })
}

struct ClosingOf<'a>(Context<'a>);

impl<'de> Elements<'de> for ClosingOf<'_> {
    type Value = Closing;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Closing, A::Error> {
        Ok(match next(array)? {
            tag::OPEN => Closing::Open,
            tag::ROWS => Closing::Rows,
            tag::CHUNK => {
                let table = RelationId(next(array)?);
                Closing::Chunk(ChunkId { table, number: next(array)? })
            }
            tag::COMMIT => Closing::Commit(lsn(array)?),
            unknown => return Err(self.0.unknown("closing", unknown)),
        })
    }
}

struct TablesOf<'a> {
    context: Context<'a>,
    known: &'a BTreeMap<Digest, Arc<Relation>>,
}

impl<'de> Elements<'de> for TablesOf<'_> {
    type Value = Vec<Arc<Relation>>;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Self::Value, A::Error> {
        let mut tables = Vec::with_capacity(self.context.room(array, 1));
        while let Some(number) = array.next_element()? {
            let relation = self.known.get(&Digest::from_number(number));
            let unknown = || self.context.refuse(Malformed::NotDescribed(number));
            tables.push(Arc::clone(relation.ok_or_else(unknown)?));
        }
        Ok(tables)
    }
}

struct ItemsOf<'a> {
    context: Context<'a>,
    tables: &'a [Arc<Relation>],
}

impl<'de> Elements<'de> for ItemsOf<'_> {
    type Value = Vec<Event>;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Vec<Event>, A::Error> {
        let Self { context, tables } = self;
        let mut run = None;
        let mut events = Vec::with_capacity(context.room(array, change::BYTES_MIN));
        loop {
            let item = ItemOf { context, tables, run: &mut run, events: &mut events };
            if array.next_element_seed(Array(item))?.is_none() {
                return Ok(events);
            }
        }
    }
}

/// Begins a run, or appends an event of the run that has begun.
struct ItemOf<'a> {
    context: Context<'a>,
    tables: &'a [Arc<Relation>],
    run: &'a mut Option<Run>,
    events: &'a mut Vec<Event>,
}

impl<'de> Elements<'de> for ItemOf<'_> {
    type Value = ();

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<(), A::Error> {
        let Self { context, tables, run, events } = self;
        let tag = next(array)?;
        if tag == RUN {
            *run = Some(Run {
                commit: lsn(array)?,
                commit_time_micros: next(array)?,
                transaction: next_by(array, Optional(TransactionOf(context)))?,
            });
            return Ok(());
        }
        let run = run.as_ref().ok_or_else(|| A::Error::custom("change outside a run"))?;
        events.push(EventOf { context, tables, run }.read(tag, array)?);
        Ok(())
    }
}
