//! The log, from a position on.
//!
//! A task of its own reads the connection, decodes, and hands over batches through a bounded queue ([`reader`]). What leaves
//! here is cut at commits: a batch says `Commit` only if everything before that position is in it or in earlier ones.
//!
//! **Nothing is skipped in silence (I7).** A server takes any position for one of its own. So before it is asked, what is
//! known beside the position is compared with what the server has ([`continuity`](super::continuity)); and it is asked not
//! for the position but for the event before it, which has to be the one that was read. What does not fit is
//! [`Lost`](StreamError::Lost).
//!
//! **Nothing is acknowledged.** The server keeps its log by age and knows nothing of its readers. What an acknowledgement is
//! to others is the note beside a checkpoint ([`Notebook`]).

use std::sync::{Arc, Mutex, PoisonError};

use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::seam::Continuity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Rung};
use crate::source::piece::Item;
use crate::spool::Kept;

use super::connection::Session;
use super::continuity::{Gtids, Log};
use super::definition::Definitions;
use super::failure::Failure;
use super::note::Note;
use super::opening::{begin, known};
use super::prepared::Asked;
use super::reader::{self, Reader};
use super::trail::Trail;
use super::wire::Wire;

pub use crate::source::postgres::failure::Cause;

/// Where a stream begins.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// A position that was closed, or a pin.
    pub from: Lsn,
    /// What was kept beside it.
    pub note: Option<&'a Note>,
    /// That of `from` on the server that it is of; a later one on another server.
    pub epoch: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Definite: changes from `from` on cannot be had any more, or not here.
    #[error(
        "the server cannot deliver the changes from {from} on: {reason}; point the pipeline at a server that can, or remove \
         the state directory, empty the outlet, and start again with a new scan"
    )]
    Lost { from: Lsn, reason: &'static str },
    /// Definite: the log cannot be followed without a guess.
    #[error("the log cannot be understood at {position}; nothing behind it was delivered")]
    Undecodable { position: Lsn, source: Cause },
    /// Definite: it is not known how to read the rows of a table.
    #[error("a captured table cannot be read from the log; take it out of `tables`, or alter it")]
    Undefinable { source: Cause },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl StreamError {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Undecodable { .. } | Self::Undefinable { .. } => false,
            Self::Failure(failure) => failure.is_transient(),
        }
    }
}

/// An item on its way, with its share of the queue's memory.
pub(super) type Parcel = (Item, Option<OwnedSemaphorePermit>);

/// What has to be kept beside positions, also after the stream has ended.
#[derive(Debug, Clone)]
pub struct Notebook {
    trail: Arc<Mutex<Trail>>,
    /// Of the server that is read, without what belongs to a position.
    note: Note,
}

impl Notebook {
    /// What to go on with from a position, which may be of one before it. None before it is asked for again.
    pub fn note(&self, position: Lsn) -> Note {
        let mut trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, gtids, footprint) = trail.at(position);
        let note = self.note.clone().with(at, gtids, footprint);
        Note { head: trail.head(), ..note }
    }
}

/// A running stream. Dropped, it just ends.
#[derive(Debug)]
pub struct Stream {
    items: mpsc::Receiver<Parcel>,
    /// What starts before was delivered.
    delivered_before: Lsn,
    /// Where a stream that joins a pin begins to count. What starts before is read for prepared rows only, and a position
    /// is not closed before that one.
    pin: Lsn,
    notebook: Notebook,
    /// What it was opened with, which says more of its position than what is read says.
    opened: Option<Note>,
    closing: CancellationToken,
    /// One task, the reader.
    reader: JoinSet<Result<(), StreamError>>,
}

impl Stream {
    /// Streams every transaction that starts at or after the position; at a pin that is a lower bound, those of them that
    /// are not in the pin's set.
    ///
    /// # Errors
    /// Dropping the future leaves nothing behind.
    pub async fn open(source: &config::MySql, start: Start<'_>) -> Result<Self, StreamError> {
        // First: it is this login that makes the server remember the account, see `login`.
        let session = Session::open(&source.server).await?;
        let mut wire = Wire::open(&source.server).await?;
        let log = Log::read(&mut wire, source.kind).await?;
        let begun = begin(source, wire, &log, start).await?;
        let from = begun.from;
        let gtids = match start.note.and_then(|note| note.asked.as_ref()) {
            // What is read again counts when it is read.
            Some(Asked::Behind(set)) => Gtids::Set(set.clone()),
            _ => start.note.map_or(Gtids::None, Note::committed),
        };
        // Events of another server's log are not looked for in this one.
        let note = start.note.filter(|_| start.epoch == start.from.epoch());
        let footprint = note.and_then(|note| note.footprint);
        let head = note.and_then(|note| note.head);
        let trail = Arc::new(Mutex::new(Trail::new(from, gtids, footprint, head)));
        let closing = CancellationToken::new();
        let (sender, items) = mpsc::channel(reader::ITEMS_WAITING);
        let definitions = Definitions::new(source.server.clone(), session);
        let ends = reader::Ends {
            items: sender,
            memory: Arc::new(Semaphore::new(reader::MEMORY_PERMITS)),
            trail: Arc::clone(&trail),
            closing: closing.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(Reader::new(begun, definitions, ends).run());
        let rung = start.note.map(|note| note.rung);
        let note = Note { server: log.server, ..Note::of(rung.unwrap_or(Rung::Lock)) };
        let notebook = Notebook { trail, note };
        let pin = start.note.filter(|note| note.asked.is_some()).map_or(Lsn::ZERO, |note| note.at);
        let opened = start.note.cloned();
        Ok(Self { items, delivered_before: pin, pin, notebook, opened, closing, reader: tasks })
    }

    /// Leaves out what starts before a position. What is known beside positions is known at checkpoints, and an outlet may
    /// be a little ahead of the last one.
    #[must_use]
    pub(super) fn without_what_starts_before(self, delivered_before: Lsn) -> Self {
        Self { delivered_before, ..self }
    }

    /// The next item. Cancel-safe.
    ///
    /// # Errors
    /// The stream is over then.
    pub async fn next(&mut self) -> Result<Item, StreamError> {
        // What was read before an error is in order and complete, so it comes first.
        while let Some((item, _permit)) = self.items.recv().await {
            let item = behind_pin(item, self.pin);
            let item = item.and_then(|item| behind_delivered(item, self.delivered_before));
            if let Some(item) = item {
                return Ok(item);
            }
        }
        match self.reader.join_next().await {
            Some(ended) => {
                ended.expect("the reader does not panic")?;
                Err(Failure::transient("read the log", "it was closed").into())
            }
            None => Err(Failure::transient("read the log", "it has ended").into()),
        }
    }

    /// What to go on with from a position. None before it is asked for again.
    pub fn note(&self, position: Lsn) -> String {
        let read = self.notebook.note(position);
        let opened = self.opened.as_ref().filter(|note| note.at == read.at);
        opened.unwrap_or(&read).to_text()
    }

    /// The server keeps its log by age, whatever it is told.
    pub fn acknowledge(&self, _position: Kept) {}

    pub fn notebook(&self) -> Notebook {
        self.notebook.clone()
    }

    /// Ends the stream. Items not taken are dropped.
    pub async fn close(mut self) -> Result<(), StreamError> {
        self.closing.cancel();
        self.items.close();
        match self.reader.join_next().await {
            Some(ended) => ended.expect("the reader does not panic"),
            None => Ok(()),
        }
    }
}

/// What of an item belongs to the stream of a pin. Behind a transaction that was prepared before the pin, positions are
/// closed before it; the pin itself is what may be saved then, with its own note.
fn behind_pin(item: Item, pin: Lsn) -> Option<Item> {
    let Item::Batch { mut events, closing } = item else { return Some(item) };
    let all = events.len();
    events.retain(|event| event.position.commit >= pin);
    match closing {
        Closing::Commit(position) if position < pin && events.is_empty() => None,
        Closing::Commit(position) => {
            let closing = Closing::Commit(position.max(pin));
            Some(Item::Batch { events, closing })
        }
        _ if events.is_empty() && all > 0 => None,
        closing => Some(Item::Batch { events, closing }),
    }
}

/// What of an item is not delivered yet.
fn behind_delivered(item: Item, delivered_before: Lsn) -> Option<Item> {
    let Item::Batch { mut events, closing } = item else { return Some(item) };
    let all = events.len();
    events.retain(|event| event.position.commit >= delivered_before);
    let says_nothing = match closing {
        Closing::Commit(position) => position < delivered_before,
        _ => events.is_empty() && all > 0,
    };
    (!says_nothing).then_some(Item::Batch { events, closing })
}

/// What a server's log is to a pipeline, before it does anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub continuity: Continuity,
    /// In the epoch that was asked for, where the log goes on elsewhere; else in that of the position.
    pub epoch: u32,
    /// Where the oldest file begins.
    pub first: Lsn,
    /// Where the newest one ends.
    pub end: Lsn,
    /// The server's identity.
    pub server: Option<String>,
}

/// Looks at the log, from a position on where there is one. `next_epoch` is past every one that was used.
///
/// # Errors
/// When the server cannot be asked.
pub async fn look(
    source: &config::MySql,
    at: Option<(Lsn, Option<&Note>)>,
    next_epoch: u32,
) -> Result<Look, StreamError> {
    // First, for the reason that `Stream::open` has.
    let session = Session::open(&source.server).await?;
    let mut wire = Wire::open(&source.server).await?;
    let log = Log::read(&mut wire, source.kind).await?;
    let server = log.server.clone();
    let (mut continuity, mut epoch) = (Continuity::Same, 0);
    if let Some((from, note)) = at {
        epoch = from.epoch();
        continuity = log.judge(&known(from, note));
        if continuity == Continuity::Elsewhere {
            epoch = next_epoch;
        }
    }
    let edge = |edge: Option<Lsn>| edge.ok_or_else(super::wire::malformed);
    let (first, end) = (edge(log.first(epoch))?, edge(log.end(epoch))?);
    if let (Continuity::Same, Some((from, note))) = (continuity, at)
        && from >= first
    {
        // Asked as a stream would be, so that what a stream would find is found before anything is done.
        let start = Start { from, note, epoch };
        let opened = begin(source, wire, &log, start).await;
        if let Err(StreamError::Lost { .. }) = opened {
            continuity = Continuity::Reset;
        } else {
            drop(opened?);
        }
    }
    drop(session);
    Ok(Look { continuity, epoch, first, end, server })
}

#[cfg(test)]
mod tests {
    use dovetail_core::change::{Change, Event};
    use dovetail_core::position::Position;
    use dovetail_core::schema::{Relation, RelationId, TableName};

    use super::*;

    fn at(offset: u64) -> Lsn {
        Lsn::binlog(0, 7, offset)
    }

    fn batch(offsets: &[u64], closing: Closing) -> Item {
        let table = TableName { namespace: "shop".into(), name: "t".into() };
        let relation = Arc::new(Relation::new(RelationId(1), table, Vec::new(), Vec::new()));
        let event = |offset: &u64| Event {
            position: Position { commit: at(*offset), ordinal: 1 },
            commit_time_micros: 0,
            transaction: None,
            redelivery: false,
            change: Change::Truncate { relation: Arc::clone(&relation) },
        };
        Item::Batch { events: offsets.iter().map(event).collect(), closing }
    }

    #[test]
    fn what_starts_before_a_pin_is_read_for_prepared_rows_only() {
        let left = |item| match behind_pin(item, at(100)) {
            Some(Item::Batch { events, closing }) => {
                let offset = |event: &Event| event.position.commit.offset();
                Some((events.iter().map(offset).collect::<Vec<_>>(), closing))
            }
            _ => None,
        };
        let commit = |offset| Closing::Commit(at(offset));
        assert_eq!(left(batch(&[40, 90], commit(95))), None);
        assert_eq!(left(batch(&[90], Closing::Open)), None);
        // Behind one that is still prepared.
        assert_eq!(left(batch(&[90, 100, 120], commit(60))), Some((vec![100, 120], commit(100))));
        assert_eq!(left(batch(&[120], commit(130))), Some((vec![120], commit(130))));
        assert_eq!(left(batch(&[], commit(130))), Some((vec![], commit(130))));
        assert_eq!(left(batch(&[120], Closing::Open)), Some((vec![120], Closing::Open)));
    }

    #[test]
    fn what_an_outlet_has_beyond_the_checkpoint_is_left_out() {
        let left = |item| match behind_delivered(item, at(100)) {
            Some(Item::Batch { events, closing }) => {
                let offset = |event: &Event| event.position.commit.offset();
                Some((events.iter().map(offset).collect::<Vec<_>>(), closing))
            }
            _ => None,
        };
        assert_eq!(left(batch(&[40, 90], Closing::Commit(at(95)))), None);
        assert_eq!(left(batch(&[90], Closing::Open)), None);
        let closing = Closing::Commit(at(100));
        assert_eq!(left(batch(&[90], closing)), Some((vec![], closing)), "it may be saved");
        let closing = Closing::Commit(at(150));
        assert_eq!(left(batch(&[90, 100, 120], closing)), Some((vec![100, 120], closing)));
        assert_eq!(left(batch(&[100], Closing::Open)), Some((vec![100], Closing::Open)));
    }
}
