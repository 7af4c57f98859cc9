//! The state machine of the hand-over.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::TransactionId;
use crate::fence::{Fence, Mark};
use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

use super::examination::{
    examine, fenced_elsewhere, outlet_position, reading_position, resume_position,
};
use super::fences::{Fences, Verdict};
use super::protocol::{Action, Due, Input, Log, Mode, Refusal, Slot, Spool, Start, View};
use super::record::{Fenced, Pin, Record, Step};
use super::scanning::{Complete, Scanning};

/// Decides what happens next. Made anew from the durable record at every start of the engine and after every loss of
/// the stream's connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seam {
    /// What is known to be durable.
    record: Record,
    fences: Fences,
    state: State,
    start: Option<Start>,
    /// Whether an earlier life may have delivered changes of the stream.
    streamed_before: bool,
    /// Whether the view that came with the pin still exists.
    pinned_view: bool,
    /// Tables whose rows are all durable, while that is being saved.
    completing: BTreeSet<TableName>,
    /// One past the highest chunk number that was planned in this life.
    next_chunk: BTreeMap<TableName, u32>,
    /// The log is being read into the spool.
    reading: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    Idle,
    Marking,
    Intending,
    Dropping,
    Taking,
    Forgoing,
    Pinning,
    Skipping,
    Settling,
    Opening(Opening),
    Attempting(Sight),
    /// The view was lost while the attempt was being saved. The answer has to be awaited, so that it is not taken for
    /// that of the next attempt.
    Abandoning,
    Scanning(Sight, Scanning),
    Streaming(Streaming),
    Stopped,
}

/// The view that was asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Opening {
    Pinned,
    Later { settled: Mark },
}

/// The view that is open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Sight {
    Pinned,
    Later { fence: Fence, horizon: Lsn },
}

/// One checkpoint is saved at a time; what becomes durable meanwhile is saved in one go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Streaming {
    saving: Option<Lsn>,
    waiting: Option<Lsn>,
    /// The finish was asked for.
    finishing: bool,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "not started",
            Self::Marking => "saving which tables are scanned again",
            Self::Intending => "saving the intent",
            Self::Dropping => "dropping the pin",
            Self::Taking => "taking the pin",
            Self::Forgoing => "saving that there is no pin",
            Self::Pinning => "saving the pin",
            Self::Skipping => "saving which tables are not scanned",
            Self::Settling => "waiting for running transactions",
            Self::Opening(_) => "opening a view",
            Self::Attempting(_) | Self::Abandoning => "saving the attempt",
            Self::Scanning(..) => "scanning",
            Self::Streaming(_) => "streaming",
            Self::Stopped => "stopped",
        }
    }
}

impl Seam {
    pub fn new(record: Record) -> Self {
        Self {
            fences: Fences::of(&record),
            streamed_before: matches!(record.pin, Pin::At(_)),
            record,
            state: State::Idle,
            start: None,
            pinned_view: false,
            completing: BTreeSet::new(),
            next_chunk: BTreeMap::new(),
            reading: false,
        }
    }

    /// The verdict on one change of the stream, in the transaction at `commit`.
    pub fn judge(&self, relation: RelationId, transaction: &TransactionId, commit: Lsn) -> Verdict {
        self.fences.judge(relation, transaction, commit)
    }

    /// For a reader that judges in a task of its own: complete from [`Action::Stream`] on.
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// What is known to be durable.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Takes in what happened, and says what to do now, in this order. Does not wait for anything.
    pub fn apply(&mut self, input: Input) -> Vec<Action> {
        let name = input.name();
        let state = std::mem::replace(&mut self.state, State::Stopped);
        match (state, input) {
            (State::Stopped, _) => Vec::new(),
            (State::Idle, Input::Start(start)) => self.started(start),
            (state, Input::Saved(step)) => self.saved(state, step),
            (State::Dropping, Input::PinDropped) => self.take_pin(),
            (State::Taking, Input::Pinned { at, view }) => {
                self.pinned_view = view;
                self.state = State::Pinning;
                vec![Action::Save(Step::Pin(at))]
            }
            // So that only a kill leaves the intent behind, by which a slot of that name is taken for ours.
            (State::Taking, Input::NotPinned) => {
                self.state = State::Forgoing;
                vec![Action::Save(Step::Forgo)]
            }
            (State::Settling, Input::Settled { mark }) => {
                self.state = State::Opening(Opening::Later { settled: mark });
                vec![Action::OpenView(View::Later)]
            }
            (State::Opening(Opening::Pinned), Input::PinnedViewOpened) => {
                self.attempt(Sight::Pinned)
            }
            (
                State::Opening(Opening::Later { settled }),
                Input::LaterViewOpened { fence, horizon },
            ) => match fence.covers(&settled) {
                Ok(true) => self.attempt(Sight::Later { fence, horizon }),
                Ok(false) => self.settle(),
                Err(_) => self.out_of_order(name, "its fence and the mark are of different kinds"),
            },
            (
                State::Scanning(sight, mut scanning),
                Input::ChunksPlanned { table, relation, count },
            ) => match scanning.planned(table.clone(), relation, count) {
                Ok((end, complete)) => {
                    self.next_chunk.insert(table, end);
                    self.scanned(sight, scanning, complete)
                }
                Err(()) => self.out_of_order(name, "a plan is not awaited"),
            },
            (State::Scanning(sight, mut scanning), Input::ChunkDurable(chunk)) => {
                let complete = scanning.durable(chunk);
                self.scanned(sight, scanning, complete)
            }
            // Late news of a scan that was given up with its view.
            (state, Input::ChunkDurable(_)) => self.stay(state),
            (state, Input::ViewLost) => self.view_lost(state),
            (State::Streaming(mut streaming), Input::CommitDurable(lsn)) => {
                streaming.waiting = streaming.waiting.max(Some(lsn));
                self.advance(streaming)
            }
            (state, _) => self.out_of_order(name, state.name()),
        }
    }

    fn started(&mut self, mut start: Start) -> Vec<Action> {
        // What was read before there was a pin was read for another one.
        if !self.streamed_before && start.spool != Spool::Off {
            start.spool = Spool::Empty;
        }
        if let Err(refusal) = examine(&self.record, &start) {
            return self.refuse(refusal);
        }
        let again = self.scanned_again(&start);
        self.start = Some(start);
        if again.is_empty() {
            return self.reach_pin();
        }
        self.state = State::Marking;
        vec![Action::Save(Step::Again(again))]
    }

    /// Done tables that are read again all the same: every one in mode `always`; those that are not wanted now, so that
    /// they are not taken for complete when they are wanted once more; and those with a fence of another server's log.
    fn scanned_again(&self, start: &Start) -> BTreeSet<TableName> {
        let again =
            |table: &&TableName| start.mode == Mode::Always || !start.tables.contains_key(*table);
        let mut tables = fenced_elsewhere(&self.record, start);
        tables.extend(self.record.relations().map(|(table, _)| table).filter(again).cloned());
        tables
    }

    fn reach_pin(&mut self) -> Vec<Action> {
        match self.record.pin {
            Pin::None => {
                self.state = State::Intending;
                vec![Action::Save(Step::Intend)]
            }
            Pin::Intended => match self.start.as_ref().map(|start| start.log) {
                Some(Log::Slot(Slot::Absent) | Log::Files { .. }) | None => self.take_pin(),
                Some(Log::Slot(_)) => self.drop_pin(),
            },
            Pin::At(_) => self.reach_rows(),
        }
    }

    fn take_pin(&mut self) -> Vec<Action> {
        self.state = State::Taking;
        vec![Action::TakePin]
    }

    fn drop_pin(&mut self) -> Vec<Action> {
        self.state = State::Dropping;
        vec![Action::DropPin]
    }

    /// From a saved pin on: the log is read into the spool, what is due is scanned, then the log is streamed.
    fn reach_rows(&mut self) -> Vec<Action> {
        let mut actions = self.read();
        actions.extend(self.reach_due());
        actions
    }

    /// Once: the server need not keep its log for as long as the scan takes.
    fn read(&mut self) -> Vec<Action> {
        let spooled = self.start.as_ref().filter(|start| start.spool != Spool::Off);
        let position = spooled.and_then(|start| reading_position(&self.record, start));
        match position {
            Some((from, anew)) if !self.reading => {
                self.reading = true;
                vec![Action::Read { from, anew }]
            }
            _ => Vec::new(),
        }
    }

    fn reach_due(&mut self) -> Vec<Action> {
        let due = self.due();
        if due.is_empty() {
            return if self.completing.is_empty() { self.stream() } else { self.scan_nothing() };
        }
        if self.mode() == Mode::Never {
            return self.skip(&due);
        }
        if self.pinned_view {
            self.state = State::Opening(Opening::Pinned);
            return vec![Action::OpenView(View::Pinned)];
        }
        self.settle()
    }

    fn skip(&mut self, due: &BTreeSet<TableName>) -> Vec<Action> {
        let wanted = self.start.iter().flat_map(|start| &start.tables);
        let skipped = wanted.filter(|(table, _)| due.contains(*table));
        let skipped = skipped.filter_map(|(table, relation)| Some((table.clone(), (*relation)?)));
        self.state = State::Skipping;
        vec![Action::Save(Step::Skip(skipped.collect()))]
    }

    fn settle(&mut self) -> Vec<Action> {
        let from = self.resume();
        let before = self.delivered_before().unwrap_or(from).max(from);
        self.state = State::Settling;
        vec![Action::Settle { before }]
    }

    fn attempt(&mut self, sight: Sight) -> Vec<Action> {
        self.state = State::Attempting(sight);
        vec![Action::Save(Step::Attempt(self.due()))]
    }

    fn scan(&mut self, sight: Sight, tables: &BTreeSet<TableName>) -> Vec<Action> {
        let first_chunk = |table| self.next_chunk.get(table).copied().unwrap_or(0);
        // The attempt that is about to begin is counted already.
        let due: Vec<Due> = tables
            .iter()
            .map(|table| Due {
                table: table.clone(),
                again: self.record.attempts(table) > 1,
                first_chunk: first_chunk(table),
            })
            .collect();
        let again: BTreeSet<_> =
            due.iter().filter(|it| it.again).map(|it| it.table.clone()).collect();
        let scanning = due.iter().map(|it| (it.table.clone(), it.first_chunk));
        self.state = State::Scanning(sight, Scanning::begin(scanning));
        let mut actions = Vec::new();
        if !again.is_empty() {
            actions.push(Action::Truncate(again));
        }
        actions.push(Action::Scan(due));
        actions
    }

    /// Nothing is left to read, but what was read is still being saved as done.
    fn scan_nothing(&mut self) -> Vec<Action> {
        self.stay(State::Scanning(Sight::Pinned, Scanning::default()))
    }

    fn scanned(
        &mut self,
        sight: Sight,
        scanning: Scanning,
        complete: Option<Complete>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(Complete { table, relation }) = complete {
            let fenced = match &sight {
                Sight::Pinned => None,
                Sight::Later { fence, horizon } => {
                    Some(Fenced { fence: fence.clone(), horizon: *horizon })
                }
            };
            self.completing.insert(table.clone());
            actions.push(Action::Save(Step::Scanned { table, relation, fenced }));
        }
        self.state = State::Scanning(sight, scanning);
        actions
    }

    fn saved(&mut self, state: State, step: Step) -> Vec<Action> {
        self.record = std::mem::take(&mut self.record).with(&step);
        match (state, step) {
            (State::Marking, Step::Again(_)) => {
                self.fences = Fences::of(&self.record);
                self.reach_pin()
            }
            (State::Intending, Step::Intend) => self.take_pin(),
            (State::Forgoing, Step::Forgo) => self.stay(State::Stopped),
            (State::Pinning, Step::Pin(_)) => self.reach_rows(),
            (State::Skipping, Step::Skip(_)) => self.stream(),
            (State::Attempting(sight), Step::Attempt(tables)) => self.scan(sight, &tables),
            (State::Abandoning, Step::Attempt(_)) => self.reach_rows(),
            (state, Step::Scanned { table, .. }) if self.completing.remove(&table) => {
                self.fences = Fences::of(&self.record);
                let scanning = matches!(state, State::Scanning(..));
                if scanning && self.completing.is_empty() && self.due().is_empty() {
                    return self.stream();
                }
                self.stay(state)
            }
            (State::Streaming(streaming), Step::Checkpoint(lsn))
                if streaming.saving == Some(lsn) =>
            {
                self.checkpoint_saved(streaming, lsn)
            }
            (State::Streaming(streaming), Step::Finish) => self.stay(State::Streaming(streaming)),
            (state, _) => self.out_of_order("saved", state.name()),
        }
    }

    fn view_lost(&mut self, state: State) -> Vec<Action> {
        self.pinned_view = false;
        match state {
            // Whether the server holds one is not known.
            State::Taking | State::Dropping => self.drop_pin(),
            State::Attempting(_) => self.stay(State::Abandoning),
            State::Settling | State::Opening(_) | State::Scanning(..) => self.reach_rows(),
            state => self.stay(state),
        }
    }

    fn stream(&mut self) -> Vec<Action> {
        let outlet = self.start.as_ref().and_then(|start| outlet_position(&self.record, start));
        let from = self.resume();
        let again_before = self.delivered_before().unwrap_or(from);
        let streaming = Streaming { saving: None, waiting: outlet, finishing: false };
        let mut actions = vec![Action::Stream { from, again_before }];
        actions.extend(self.advance(streaming));
        actions
    }

    /// Past everything that an earlier life can have delivered; `None` where there was none.
    fn delivered_before(&self) -> Option<Lsn> {
        self.start.as_ref().map(|start| start.log_end).filter(|_| self.streamed_before)
    }

    /// Where the stream goes on: no checkpoint is saved before there is one, so it is the same all the time until then.
    fn resume(&self) -> Lsn {
        let position = self.start.as_ref().and_then(|start| resume_position(&self.record, start));
        position.unwrap_or_default()
    }

    /// Saves what is durable and not saved yet, and the end of the hand-over when it is reached.
    fn advance(&mut self, mut streaming: Streaming) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.fences.is_empty() && !self.record.finished && !streaming.finishing {
            streaming.finishing = true;
            actions.push(Action::Save(Step::Finish));
        }
        let waiting = streaming.waiting.filter(|lsn| Some(*lsn) > self.record.checkpoint);
        if streaming.saving.is_none()
            && let Some(lsn) = waiting
        {
            streaming.waiting = None;
            streaming.saving = Some(lsn);
            actions.push(Action::Save(Step::Checkpoint(lsn)));
        }
        self.state = State::Streaming(streaming);
        actions
    }

    fn checkpoint_saved(&mut self, mut streaming: Streaming, lsn: Lsn) -> Vec<Action> {
        self.fences.retire(lsn);
        streaming.saving = None;
        let mut actions = vec![Action::Release(lsn)];
        actions.extend(self.advance(streaming));
        actions
    }

    fn due(&self) -> BTreeSet<TableName> {
        let wanted = self.start.iter().flat_map(|start| start.tables.keys());
        let is_settled = |table: &TableName| {
            self.record.is_done(table)
                || self.completing.contains(table)
                || (self.mode() == Mode::Never && self.record.is_skipped(table))
        };
        wanted.filter(|table| !is_settled(table)).cloned().collect()
    }

    fn mode(&self) -> Mode {
        self.start.as_ref().map_or(Mode::Initial, |start| start.mode)
    }

    fn stay(&mut self, state: State) -> Vec<Action> {
        self.state = state;
        Vec::new()
    }

    fn refuse(&mut self, refusal: Refusal) -> Vec<Action> {
        self.state = State::Stopped;
        vec![Action::Refuse(refusal)]
    }

    fn out_of_order(&mut self, input: &'static str, state: &'static str) -> Vec<Action> {
        self.refuse(Refusal::OutOfOrder { input, state })
    }
}
