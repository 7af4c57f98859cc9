//! From what came from a source to entries.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeTupleStruct, Serializer};

use super::array::Str;
use super::batch::BatchForm;
use super::relation::{Described, Digest, RelationForm};
use super::transaction::write_lsn;
use super::{Mark, VERSION, tag};
use crate::batch::Closing;
use crate::change::Event;
use crate::position::Lsn;
use crate::schema::Relation;

/// What is kept from one entry to the next. A batch is a few hundred kilobytes; one that holds a value of tens of
/// megabytes should not be paid for in memory until the segment ends.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Writes the entries of one segment: nothing is described at first, and what it has described it does not describe
/// again.
///
/// `each` gets one entry at a time, in the order in which they are to be read.
#[derive(Debug, Default)]
pub struct Encoder {
    described: Described,
    bytes: Vec<u8>,
    /// Counts batches.
    batch: u64,
    /// Of the batch: the tables of its events, and for each event a place in that list.
    tables: Vec<Digest>,
    places: Vec<u32>,
}

impl Encoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// The definitions that are needed and not described yet, and the batch.
    ///
    /// # Panics
    /// When a row has not a value for each column of its relation, or a value of 4 GiB or more.
    pub fn batch(&mut self, events: &[Event], closing: Closing, each: &mut dyn FnMut(&[u8])) {
        self.batch += 1;
        self.tables.clear();
        self.places.clear();
        // Neighbours are mostly of one table, and of one definition of it in memory.
        let mut latest: Option<(&Arc<Relation>, u32)> = None;
        for event in events {
            let place = match (event.change.relation(), latest) {
                // Never looked at.
                (None, _) => 0,
                (Some(relation), Some((same, place))) if Arc::ptr_eq(relation, same) => place,
                (Some(relation), _) => {
                    let place = self.list(relation, each);
                    latest = Some((relation, place));
                    place
                }
            };
            self.places.push(place);
        }
        let Self { bytes, tables, places, .. } = self;
        write(bytes, &BatchForm { events, tables, places, closing });
        each(bytes);
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES_MAX);
    }

    /// The definition, if it is not described yet.
    pub fn relation(&mut self, relation: &Arc<Relation>, each: &mut dyn FnMut(&[u8])) {
        if self.described.find(relation).is_none() {
            write(&mut self.bytes, &RelationForm(relation));
            let value = self.bytes.get(1..).expect("behind the version");
            let digest = Digest::of_value(value);
            self.described.add(relation, digest);
            each(&self.bytes);
        }
    }

    pub fn mark(&mut self, mark: &Mark, each: &mut dyn FnMut(&[u8])) {
        write(&mut self.bytes, &MarkForm(mark));
        each(&self.bytes);
    }

    /// Where in the list of the batch's tables this one stands.
    fn list(&mut self, relation: &Arc<Relation>, each: &mut dyn FnMut(&[u8])) -> u32 {
        self.relation(relation, each);
        let written = self.described.find(relation).expect("it has just been described");
        match written.listed {
            Some((batch, place)) if batch == self.batch => place,
            _ => {
                let place = u32::try_from(self.tables.len()).expect("fewer tables than numbers");
                self.tables.push(written.digest);
                written.listed = Some((self.batch, place));
                place
            }
        }
    }
}

fn write(bytes: &mut Vec<u8>, form: &impl Serialize) {
    bytes.clear();
    bytes.push(VERSION);
    form.serialize(&mut rmp_serde::Serializer::new(bytes))
        .expect("memory takes all, and decoders make whole rows of values below 4 GiB");
}

struct MarkForm<'a>(&'a Mark);

impl Serialize for MarkForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Mark { position, last_event, note } = self.0;
        let mut array = serializer.serialize_tuple_struct("mark", 5)?;
        array.serialize_field(&tag::MARK)?;
        write_lsn(*position, &mut array)?;
        array.serialize_field(&last_event.map(LsnForm))?;
        array.serialize_field(&note.as_deref().map(Str))?;
        array.end()
    }
}

struct LsnForm(Lsn);

impl Serialize for LsnForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_tuple_struct("lsn", 2)?;
        write_lsn(self.0, &mut array)?;
        array.end()
    }
}
