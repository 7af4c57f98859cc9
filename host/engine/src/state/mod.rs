//! The durable state of a pipeline: one directory, one writer.
//!
//! `state.db` is an SQLite file that ordinary tools open: table `pipeline` (one row: whose state it is, the pin, the
//! checkpoint, what the source notes of both, whether the hand-over is finished), table `tables` (how far the scan of each is,
//! with its fence), and the [gap ledger](gaps).
//! Every step is one transaction under `synchronous = FULL`; a [`Saved`] exists only behind its commit, and only from a
//! [`Saved`] position may the source be told what it need not keep. A checkpoint is made of a [`Durable`] position, so:
//!
//! 1. Rows durable at the outlets. 2. Checkpoint saved. 3. Source told. A crash between any two repeats changes, which
//!    outlets pass over or which are flagged; in any other order it would lose them.
//!
//! The writer holds an operating-system lock on `state.lock` for its whole life; the kernel lets go of it however the
//! process ends. It is a file of its own, so that `status` may read `state.db` meanwhile.
//!
//! What cannot be trusted is refused, never repaired: a file that is damaged, of a newer engine, or of another pipeline
//! or source. A directory that is simply gone looks like a first start; that a slot of this pipeline still exists tells
//! the two apart, and the seam judges it.

mod database;
mod error;
pub mod gaps;
mod lock;
mod schema;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam::{self, Pin, Record, Step};

use self::database::Database;
pub use self::error::Error;
pub use self::gaps::Gap;
pub(crate) use self::lock::Lock;
use crate::offload::{Offload, detached};
use crate::origin::Origin;
use crate::outlet::Durable;

/// Proof that something is in the state on disk. Only the store makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saved<T>(T);

impl<T> Saved<T> {
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: Copy> Saved<T> {
    pub fn get(&self) -> T {
        self.0
    }
}

/// What a source keeps for itself beside the positions, to go on from them: where the log goes on at another server, how
/// the pin was taken. Nobody else reads it. A note may be about an earlier position than the one that it is saved with,
/// so it names its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    pub pin: Option<String>,
    pub checkpoint: Option<String>,
    /// Of the last pin or checkpoint that was given up: what comes after it is told apart from what came before.
    pub former: Option<String>,
    /// The name of the server by which state and outlets know the pipeline, once it has noted something of a pin. The log may
    /// be another server's by now.
    pub system: Option<String>,
}

/// The state, open for writing. Dropping it lets go of the lock.
#[derive(Debug)]
pub struct Store {
    database: Offload<Database>,
    origin: Origin,
    record: Record,
    notes: Notes,
    _lock: Lock,
}

/// What is in a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub origin: Origin,
    pub record: Record,
    pub notes: Notes,
    pub gaps: Vec<Gap>,
}

impl Store {
    /// Opens the state, or begins it. The directory is created for this user alone.
    ///
    /// # Errors
    /// Definite: another engine runs on it, it cannot be written, or what it holds cannot be trusted.
    pub async fn open(directory: &Path, origin: &Origin) -> Result<Self, Error> {
        let (directory, origin) = (directory.to_owned(), origin.clone());
        detached(move || {
            create(&directory).map_err(|error| Error::directory(&directory, error))?;
            let lock = Lock::take(&directory)?;
            let (database, Content { origin, record, notes, .. }) =
                Database::open(&directory, &origin)?;
            Ok(Self { database: Offload::new(database), origin, record, notes, _lock: lock })
        })
        .await?
    }

    /// Whose state it is.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What is saved.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What is saved of the source's own notes.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Makes one step durable. Not cancel-safe: a store whose call was dropped answers no further one.
    ///
    /// # Errors
    /// Nothing, or all of the step was saved; open the state again to know.
    pub async fn save(&mut self, step: &Step) -> Result<Saved<Step>, Error> {
        if let Step::Checkpoint(_) = step {
            return Err(Error::Unproven);
        }
        self.write(step, None).await
    }

    /// Makes the pin durable, with what the source notes of it.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub async fn save_pin(&mut self, pin: Lsn, note: Option<String>) -> Result<Saved<Step>, Error> {
        let saved = self.write(&Step::Pin(pin), note.clone()).await?;
        if note.is_some() {
            self.notes.system = Some(self.origin.source.system.clone());
        }
        self.notes.pin = note.or(self.notes.pin.take());
        Ok(saved)
    }

    async fn write(&mut self, step: &Step, note: Option<String>) -> Result<Saved<Step>, Error> {
        let part = self.record.part(step).with(step);
        let written = step.clone();
        let write = move |database: &mut Database| database.write(&written, &part, note.as_deref());
        self.database.run(write).await??;
        self.record = std::mem::take(&mut self.record).with(step);
        Ok(Saved(step.clone()))
    }

    /// Writes a gap into the ledger, unless it is open there already; its number.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub async fn enter_gap(
        &mut self,
        gap: seam::Gap,
        tables: Vec<TableName>,
        reason: String,
    ) -> Result<i64, Error> {
        self.database.run(move |database| database.enter_gap(gap, &tables, &reason)).await?
    }

    /// Notes that there is no gap: the pipeline goes on where it was.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub async fn close_gaps(&mut self) -> Result<(), Error> {
        self.database.run(Database::close_gaps).await?
    }

    /// Puts a newer note beside the position that is saved.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub async fn renew_note(&mut self, note: String) -> Result<(), Error> {
        let written = note.clone();
        self.database.run(move |database| database.write_note(&written)).await??;
        self.notes.checkpoint = Some(note);
        Ok(())
    }

    /// Says where everything goes from now on. An outlet that was left out for a while has a gap like a new one, so it
    /// is forgotten here.
    ///
    /// # Errors
    /// Definite, [`Error::NewOutlet`]: since there is a pin, something went elsewhere only.
    pub async fn keep_outlets(&mut self, outlets: BTreeMap<String, String>) -> Result<(), Error> {
        let pinned = matches!(self.record.pin, Pin::At(_));
        self.database
            .run(move |database| {
                let saved = database.outlets()?;
                if saved == outlets {
                    return Ok(());
                }
                let new = outlets.iter().find(|(name, kind)| saved.get(*name) != Some(*kind));
                match new.filter(|_| pinned) {
                    Some((name, kind)) => {
                        Err(Error::NewOutlet { name: name.clone(), kind: kind.clone() })
                    }
                    None => database.write_outlets(&outlets),
                }
            })
            .await?
    }

    /// Makes a checkpoint durable: what every outlet has proved, with what the source notes of it. Without a note the
    /// older one stays: the source goes on from there. A checkpoint that is behind the saved one changes nothing.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub async fn save_checkpoint(
        &mut self,
        durable: Durable<Lsn>,
        note: Option<String>,
    ) -> Result<Saved<Lsn>, Error> {
        let checkpoint = durable.get();
        if Some(checkpoint) > self.record.checkpoint {
            let saved = note.clone();
            let write = move |database: &mut Database| {
                database.write_checkpoint(checkpoint, saved.as_deref())
            };
            self.database.run(write).await??;
            self.notes.checkpoint = note.or(self.notes.checkpoint.take());
            self.record = std::mem::take(&mut self.record).with(&Step::Checkpoint(checkpoint));
        }
        Ok(Saved(durable.get()))
    }
}

/// Reads the state without being its writer, also while one is at work. `None`: nothing was ever saved there.
///
/// # Errors
/// Definite: what is there cannot be read or trusted.
pub async fn read(directory: &Path) -> Result<Option<Content>, Error> {
    let directory = directory.to_owned();
    detached(move || Database::read(&directory)).await?
}

/// Accepts an open gap, as an operator: what is missing is given up, and everything is scanned again from a new pin. One
/// transaction.
///
/// # Errors
/// Definite, [`Error::NotOpen`]: there is no such gap, or something has become of it already.
pub async fn accept_gap(directory: &Path, pipeline: &str, id: i64) -> Result<(), Error> {
    let (directory, pipeline) = (directory.to_owned(), pipeline.to_owned());
    detached(move || {
        let not_open = || Error::NotOpen { id, path: directory.clone() };
        if Database::read(&directory)?.is_none() {
            return Err(not_open());
        }
        let _lock = Lock::take(&directory)?;
        if Database::open_of(&directory, &pipeline)?.accept_gap(id)? {
            Ok(())
        } else {
            Err(not_open())
        }
    })
    .await?
}

fn create(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Its name is durable only with the directory above it.
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
