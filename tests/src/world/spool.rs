//! The spool of the small world, and the reader that fills it.
//!
//! The reader is a task of its own. It begins with the first attempt that has a pin and ends with the process: an outlet
//! that fails ends the attempt alone, and the next one finds the reader further on. What is appended can be streamed at
//! once; the server is told of what is synced.
//!
//! - What was synced survives a crash, and of what was appended behind that any prefix may: none when the machine fails,
//!   all when the process is killed, a part of it when pages were written out by chance. The next start need not sync
//!   it, and another crash may take it still.
//! - To sync, and to tell the server, is one step: told later, it only keeps more.
//! - Everything before a position is let go of, though files can be removed only as a whole: what is held beyond is
//!   held truly.
//! - An entry has the changes of those tables that were captured when it was read.

use dovetail_core::position::Lsn;
use dovetail_core::seam;

use super::World;
use super::bug::Bug;
use super::database::{Database, View};
use super::scenario::{Scenario, Table};
use super::situation::Situation;
use super::step::Stepping;
use crate::checker::history::Observation;

/// What is on the disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Spool {
    from: Lsn,
    /// Of what was appended.
    to: Lsn,
    synced: Lsn,
    entries: Vec<Entry>,
}

/// A transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    /// In the log.
    index: usize,
    end: Lsn,
    /// Nothing of the tables that were added later.
    lacks_added: bool,
}

/// Appends to the spool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reader {
    /// Index in the log.
    next: usize,
    /// What the server leaves out.
    skipped: Option<View>,
}

impl Spool {
    fn begin(from: Lsn) -> Self {
        Self { from, to: from, synced: from, entries: Vec::new() }
    }

    fn covers(&self, position: Lsn) -> bool {
        (self.from..=self.to).contains(&position)
    }

    /// The first transaction that it holds at or past this index of the log.
    pub(super) fn next(&self, index: usize) -> Option<usize> {
        self.entries.iter().map(|entry| entry.index).find(|it| *it >= index)
    }

    pub(super) fn to(&self) -> Lsn {
        self.to
    }

    pub(super) fn synced(&self) -> Lsn {
        self.synced
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.to
    }

    /// Where it may end after a crash.
    pub(super) fn remains(&self) -> Vec<Lsn> {
        let appended = self.entries.iter().map(|entry| entry.end).chain([self.to]);
        let mut ends: Vec<Lsn> =
            [self.synced].into_iter().chain(appended.filter(|end| *end > self.synced)).collect();
        ends.dedup();
        ends
    }

    /// What is left of it when it ends here; where all of that was let go of, nothing.
    fn cut(mut self, end: Lsn, bug: Option<Bug>) -> Option<Self> {
        self.entries.retain(|entry| entry.end <= end);
        if bug != Some(Bug::ReadOnBehindWhatIsLost) {
            self.to = end;
        }
        self.synced = self.synced.min(self.to);
        (self.from <= self.to).then_some(self)
    }

    /// Lets go of what lies before; answers whether there was something.
    fn trim(&mut self, before: Lsn, database: &Database) -> bool {
        let held = self.entries.len();
        self.entries.retain(|entry| database.commit(entry.index) >= before);
        self.from = self.from.max(before);
        self.entries.len() < held
    }

    /// Whether it holds every transaction between its ends, as it is taken to.
    fn is_whole(&self, database: &Database, left_out: Option<&View>) -> bool {
        let within = |index: &usize| (self.from..self.to).contains(&database.commit(*index));
        let mut within = (0..database.log.len()).filter(within);
        within.all(|index| {
            self.next(index) == Some(index) || left_out.is_some_and(|view| view.contains(index))
        })
    }
}

impl World {
    /// From where on nothing is at the outlet for certain.
    pub(super) fn resume(&self) -> Option<Lsn> {
        self.pin().max(self.store.checkpoint).max(self.outlet.position())
    }

    /// From where on the pipeline needs the server's log.
    pub(super) fn needed(&self) -> Option<Lsn> {
        let resume = self.resume();
        let spool = self.spool.as_ref().filter(|spool| resume.is_some_and(|it| spool.covers(it)));
        spool.map(Spool::to).or(resume)
    }

    /// There is something to read from the server: a transaction; or the log's end, which a checkpoint may be. Before
    /// there is a stream it would tell nobody more than the end of the last transaction.
    pub(super) fn can_read_on(&self) -> bool {
        let to = self.spool.as_ref().map(Spool::to);
        let streams = self.engine.as_ref().is_some_and(|engine| engine.stream.is_some());
        let unread = |reader: &Reader| {
            reader.next < self.database.log.len() || (streams && to < Some(self.database.log_end()))
        };
        self.reader.as_ref().is_some_and(unread)
    }

    pub(super) fn can_sync(&self) -> bool {
        self.reader.is_some() && self.spool.as_ref().is_some_and(|spool| !spool.is_synced())
    }

    /// Index in the log of what the stream brings next, from this one on.
    pub(super) fn next_streamed(&self, index: usize) -> Option<usize> {
        match &self.spool {
            Some(spool) => spool.next(index),
            None => Some(index).filter(|index| *index < self.database.log.len()),
        }
    }

    /// The end of what the stream can bring.
    pub(super) fn end_streamed(&self) -> Lsn {
        self.spool.as_ref().map_or_else(|| self.database.log_end(), Spool::to)
    }

    /// Index in the log, past what was appended.
    pub(super) fn has_appended(&self) -> usize {
        let last = self.spool.iter().flat_map(|spool| &spool.entries).last();
        last.map_or(0, |entry| entry.index + 1)
    }

    /// The whole log was read.
    pub(super) fn has_read(&self, scenario: &Scenario) -> bool {
        let read = |reader: &Reader| reader.next == self.database.log.len();
        !scenario.spool || self.reader.as_ref().is_some_and(read)
    }

    /// The tables of which the stream brings changes in the transaction at this index.
    pub(super) fn streamed_tables(&self, scenario: &Scenario, index: usize) -> Vec<Table> {
        let entry = self.spool.iter().flat_map(|spool| &spool.entries);
        let lacking = entry.filter(|entry| entry.index == index).any(|entry| entry.lacks_added);
        let captured = |table: &&&Table| !lacking || !scenario.added.contains(&table.name);
        self.wanted(scenario).iter().filter(captured).map(|table| (*table).clone()).collect()
    }
}

impl Stepping<'_> {
    /// What the driver says of the spool at a start.
    pub(super) fn spool(&self) -> seam::Spool {
        let Some(spool) = &self.world.spool else {
            return if self.scenario.spool { seam::Spool::Empty } else { seam::Spool::Off };
        };
        let (from, to) = (spool.from, spool.to);
        if self.world.reader.is_some() && self.bug != Some(Bug::EndOfAGrowingSpool) {
            seam::Spool::Growing { from }
        } else {
            seam::Spool::Holds { from, to }
        }
    }

    pub(super) fn begin_reading(&mut self, from: Lsn, anew: bool) {
        if self.world.reader.is_some() {
            if self.bug != Some(Bug::EndOfAGrowingSpool) {
                self.world.defect = Some("the log is to be read though it is being read");
            }
            return;
        }
        let held = self.world.spool.as_ref().is_some_and(|spool| !spool.entries.is_empty());
        if held {
            let ahead = Situation::OutletAheadOfTheSpool;
            self.situations.push(if anew { ahead } else { Situation::SpoolSurvived });
        }
        let kept = anew && held && self.bug == Some(Bug::SpoolKeptWhenReadAnew);
        if anew && !kept {
            self.world.spool = Some(Spool::begin(from));
        }
        let world = &mut self.world;
        let confirmed = world.database.slot.as_ref().map(|slot| slot.confirmed);
        let first = confirmed.unwrap_or(from).max(from);
        let log = 0..world.database.log.len();
        let next = log.clone().find(|index| world.database.commit(*index) >= first);
        // At the pin the log is asked for by what it is to leave out, behind it by position.
        let skipped = world.note.clone().filter(|_| world.pin() == Some(from));
        world.reader = Some(Reader { next: next.unwrap_or(log.end), skipped });
        if let Some(spool) = &self.world.spool {
            let synced = spool.synced;
            self.world.accounts.push(Observation::Spooled(synced));
        }
    }

    /// The next transaction, or the end of the log.
    pub(super) fn read_on(&mut self) {
        let lacks_added = self.world.processes < 2;
        let world = &mut self.world;
        let (Some(reader), Some(spool)) = (&mut world.reader, &mut world.spool) else { return };
        if reader.next == world.database.log.len() {
            spool.to = world.database.log_end();
        } else {
            let index = reader.next;
            reader.next += 1;
            if reader.skipped.as_ref().is_some_and(|skipped| skipped.contains(index)) {
                self.situations.push(Situation::SkippedByThePin);
                return;
            }
            let commit = world.database.commit(index);
            if commit < world.database.first {
                world.defect = Some("what the server has removed is read");
            }
            let end = world.database.end(commit);
            spool.entries.push(Entry { index, end, lacks_added });
            spool.to = end;
            match &world.engine {
                None => self.situations.push(Situation::ReadWithoutAnAttempt),
                Some(engine) if !engine.scans.is_empty() => {
                    self.situations.push(Situation::ReadWhileScanning);
                }
                Some(_) => {}
            }
        }
        if self.bug == Some(Bug::AcknowledgeBeforeSync) {
            let to = self.world.end_streamed();
            self.tell(to);
        }
    }

    pub(super) fn sync(&mut self) {
        let world = &mut self.world;
        let Some(spool) = &mut world.spool else { return };
        spool.synced = spool.to;
        let synced = spool.synced;
        if !spool.is_whole(&world.database, world.note.as_ref()) {
            world.defect = Some("the spool lacks what it is taken to hold");
        }
        world.accounts.push(Observation::Spooled(synced));
        self.tell(synced);
    }

    /// The server need not keep what lies before. One that keeps files is not told.
    fn tell(&mut self, before: Lsn) {
        if let Some(slot) = &mut self.world.database.slot {
            slot.confirmed = slot.confirmed.max(before);
            self.world.accounts.push(Observation::Acknowledged(before));
        }
    }

    pub(super) fn trim(&mut self, before: Lsn) {
        let world = &mut self.world;
        let trimmed = world.spool.as_mut().is_some_and(|it| it.trim(before, &world.database));
        if trimmed {
            self.situations.push(Situation::SpoolTrimmed);
        }
    }

    /// A crash leaves the spool up to here.
    pub(super) fn cut_spool(&mut self, end: Lsn) {
        self.world.reader = None;
        let Some(spool) = self.world.spool.take() else { return };
        if end < spool.to {
            self.situations.push(Situation::SpoolCutByTheCrash);
        }
        self.world.spool = spool.cut(end, self.bug);
    }
}
