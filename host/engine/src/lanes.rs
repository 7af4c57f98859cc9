//! Lanes, performed: one thread each, with a plugin chain of its own.
//!
//! What this guarantees: every change of a key passes every plugin in the order of the log, and what comes out is put
//! together again in the order of the log, batch after batch. It holds because
//! 1. a key has one lane ([`dovetail_core::lane`]), a lane has one thread and one queue, and its chain is called for one
//!    part after the other;
//! 2. a batch remembers the lane of each of its events, and is joined by walking that list, not by arrival;
//! 3. batches are joined in the order in which they were dispatched, by the one task that writes to the outlets.
//!
//! It would break if a part were retried after a later one of the same lane had been handed in: so a chain retries
//! inside its call.
//!
//! A truncate or a message is a barrier: it waits until all before it have left the plugins, goes alone, and what
//! follows waits for it.
//!
//! Limits: [`BATCHES_IN_FLIGHT`] batches and [`BYTES_IN_FLIGHT_MAX`] bytes may be between the seam and the outlet.
//! Past either, [`Lanes::dispatch`] waits, and so does the connection to the database.

use std::sync::Arc;
use std::thread;

use dovetail_core::batch::{Batch, Closing};
use dovetail_core::change::Event;
use dovetail_core::lane::{Lane, Lanes as Router, Path};
use dovetail_core::outcome::Record;
use dovetail_core::schema::Relation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::outlet::Delivery;
use crate::plugins::{Chain, Halt};

/// Enough for the lanes to work on one batch while the outlet writes another and the decoder fills a third. More only
/// adds latency and memory; fewer leaves stages idle.
pub const BATCHES_IN_FLIGHT: usize = 4;

/// A batch of ordinary rows is far below a tenth of this; one of huge values may fill it alone. Twice as much would
/// no longer fit the engine's memory promise beside the copies that decoder and outlet hold.
pub const BYTES_IN_FLIGHT_MAX: usize = 32 << 20;

const PERMIT_BYTES: usize = 1 << 10;

/// The outlet's side is gone: its own error, or a chain's, says why.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the delivery ended")]
pub struct DeliveryEnded;

/// What comes out of the lanes, in order.
pub enum Work {
    /// Tables that the outlets must have before rows of them arrive.
    Prepare {
        relations: Vec<Arc<Relation>>,
        fresh: bool,
    },
    Batch(Pending),
}

/// A batch whose parts are in the lanes.
pub struct Pending {
    number: u64,
    closing: Closing,
    /// The lane of each event, in the order of the log.
    order: Vec<Lane>,
    /// By lane; none where the batch has nothing for it.
    parts: Vec<Option<oneshot::Receiver<Answer>>>,
    in_flight: OwnedSemaphorePermit,
}

/// What a chain made of one event.
pub enum Processed {
    Dropped,
    One(Record),
    /// Adjacent, in this order.
    Many(Vec<Record>),
}

type Answer = Result<Vec<Processed>, Halt>;

struct Part {
    events: Vec<Event>,
    reply: oneshot::Sender<Answer>,
}

pub struct Lanes {
    router: Router,
    workers: Vec<mpsc::Sender<Part>>,
    out: mpsc::Sender<Work>,
    in_flight: Arc<Semaphore>,
    next_number: u64,
}

impl Lanes {
    /// Starts one thread for each chain. The receiver is for the one task that writes to the outlets.
    pub fn start(router: Router, chains: Vec<Chain>) -> (Self, mpsc::Receiver<Work>) {
        let (out, work) = mpsc::channel(BATCHES_IN_FLIGHT);
        let workers = chains.into_iter().enumerate().map(start_worker).collect();
        let in_flight = Arc::new(Semaphore::new(BYTES_IN_FLIGHT_MAX / PERMIT_BYTES));
        (Self { router, workers, out, in_flight, next_number: 0 }, work)
    }

    /// Queues the creation of tables behind everything that was dispatched.
    ///
    /// # Errors
    /// When the delivery has ended.
    pub async fn prepare(
        &self,
        relations: Vec<Arc<Relation>>,
        fresh: bool,
    ) -> Result<(), DeliveryEnded> {
        self.out.send(Work::Prepare { relations, fresh }).await.map_err(|_| DeliveryEnded)
    }

    /// Hands events on. Waits while too much is in flight. Not cancel-safe: a cancelled call may have dispatched a part.
    ///
    /// # Errors
    /// When the delivery has ended.
    pub async fn dispatch(
        &mut self,
        mut events: Vec<Event>,
        closing: Closing,
    ) -> Result<(), DeliveryEnded> {
        while let Some(index) = self.first_barrier(&events) {
            let mut rest = events.split_off(index);
            let after = rest.split_off(1);
            let open = if matches!(closing, Closing::Rows | Closing::Chunk(_)) {
                Closing::Rows
            } else {
                Closing::Open
            };
            if !events.is_empty() {
                self.dispatch_run(events, open).await?;
            }
            self.drain().await?;
            if after.is_empty() {
                self.dispatch_run(rest, closing).await?;
                return self.drain().await;
            }
            self.dispatch_run(rest, open).await?;
            self.drain().await?;
            events = after;
        }
        self.dispatch_run(events, closing).await
    }

    fn first_barrier(&mut self, events: &[Event]) -> Option<usize> {
        events.iter().position(|event| !event.change.has_lane())
    }

    /// Waits until everything dispatched has left the plugins and the outlets have taken it.
    async fn drain(&self) -> Result<(), DeliveryEnded> {
        let all = u32::try_from(BYTES_IN_FLIGHT_MAX / PERMIT_BYTES).expect("a small constant");
        let permits = self.in_flight.acquire_many(all).await.map_err(|_| DeliveryEnded)?;
        drop(permits);
        if self.out.is_closed() { Err(DeliveryEnded) } else { Ok(()) }
    }

    async fn dispatch_run(
        &mut self,
        events: Vec<Event>,
        closing: Closing,
    ) -> Result<(), DeliveryEnded> {
        let bytes: usize = events.iter().map(Event::memory_bytes).sum();
        let permits = (bytes / PERMIT_BYTES + 1).min(BYTES_IN_FLIGHT_MAX / PERMIT_BYTES);
        let permits = u32::try_from(permits).expect("at most the number of all permits");
        let in_flight = Arc::clone(&self.in_flight)
            .acquire_many_owned(permits)
            .await
            .map_err(|_| DeliveryEnded)?;
        let batch = Batch { number: self.next_number, events, closing };
        self.next_number += 1;
        let pending = self.hand_out(batch, in_flight).await?;
        self.out.send(Work::Batch(pending)).await.map_err(|_| DeliveryEnded)
    }

    async fn hand_out(
        &mut self,
        batch: Batch,
        in_flight: OwnedSemaphorePermit,
    ) -> Result<Pending, DeliveryEnded> {
        let count = self.workers.len();
        let mut order = Vec::with_capacity(batch.events.len());
        let mut shares: Vec<Vec<Event>> = (0..count).map(|_| Vec::new()).collect();
        for event in batch.events {
            let lane = match self.router.path(&event.change) {
                Path::Lane(lane) => lane,
                Path::Barrier => Lane(0),
            };
            order.push(lane);
            if let Some(share) = shares.get_mut(usize::from(lane.0)) {
                share.push(event);
            }
        }
        let mut parts = Vec::with_capacity(count);
        for (worker, events) in self.workers.iter().zip(shares) {
            if events.is_empty() {
                parts.push(None);
                continue;
            }
            let (reply, answer) = oneshot::channel();
            worker.send(Part { events, reply }).await.map_err(|_| DeliveryEnded)?;
            parts.push(Some(answer));
        }
        Ok(Pending { number: batch.number, closing: batch.closing, order, parts, in_flight })
    }
}

fn start_worker((lane, mut chain): (usize, Chain)) -> mpsc::Sender<Part> {
    let (sender, mut parts) = mpsc::channel::<Part>(BATCHES_IN_FLIGHT);
    let run = move || {
        while let Some(part) = parts.blocking_recv() {
            // The receiver is gone only when the delivery has ended, and then nobody misses the answer.
            drop(part.reply.send(chain.process(part.events)));
        }
    };
    thread::Builder::new()
        .name(format!("lane-{lane}"))
        .spawn(run)
        .expect("a thread can be started at start-up");
    sender
}

/// A joined batch. What it holds of the limit on bytes in flight ends with the permit.
pub struct Joined {
    pub delivery: Delivery,
    in_flight: OwnedSemaphorePermit,
}

impl Joined {
    pub fn into_parts(self) -> (Delivery, OwnedSemaphorePermit) {
        (self.delivery, self.in_flight)
    }
}

/// Why a batch could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Halt(#[from] Halt),
    /// A defect of ours or of the runtime: the thread of a lane panicked.
    #[error("a lane's thread ended in a panic")]
    LaneLost,
}

impl Pending {
    /// Waits for all parts and puts them together in the order of the log.
    ///
    /// # Errors
    /// When a plugin's policy halts the pipeline.
    pub async fn join(self) -> Result<Joined, JoinError> {
        let mut lanes = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            let processed = match part {
                Some(answer) => answer.await.map_err(|_| JoinError::LaneLost)??,
                None => Vec::new(),
            };
            lanes.push(processed.into_iter());
        }
        let mut records = Vec::with_capacity(self.order.len());
        for lane in self.order {
            match lanes.get_mut(usize::from(lane.0)).and_then(Iterator::next) {
                Some(Processed::One(record)) => records.push(record),
                Some(Processed::Many(many)) => records.extend(many),
                Some(Processed::Dropped) => {}
                None => return Err(JoinError::LaneLost),
            }
        }
        let delivery = Delivery { number: self.number, records, closing: self.closing };
        Ok(Joined { delivery, in_flight: self.in_flight })
    }
}
