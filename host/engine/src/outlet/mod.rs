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
//! | [`sqlite`], [`postgres`], [`mysql`] | yes | its transaction, checkpoint included, is committed |
//! | [`lines`]: `file` | no | the lines are written and `fdatasync` returned |
//! | [`lines`]: `stdout` | no | the lines are written; what the reader makes of them is its own affair |
//! | [`discard`] | no | at once |

pub mod discard;
mod error;
mod fold;
pub mod lines;
pub mod mysql;
mod mysql_types;
pub mod postgres;
pub mod sqlite;
mod table;

use std::sync::Arc;

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::outcome::Record;
use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;
use dovetail_core::seam::Recorded;

pub use self::error::Error;
use crate::config;
use crate::offload::{self, Abandoned, Offload};
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

/// The last batch of a group behind which no source transaction is half written; `half`: one is before the group.
pub(in crate::outlet) fn last_end(mut half: bool, group: &[Delivery]) -> Option<usize> {
    let mut end = None;
    for (index, delivery) in group.iter().enumerate() {
        match delivery.closing {
            Closing::Open => half = true,
            Closing::Commit(_) => half = false,
            Closing::Rows | Closing::Chunk(_) => {}
        }
        if !half {
            end = Some(index);
        }
    }
    end
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
pub struct Outlet {
    kind: Kind,
    /// A call failed or was dropped half way: what it left behind is not for the next one to end.
    failed: bool,
}

#[derive(Debug)]
enum Kind {
    Lines(Offload<lines::Lines>),
    Sqlite(sqlite::Sqlite),
    Postgres(Box<postgres::Replica>),
    MySql(Box<mysql::Replica>),
    Discard(discard::Discard),
}

impl Outlet {
    /// Opens an outlet for one origin. `target` is its index among the pipeline's targets: records that a plugin
    /// routed to others are passed over. An earlier one of the same pipeline has to be closed or dropped before: this
    /// one waits for its end, or is refused.
    ///
    /// # Errors
    /// Definite where it belongs to another source or cannot be used at all, transient where it cannot be reached.
    pub async fn open(
        config: &config::Outlet,
        origin: &Origin,
        target: u16,
    ) -> Result<Self, Error> {
        let kind = match config {
            config::Outlet::Stdout => {
                Kind::Lines(Offload::new(lines::Lines::stdout(&origin.source, target)))
            }
            config::Outlet::File { path } => {
                let (path, source) = (path.clone(), origin.source.clone());
                let open = move || lines::Lines::file(&path, &source, target);
                Kind::Lines(Offload::new(offload::detached(open).await??))
            }
            config::Outlet::Sqlite { path } => {
                Kind::Sqlite(sqlite::Sqlite::open(path, origin, target).await?)
            }
            config::Outlet::Discard => Kind::Discard(discard::Discard::new(target)),
            config::Outlet::Postgres { server, schema } => {
                let replica = postgres::Replica::open(server, schema.as_deref(), origin, target);
                Kind::Postgres(Box::new(replica.await?))
            }
            config::Outlet::MySql { server, database } => {
                let replica = mysql::Replica::open(server, database, origin, target);
                Kind::MySql(Box::new(replica.await?))
            }
        };
        Ok(Self { kind, failed: false })
    }

    /// The checkpoint that a transactional outlet holds for this pipeline. Moves with every commit that lands.
    pub fn recorded(&self) -> Recorded {
        match &self.kind {
            Kind::Lines(_) | Kind::Discard(_) => Recorded::Unkept,
            Kind::Sqlite(_) | Kind::Postgres(_) | Kind::MySql(_) => {
                self.durable().map_or(Recorded::Empty, |durable| Recorded::At(durable.get()))
            }
        }
    }

    /// The same position as the proof that it is: what the state may save at a start, where it lags behind.
    pub fn durable(&self) -> Option<Durable<Lsn>> {
        match &self.kind {
            Kind::Sqlite(replica) => replica.recorded().map(Durable::new),
            Kind::Postgres(replica) => replica.recorded().map(Durable::new),
            Kind::MySql(replica) => replica.recorded().map(Durable::new),
            Kind::Lines(_) | Kind::Discard(_) => None,
        }
    }

    /// Forgets the checkpoint, as if nothing of the log had been delivered: it is of a log that was given up, and what
    /// follows may have smaller positions. The rows stay; they are scanned again behind a barrier. Repeating it has no
    /// effect.
    ///
    /// # Errors
    /// As [`Outlet::write`].
    pub async fn forget(&mut self) -> Result<(), Error> {
        self.enter()?;
        match &mut self.kind {
            Kind::Sqlite(replica) => replica.forget().await?,
            Kind::Postgres(replica) => replica.forget().await?,
            Kind::MySql(replica) => replica.forget().await?,
            Kind::Lines(_) | Kind::Discard(_) => {}
        }
        self.failed = false;
        Ok(())
    }

    /// Makes ready for a table's rows, before they are read and also where there are none: creates it at the outlet.
    /// Repeating it has no effect.
    ///
    /// `fresh`: nothing of this table was ever delivered. Otherwise a truncate barrier follows at once. Either way a table
    /// that holds rows, and of which the outlet has noted nothing, is somebody else's, and refused.
    ///
    /// # Errors
    /// Definite where the table at the outlet cannot take these rows.
    pub async fn prepare(&mut self, relation: &Arc<Relation>, fresh: bool) -> Result<(), Error> {
        self.enter()?;
        match &mut self.kind {
            Kind::Sqlite(replica) => replica.prepare(relation, fresh).await?,
            Kind::Postgres(replica) => replica.prepare(relation, fresh).await?,
            Kind::MySql(replica) => replica.prepare(relation, fresh).await?,
            Kind::Lines(_) | Kind::Discard(_) => {}
        }
        self.failed = false;
        Ok(())
    }

    /// Writes batches in their order. What it returns is durable, in the batches' order; what a `Closing::Open` tail
    /// leaves unfinished lands with a later call, so that an empty result is no failure.
    ///
    /// Not cancel-safe: dropped before its end, the outlet has to be opened again.
    ///
    /// # Errors
    /// See [`Error`]. Of this group nothing landed that a transactional outlet does not report by
    /// [`Outlet::recorded`] when it is opened again.
    pub async fn write(&mut self, group: &Arc<[Delivery]>) -> Result<Vec<Landed>, Error> {
        self.enter()?;
        let landed = match &mut self.kind {
            Kind::Lines(lines) => {
                let group = Arc::clone(group);
                lines.run(move |lines| lines.write(&group)).await??
            }
            Kind::Sqlite(replica) => replica.write(group).await?,
            Kind::Postgres(replica) => replica.write(group).await?,
            Kind::MySql(replica) => replica.write(group).await?,
            Kind::Discard(outlet) => outlet.write(group),
        };
        self.failed = false;
        Ok(landed)
    }

    /// Lets go of everything. An open tail is rolled back: its source transaction comes again.
    ///
    /// # Errors
    /// Nothing that landed is in doubt.
    pub async fn close(self) -> Result<(), Error> {
        // On the blocking pool, because a file's last close can wait for the disk.
        Ok(offload::detached(move || drop(self)).await?)
    }

    /// Failed until proved otherwise, so that a call that is dropped counts as well.
    fn enter(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(Abandoned.into());
        }
        Ok(())
    }
}
