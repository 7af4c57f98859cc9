//! Transactions of a binlog: events of a dump in, changes with their positions out, and what closes them.
//!
//! A binlog holds one transaction after the other, each in one piece, in the order of their commits: an event that names
//! it (`GTID`; without one the `BEGIN`), its rows, and what ends it. The start of the first of these is the position of all
//! its changes, its end the position that is closed: a dump that begins there sends exactly what is behind it.
//!
//! **Memory.** A transaction may be larger than memory, so its changes leave as they are read, and one call of
//! [`Builder::next`] appends only so many. What is held is one event, one definition for each captured table, and the rows
//! of prepared XA transactions.
//!
//! **XA.** `XA PREPARE` ends a group of events whose rows have not happened yet; they happen, or do not, with an `XA
//! COMMIT` or `XA ROLLBACK` any time later, which holds no rows. So the rows are held, as bytes, up to a limit; the commit
//! emits them at its own position, where views and GTIDs count them too. Meanwhile nothing behind the start of the oldest
//! prepared transaction is closed ([`Builder::resume_floor`]):
//!
//! 1. T is prepared at P, other transactions commit, and the position behind them is closed and saved. Crash.
//! 2. The dump begins behind P. T is committed, by an event without rows. Result: T's rows are lost.
//!
//! From P on everything comes again instead, at the same positions. A commit of a transaction whose rows have not been
//! seen, because it was prepared before the stream began, is an error.
//!
//! **Stops.** Rows that are written by a statement, removed with a partition, exchanged by a new name of their table, or
//! undone after they were handed on (a `ROLLBACK` is logged only where a table without transactions was written too) cannot
//! be told rightly by anyone but the server. Each is an error that says what to set.

mod error;
mod prepared;
mod reading;
mod statements;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

pub use self::error::Error;
use self::prepared::{Held, Prepared};
use super::arriving::Arriving;
use super::event::{Decoder, Event as LogEvent, InvalidEvent};
use super::format::Format;
use super::images::{Image, Images};
use super::payload::{Payload, Unpacked};
use super::place::Place;
use super::tables::{Definition, Description, NotDescribed, Tables};
use crate::change::{Change, Event, TransactionId};
use crate::fence::Fence;
use crate::position::{Lsn, Position};
use crate::schema::{Relation, TableName};
use crate::transaction::update::{self, Update};
use crate::value::{Row, Value};

/// What a call of [`Builder::next`] amounts to, beside the events that it appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is more: take the events, and ask again.
    More,
    /// A table is described: its rows wait for [`Builder::define`].
    Table(Box<Description>),
    /// A table that was emptied has not been described yet: its relation, by [`Builder::know`], is waited for.
    Emptied(TableName),
    /// Every transaction that starts before `closed` has been sent. A transaction has ended with this, except where the
    /// log only went on.
    Commit {
        /// Where a dump may begin. Not behind the oldest prepared transaction.
        closed: Lsn,
        /// The end of what was sent.
        end: Lsn,
        transaction: Option<TransactionId>,
    },
    /// The event is used up: [`Builder::give`] the next.
    Done,
}

/// What a stream begins with.
#[derive(Debug, Clone)]
pub struct Start {
    /// The position that the dump was asked for; of one that was asked for by GTIDs, only the epoch counts, and the server
    /// says the rest.
    pub from: Lsn,
    /// As the server spells them.
    pub captured: BTreeSet<TableName>,
    /// `lower_case_table_names` is not 0.
    pub folds_names: bool,
    /// How much of prepared XA transactions is held at most.
    pub prepared_bytes_max: usize,
    /// The view that the stream joins, while it still sends what that contains: an XA transaction whose commit is in it
    /// has lost nothing, wherever it was prepared.
    pub view: Option<Fence>,
}

/// Reads the events of one connection, in their order. A new connection begins at a closed position, and gets a new
/// builder.
#[derive(Debug)]
pub struct Builder {
    decoder: Decoder,
    place: Place,
    tables: Tables,
    state: State,
    prepared: Prepared,
    view: Option<Fence>,
    work: Work,
}

#[derive(Debug)]
enum State {
    Outside,
    /// Named; the next event says whether it is a transaction or a statement that commits itself.
    Announced(Open),
    Open(Open),
}

/// The transaction that is being read.
#[derive(Debug)]
struct Open {
    start: Lsn,
    transaction: TransactionId,
    commit_time_micros: i64,
    /// Of the latest change.
    ordinal: u32,
    /// Under XA: the rows so far, which are not emitted before it is known what becomes of them.
    held: Option<Held>,
}

/// What is left of the events that were given.
#[derive(Debug, Default)]
struct Work {
    given: Option<Bytes>,
    payload: Option<Payload>,
    /// Not all of the payload is there.
    arriving: Option<Arriving>,
    rows: VecDeque<Images>,
    emptied: VecDeque<TableName>,
    /// The transaction ends behind all of that.
    closes: bool,
}

impl Builder {
    pub fn new(start: Start) -> Self {
        let Start { from, captured, folds_names, prepared_bytes_max, view } = start;
        Self {
            decoder: Decoder::default(),
            place: Place::new(from),
            tables: Tables::new(captured, folds_names),
            state: State::Outside,
            prepared: Prepared::new(prepared_bytes_max),
            view,
            work: Work::default(),
        }
    }

    /// Answers a [`Step::Table`].
    ///
    /// # Errors
    /// When the stream has not just described that table, with as many columns.
    pub fn define(&mut self, definition: Definition) -> Result<(), NotDescribed> {
        self.tables.define(definition)
    }

    /// Answers a [`Step::Emptied`]; may as well be told beforehand.
    pub fn know(&mut self, relation: Arc<Relation>) {
        self.tables.know(relation);
    }

    /// The file's description, once one has been read.
    pub fn format(&self) -> Option<&Format> {
        self.decoder.format()
    }

    /// The end of the latest event.
    pub fn at(&self) -> Lsn {
        self.place.at()
    }

    /// Whether a transaction has begun and not ended.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Outside)
    }

    /// The start of the oldest prepared transaction that is neither committed nor rolled back.
    pub fn resume_floor(&self) -> Option<Lsn> {
        self.prepared.oldest()
    }

    /// An event as the server sent it, whole: behind a [`Step::Done`], or first.
    pub fn give(&mut self, event: Bytes) {
        self.work.given = Some(event);
    }

    /// A part of an event that the server sends in pieces, for a compressed transaction: behind a [`Step::Done`], as
    /// [`give`](Self::give).
    ///
    /// # Errors
    /// The builder is not to be used any further then.
    pub fn give_part(&mut self, part: &Bytes) -> Result<(), Error> {
        let Some(mut arriving) = self.work.arriving.take() else {
            let (header, payload, arriving) = self.decoder.begin(part)?;
            self.place.pass(&header)?;
            self.state.named("compressed transaction")?;
            self.work.payload = Some(payload);
            self.work.arriving = (!arriving.is_whole()).then_some(arriving);
            return Ok(());
        };
        let data = arriving.take(part)?;
        if let Some(payload) = &mut self.work.payload {
            payload.push(data).map_err(InvalidEvent::from)?;
        }
        self.work.arriving = (!arriving.is_whole()).then_some(arriving);
        Ok(())
    }

    /// Moves behind an event that is before the position, and not wanted.
    ///
    /// # Errors
    /// When it cannot be one of this log.
    pub fn pass_over(&mut self, event: &Bytes) -> Result<(), Error> {
        let (header, decoded) = self.decoder.decode(event)?;
        self.place.pass(&header)?;
        if let LogEvent::Rotate { file, offset } = decoded {
            self.place.rotate(file, offset, header.is_logged())?;
        }
        Ok(())
    }

    /// Appends the changes of what was given, as many as belong into memory at once.
    ///
    /// # Errors
    /// The builder is not to be used any further then.
    pub fn next(&mut self, events: &mut Vec<Event>) -> Result<Step, Error> {
        let mut appended = Appended::default();
        loop {
            if let Some(step) = self.empty(events)? {
                return Ok(step);
            }
            if self.rows(events, &mut appended)? {
                return Ok(Step::More);
            }
            if let Some(payload) = &mut self.work.payload {
                match payload.next().map_err(InvalidEvent::from)? {
                    Unpacked::Starved => return Ok(Step::Done),
                    // The checksum is still to come.
                    Unpacked::End if self.work.arriving.is_some() => return Ok(Step::Done),
                    Unpacked::End => self.work.payload = None,
                    Unpacked::Event(event) => {
                        let (header, inner) = self.decoder.decode_unpacked(&event)?;
                        let start = self.place.at();
                        if let Some(step) = self.apply(&event, &header, inner, start)? {
                            return Ok(step);
                        }
                    }
                }
                continue;
            }
            if self.work.closes {
                return Ok(self.close());
            }
            let Some(event) = self.work.given.take() else { return Ok(Step::Done) };
            let (header, decoded) = self.decoder.decode(&event)?;
            let start = self.place.pass(&header)?;
            if let Some(step) = self.apply(&event, &header, decoded, start)? {
                return Ok(step);
            }
        }
    }
}

/// Changes that one call appends at most, and their memory: enough that a call costs nothing, few enough that a huge event
/// does not multiply in memory.
const ROWS_AT_ONCE: usize = 256;
const BYTES_AT_ONCE: usize = 1 << 20;

/// By one call. Load-bearing: over all the events that it unpacks, because a compressed transaction is one event with
/// any number of small ones inside.
#[derive(Default)]
struct Appended {
    rows: usize,
    bytes: usize,
}

/// Emitting.
impl Builder {
    /// Truncates that wait; gives a step while one of their tables is not known.
    fn empty(&mut self, events: &mut Vec<Event>) -> Result<Option<Step>, Error> {
        while let Some(table) = self.work.emptied.front() {
            let Some(relation) = self.tables.relation(table) else {
                return Ok(Some(Step::Emptied(table.clone())));
            };
            let relation = Arc::clone(relation);
            self.work.emptied.pop_front();
            self.push(Change::Truncate { relation }, events)?;
        }
        Ok(None)
    }

    /// Rows that wait; `true` when enough were appended and more may be left.
    fn rows(&mut self, events: &mut Vec<Event>, so_far: &mut Appended) -> Result<bool, Error> {
        while let Some(images) = self.work.rows.front_mut() {
            let Some(image) = images.next()? else {
                self.work.rows.pop_front();
                continue;
            };
            let relation = Arc::clone(images.known().relation());
            let first = events.len();
            self.push_image(relation, image, events)?;
            let appended = events.get(first..).unwrap_or_default();
            so_far.rows += 1;
            so_far.bytes += appended.iter().map(Event::memory_bytes).sum::<usize>();
            if so_far.rows >= ROWS_AT_ONCE || so_far.bytes >= BYTES_AT_ONCE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn push_image(
        &mut self,
        relation: Arc<Relation>,
        image: Image,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        match image {
            Image::Insert(after) => {
                update::require_key(&relation, &after)?;
                self.push(Change::Insert { relation, after, moved_from: None }, events)
            }
            Image::Delete(before) => self.push(update::delete(relation, before)?, events),
            Image::Update { before, mut after } => {
                let is_whole = before.is_whole();
                complete(&before, &mut after);
                match update::update(relation, Some((before, is_whole)), after)? {
                    Update::Same(change) => self.push(change, events),
                    Update::Moved { delete, insert } => {
                        self.push(delete, events)?;
                        self.push(insert, events)
                    }
                }
            }
        }
    }

    fn push(&mut self, change: Change, events: &mut Vec<Event>) -> Result<(), Error> {
        let open = self.state.named("change")?;
        let start = open.start;
        open.ordinal = open.ordinal.checked_add(1).ok_or(Error::TooLong { start })?;
        events.push(Event {
            position: Position { commit: start, ordinal: open.ordinal },
            commit_time_micros: open.commit_time_micros,
            transaction: Some(open.transaction),
            redelivery: false,
            change,
        });
        Ok(())
    }

    fn close(&mut self) -> Step {
        self.work.closes = false;
        let transaction = match std::mem::replace(&mut self.state, State::Outside) {
            State::Outside => None,
            State::Announced(open) | State::Open(open) => Some(open.transaction),
        };
        self.tables.forget_numbers();
        self.closed(transaction)
    }

    fn closed(&self, transaction: Option<TransactionId>) -> Step {
        let end = self.place.at();
        let closed = self.resume_floor().map_or(end, |floor| floor.min(end));
        Step::Commit { closed, end, transaction }
    }
}

/// What an update leaves out of the new row has not changed.
fn complete(before: &Row, after: &mut Row) {
    for (column, old) in before.values().iter().enumerate() {
        if let Some(missing @ Value::Unavailable) = after.get_mut(column) {
            missing.clone_from(old);
        }
    }
}

impl State {
    fn named(&mut self, what: &'static str) -> Result<&mut Open, Error> {
        match self {
            Self::Outside => Err(Error::Outside { what }),
            Self::Announced(open) | Self::Open(open) => Ok(open),
        }
    }
}

impl Open {
    fn new(start: Lsn, transaction: TransactionId, commit_time_micros: i64) -> Self {
        Self { start, transaction, commit_time_micros, ordinal: 0, held: None }
    }

    fn has_changes(&self) -> bool {
        self.ordinal > 0 || self.held.as_ref().is_some_and(|held| !held.is_empty())
    }
}

#[cfg(test)]
pub(super) mod tests;
