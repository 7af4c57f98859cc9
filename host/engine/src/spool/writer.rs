//! The end of the spool that is written.
//!
//! Blocking: it lives on the blocking pool. What it has appended is in the file when `append` returns, though not synced;
//! a mark is written only where no transaction is open, behind all that it speaks of.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use dovetail_core::batch::Closing;
use dovetail_core::envelope::{Encoder, Mark};
use dovetail_core::position::Lsn;

use super::error::Error;
use super::segment::{self, Found, Header, Owner};
use crate::source::Item;

/// From this size on a segment is followed by another one, at the next place where no transaction is open. Small enough
/// that a spool that is emptied all the time is small, large enough that files are made seldom.
const SEGMENT_BYTES: u64 = 64 << 20;

/// A change of many megabytes is not remembered by the memory that it took.
const BUFFER_KEPT: usize = 4 << 20;

/// A place between two entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Location {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// What one call has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) at: Location,
    pub(super) next: Location,
}

#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    header: Header,
    file: Arc<File>,
    size: u64,
    encoder: Encoder,
    buffer: Vec<u8>,
    mark: Mark,
    /// Everything before this has been appended.
    closed: Lsn,
    /// The greatest position of a transaction so far.
    last_event: Option<Lsn>,
    /// The last entry ended inside a transaction.
    open: bool,
}

impl Writer {
    /// Begins a spool, or a new segment of one.
    pub(super) fn create(
        directory: PathBuf,
        owner: Owner,
        number: u64,
        mark: Mark,
    ) -> Result<Self, Error> {
        let path = segment::path(&directory, number);
        let failed = |error| Error::io(&path, error);
        let header = Header { owner, number, from: mark.position };
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(failed)?;
        let mut buffer = header.to_bytes();
        let mut framed = Ok(());
        Encoder::new().mark(&mark, &mut |entry| {
            framed = segment::frame(header, entry, &mut buffer);
        });
        framed?;
        (&file).write_all(&buffer).and_then(|()| file.sync_all()).map_err(failed)?;
        // Its name is durable only with the directory.
        File::open(&directory).and_then(|it| it.sync_all()).map_err(failed)?;
        let size = buffer.len() as u64;
        Ok(Self::at(directory, header, file, size, mark))
    }

    /// Goes on behind the last mark of a segment; what follows is cut off.
    pub(super) fn resume(directory: PathBuf, found: &Found) -> Result<Self, Error> {
        let path = segment::path(&directory, found.header.number);
        let failed = |error| Error::io(&path, error);
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        file.set_len(found.bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Self::at(directory, found.header, file, found.bytes, found.mark.clone()))
    }

    fn at(directory: PathBuf, header: Header, file: File, size: u64, mark: Mark) -> Self {
        Self {
            directory,
            header,
            file: Arc::new(file),
            size,
            encoder: Encoder::new(),
            buffer: Vec::new(),
            closed: mark.position,
            last_event: mark.last_event,
            mark,
            open: false,
        }
    }

    pub(super) fn location(&self) -> Location {
        Location { segment: self.header.number, offset: self.size }
    }

    pub(super) fn closed(&self) -> Lsn {
        self.closed
    }

    pub(super) fn last_event(&self) -> Option<Lsn> {
        self.last_event
    }

    /// Where its segment begins.
    pub(super) fn from(&self) -> Lsn {
        self.header.from
    }

    pub(super) fn note(&self) -> Option<String> {
        self.mark.note.clone()
    }

    pub(super) fn append(&mut self, item: &Item) -> Result<Written, Error> {
        let (header, buffer) = (self.header, &mut self.buffer);
        buffer.clear();
        let mut failure = None;
        let mut each = |entry: &[u8]| {
            if let Err(error) = segment::frame(header, entry, buffer) {
                failure = Some(error);
            }
        };
        match item {
            Item::Relation(relation) => self.encoder.relation(relation, &mut each),
            Item::Batch { events, closing } => self.encoder.batch(events, *closing, &mut each),
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let written = self.write()?;
        if let Item::Batch { events, closing } = item {
            let last = events.iter().map(|event| event.position.commit).max();
            self.last_event = self.last_event.max(last);
            self.open = *closing == Closing::Open;
            if let Closing::Commit(position) = closing {
                self.closed = self.closed.max(*position);
            }
        }
        Ok(written)
    }

    /// Where a mark would be written now, if it says anything new.
    pub(super) fn unmarked(&self) -> Option<Lsn> {
        (!self.open && self.closed > self.mark.position).then_some(self.closed)
    }

    /// Writes a mark at the end of what is [unmarked](Self::unmarked), and gives the file that has to be synced for it to
    /// count.
    pub(super) fn mark(
        &mut self,
        note: Option<String>,
    ) -> Result<(Written, Mark, Arc<File>), Error> {
        let mark = Mark { position: self.closed, last_event: self.last_event, note };
        let (header, buffer) = (self.header, &mut self.buffer);
        buffer.clear();
        let mut framed = Ok(());
        self.encoder.mark(&mark, &mut |entry| {
            framed = segment::frame(header, entry, buffer);
        });
        framed?;
        let written = self.write()?;
        self.mark = mark.clone();
        Ok((written, mark, Arc::clone(&self.file)))
    }

    /// Whether another segment should follow.
    pub(super) fn is_full(&self) -> bool {
        self.size >= SEGMENT_BYTES
    }

    /// Syncs, and goes on in the next segment; gives the position of the last mark. Where no transaction is open, and
    /// behind a mark.
    pub(super) fn follow(&mut self) -> Result<Lsn, Error> {
        let path = segment::path(&self.directory, self.header.number);
        self.file.sync_all().map_err(|error| Error::io(&path, error))?;
        let number = self.header.number.saturating_add(1);
        *self = Self::create(self.directory.clone(), self.header.owner, number, self.mark.clone())?;
        Ok(self.mark.position)
    }

    /// All of the buffer, or nothing: what was written of it is cut off.
    fn write(&mut self) -> Result<Written, Error> {
        let at = self.location();
        if let Err(error) = (&*self.file).write_all(&self.buffer) {
            // A torn frame at the end is passed over by whoever opens the file.
            let _ = self.file.set_len(self.size);
            return Err(Error::io(&segment::path(&self.directory, self.header.number), error));
        }
        self.size = self.size.saturating_add(self.buffer.len() as u64);
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        Ok(Written { at, next: self.location() })
    }
}
