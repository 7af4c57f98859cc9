//! Performs what the seam decides, for one attempt.
//!
//! A loop of three lines: wait for one event, `apply` it, perform the actions. The order of what is durable is the
//! seam's; what this file has to keep is
//! 1. a step is answered with `Saved` only after the store has returned, and the actions that follow it are performed
//!    after that, because they come out of the answer;
//! 2. a checkpoint that is saved is made of an outlet's [`Durable`], and what is acknowledged of the store's [`Saved`]:
//!    neither can be made here;
//! 3. a change of a table that the fences hold is dropped before it is dispatched, and nothing else is dropped;
//! 4. the log is read into the spool by a task of its own, the [`Intake`], which is not this attempt's: it is started here,
//!    and goes on when the attempt fails for another reason;
//! 5. the end: nothing more is read, what is in the lanes is delivered, what landed is saved, and only then the
//!    connection to the source closes.

mod delivering;
mod reading;
mod scanning;

use std::collections::VecDeque;
use std::time::Duration;

use dovetail_core::batch::Closing;
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use dovetail_core::seam::{Action, Input, Pin as Pinned, Record, Seam, Start, Step, Verdict};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::delivering::Delivering;
use self::reading::{Happened, Reading};
use crate::config::Pipeline;
use crate::delivery;
use crate::error::Error;
use crate::lanes::{DeliveryEnded, Lanes};
use crate::outlet::{Durable, Landed};
use crate::pipeline::Until;
use crate::progress::Progress;
use crate::source::{Item, Source, Stream};
use crate::spool::{Intake, Spooling};
use crate::state::{Saved, Store};
use crate::telemetry::field;

/// A checkpoint costs an fsync; ten a second keep what a crash repeats small and cost nothing that can be measured.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(100);

pub struct Driver<'a> {
    config: &'a Pipeline,
    progress: &'a Progress,
    stop: &'a CancellationToken,
    source: Source,
    store: &'a mut Store,
    spooling: &'a mut Option<Spooling>,
    /// A step was saved.
    moved: &'a mut bool,
    seam: Seam,
    lanes: Option<Lanes>,
    landed: mpsc::UnboundedReceiver<Landed>,
    delivering: Delivering,
    reading: Reading,
    checkpoint: Checkpoint,
    /// Changes that committed before this may have been delivered by an earlier life.
    again_before: Lsn,
    /// Everything that committed before this was delivered by a scan or an earlier life.
    streamed_from: Lsn,
    /// The last batch ended inside a transaction.
    inside_transaction: bool,
    caught_up_at: Option<Lsn>,
    /// The scan takes nothing more before this.
    scan_not_before: Instant,
    /// What the spool has given of the source's notes and no checkpoint has passed.
    notes: VecDeque<(Lsn, String)>,
    /// Ends the attempt once the seam has been told of it.
    failure: Option<Error>,
}

/// What an attempt is made of.
pub struct Parts<'a> {
    pub source: Source,
    pub store: &'a mut Store,
    pub spooling: &'a mut Option<Spooling>,
    /// Becomes true with the first step that is saved: what the start asked for is in the record then.
    pub moved: &'a mut bool,
    pub lanes: Lanes,
    pub landed: mpsc::UnboundedReceiver<Landed>,
    pub delivering: JoinHandle<Result<(), delivery::Error>>,
}

/// The newest position that is durable at the outlets, and the newest that is saved.
struct Checkpoint {
    durable: Option<Durable<Lsn>>,
    saved: Option<Saved<Lsn>>,
    /// `durable` is newer than what the seam was told.
    pending: bool,
    not_before: Instant,
}

impl<'a> Driver<'a> {
    pub fn new(
        config: &'a Pipeline,
        progress: &'a Progress,
        stop: &'a CancellationToken,
        parts: Parts<'a>,
    ) -> Self {
        let Parts { source, store, spooling, moved, lanes, landed, delivering } = parts;
        let seam = Seam::new(store.record().clone());
        Self {
            config,
            progress,
            stop,
            source,
            store,
            spooling,
            moved,
            seam,
            lanes: Some(lanes),
            landed,
            delivering: Delivering::new(delivering),
            reading: Reading::Nothing,
            checkpoint: Checkpoint {
                durable: None,
                saved: None,
                pending: false,
                not_before: Instant::now(),
            },
            again_before: Lsn::ZERO,
            streamed_from: Lsn::ZERO,
            inside_transaction: false,
            caught_up_at: None,
            scan_not_before: Instant::now(),
            notes: VecDeque::new(),
            failure: None,
        }
    }

    /// Runs to the end that was asked for. Not cancel-safe: whoever drops it has crashed the attempt.
    ///
    /// # Errors
    /// The first failure of any part; what had been delivered by then is saved.
    pub async fn run(
        mut self,
        start: Start,
        recorded: Option<Durable<Lsn>>,
        until: Until,
    ) -> Result<(), Error> {
        self.checkpoint.durable = recorded;
        let outcome = self.drive(Input::Start(start), until).await;
        let drained = self.drain().await;
        match (outcome, drained) {
            (Ok(()) | Err(Error::Stopped), drained) => drained,
            // The delivery's own error is the reason why it ended.
            (Err(Error::DeliveryEnded(_)), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
        }
    }

    async fn drive(&mut self, first: Input, until: Until) -> Result<(), Error> {
        self.apply(first).await?;
        let mut stopping = false;
        loop {
            if stopping && !self.inside_transaction {
                return Ok(());
            }
            if until == Until::CaughtUp && self.is_caught_up() {
                info!("caught up");
                return Ok(());
            }
            match self.wait(stopping).await? {
                Happened::Stopping => {
                    info!("stopping");
                    stopping = true;
                }
                happened => self.take(happened).await?,
            }
        }
    }

    fn is_caught_up(&self) -> bool {
        let delivered = self.store.record().checkpoint.max(Some(self.streamed_from));
        self.caught_up_at.is_some_and(|target| delivered >= Some(target))
    }

    /// Every future here is cancel-safe.
    async fn wait(&mut self, stopping: bool) -> Result<Happened, Error> {
        tokio::select! {
            biased;
            // First: news of thousands of small tables can come without a pause.
            () = self.stop.cancelled(), if !stopping => Ok(Happened::Stopping),
            Some(landed) = self.landed.recv() => Ok(Happened::Landed(landed)),
            () = tokio::time::sleep_until(self.checkpoint.not_before), if self.checkpoint.pending =>
                Ok(Happened::CheckpointDue),
            () = self.delivering.ended() => Ok(Happened::DeliveryEnded),
            error = Spooling::failed(self.spooling) => Err(error),
            happened = self.reading.next(self.scan_not_before) => happened,
        }
    }

    async fn take(&mut self, happened: Happened) -> Result<(), Error> {
        match happened {
            Happened::Landed(Landed::Chunk(chunk)) => {
                self.apply(Input::ChunkDurable(chunk.get())).await
            }
            Happened::Landed(Landed::Commit(position)) => {
                self.checkpoint.durable = Some(position);
                self.checkpoint.pending = true;
                Ok(())
            }
            Happened::CheckpointDue => self.offer_checkpoint().await,
            Happened::Piece(piece) => self.dispatch_piece(piece).await,
            Happened::ScanEnded => {
                self.reading = Reading::Nothing;
                Ok(())
            }
            Happened::ViewLost => {
                self.reading = Reading::Nothing;
                self.apply(Input::ViewLost).await
            }
            Happened::Item(item) => self.dispatch_item(item).await,
            Happened::Noted(position, note) => {
                self.notes.push_back((position, note));
                Ok(())
            }
            Happened::DeliveryEnded => Err(DeliveryEnded.into()),
            Happened::Stopping => Ok(()),
        }
    }

    /// Tells the seam what is durable. The seam saves one checkpoint at a time, and has the answer when this returns.
    async fn offer_checkpoint(&mut self) -> Result<(), Error> {
        self.checkpoint.pending = false;
        self.checkpoint.not_before = Instant::now() + CHECKPOINT_INTERVAL;
        match self.checkpoint.durable {
            Some(position) => self.apply(Input::CommitDurable(position.get())).await,
            None => Ok(()),
        }
    }

    /// Applies one input, and performs what follows until nothing does.
    async fn apply(&mut self, input: Input) -> Result<(), Error> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            debug!(?input, "seam");
            for action in self.seam.apply(input) {
                debug!(?action, "seam");
                inputs.extend(self.perform(action).await?);
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    async fn perform(&mut self, action: Action) -> Result<Vec<Input>, Error> {
        match action {
            Action::Save(step) => self.save(step).await.map(|input| vec![input]),
            Action::DropPin => {
                self.source.drop_pin().await?;
                Ok(vec![Input::PinDropped])
            }
            Action::TakePin => self.take_pin().await.map(|input| vec![input]),
            Action::Settle { before } => {
                let settled = unless_stopped(self.stop, self.source.settle(before)).await?;
                Ok(vec![Input::Settled { mark: settled.map_err(Error::Pin)? }])
            }
            Action::OpenView(view) => self.open_view(view).await.map(|input| vec![input]),
            Action::Truncate(tables) => {
                self.truncate(|table| tables.contains(table)).await?;
                Ok(Vec::new())
            }
            Action::Scan(due) => self.scan(due).await,
            Action::Read { from, anew } => {
                self.read(from, anew).await?;
                Ok(Vec::new())
            }
            // The last rows landed while the attempt was ending: the next one streams.
            Action::Stream { .. } if self.lanes.is_none() => Ok(Vec::new()),
            Action::Stream { from, again_before } => {
                self.again_before = again_before;
                self.stream(from).await?;
                Ok(Vec::new())
            }
            Action::Release(position) => {
                if let Some(saved) = self.checkpoint.saved.filter(|it| it.get() == position) {
                    match (&self.reading, &self.spooling) {
                        (_, Some(spooling)) => spooling.spool.release(saved).await?,
                        (Reading::Stream(stream), None) => stream.acknowledge(saved.into()),
                        _ => {}
                    }
                }
                Ok(Vec::new())
            }
            Action::Refuse(refusal) => Err(Error::Refused(refusal)),
        }
    }

    async fn save(&mut self, step: Step) -> Result<Input, Error> {
        match &step {
            // Only what an outlet proved to be durable can be saved as a checkpoint.
            Step::Checkpoint(position) => match self.checkpoint.durable {
                Some(durable) if durable.get() == *position => {
                    let note = self.note(*position);
                    self.checkpoint.saved = Some(self.store.save_checkpoint(durable, note).await?);
                }
                _ => return Err(Error::UnprovenCheckpoint { position: *position }),
            },
            Step::Pin(at) => {
                self.store.save_pin(*at, self.source.note(*at)).await?;
            }
            step => {
                self.store.save(step).await?;
            }
        }
        *self.moved = true;
        Ok(Input::Saved(step))
    }

    /// What the source wants to have kept beside a checkpoint.
    fn note(&mut self, position: Lsn) -> Option<String> {
        if self.spooling.is_none() {
            return self.source.note(position);
        }
        let passed = self.notes.iter().take_while(|(at, _)| *at <= position).count();
        self.notes.drain(..passed).next_back().map(|(_, note)| note)
    }

    /// Into the spool.
    async fn read(&mut self, from: Lsn, anew: bool) -> Result<(), Error> {
        let pin = self.pin();
        let Some(spooling) = self.spooling.as_mut() else { return Ok(()) };
        if let Some(intake) = spooling.intake.take() {
            intake.close().await;
        }
        if anew {
            let (origin, note) = (self.store.origin(), self.source.note_before(from));
            spooling.spool.begin(origin, pin, from, note).await?;
        }
        let stream = open(&mut self.source, self.seam.record(), from).await?;
        spooling.intake = Some(Intake::start(stream, &mut spooling.spool)?);
        info!({ field::POSITION } = %from, "reading the log");
        Ok(())
    }

    async fn stream(&mut self, from: Lsn) -> Result<(), Error> {
        self.progress.scan_ended();
        self.caught_up_at = Some(self.source.flushed().await?);
        let reading = match self.spooling {
            Some(spooling) => {
                Reading::Spool(spooling.spool.cursor(from, self.config.source.tables()))
            }
            None => Reading::Stream(open(&mut self.source, self.seam.record(), from).await?),
        };
        self.streamed_from = from;
        // Says where the stream begins, so that an outlet that is emptied before its first checkpoint is recognised.
        lanes(&mut self.lanes)?.dispatch(Vec::new(), Closing::Commit(from)).await?;
        info!({ field::POSITION } = %from, "streaming");
        self.reading = reading;
        Ok(())
    }

    async fn dispatch_item(&mut self, item: Item) -> Result<(), Error> {
        match item {
            Item::Relation(relation) => {
                debug!({ field::TABLE } = %relation.table, version = relation.version, "described");
                Ok(())
            }
            Item::Batch { mut events, closing } => {
                events.retain_mut(|event| self.admits(event));
                self.inside_transaction = closing == Closing::Open;
                Ok(lanes(&mut self.lanes)?.dispatch(events, closing).await?)
            }
        }
    }

    /// Whether a change of the stream goes on; marks what an earlier life, or the scan, may have delivered.
    fn admits(&self, event: &mut Event) -> bool {
        event.redelivery = event.position.commit < self.again_before;
        let Some(relation) = event.change.relation() else { return true };
        let Some(transaction) = event.transaction else { return true };
        let verdict = self.seam.judge(relation.id, &transaction, event.position.commit);
        event.redelivery |= verdict == Verdict::Repeat;
        verdict != Verdict::Drop
    }

    fn pin(&self) -> Lsn {
        match self.seam.record().pin {
            Pinned::At(pin) => pin,
            Pinned::None | Pinned::Intended => Lsn::ZERO,
        }
    }

    /// The end of the attempt, good or bad: delivers what is in the lanes, saves and acknowledges what landed.
    async fn drain(&mut self) -> Result<(), Error> {
        if !matches!(self.reading, Reading::Stream(_)) {
            self.reading = Reading::Nothing;
        }
        // Closes the lanes' end of the queue: the delivery ends when it has written what is left.
        self.lanes = None;
        let delivered = self.delivering.end().await;
        while let Ok(landed) = self.landed.try_recv() {
            self.take(Happened::Landed(landed)).await?;
        }
        if self.checkpoint.pending {
            self.offer_checkpoint().await?;
        }
        if let Reading::Stream(stream) = std::mem::replace(&mut self.reading, Reading::Nothing)
            && let Err(error) = stream.close().await
        {
            debug!({ field::ERROR } = %error, "the stream did not end in order");
        }
        delivered
    }
}

/// The log from a position on, with what the state knows of the tables in it.
async fn open(source: &mut Source, record: &Record, from: Lsn) -> Result<Stream, Error> {
    let known = record.relations().map(|(table, id)| (id, table.clone()));
    let known: Vec<_> = known.collect();
    source.stream(from, &known).await.map_err(Error::Stream)
}

/// For waits that may last as long as somebody else's transaction.
async fn unless_stopped<T>(
    stop: &CancellationToken,
    wait: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::select! {
        done = wait => Ok(done),
        () = stop.cancelled() => Err(Error::Stopped),
    }
}

fn lanes(lanes: &mut Option<Lanes>) -> Result<&mut Lanes, Error> {
    lanes.as_mut().ok_or_else(|| DeliveryEnded.into())
}
