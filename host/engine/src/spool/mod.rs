//! A durable copy of the log from the reader on, until it is at the outlets.
//!
//! The reader appends what it reads at once, while tables are scanned, outlets are down or plugins are slow; the source is
//! told that it need not keep what the spool has synced. So a server has to keep its log for seconds, however long the
//! scan takes.
//!
//! ```text
//! source -> intake -> [ segments on the disk ] -> cursor -> seam
//!              |                  ^-- memory: the newest entries, for a cursor that keeps up
//!              '-> source acknowledged, up to the last mark that was synced
//! ```
//!
//! # What it guarantees
//!
//! - **What is acknowledged is synced (I6).** Only [`Kept`] positions may be acknowledged, and of a spool's positions one
//!   is made where a sync returned that covers the mark, and with it all that stands before it.
//! - **It ends at a mark.** A mark is written only where everything before its position has been appended and no transaction
//!   is open, and it has what the source needs to go on from there. What a crash leaves behind the last mark is cut off,
//!   and read again.
//! - **It begins where it is needed.** Segments are removed when a *saved* checkpoint is past them.
//! - **Nothing else is read for it.** A segment names the pipeline and the pin that it belongs to; the segments are numbered
//!   without a gap, and each begins at the mark that the one before ends with. What is otherwise is damaged, and refused:
//!   it is never passed over (I7).
//!
//! What goes to the lanes does not wait for the sync. So after a crash of the machine an outlet may be ahead of the spool's
//! end; then nothing in the spool is needed, the seam begins it anew at the outlet's position, and the server, which was
//! told less, still has what follows.

mod cursor;
mod error;
mod intake;
mod segment;
mod shared;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dovetail_core::envelope::Mark;
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam::{Pin, Spool as Held};
use xxhash_rust::xxh3::xxh3_64;

pub use self::cursor::{Cursor, Next};
pub use self::error::Error;
pub use self::intake::Intake;
use self::segment::{Found, Owner};
use self::shared::{Segment, Shared};
use self::writer::Writer;
use crate::config;
use crate::offload::{Offload, detached};
use crate::origin::Origin;
use crate::state::{Content, Lock, Saved};

/// A position before which the source need not keep anything: it is saved, or synced in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept(Lsn);

impl Kept {
    pub fn get(self) -> Lsn {
        self.0
    }
}

impl From<Saved<Lsn>> for Kept {
    fn from(saved: Saved<Lsn>) -> Self {
        Self(saved.get())
    }
}

/// Whose spool it is: of one pipeline, from one pin on.
fn owner(origin: &Origin, pin: Lsn) -> Owner {
    let source = &origin.source;
    let parts = [origin.pipeline.as_str(), &source.system, &source.database, &pin.to_string()];
    Owner(xxh3_64(parts.join("\0").as_bytes()))
}

fn owner_by(content: &Content) -> Option<Owner> {
    match content.record.pin {
        Pin::At(pin) => Some(owner(&content.origin, pin)),
        Pin::None | Pin::Intended => None,
    }
}

/// What is in a pipeline's spool, looked at without being its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// With which it ends.
    pub mark: Mark,
    /// On the disk.
    pub bytes: u64,
}

/// Looks at a pipeline's spool, also while an engine is at work. `None`: there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
pub async fn look(state: &Path, content: Option<&Content>) -> Result<Option<Look>, Error> {
    let Some(owner) = content.and_then(owner_by) else { return Ok(None) };
    let directory = directory(state);
    let left = detached(move || match find(&directory, owner) {
        // A segment was released between two looks.
        Err(Error::Access { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            find(&directory, owner)
        }
        found => found,
    });
    let left = left.await??;
    Ok(left.map(|left| {
        let bytes = left.segments.iter().map(|it| it.bytes).sum::<u64>() + left.last.bytes;
        Look { mark: left.last.mark, bytes }
    }))
}

fn directory(state: &Path) -> PathBuf {
    state.join("spool")
}

/// Open for writing. It outlives attempts, for as long as its log is read.
#[derive(Debug)]
pub struct Spool {
    shared: Arc<Shared>,
    /// `None` before it was begun, and while the intake has it.
    writer: Option<Offload<Writer>>,
    _lock: Lock,
}

impl Spool {
    /// Opens it, with what an earlier life left.
    ///
    /// # Errors
    /// Another engine has it, it cannot be written, or it is damaged.
    pub async fn open(
        state: &Path,
        settings: config::Spool,
        content: Option<&Content>,
    ) -> Result<Self, Error> {
        let owner = content.and_then(owner_by);
        let directory = directory(state);
        detached(move || {
            create(&directory)?;
            let lock = Lock::take(&directory)?;
            let found = match owner {
                Some(owner) => find(&directory, owner)?,
                None => None,
            };
            let shared = Arc::new(Shared::new(directory.clone(), settings));
            let writer = match found {
                None => None,
                Some(found) => {
                    found.torn.iter().try_for_each(|path| remove(path))?;
                    let writer = Writer::resume(directory, &found.last)?;
                    shared.found(found.segments, &writer);
                    Some(Offload::new(writer))
                }
            };
            Ok(Self { shared, writer, _lock: lock })
        })
        .await?
    }

    /// Empties it, and begins it at a position, with what the source needs to go on from there.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn begin(
        &mut self,
        origin: &Origin,
        pin: Lsn,
        position: Lsn,
        note: Option<String>,
    ) -> Result<(), Error> {
        let directory = self.shared.directory().to_owned();
        let owner = owner(origin, pin);
        self.writer = None;
        self.shared.clear();
        let mark = Mark { position, last_event: None, note };
        let writer = detached(move || {
            for (_, path) in segments(&directory)? {
                remove(&path)?;
            }
            Writer::create(directory, owner, 1, mark)
        });
        let writer = writer.await??;
        self.shared.begun(&writer);
        self.writer = Some(Offload::new(writer));
        Ok(())
    }

    /// Reads out of it, from a position that it holds or that will be read into it. One cursor at a time gets what is in
    /// memory.
    pub fn cursor(&self, from: Lsn, tables: &[TableName]) -> Cursor {
        Cursor::new(Arc::clone(&self.shared), from, tables)
    }

    /// Lets go of what is before a checkpoint that is saved.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub async fn release(&self, saved: Saved<Lsn>) -> Result<(), Error> {
        let gone = self.shared.release(saved.get());
        if !gone.is_empty() {
            detached(move || gone.iter().try_for_each(|path| remove(path))).await??;
            self.shared.released();
        }
        Ok(())
    }
}

/// A spool, and what reads the log into it. It outlives attempts.
#[derive(Debug)]
pub struct Spooling {
    pub spool: Spool,
    /// `None` before the seam asks for it.
    pub intake: Option<Intake>,
}

impl Spooling {
    /// For an attempt that begins: what reads goes on, and what has ended is opened anew.
    ///
    /// # Errors
    /// As [`Spool::open`]; and why reading ended meanwhile, once.
    pub async fn go_on(
        spooling: &mut Option<Self>,
        state: &Path,
        settings: Option<config::Spool>,
        content: Option<&Content>,
    ) -> Result<(), crate::error::Error> {
        if let Some(intake) = spooling.as_mut().and_then(|it| it.intake.as_mut()) {
            match intake.try_failed() {
                None if intake.is_running() => return Ok(()),
                None => {}
                Some(error) => return Err(error),
            }
        }
        *spooling = None;
        if let Some(settings) = settings {
            let spool = Spool::open(state, settings, content).await?;
            *spooling = Some(Self { spool, intake: None });
        }
        Ok(())
    }

    /// Why the log is not read any more, once. Pending for as long as it is, or was not begun. Cancel-safe.
    pub async fn failed(spooling: &mut Option<Self>) -> crate::error::Error {
        match spooling.as_mut().and_then(|it| it.intake.as_mut()) {
            Some(intake) => intake.failed().await,
            None => std::future::pending().await,
        }
    }

    /// What it holds, as the seam asks at a start.
    pub fn held(&self) -> Held {
        match (self.spool.shared.span(), &self.intake) {
            (None, _) => Held::Empty,
            (Some((from, _)), Some(_)) => Held::Growing { from },
            (Some((from, to)), None) => Held::Holds { from, to },
        }
    }

    /// What the source needs to go on reading.
    pub fn note(&self) -> Option<String> {
        self.spool.shared.note()
    }
}

/// The files of a spool that are left from an earlier life.
struct Left {
    /// All but the last.
    segments: Vec<Segment>,
    last: Found,
    /// Files that a crash left behind the last mark.
    torn: Vec<PathBuf>,
}

/// Finds what there is of a pipeline's own.
fn find(directory: &Path, owner: Owner) -> Result<Option<Left>, Error> {
    let mut files = segments(directory)?;
    let mut torn = Vec::new();
    // Only the newest file can be without a whole mark: each was synced before the next was made.
    let last = loop {
        let Some((_, path)) = files.pop() else { return Ok(None) };
        match segment::recover(&path)? {
            Some(found) if found.header.owner == owner => break found,
            Some(_) => return Ok(None),
            None if torn.is_empty() => torn.push(path),
            None => return Err(Error::damaged(&path, "no whole mark is in it")),
        }
    };
    let mut found = Vec::with_capacity(files.len());
    let mut next = last.header;
    for (number, path) in files.into_iter().rev() {
        let damaged = |what| Error::damaged(&path, what);
        let reader =
            segment::Reader::open(&path, 0)?.ok_or_else(|| damaged("its header is gone"))?;
        let header = reader.header;
        if header.owner != owner {
            return Err(damaged("it is of another pipeline"));
        }
        if number != header.number || number.checked_add(1) != Some(next.number) {
            return Err(damaged("a segment is missing beside it"));
        }
        let bytes = fs::metadata(&path).map_err(|error| Error::io(&path, error))?.len();
        found.push(Segment { number, from: header.from, bytes });
        next = header;
    }
    found.reverse();
    Ok(Some(Left { segments: found, last, torn }))
}

/// The files, in order.
fn segments(directory: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let failed = |error| Error::io(directory, error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(segment::number_of);
        files.extend(number.map(|number| (number, entry.path())));
    }
    files.sort();
    Ok(files)
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|error| Error::io(path, error))
}

fn create(directory: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let synced = made.and_then(|()| match directory.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    synced.map_err(|error| Error::io(directory, error))
}
