//! Reading out of a spool, from a position on and behind the writer.
//!
//! A cursor that keeps up gets the entries from memory; one that does not, or comes from an earlier life, reads the files,
//! and meets the memory where it has caught up. Both give the same entries, because what is in memory is what was written.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use dovetail_core::batch::Closing;
use dovetail_core::envelope::{Decoder, Entry, Kind, Mark};
use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use tokio::task::JoinHandle;

use super::error::Error;
use super::segment::{HEADER_BYTES, Read, Reader};
use super::shared::{Ahead, Fresh, Shared};
use super::writer::Location;
use crate::offload::Abandoned;
use crate::source::Item;

/// Decoded in one go: enough to amortize the hand-over between threads.
const READ_BYTES: u64 = 1 << 20;

type Decoded = Vec<(Entry, Location)>;

/// What comes out of a spool.
#[derive(Debug)]
pub enum Next {
    Item(Item),
    /// What the source needs to go on from a position that the items before have passed.
    Noted(Lsn, String),
}

#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    at: Location,
    /// What starts before is passed over.
    from: Lsn,
    tables: HashSet<TableName>,
    /// Tables that an earlier configuration had.
    left_out: HashSet<RelationId>,
    open: Option<Open>,
    /// A read that is under way. A dropped call leaves it here: to begin again would be to look for the place again.
    reading: Option<JoinHandle<(Open, Result<Decoded, Error>)>>,
    /// Decoded and not taken, the first one last.
    decoded: Decoded,
    /// The mark that was the last entry, if it was one.
    marked: Option<Lsn>,
}

/// A segment that is read.
#[derive(Debug, Default)]
struct Open {
    reader: Option<Reader>,
    decoder: Decoder,
    at: Option<Location>,
}

impl Open {
    /// The entries from a place on; some of them.
    fn read(&mut self, path: &Path, from: Location, to: u64) -> Result<Decoded, Error> {
        if self.at != Some(from) {
            self.seek(path, from)?;
        }
        let Some(reader) = &mut self.reader else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        let mut at = from;
        while at.offset < to && at.offset.saturating_sub(from.offset) < READ_BYTES {
            let Read::Frame { entry, next } = reader.next(to)? else {
                return Err(Error::damaged(path, "an entry is not what was written"));
            };
            let entry = self.decoder.decode(entry);
            let entry = entry.map_err(|error| Error::damaged(path, error.to_string()))?;
            at = Location { offset: next, ..at };
            entries.push((entry, at));
        }
        self.at = Some(at);
        Ok(entries)
    }

    /// Goes to a place in a segment, of which nothing but the definitions is needed up to there.
    fn seek(&mut self, path: &Path, from: Location) -> Result<(), Error> {
        let reader = Reader::open(path, HEADER_BYTES)?;
        let mut reader = reader.ok_or_else(|| Error::damaged(path, "its header is gone"))?;
        let mut decoder = Decoder::new();
        let mut at = HEADER_BYTES;
        while at < from.offset {
            let Read::Frame { entry, next } = reader.next(from.offset)? else {
                return Err(Error::damaged(path, "an entry is not what was written"));
            };
            if Kind::of(entry) == Some(Kind::Relation) {
                let described = decoder.decode(entry);
                described.map_err(|error| Error::damaged(path, error.to_string()))?;
            }
            at = next;
        }
        *self = Self { reader: Some(reader), decoder, at: Some(from) };
        Ok(())
    }
}

impl Cursor {
    pub(super) fn new(shared: Arc<Shared>, from: Lsn, tables: &[TableName]) -> Self {
        let at = shared.seek(from);
        let tables = tables.iter().cloned().collect();
        let (left_out, decoded) = Default::default();
        Self {
            shared,
            at,
            from,
            tables,
            left_out,
            open: None,
            reading: None,
            decoded,
            marked: None,
        }
    }

    /// The next entry, waiting for it. Cancel-safe.
    ///
    /// # Errors
    /// What was written cannot be read any more.
    pub async fn next(&mut self) -> Result<Next, Error> {
        loop {
            let taken = match self.decoded.pop() {
                Some(taken) => Some(taken),
                None => self.ahead().await?,
            };
            let Some((entry, next)) = taken else { continue };
            self.follows(&entry, next)?;
            self.at = next;
            if let Some(next) = self.pass(entry) {
                return Ok(next);
            }
        }
    }

    /// A segment that was cut off between two entries does not show it; but each ends with the mark that the next one
    /// begins with.
    fn follows(&mut self, entry: &Entry, next: Location) -> Result<(), Error> {
        let mark = match entry {
            Entry::Mark(mark) => Some(mark.position),
            Entry::Relation(_) | Entry::Batch { .. } => None,
        };
        if next.segment != self.at.segment && (mark.is_none() || self.marked != mark) {
            let path = self.shared.path(self.at.segment);
            return Err(Error::damaged(&path, "its end is gone"));
        }
        self.marked = mark;
        Ok(())
    }

    /// From memory; or some more is decoded.
    async fn ahead(&mut self) -> Result<Option<(Entry, Location)>, Error> {
        let shared = Arc::clone(&self.shared);
        let appended = shared.next_append();
        tokio::pin!(appended);
        appended.as_mut().enable();
        match self.shared.ahead(self.at) {
            Ahead::Memory(entry, next) => {
                let entry = match entry {
                    Fresh::Item(Item::Relation(relation)) => Entry::Relation(relation),
                    Fresh::Item(Item::Batch { events, closing }) => {
                        Entry::Batch { events, closing }
                    }
                    Fresh::Mark(mark) => Entry::Mark(mark),
                };
                Ok(Some((entry, next)))
            }
            Ahead::Disk { from, to } => {
                self.read(from, to).await?;
                Ok(None)
            }
            Ahead::Nothing => {
                appended.await;
                Ok(None)
            }
        }
    }

    /// Decodes some of a segment.
    async fn read(&mut self, from: Location, to: u64) -> Result<(), Error> {
        let reading = match &mut self.reading {
            Some(reading) => reading,
            reading => {
                let path = self.shared.path(from.segment);
                let mut open = self.open.take().unwrap_or_default();
                reading.insert(tokio::task::spawn_blocking(move || {
                    let read = open.read(&path, from, to);
                    (open, read)
                }))
            }
        };
        let ended = reading.await;
        self.reading = None;
        let (open, read) = ended.map_err(|_| Abandoned)?;
        self.open = Some(open);
        self.decoded = read?;
        self.decoded.reverse();
        Ok(())
    }

    /// What of an entry is of this cursor's stream.
    fn pass(&mut self, entry: Entry) -> Option<Next> {
        match entry {
            Entry::Relation(relation) => {
                if self.tables.contains(&relation.table) {
                    self.left_out.remove(&relation.id);
                    Some(Next::Item(Item::Relation(relation)))
                } else {
                    self.left_out.insert(relation.id);
                    None
                }
            }
            Entry::Mark(Mark { position, note, .. }) => {
                note.filter(|_| position >= self.from).map(|note| Next::Noted(position, note))
            }
            Entry::Batch { mut events, closing } => {
                let all = events.len();
                let relation = |id: RelationId| !self.left_out.contains(&id);
                events.retain(|event| {
                    event.position.commit >= self.from
                        && event.change.relation().is_none_or(|it| relation(it.id))
                });
                let says_nothing = match closing {
                    Closing::Commit(position) => position < self.from && events.is_empty(),
                    _ => events.is_empty() && all > 0,
                };
                (!says_nothing).then_some(Next::Item(Item::Batch { events, closing }))
            }
        }
    }
}
