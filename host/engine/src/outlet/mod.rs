//! Where changes go, and the only place that can say that they are durable.
//!
//! An outlet gets batches in their order. It may put several into one transaction of its own, but never ends one where
//! a batch is [`Closing::Open`]: half a source transaction is never visible at a transactional outlet. A transactional
//! outlet writes the checkpoint in the same transaction as the rows, and reports it when it is opened, so that the
//! repetition after a crash has no effect:
//!
//! 1. Rows and checkpoint C are committed at the outlet. 2. Crash before the state saves C. 3. The restart reads C from
//!    the outlet; what the source repeats from before C is passed over by position. Nothing is applied twice.
//!
//! Rows of a scan (ordinal 0) are never passed over: a table that is scanned again stands behind a truncate barrier,
//! which is what makes their repetition harmless, and their position (the pin) says nothing about when they were read.
//!
//! | outlet | transactional | durable when |
//! |---|---|---|
//! | [`discard`] | no | at once |

pub mod discard;
mod error;

use std::sync::Arc;

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::outcome::Record;
use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;

pub use self::error::Error;
use crate::config;
use crate::origin::Origin;

/// A batch behind the plugins.
#[derive(Debug)]
pub struct Delivery {
    pub number: u64,
    pub records: Vec<Record>,
    pub closing: Closing,
}

impl Delivery {
    /// The records that no plugin routed elsewhere.
    pub(in crate::outlet) fn records_for(&self, target: u16) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| match &record.route {
            None => true,
            Some(targets) => targets.contains(&target),
        })
    }
}

/// Proof that something survives a crash of this machine. Only outlets make it; the state saves nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable<T>(T);

impl<T: Copy> Durable<T> {
    pub(in crate::outlet) fn new(value: T) -> Self {
        Self(value)
    }

    pub fn get(&self) -> T {
        self.0
    }
}

/// What became durable by a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    Chunk(Durable<ChunkId>),
    Commit(Durable<Lsn>),
}

/// What a batch makes durable once it is. Called by outlets when that is true, and at no other place.
pub(in crate::outlet) fn landed(closing: Closing) -> Option<Landed> {
    match closing {
        Closing::Open | Closing::Rows => None,
        Closing::Chunk(chunk) => Some(Landed::Chunk(Durable::new(chunk))),
        Closing::Commit(lsn) => Some(Landed::Commit(Durable::new(lsn))),
    }
}

/// One configured outlet, open.
#[derive(Debug)]
pub enum Outlet {
    Discard(discard::Discard),
}

impl Outlet {
    /// Opens an outlet for one origin. `target` is its index among the pipeline's targets: records that a plugin
    /// routed to others are passed over.
    ///
    /// # Errors
    /// Definite where it belongs to another source or cannot be used at all, transient where it cannot be reached.
    #[expect(clippy::unused_async, reason = "the outlets that connect are not here yet")]
    pub async fn open(
        config: &config::Outlet,
        _origin: &Origin,
        target: u16,
    ) -> Result<Self, Error> {
        match config {
            config::Outlet::Discard => Ok(Self::Discard(discard::Discard::new(target))),
            _ => Err(Error::definite("this kind of outlet is not built in", "use `discard`")),
        }
    }

    /// The checkpoint that a transactional outlet holds for this pipeline. Moves with every commit that lands.
    pub fn recorded(&self) -> Option<Lsn> {
        match self {
            Self::Discard(_) => None,
        }
    }

    /// Makes ready for a table's rows, before they are read and also where there are none: creates it at the outlet.
    /// Repeating it has no effect.
    ///
    /// `fresh`: nothing of this table was ever delivered, so a table that holds rows is somebody else's, and refused.
    /// Otherwise it is taken as it stands (a truncate barrier, or nothing, follows).
    ///
    /// # Errors
    /// Definite where the table at the outlet cannot take these rows.
    #[expect(clippy::unused_async, reason = "the outlets that connect are not here yet")]
    pub async fn prepare(&mut self, _relation: &Arc<Relation>, _fresh: bool) -> Result<(), Error> {
        match self {
            Self::Discard(_) => Ok(()),
        }
    }

    /// Writes batches in their order. What it returns is durable, in the batches' order; what a `Closing::Open` tail
    /// leaves unfinished lands with a later call, so that an empty result is no failure.
    ///
    /// Not cancel-safe: dropped before its end, the outlet has to be opened again.
    ///
    /// # Errors
    /// See [`Error`]. Of this group nothing landed that a transactional outlet does not report by
    /// [`Outlet::recorded`] when it is opened again.
    #[expect(clippy::unused_async, reason = "the outlets that connect are not here yet")]
    pub async fn write(&mut self, group: &Arc<[Delivery]>) -> Result<Vec<Landed>, Error> {
        match self {
            Self::Discard(outlet) => Ok(outlet.write(group)),
        }
    }

    /// Lets go of everything. An open tail is rolled back: its source transaction comes again.
    ///
    /// # Errors
    /// Nothing that landed is in doubt.
    #[expect(clippy::unused_async, reason = "the outlets that connect are not here yet")]
    pub async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}
