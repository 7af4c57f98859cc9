//! The task that reads the stream.
//!
//! It does four things, of which the last two must not wait for the first two: read and decode; hand over; answer the
//! server, at once when it asks and otherwise by the clock; notice that the server has fallen silent. So every wait of
//! it, for the socket or for room in the queue, is one that the clock interrupts.
//!
//! **Cuts.** A batch ends when it is full, or when the socket has nothing more and the last batch was cut at least [`PACE`]
//! ago, and closes what it may: at a commit, the position of that commit; inside a transaction, what was complete before
//! it, and then `Open`. Load-bearing: a position is closed only together with, or after, all the events before it.
//!
//! **Limits.** A batch holds [`BATCH_EVENTS`] or [`BATCH_BYTES`], or one change. [`ITEMS_WAITING`] items wait, and no more than
//! [`MEMORY_PERMITS`] KiB, or one change. Before a change beyond [`LARGE_BYTES`] is read, the queue has to be empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dovetail_core::change::Xid;
use dovetail_core::decode::replication::{self, status_update};
use dovetail_core::position::Lsn;
use dovetail_core::transaction::{Builder, Step};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::definition::{Definition, Definitions};
use super::failure::Failure;
use super::stream::{Parcel, StreamError};
use super::wire::{Frame, Wire, server_error, tag};
use crate::source::batcher::Batcher;
use crate::source::piece::Item;

/// Items that wait: one being taken, some ready, so that neither side waits for the other's scheduling.
pub(super) const ITEMS_WAITING: usize = 4;
/// Memory that waits, in KiB.
pub(super) const MEMORY_PERMITS: usize = 8 * 1024;
/// From this size on a change is read only into an empty queue.
const LARGE_BYTES: usize = 4 << 20;
/// Between two batches of which the first was not full. The server sends every change by itself, and the socket runs dry
/// after each of them: without this a busy stream is a stream of batches of three rows, and most of its cost is threads
/// waking each other. After a pause of the source a change goes on at once, so only what follows another one at its
/// heels waits, and not for long enough to notice behind an outlet's commit.
const PACE: Duration = Duration::from_millis(2);
/// The server hears from us at least so often. It may be asked to keep its log by what it hears, so not much longer.
const REPLY_EVERY: Duration = Duration::from_secs(10);
/// A new acknowledgement is passed on within this time.
const TICK: Duration = Duration::from_secs(1);
/// After such a silence the server is asked for an answer, and after twice that it is taken for dead: a connection that
/// was cut without a word (a firewall, a power failure) would otherwise be waited on for ever.
const SILENCE: Duration = Duration::from_secs(30);
/// For the last words to the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where and how the stream begins.
pub(super) struct Start {
    pub from: Lsn,
    pub reference: Xid,
    /// How long the server bears our silence.
    pub sender_timeout: Option<Duration>,
}

/// What the task shares with its [`Stream`](super::stream::Stream).
pub(super) struct Ends {
    pub items: mpsc::Sender<Parcel>,
    pub memory: Arc<Semaphore>,
    pub acknowledged: Arc<AtomicU64>,
    pub closing: CancellationToken,
}

pub(super) struct Reader {
    wire: Wire,
    builder: Builder,
    definitions: Definitions,
    batcher: Batcher,
    ends: Ends,
    replies: Replies,
    /// Of the latest frame; tells where an error is.
    position: Lsn,
    /// When the latest batch was cut.
    cut: Instant,
}

/// When the server was heard, and told, for the last time.
struct Replies {
    every: Duration,
    heard: Instant,
    told: Instant,
    acknowledged: u64,
    asked: bool,
}

/// Why the task ends without an error.
enum End {
    Closed,
    /// Nobody takes items any more.
    Dropped,
}

enum Stop {
    End(End),
    Error(StreamError),
}

impl<E: Into<StreamError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Reader {
    pub(super) fn new(wire: Wire, start: Start, definitions: Definitions, ends: Ends) -> Self {
        let third = start.sender_timeout.map_or(REPLY_EVERY, |timeout| timeout / 3);
        Self {
            wire,
            builder: Builder::new(start.reference),
            definitions,
            batcher: Batcher::new(start.from),
            ends,
            replies: Replies::new(third.min(REPLY_EVERY)),
            position: start.from,
            cut: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), StreamError> {
        // An idle server says where it stands only when it is asked.
        self.reply(true).await?;
        loop {
            match self.step().await {
                Ok(()) => {}
                Err(Stop::Error(error)) => {
                    // What is complete is good, and saves the reading of it again.
                    return match self.hand_over().await {
                        Ok(()) | Err(_) => Err(error),
                    };
                }
                Err(Stop::End(End::Dropped)) if !self.ends.closing.is_cancelled() => return Ok(()),
                Err(Stop::End(_)) => return self.say_goodbye().await,
            }
        }
    }

    /// Takes every whole frame that has been read, then reads more; hands over when full, or when it would have to wait
    /// for the server and has waited long enough for itself.
    async fn step(&mut self) -> Result<(), Stop> {
        while let Some(frame) = self.wire.buffered_frame()? {
            self.take(frame).await?;
            if self.batcher.is_full() {
                self.hand_over().await?;
            }
        }
        if self.wire.announced().is_some_and(|length| length >= LARGE_BYTES) {
            self.hand_over().await?;
            self.empty_queue().await?;
        }
        if self.batcher.is_empty() {
            return self.read().await;
        }
        let more = tokio::select! {
            biased;
            read = self.wire.read() => Some(read),
            () = std::future::ready(()) => None,
        };
        match more {
            Some(read) => {
                read?;
                self.replies.hear();
                self.reply_by_clock().await?;
                Ok(())
            }
            None if self.cut.elapsed() >= PACE => self.hand_over().await,
            // What arrives meanwhile is then read in one go.
            None => {
                self.wire.leave_alone()?;
                self.answering(tokio::time::sleep_until(self.cut + PACE)).await
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Stop> {
        match frame.tag {
            tag::COPY_DATA => {}
            tag::ERROR => {
                let error = server_error(&frame.body).report;
                return Err(Failure::server("read the stream", error).into());
            }
            // A server that shuts down in order ends the copy first; PostgreSQL 14 says it by the command's completion.
            tag::COPY_DONE | tag::COMMAND_COMPLETE | tag::READY => {
                return Err(Failure::transient("read the stream", "the server ended it").into());
            }
            tag if super::wire::is_aside(tag) => return Ok(()),
            _ => return Err(super::wire::unexpected("read the stream").into()),
        }
        let size = frame.body.len();
        match replication::frame(&frame.body).map_err(|error| self.undecodable(error))? {
            replication::Frame::Keepalive { end, reply_requested, .. } => {
                if !self.builder.is_open() {
                    self.batcher.commit(end);
                }
                if reply_requested {
                    self.reply(false).await?;
                }
                Ok(())
            }
            replication::Frame::Log { start, clock_micros, message, .. } => {
                self.position = start.max(self.position);
                let step = self
                    .builder
                    .apply(&message, clock_micros, self.batcher.events())
                    .map_err(|error| self.undecodable(error))?;
                self.batcher.grown(size);
                match step {
                    Step::Open => {}
                    Step::Commit(end) => self.batcher.commit(end),
                    Step::Relation(raw) => {
                        self.hand_over().await?;
                        let definition = self.definitions.complete(raw).await?;
                        self.define(definition).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn define(&mut self, definition: Definition) -> Result<(), Stop> {
        let relation = match definition {
            Definition::Captured(relation) => {
                self.batcher.capture(relation.id);
                self.send(Item::Relation(Arc::clone(&relation)), 0).await?;
                relation
            }
            Definition::Other(relation) => {
                self.batcher.leave_out(relation.id);
                relation
            }
        };
        self.builder.define(relation).map_err(|error| self.undecodable(error))?;
        Ok(())
    }

    fn undecodable(&self, error: impl Into<super::failure::Cause>) -> StreamError {
        StreamError::Undecodable { position: self.position, source: error.into() }
    }

    async fn hand_over(&mut self) -> Result<(), Stop> {
        let open = self.builder.is_open();
        self.cut = Instant::now();
        for cut in self.batcher.cut(open).into_iter().flatten() {
            let (events, closing, bytes) = cut;
            self.send(Item::Batch { events, closing }, bytes).await?;
        }
        Ok(())
    }

    /// Puts an item into the queue once there is room, and answers the server meanwhile.
    async fn send(&mut self, item: Item, bytes: usize) -> Result<(), Stop> {
        let permit = match u32::try_from((bytes / 1024).min(MEMORY_PERMITS)).unwrap_or(0) {
            0 => None,
            kibibytes => Some(self.memory(kibibytes).await?),
        };
        let items = self.ends.items.clone();
        let slot = self.answering(items.reserve_owned()).await?;
        let Ok(slot) = slot else { return Err(Stop::End(End::Dropped)) };
        slot.send((item, permit));
        Ok(())
    }

    async fn empty_queue(&mut self) -> Result<(), Stop> {
        let all = u32::try_from(MEMORY_PERMITS).unwrap_or(u32::MAX);
        self.memory(all).await.map(drop)
    }

    async fn memory(&mut self, kibibytes: u32) -> Result<OwnedSemaphorePermit, Stop> {
        let memory = Arc::clone(&self.ends.memory);
        let permit = self.answering(memory.acquire_many_owned(kibibytes)).await?;
        Ok(permit.expect("the semaphore is never closed"))
    }

    /// Waits for something that the consumer does. Nothing is read meanwhile, so silence is not counted.
    async fn answering<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(wait);
        let mut waited = false;
        loop {
            let tick = self.replies.tick();
            tokio::select! {
                biased;
                done = &mut wait => {
                    if waited {
                        self.replies.hear();
                    }
                    return Ok(done);
                }
                () = self.ends.closing.cancelled() => return Err(Stop::End(End::Closed)),
                () = tokio::time::sleep_until(tick) => {
                    waited = true;
                    self.replies.hear();
                    self.reply_by_clock().await?;
                }
            }
        }
    }

    /// Waits for the server.
    async fn read(&mut self) -> Result<(), Stop> {
        loop {
            let tick = self.replies.tick();
            tokio::select! {
                biased;
                read = self.wire.read() => {
                    read?;
                    self.replies.hear();
                    return Ok(self.reply_by_clock().await?);
                }
                () = self.ends.closing.cancelled() => return Err(Stop::End(End::Closed)),
                () = self.ends.items.closed() => return Err(Stop::End(End::Dropped)),
                () = tokio::time::sleep_until(tick) => self.reply_by_clock().await?,
            }
        }
    }

    async fn reply_by_clock(&mut self) -> Result<(), StreamError> {
        match self.replies.due(self.ends.acknowledged.load(Ordering::Relaxed)) {
            Due::Nothing => Ok(()),
            Due::Reply { ask } => self.reply(ask).await,
            Due::Dead => Err(Failure::transient(
                format!("nothing was heard from the server for {} s", 2 * SILENCE.as_secs()),
                "the connection is made anew",
            )
            .into()),
        }
    }

    /// Tells the server what was acknowledged.
    async fn reply(&mut self, ask: bool) -> Result<(), StreamError> {
        let acknowledged = self.ends.acknowledged.load(Ordering::Relaxed);
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = i64::try_from(clock.as_micros()).unwrap_or(i64::MAX);
        let update = status_update(Lsn::new(acknowledged), clock, ask);
        self.replies.tell(acknowledged, ask);
        let sending = self.wire.send_copy_data(&update);
        match tokio::time::timeout(SILENCE, sending).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(Failure::transient(
                "answer the server: it takes nothing",
                "the connection is made anew",
            )
            .into()),
        }
    }

    /// The last acknowledgement, and the end of the copy. The server acts on what it has got before the connection goes.
    async fn say_goodbye(&mut self) -> Result<(), StreamError> {
        let goodbye = async {
            self.reply(false).await?;
            self.wire
                .send(|out| {
                    postgres_protocol::message::frontend::copy_done(out);
                    Ok(())
                })
                .await?;
            // What it still sends is not looked at, but its own end of the copy is: behind it the reply was read.
            loop {
                let frame = self.wire.frame().await?;
                if matches!(frame.tag, tag::COPY_DONE | tag::COMMAND_COMPLETE | tag::ERROR) {
                    return Ok(());
                }
            }
        };
        match tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await {
            Ok(result) => result,
            // It was told; it just has much to say.
            Err(_) => Ok(()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Reply { ask: bool },
    Dead,
}

impl Replies {
    fn new(every: Duration) -> Self {
        let now = Instant::now();
        Self { every, heard: now, told: now, acknowledged: 0, asked: false }
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
        self.asked = false;
    }

    fn tell(&mut self, acknowledged: u64, asked: bool) {
        self.told = Instant::now();
        self.acknowledged = acknowledged;
        self.asked |= asked;
    }

    /// When to look at the clock again.
    fn tick(&self) -> Instant {
        Instant::now() + TICK.min(self.every)
    }

    fn due(&self, acknowledged: u64) -> Due {
        let now = Instant::now();
        if now.duration_since(self.heard) >= 2 * SILENCE {
            return Due::Dead;
        }
        if !self.asked && now.duration_since(self.heard) >= SILENCE {
            return Due::Reply { ask: true };
        }
        let since = now.duration_since(self.told);
        let news = acknowledged != self.acknowledged && since >= TICK.min(self.every);
        if news || since >= self.every { Due::Reply { ask: false } } else { Due::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_server_is_answered_by_the_clock_and_sooner_with_news() {
        let mut replies = Replies::new(Duration::from_secs(10));
        assert_eq!(replies.due(0), Due::Nothing);
        tokio::time::advance(TICK).await;
        assert_eq!(replies.due(0), Due::Nothing);
        assert_eq!(replies.due(7), Due::Reply { ask: false });
        replies.tell(7, false);
        assert_eq!(replies.due(7), Due::Nothing);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(replies.due(7), Due::Reply { ask: false });
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_once_and_then_taken_for_dead() {
        let mut replies = Replies::new(Duration::from_secs(10));
        tokio::time::advance(SILENCE).await;
        assert_eq!(replies.due(0), Due::Reply { ask: true });
        replies.tell(0, true);
        assert_eq!(replies.due(0), Due::Nothing);
        tokio::time::advance(SILENCE).await;
        assert_eq!(replies.due(0), Due::Dead);
        replies.hear();
        assert_ne!(replies.due(0), Due::Dead);
    }
}
