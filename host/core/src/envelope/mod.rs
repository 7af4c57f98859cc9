//! The durable form of what comes from a source: definitions, batches and marks, in the order of the log.
//!
//! An entry is one byte that says the version of the format, and one MessagePack value. Files, lengths and checksums
//! are the caller's: what is guaranteed here is that [`Decoder::decode`] gives back exactly what [`Encoder`] was given,
//! and that whatever else the bytes are, it returns an error, does not panic, and allocates no more than a constant
//! times their number.
//!
//! **Nothing is lost.** Every field of an event is written, positions as their two numbers and floats as their bits, so
//! that the payload of a NaN and the sign of a zero come back. What is derived from a definition, its version, is
//! written too and not computed again: a later Dovetail that digests definitions differently still reads the version by
//! which an outlet or a plugin knows the rows.
//!
//! **Bytes outlive the code.** No name of a type, variant or field is in them, and no order of an enum: each case has a
//! number of its own, a constant beside the code that writes it, and the `match` that chooses it has no wildcard, so a
//! new case does not compile before it has one. Numbers are never used twice. A change of what is written for a case, or
//! of the order of elements, is a new version; a new case alone is not, as a reader that does not know it refuses the
//! entry by the number. The vectors beside this module hold every case as it was written once, and have to be read for
//! as long as their version is read at all.
//!
//! **Definitions stand in front, and are named by what they say.** A batch lists the tables of its changes by a digest
//! of 64 bits of their definitions' entries, so a reader need not count, and cannot take one for another, whichever
//! segments it has read before. Not by id and version, which leave out [`Initial`](crate::schema::Initial):
//!
//! 1. A column is added; its definition is written when the catalog says that older rows hold `'new'`.
//! 2. The engine is restarted, the same change is streamed again, and by then the catalog says something else.
//! 3. Both definitions have one id and version, and a reader of both takes the first for the second. Result: an outlet
//!    fills the older rows with what they never held.
//!
//! What is not described is refused. So is a row whose values are not as many as its table's columns.
//!
//! **Memory is bounded by the input.** Lengths are believed only as far as bytes are there for them: text and bytes are
//! parts of one copy of the entry, and room for events, columns and values is made for at most as many as the entry
//! could hold. A null of one byte becomes a value of 48 in memory, a change of five bytes an event of 168: that is the
//! factor. The copy lives as long as any value of the entry.
//!
//! What fails, fails without naming what was read: an error may reach a log, and a value must not.

mod array;
mod batch;
mod change;
mod decode;
mod encode;
mod relation;
mod transaction;
mod value;

use std::sync::Arc;

pub use decode::Decoder;
pub use encode::Encoder;

use crate::batch::Closing;
use crate::change::Event;
use crate::position::Lsn;
use crate::schema::Relation;

/// First byte of every entry.
pub const VERSION: u8 = 1;

/// What a spool is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A table's definition: stands before the first batch that names it, in each segment.
    Relation(Arc<Relation>),
    Batch {
        events: Vec<Event>,
        closing: Closing,
    },
    Mark(Mark),
}

/// Where the source is gone on from: everything before `position` stands in front of the mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub position: Lsn,
    /// The greatest commit of all events so far.
    pub last_event: Option<Lsn>,
    /// What the source has saved for itself.
    pub note: Option<String>,
}

/// What an entry is, for who does not read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Relation,
    Batch,
    Mark,
}

impl Kind {
    /// `None` for what [`Decoder::decode`] refuses because of its version or its tag.
    pub fn of(entry: &[u8]) -> Option<Self> {
        // Behind the version stands a short array, of which the tag is the first element.
        match entry {
            [VERSION, _, tag::RELATION, ..] => Some(Self::Relation),
            [VERSION, _, tag::BATCH, ..] => Some(Self::Batch),
            [VERSION, _, tag::MARK, ..] => Some(Self::Mark),
            _ => None,
        }
    }
}

/// Numbers of the kinds of entries.
mod tag {
    pub(super) const RELATION: u8 = 1;
    pub(super) const BATCH: u8 = 2;
    pub(super) const MARK: u8 = 3;
}

/// Definite: these bytes were not written by an encoder of a version that is read here, or not in this order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error(
        "entry in version {0} of the format, and only {VERSION} is known: it was written by a newer dovetail, start that one"
    )]
    Version(u8),
    #[error("entry that ends before it is complete")]
    Truncated,
    #[error("entry that goes on behind its end")]
    Surplus,
    #[error("entry that has not the form of version {VERSION}")]
    Form,
    #[error("{what} of the unknown kind {tag}: written by a newer dovetail, or damaged")]
    Tag { what: &'static str, tag: u8 },
    #[error("batch with changes of a table that is not described in front of it (digest {0:016x})")]
    NotDescribed(u64),
    #[error("row of {table} that has not a value for each of {columns} columns")]
    Row { table: String, columns: usize },
    #[error("definition of {table} with a key that is none of its columns")]
    Key { table: String },
}

#[cfg(test)]
mod tests;
