//! The steps of the small world.

use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam::{self, Action, Input, Pin, Recorded, Refusal, Start, View};

use super::World;
use super::bug::Bug;
use super::engine::{Batch, Engine, Scan, Settling, Stream};
use super::scenario::{Scenario, Server, Table};
use super::situation::Situation;
use crate::checker::history::{Life, Observation};

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    /// A session of the database goes on.
    Session(usize),
    Start,
    /// The driver performs the next action.
    Perform,
    /// The transactions that had to end have ended.
    Settled,
    /// The next chunk of the table of this index is read.
    ReadChunk(usize),
    ReadTransaction,
    KeepAlive,
    /// The reader appends to the spool.
    ReadOn,
    /// What was appended becomes durable, and the server is told.
    Sync,
    /// An attempt begins, while the log is being read: the server is looked at, and the seam is told later.
    Look,
    /// The next batch reaches the outlet.
    Deliver,
    /// The connection that holds the view, or creates the slot, is gone; `true`: the slot was created all the same.
    LoseView(bool),
    /// The attempt ends, and the log is read on.
    LoseOutlet,
    /// The spool survives up to there.
    Crash(Option<Lsn>),
    Hazard,
}

/// A world that takes a step.
pub(super) struct Stepping<'a> {
    pub(super) world: World,
    pub(super) scenario: &'a Scenario,
    pub(super) bug: Option<Bug>,
    pub(super) situations: Vec<Situation>,
}

impl World {
    pub(super) fn enabled(&self, scenario: &Scenario) -> Vec<Step> {
        let sessions =
            (0..scenario.sessions.len()).filter(|it| self.database.can_step(scenario, *it));
        let mut steps: Vec<Step> = sessions.map(Step::Session).collect();
        if self.refused {
            return steps;
        }
        if self.can_read_on() {
            steps.push(Step::ReadOn);
        }
        if self.can_sync() {
            steps.push(Step::Sync);
        }
        let Some(engine) = &self.engine else {
            let looked = self.reader.is_none() || self.shown.is_some();
            steps.push(if looked { Step::Start } else { Step::Look });
            steps.extend(self.accidents(scenario));
            return steps;
        };
        if self.can_perform(engine) {
            steps.push(Step::Perform);
        }
        let has_settled = |settling: &Settling| match settling {
            Settling::Below(xid) => self.database.has_ended_before(*xid),
            Settling::All(view) => self.database.is_visible(view),
        };
        if engine.settling.as_ref().is_some_and(has_settled) {
            steps.push(Step::Settled);
        }
        let readable = |(_, table): &(usize, &Table)| {
            engine.scans.contains_key(&table.name) && self.database.can_read(&table.name)
        };
        let tables = scenario.tables.iter().enumerate().filter(readable);
        steps.extend(tables.map(|(index, _)| Step::ReadChunk(index)));
        if let Some(stream) = &engine.stream {
            if self.next_streamed(stream.next).is_some() {
                steps.push(Step::ReadTransaction);
            } else if stream.closed < self.end_streamed() {
                steps.push(Step::KeepAlive);
            }
        }
        if !engine.pipe.is_empty() {
            steps.push(Step::Deliver);
        }
        steps.extend(self.accidents(scenario));
        steps
    }

    fn can_perform(&self, engine: &Engine) -> bool {
        match engine.todo.front() {
            None => false,
            Some(Action::TakePin) => self.database.can_take_pin(),
            Some(_) => true,
        }
    }
}

impl Stepping<'_> {
    pub(super) fn take(&mut self, step: Step) {
        self.world.forget_accounts();
        match step {
            Step::Session(session) => self.world.database.step(self.scenario, session),
            Step::Start => self.start(),
            Step::Perform => self.perform(),
            Step::Settled => {
                if let Some(settling) = self.engine().settling.take() {
                    if self.bug == Some(Bug::FenceOfAnotherView) {
                        let view = self.world.database.open_view();
                        self.engine().view = Some(view);
                    }
                    let mark = self.mark(&settling);
                    self.apply(Input::Settled { mark });
                }
            }
            Step::ReadChunk(table) => self.read_chunk(table),
            Step::ReadTransaction => self.read_transaction(),
            Step::KeepAlive => {
                let end = self.world.end_streamed();
                self.engine().keep_alive(end);
            }
            Step::ReadOn => self.read_on(),
            Step::Sync => self.sync(),
            Step::Look => self.world.shown = Some((self.log(), self.world.database.log_end())),
            Step::Deliver => self.deliver(),
            Step::LoseView(created) => self.lose_view(created),
            Step::LoseOutlet => self.lose_outlet(),
            Step::Crash(end) => self.crash(end),
            Step::Hazard => self.hazard(),
        }
        if self.world.is_at_rest(self.scenario) {
            self.situations.push(Situation::AtRest);
        }
    }

    pub(super) fn engine(&mut self) -> &mut Engine {
        self.world.engine.as_mut().expect("the step is enabled while the engine runs")
    }

    pub(super) fn apply(&mut self, input: Input) {
        let engine = self.engine();
        let actions = engine.seam.apply(input);
        engine.todo.extend(actions);
    }

    fn start(&mut self) {
        let pin = self.world.pin();
        let moved = self.bug == Some(Bug::PinMovedOnResume);
        if moved && pin.is_some() && !self.world.store.finished {
            let (lsn, view) = match self.scenario.server {
                Server::Postgres => self.world.database.create_slot(),
                Server::MySql => self.world.database.gtid_pin(),
            };
            self.world.store.pin = Pin::At(lsn);
            self.world.note = Some(view);
        }
        let resumed_from = self.world.store.checkpoint.or(self.world.pin());
        self.world.lives.push(Life { resumed_from, observations: Vec::new() });
        let shown = self.world.shown.take();
        let (log, log_end) = shown.unwrap_or_else(|| (self.log(), self.world.database.log_end()));
        if self.world.reader.is_none() {
            self.world.processes += 1;
            if self.world.processes == 2 {
                self.world.added_at = Some(log_end);
            }
        }
        let outlet = self.world.outlet.recorded;
        if let Recorded::At(lsn) = outlet
            && Some(lsn) > self.world.store.checkpoint
        {
            self.situations.push(Situation::OutletAheadOfTheRecord);
        }
        let wanted = self.world.wanted(self.scenario);
        let tables = wanted.iter().map(|it| (it.name.clone(), Some(it.id))).collect();
        self.world.engine = Some(Engine::new(self.world.store.clone()));
        let mode = self.scenario.mode;
        let spool = self.spool();
        self.apply(Input::Start(Start { tables, mode, log, outlet, spool, log_end }));
    }

    fn perform(&mut self) {
        let Some(action) = self.engine().todo.pop_front() else { return };
        match action {
            Action::Save(step) => self.save(step),
            Action::DropPin => {
                if self.world.database.slot.take().is_some() {
                    self.situations.push(Situation::LeftoverSlotDropped);
                }
                self.apply(Input::PinDropped);
            }
            Action::TakePin => self.take_pin(),
            Action::Settle { before } => self.settle(before),
            Action::OpenView(View::Pinned) => {
                let view = self.engine().exported.clone();
                self.engine().view = view;
                self.apply(Input::PinnedViewOpened);
            }
            Action::OpenView(View::Later) => self.open_later_view(),
            Action::Truncate(tables) => {
                self.situations.push(Situation::TruncateBarrier);
                if self.bug == Some(Bug::NoBarrierOnRescan) {
                    return;
                }
                let emptied = |table: TableName| Observation::Truncated {
                    table: table.name.into(),
                    transaction: None,
                    redelivery: true,
                };
                let observations = tables.into_iter().map(emptied).collect();
                self.engine().pipe.push_back(Batch { observations, closing: Closing::Rows });
            }
            Action::Scan(due) => self.scan(due),
            Action::Stream { from, again_before } => self.stream(from, again_before),
            Action::Read { from, anew } => self.begin_reading(from, anew),
            Action::Release(lsn) if self.scenario.spool => self.trim(lsn),
            Action::Release(lsn) => self.acknowledge(lsn),
            Action::Refuse(refusal) => self.refuse(&refusal),
        }
    }

    fn save(&mut self, step: seam::Step) {
        let store = std::mem::take(&mut self.world.store);
        self.world.store = store.with(&step);
        match step {
            seam::Step::Checkpoint(lsn) => self.world.observe(Observation::Saved(lsn)),
            seam::Step::Finish => {
                self.situations.push(Situation::Finished);
                if Some(self.world.database.first) > self.world.pin() {
                    self.situations.push(Situation::FinishedThoughPurged);
                }
            }
            seam::Step::Pin(_) => self.world.note = self.engine().noted.take(),
            seam::Step::Intend if self.bug == Some(Bug::ViewThenPin) => {
                let view = self.world.database.open_view();
                self.engine().exported = Some(view);
            }
            _ => {}
        }
        self.apply(Input::Saved(step));
    }

    fn open_later_view(&mut self) {
        let database = &self.world.database;
        let fence = database.fence();
        let running = !database.nothing_runs();
        let (view, log_end) = (database.open_view(), database.log_end());
        self.situations.push(Situation::LaterView);
        if running {
            self.situations.push(Situation::RunningInTheFence);
        }
        let early = self.bug == Some(Bug::HorizonTooEarly);
        let horizon = self.world.pin().filter(|_| early).unwrap_or(log_end);
        let other = self.bug == Some(Bug::FenceOfAnotherView);
        let engine = self.engine();
        if !other || engine.view.is_none() {
            engine.view = Some(view);
        }
        self.apply(Input::LaterViewOpened { fence, horizon });
    }

    fn scan(&mut self, due: Vec<seam::Due>) {
        for due in due {
            if self.world.store.is_done(&due.table) {
                self.world.defect = Some("a table that is done is scanned");
            }
            let Some(table) = self.scenario.tables.iter().find(|it| it.name == due.table) else {
                continue;
            };
            let count = u32::try_from(table.keys.len()).expect("a small world");
            let (name, relation) = (table.name.clone(), table.id);
            self.engine().scans.insert(name.clone(), Scan { due, next: 0 });
            self.apply(Input::ChunksPlanned { table: name, relation, count });
        }
    }

    fn stream(&mut self, from: Lsn, again_before: Lsn) {
        // What is not read from the server is not its to leave out.
        let spooled = self.scenario.spool;
        let confirmed = self.world.database.slot.as_ref().map(|slot| slot.confirmed);
        let from = confirmed.filter(|_| !spooled).unwrap_or(from).max(from);
        let log = 0..self.world.database.log.len();
        let next = log.clone().find(|index| self.world.database.commit(*index) >= from);
        let mut next = next.unwrap_or(log.end);
        if spooled && self.bug == Some(Bug::StreamBehindTheSpool) {
            next = self.world.has_appended();
        }
        // At the pin the stream is asked for by what it is to leave out, behind it by position.
        let skipped =
            self.world.note.clone().filter(|_| !spooled && self.world.pin() == Some(from));
        let engine = self.engine();
        engine.stream = Some(Stream { next, skipped, again_before, closed: from });
        engine.view = None;
        engine.exported = None;
        engine.scans.clear();
    }

    fn acknowledge(&mut self, lsn: Lsn) {
        if let Some(slot) = &mut self.world.database.slot {
            slot.confirmed = slot.confirmed.max(lsn);
        }
        self.world.observe(Observation::Acknowledged(lsn));
    }

    fn refuse(&mut self, refusal: &Refusal) {
        if matches!(refusal, Refusal::OutOfOrder { .. }) {
            self.world.defect = Some("the seam and its driver disagree");
        } else if !self.world.has_lost() {
            self.world.defect = Some("the pipeline stops though nothing is wrong");
        }
        self.situations.push(Situation::Refused);
        self.world.observe(Observation::Refused);
        self.world.engine = None;
        self.world.refused = true;
    }

    fn read_chunk(&mut self, table: usize) {
        let table = &self.scenario.tables[table];
        let pin = self.world.pin().unwrap_or_default();
        let database = &self.world.database;
        let engine = self.world.engine.as_mut().expect("the step is enabled while it runs");
        let view = engine.view.as_ref().expect("a scan has a view");
        if database.is_truncated_since(view, &table.name) {
            self.situations.push(Situation::TruncatedUnderTheView);
        }
        let chunk = engine.read_chunk(database, table, pin);
        if self.bug == Some(Bug::DoneOnChannel) {
            self.apply(Input::ChunkDurable(chunk));
        }
        if self.bug == Some(Bug::FinishedBeforeDurable) && self.engine().scans.is_empty() {
            let pipe: Vec<_> = self.engine().pipe.iter().map(|batch| batch.closing).collect();
            for closing in pipe {
                if let Closing::Chunk(chunk) = closing {
                    self.apply(Input::ChunkDurable(chunk));
                }
            }
        }
    }

    fn read_transaction(&mut self) {
        let bug = self.bug;
        let next = self.engine().stream.as_ref().map_or(0, |stream| stream.next);
        let next = self.world.next_streamed(next).expect("the step is enabled while there is one");
        let wanted = self.world.streamed_tables(self.scenario, next);
        if wanted.len() < self.world.wanted(self.scenario).len() {
            self.situations.push(Situation::SpooledBeforeATableWasAdded);
        }
        let engine = self.world.engine.as_mut().expect("the step is enabled while it runs");
        if let Some(stream) = &mut engine.stream {
            stream.next = next;
        }
        let fenced = !engine.seam.fences().is_empty();
        let judged = engine.read_transaction(&self.world.database, &wanted, bug);
        if judged.skipped {
            self.situations.push(Situation::SkippedByThePin);
        } else if judged.dropped {
            self.situations.push(Situation::DroppedByTheFence);
        } else if fenced {
            self.situations.push(Situation::PassedTheFence);
        }
        if judged.repeated {
            self.situations.push(Situation::Repeated);
        }
        if bug == Some(Bug::CheckpointBeforeDurable) {
            let closed = self.engine().stream.as_ref().map(|stream| stream.closed);
            self.apply(Input::CommitDurable(closed.unwrap_or_default()));
        }
    }

    fn deliver(&mut self) {
        let Some(batch) = self.engine().pipe.pop_front() else { return };
        let end = self.end_of(&batch);
        if self.scenario.transactional {
            self.write_transactional(batch.observations, batch.closing);
        } else {
            for observation in batch.observations {
                self.world.observe(observation);
            }
        }
        match batch.closing {
            Closing::Rows => {}
            Closing::Open => {
                if self.bug == Some(Bug::CheckpointInsideTransaction) {
                    self.apply(Input::CommitDurable(end));
                }
            }
            Closing::Chunk(chunk) => self.chunk_durable(chunk),
            Closing::Commit(lsn) => {
                if self.bug == Some(Bug::AcknowledgeBeforeSave) {
                    self.acknowledge(lsn);
                }
                if self.bug == Some(Bug::TrimmedBeforeSaved) {
                    self.trim(lsn);
                }
                self.apply(Input::CommitDurable(lsn));
            }
        }
    }

    fn write_transactional(&mut self, observations: Vec<Observation>, closing: Closing) {
        self.world.outlet.open.extend(observations);
        if closing == Closing::Open {
            return;
        }
        let open = std::mem::take(&mut self.world.outlet.open);
        let shown = (!open.is_empty()).then_some(Observation::Shown);
        for observation in open.into_iter().chain(shown) {
            self.world.observe(observation);
        }
        if let Closing::Commit(lsn) = closing {
            self.world.outlet.recorded = Recorded::At(lsn);
        }
    }

    fn chunk_durable(&mut self, mut chunk: dovetail_core::batch::ChunkId) {
        let table = self.scenario.tables.iter().find(|it| it.id == chunk.table);
        let keys = table.map_or(1, |it| u32::try_from(it.keys.len()).expect("a small world"));
        let scan = table.and_then(|it| self.engine().scans.get(&it.name));
        let first = scan.map_or(0, |scan| scan.due.first_chunk);
        if chunk.number < first {
            self.situations.push(Situation::LateNewsOfAChunk);
            if self.bug == Some(Bug::ChunkNumbersUsedTwice) {
                chunk.number = first + chunk.number % keys;
            }
        }
        self.apply(Input::ChunkDurable(chunk));
    }

    /// What a driver would take for the end of the transaction that a batch is cut from.
    fn end_of(&self, batch: &Batch) -> Lsn {
        let commit = batch.observations.iter().find_map(|observation| match observation {
            Observation::Delivered(delivered) => Some(delivered.position.commit),
            _ => None,
        });
        self.world.database.end(commit.unwrap_or_default())
    }
}
