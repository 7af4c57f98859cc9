//! From entries to what came from a source.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rmp_serde::decode;
use serde::de::{Deserialize, DeserializeSeed, SeqAccess};

use super::array::{Array, Context, Elements, Optional, next, next_by};
use super::relation::Digest;
use super::transaction::lsn;
use super::{Entry, Malformed, Mark, VERSION, batch, relation, tag};
use crate::position::Lsn;
use crate::schema::Relation;

/// Reads entries. Batches and marks may be left out, definitions may not.
#[derive(Debug, Default)]
pub struct Decoder {
    known: BTreeMap<Digest, Arc<Relation>>,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Equal definitions become one relation, which all changes share.
    ///
    /// # Errors
    /// Nothing of the entry is taken then, and the decoder can go on; what the entry described stays unknown.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Entry, Malformed> {
        let (version, value) = bytes.split_first().ok_or(Malformed::Truncated)?;
        if *version != VERSION {
            return Err(Malformed::Version(*version));
        }
        let buffer = Bytes::copy_from_slice(value);
        let entry = self.read(&buffer)?;
        let Entry::Relation(relation) = entry else { return Ok(entry) };
        let known = self.known.entry(Digest::of_value(value)).or_insert(relation);
        Ok(Entry::Relation(Arc::clone(known)))
    }

    fn read(&self, buffer: &Bytes) -> Result<Entry, Malformed> {
        let reason = Cell::new(None);
        let context = Context { buffer, reason: &reason };
        let mut reader = rmp_serde::Deserializer::from_read_ref(buffer.as_ref());
        let entry = EntryOf { context, known: &self.known };
        let entry = Array(entry).deserialize(&mut reader).map_err(|error| {
            reason.take().unwrap_or(match error {
                decode::Error::InvalidMarkerRead(_) | decode::Error::InvalidDataRead(_) => {
                    Malformed::Truncated
                }
                _ => Malformed::Form,
            })
        })?;
        // The reader does not say where it stands: at the end there is no byte that could begin a value.
        match u8::deserialize(&mut reader) {
            Err(decode::Error::InvalidMarkerRead(_)) => Ok(entry),
            _ => Err(Malformed::Surplus),
        }
    }
}

struct EntryOf<'a> {
    context: Context<'a>,
    known: &'a BTreeMap<Digest, Arc<Relation>>,
}

impl<'de> Elements<'de> for EntryOf<'_> {
    type Value = Entry;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Entry, A::Error> {
        let Self { context, known } = self;
        Ok(match next(array)? {
            tag::RELATION => Entry::Relation(Arc::new(relation::read(array, context)?)),
            tag::BATCH => batch::read(array, context, known)?,
            tag::MARK => Entry::Mark(Mark {
                position: lsn(array)?,
                last_event: next_by(array, Optional(LsnOf))?,
                note: next(array)?,
            }),
            unknown => return Err(context.unknown("entry", unknown)),
        })
    }
}

struct LsnOf;

impl<'de> Elements<'de> for LsnOf {
    type Value = Lsn;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Lsn, A::Error> {
        lsn(array)
    }
}
