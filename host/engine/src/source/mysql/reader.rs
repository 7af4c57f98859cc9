//! The task that reads the log.
//!
//! It reads and decodes, hands over, and notices a server that has fallen silent. The server says something at least
//! every [`HEARTBEAT`], so silence means a connection that was cut without a word (a firewall, a power failure), or a
//! server that hangs; neither is an error that the socket would report. There is nothing to answer: while the queue is
//! full nothing is read, which stops the server, for as long as it takes (see [`dump`](super::dump)). Silence is not counted
//! then.
//!
//! **Cuts** are those of the [batcher](crate::source::batcher): at a commit, or inside a transaction, where what was complete
//! before it is closed and the rest is `Open`. Load-bearing: a position is closed only together with, or after, all the
//! events before it. Where nothing of a transaction is captured its end is closed all the same, and so are a rotation of the
//! files and a heartbeat that is ahead: a pipeline whose tables rest goes on through the log (and may see its server
//! remove the old files) like any other.
//!
//! **Limits.** A batch holds what the batcher says. [`ITEMS_WAITING`] items wait, and no more than [`MEMORY_PERMITS`] KiB, or one
//! change. Before an event beyond [`LARGE_BYTES`] is read, the queue has to be empty; a compressed transaction of that size is
//! worked off part by part, and is never in memory as a whole.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dovetail_core::batch::Closing;
use dovetail_core::change::Event;
use dovetail_core::decode::binlog::header;
use dovetail_core::decode::binlog::kind;
use dovetail_core::decode::binlog::transaction::{Builder, Step};
use dovetail_core::position::Lsn;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::source::batcher::Batcher;
use crate::source::piece::Item;

use super::continuity::Footprint;
use super::definition::Definitions;
use super::dump::{Arrived, Dump, HEARTBEAT};
use super::failure::{self, Failure};
use super::opening::Begun;
use super::stream::{Parcel, StreamError};
use super::tail::{Tail, Tails};
use super::trail::Trail;

/// Items that wait: one being taken, some ready, so that neither side waits for the other's scheduling.
pub(super) const ITEMS_WAITING: usize = 4;
/// Memory that waits, in KiB.
pub(super) const MEMORY_PERMITS: usize = 8 * 1024;
/// From this size on an event is read only into an empty queue.
const LARGE_BYTES: usize = 4 << 20;
/// Between two batches of which the first was not full; see PostgreSQL's reader for what it saves.
const PACE: Duration = Duration::from_millis(2);
/// Three signs of life that did not come.
pub(super) const SILENCE: Duration = HEARTBEAT.saturating_mul(3);

/// What the task shares with its [`Stream`](super::stream::Stream).
pub(super) struct Ends {
    pub items: mpsc::Sender<Parcel>,
    pub memory: Arc<Semaphore>,
    pub trail: Arc<Mutex<Trail>>,
    pub closing: CancellationToken,
}

pub(super) struct Reader {
    dump: Dump,
    builder: Builder,
    definitions: Definitions,
    batcher: Batcher,
    ends: Ends,
    tails: Tails,
    /// The file that was entered last, and its end where that is not read.
    entered: Option<u64>,
    tail: Option<Tail>,
    /// Where the connection was to go on, and whether something behind that has been closed.
    from: Lsn,
    has_moved: bool,
    /// The latest position that may be closed, and the event before it.
    closed: Option<(Lsn, Option<Last>)>,
    /// When the latest batch was cut.
    cut: Instant,
}

/// An event, and where it starts.
type Last = (Lsn, Bytes);

enum Stop {
    /// The stream is closed, or nobody takes items any more.
    End,
    Error(StreamError),
}

impl<E: Into<StreamError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Reader {
    pub(super) fn new(begun: Begun, definitions: Definitions, ends: Ends) -> Self {
        let Begun { dump, builder, from, tails } = begun;
        Self {
            dump,
            builder,
            definitions,
            batcher: Batcher::new(from),
            ends,
            tails,
            entered: None,
            tail: None,
            from,
            has_moved: false,
            closed: None,
            cut: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), StreamError> {
        loop {
            match self.step().await {
                Ok(()) => {}
                Err(Stop::End) => return Ok(()),
                Err(Stop::Error(error)) => {
                    // What is complete is good, and saves the reading of it again. The rest comes again as a whole.
                    return match self.hand_over_if(|closing| *closing != Closing::Open).await {
                        Ok(()) | Err(_) => Err(error),
                    };
                }
            }
        }
    }

    /// Takes every whole event that has been read, then reads more; hands over when full, or when it would have to wait
    /// for the server and has waited long enough for itself.
    async fn step(&mut self) -> Result<(), Stop> {
        loop {
            self.leave_before_tail().await?;
            let arrived = self.dump.buffered().map_err(|failure| self.ended(failure))?;
            match arrived {
                None => break,
                Some(Arrived::Event(event)) => self.take(event).await?,
                Some(Arrived::Part(part)) => {
                    self.builder.give_part(&part).map_err(|error| self.undecodable(error))?;
                    drop(part);
                    self.work_off(None).await?;
                }
            }
        }
        if self.dump.announced().is_some_and(|length| length >= LARGE_BYTES) {
            self.hand_over().await?;
            self.empty_queue().await?;
        }
        if self.batcher.is_empty() {
            return self.read().await;
        }
        let more = tokio::select! {
            biased;
            read = self.dump.read() => Some(read),
            () = std::future::ready(()) => None,
        };
        match more {
            Some(read) => Ok(read?),
            None if self.cut.elapsed() >= PACE => self.hand_over().await,
            // What arrives meanwhile is then read in one go.
            None => {
                self.dump.leave_alone()?;
                self.unless_closed(tokio::time::sleep_until(self.cut + PACE)).await
            }
        }
    }

    /// Looks at the end of a file when it is entered, and goes on in the next one where a killed server left something
    /// there. See [`tail`](super::tail).
    async fn leave_before_tail(&mut self) -> Result<(), Stop> {
        let at = self.builder.at();
        if self.entered != Some(at.file()) {
            self.entered = Some(at.file());
            self.tail = None;
            if self.tails.concern(at) {
                self.hand_over().await?;
                self.tail = self.unless_closed(self.tails.behind(at)).await??;
            }
        }
        let Some(tail) = self.tail.take_if(|tail| tail.at <= at) else { return Ok(()) };
        tracing::warn!(
            position = %tail.at,
            bytes = tail.bytes,
            "the server was killed in the middle of a transaction, which it then rolled back; what is left of it in the log is passed over"
        );
        self.dump = self.unless_closed(self.tails.pass(&tail)).await??;
        (self.from, self.has_moved) = (at, false);
        Ok(())
    }

    async fn take(&mut self, event: Bytes) -> Result<(), Stop> {
        let before = self.builder.at();
        self.builder.give(event.clone());
        self.work_off(Some((before, &event))).await
    }

    /// Everything of what was given: an event that is in memory as a whole, and the position before it; or a part.
    async fn work_off(&mut self, given: Option<(Lsn, &Bytes)>) -> Result<(), Stop> {
        loop {
            let first = self.batcher.events().len();
            let step = self.builder.next(self.batcher.events());
            let step = step.map_err(|error| self.undecodable(error))?;
            let grown = self.batcher.events().get(first..).unwrap_or_default();
            let bytes = grown.iter().map(Event::memory_bytes).sum();
            self.batcher.grown(bytes);
            let is_done = step == Step::Done;
            match step {
                Step::Done | Step::More => {}
                Step::Table(described) => {
                    self.hand_over().await?;
                    let definition = self.definitions.define(&described).await?;
                    let relation = Arc::clone(&definition.relation);
                    self.builder.define(definition).map_err(|error| self.undecodable(error))?;
                    self.send(Item::Relation(relation), 0).await?;
                }
                Step::Emptied(table) => {
                    self.hand_over().await?;
                    let relation = self.definitions.relation(&table).await?;
                    self.builder.know(Arc::clone(&relation));
                    self.send(Item::Relation(relation), 0).await?;
                }
                Step::Commit { closed, end, transaction } => {
                    // Behind an event that came in parts there is no footprint: it would have to be read again as a whole.
                    let last = given.filter(|_| closed == end).and_then(|(before, event)| {
                        start_of(event, before, end).map(|start| (start, event.clone()))
                    });
                    self.closed = Some((closed, last));
                    self.has_moved |= closed > self.from;
                    if let Some(transaction) = transaction {
                        self.trail(|trail| trail.commit(end, &transaction));
                    }
                    self.batcher.commit(closed);
                }
            }
            // Load-bearing: behind the last rows of an event too. Events follow each other without a pause, and where each
            // has fewer rows than are decoded at once, a transaction of millions of rows would become one batch.
            if self.batcher.is_full() {
                self.hand_over().await?;
            }
            if is_done {
                return Ok(());
            }
        }
    }

    fn undecodable(&self, error: impl Into<super::stream::Cause>) -> StreamError {
        StreamError::Undecodable { position: self.builder.at(), source: error.into() }
    }

    /// The server's general error of a log that it cannot send is an end like any other once it has sent some: what
    /// became of the log is looked at when the connection is made anew. Where it does not even send one transaction, though
    /// the log was looked at, trying again will not help: the next attempt would begin at the same place.
    fn ended(&self, failure: Failure) -> StreamError {
        match failure {
            Failure::Definite { what, source, .. }
                if self.has_moved && is_fatal(source.as_ref()) =>
            {
                let advice = "the connection is made anew".to_owned();
                Failure::Transient { what, advice, source }.into()
            }
            failure => failure.into(),
        }
    }

    async fn hand_over(&mut self) -> Result<(), Stop> {
        self.hand_over_if(|_| true).await
    }

    async fn hand_over_if(&mut self, wanted: impl Fn(&Closing) -> bool) -> Result<(), Stop> {
        let open = self.builder.is_open();
        self.cut = Instant::now();
        if let Some((closed, last)) = self.closed.take() {
            let footprint = last.map(|(start, event)| Footprint::of(start, &event));
            self.trail(|trail| trail.close(closed, footprint));
        }
        let cut = self.batcher.cut(open).into_iter().flatten();
        for (events, closing, bytes) in cut.filter(|(_, closing, _)| wanted(closing)) {
            self.send(Item::Batch { events, closing }, bytes).await?;
        }
        Ok(())
    }

    fn trail(&self, change: impl FnOnce(&mut Trail)) {
        change(&mut self.ends.trail.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts an item into the queue once there is room.
    async fn send(&mut self, item: Item, bytes: usize) -> Result<(), Stop> {
        let permit = match u32::try_from((bytes / 1024).min(MEMORY_PERMITS)).unwrap_or(0) {
            0 => None,
            kibibytes => Some(self.memory(kibibytes).await?),
        };
        let items = self.ends.items.clone();
        let slot = self.unless_closed(items.reserve_owned()).await?;
        let Ok(slot) = slot else { return Err(Stop::End) };
        slot.send((item, permit));
        Ok(())
    }

    async fn empty_queue(&mut self) -> Result<(), Stop> {
        let all = u32::try_from(MEMORY_PERMITS).unwrap_or(u32::MAX);
        self.memory(all).await.map(drop)
    }

    async fn memory(&mut self, kibibytes: u32) -> Result<OwnedSemaphorePermit, Stop> {
        let memory = Arc::clone(&self.ends.memory);
        let permit = self.unless_closed(memory.acquire_many_owned(kibibytes)).await?;
        Ok(permit.expect("the semaphore is never closed"))
    }

    async fn unless_closed<T>(&self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = wait => Ok(done),
            () = self.ends.closing.cancelled() => Err(Stop::End),
        }
    }

    /// Waits for the server.
    async fn read(&mut self) -> Result<(), Stop> {
        tokio::select! {
            biased;
            read = self.dump.read() => Ok(read?),
            () = self.ends.closing.cancelled() => Err(Stop::End),
            () = self.ends.items.closed() => Err(Stop::End),
            () = tokio::time::sleep(SILENCE) => Err(silent().into()),
        }
    }
}

pub(super) fn silent() -> Failure {
    Failure::transient(
        format!("nothing was heard from the server for {} s", SILENCE.as_secs()),
        "the connection is made anew",
    )
}

/// Whether a server's report is its general one of a log that cannot be sent.
pub(super) fn is_fatal(source: Option<&super::stream::Cause>) -> bool {
    let report = source.and_then(|cause| cause.downcast_ref::<mysql_async::ServerError>());
    report.is_some_and(|report| report.code == failure::code::LOG_CANNOT_BE_SENT)
}

/// Whether an event is one of a file, and not made up for the reader.
pub(super) fn is_in_the_log(event: &[u8]) -> bool {
    let header = header::header(event);
    header.is_ok_and(|header| {
        header.is_logged() && !matches!(header.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2)
    })
}

/// Where the event starts whose end is `end`, or with which the log left `before` for another file.
fn start_of(event: &[u8], before: Lsn, end: Lsn) -> Option<Lsn> {
    if !is_in_the_log(event) {
        return None;
    }
    let header = header::header(event).ok()?;
    let size = u64::from(header.size);
    if header.kind != kind::ROTATE {
        let offset = end.offset().checked_sub(size)?;
        return Some(Lsn::binlog(end.epoch(), end.number(), offset));
    }
    let lower = u64::from(u32::MAX);
    let follows = before.offset().checked_add(size)? & lower == u64::from(header.end);
    follows.then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, size: u32, end: u32, flags: u16) -> Vec<u8> {
        let mut event = vec![1, 0, 0, 0, kind, 7, 0, 0, 0];
        event.extend_from_slice(&size.to_le_bytes());
        event.extend_from_slice(&end.to_le_bytes());
        event.extend_from_slice(&flags.to_le_bytes());
        event.resize(usize::try_from(size).unwrap(), 0);
        event
    }

    #[test]
    fn the_event_before_a_position_is_known_by_its_start() {
        let (before, end) = (Lsn::binlog(0, 3, 900), Lsn::binlog(0, 3, 1031));
        let next = Lsn::binlog(0, 4, 4);
        let start = |event: &[u8], end| start_of(event, before, end);
        assert_eq!(start(&event(kind::XID, 31, 1031, 0), end), Some(Lsn::binlog(0, 3, 1000)));
        assert_eq!(start(&event(kind::ROTATE, 44, 944, 0), next), Some(before));
        // Something was left out before it.
        assert_eq!(start(&event(kind::ROTATE, 44, 990, 0), next), None);
        assert_eq!(start(&event(kind::ROTATE, 44, 0, 0x20), next), None);
        assert_eq!(start(&event(kind::HEARTBEAT, 36, 1031, 0), end), None);
        assert_eq!(start(b"short", end), None);
    }
}
