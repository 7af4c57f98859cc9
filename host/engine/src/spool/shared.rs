//! What the two ends of a spool know of each other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dovetail_core::envelope::Mark;
use dovetail_core::position::Lsn;
use tokio::sync::{Notify, futures::Notified};

use super::segment::{self, HEADER_BYTES};
use super::writer::{Location, Writer, Written};
use crate::config;
use crate::source::Item;

/// Of the newest entries, for a cursor that keeps up: it need not read and decode what was just written.
const MEMORY_BYTES: u64 = 8 << 20;

/// A file of the spool.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) from: Lsn,
    pub(super) bytes: u64,
}

/// An entry that is in memory as well.
#[derive(Debug)]
pub(super) enum Fresh {
    Item(Item),
    Mark(Mark),
}

#[derive(Debug)]
struct Queued {
    written: Written,
    entry: Fresh,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    /// The newest entries, without a gap up to the end.
    memory: VecDeque<Queued>,
    memory_bytes: u64,
    /// Everything before this has been appended.
    closed: Lsn,
    /// Of the latest mark.
    note: Option<String>,
}

#[derive(Debug)]
pub(super) struct Shared {
    directory: PathBuf,
    settings: config::Spool,
    state: Mutex<State>,
    appended: Notify,
    room: Notify,
}

/// Where a cursor goes on.
pub(super) enum Ahead {
    Memory(Fresh, Location),
    /// Of this segment up to there.
    Disk {
        from: Location,
        to: u64,
    },
    /// It is at the end.
    Nothing,
}

impl Shared {
    pub(super) fn new(directory: PathBuf, settings: config::Spool) -> Self {
        let (appended, room) = (Notify::new(), Notify::new());
        Self { directory, settings, state: Mutex::default(), appended, room }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn settings(&self) -> config::Spool {
        self.settings
    }

    pub(super) fn path(&self, segment: u64) -> PathBuf {
        segment::path(&self.directory, segment)
    }

    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }

    /// What an earlier life left.
    pub(super) fn found(&self, segments: Vec<Segment>, writer: &Writer) {
        self.state().segments = segments.into();
        self.begun(writer);
    }

    /// A segment was begun, or is gone on with.
    pub(super) fn begun(&self, writer: &Writer) {
        let Location { segment: number, offset: bytes } = writer.location();
        let mut state = self.state();
        state.segments.push_back(Segment { number, from: writer.from(), bytes });
        state.closed = writer.closed();
        state.note = writer.note();
        drop(state);
        self.appended.notify_waiters();
    }

    pub(super) fn span(&self) -> Option<(Lsn, Lsn)> {
        let state = self.state();
        state.segments.front().map(|first| (first.from, state.closed))
    }

    pub(super) fn note(&self) -> Option<String> {
        self.state().note.clone()
    }

    pub(super) fn appended(&self, written: Written, entry: Fresh, closed: Lsn) {
        let mut state = self.state();
        if let Some(segment) = state.segments.back_mut() {
            segment.bytes = written.next.offset;
        }
        state.closed = closed;
        if let Fresh::Mark(mark) = &entry {
            state.note.clone_from(&mark.note);
        }
        state.memory_bytes = state.memory_bytes.saturating_add(bytes(written));
        state.memory.push_back(Queued { written, entry });
        while state.memory_bytes > MEMORY_BYTES && state.memory.len() > 1 {
            state.forget_oldest();
        }
        drop(state);
        self.appended.notify_waiters();
    }

    /// Armed: what is appended from now on wakes it.
    pub(super) fn next_append(&self) -> Notified<'_> {
        self.appended.notified()
    }

    pub(super) fn next_release(&self) -> Notified<'_> {
        self.room.notified()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state().segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The last segment that does not begin behind this position.
    pub(super) fn seek(&self, from: Lsn) -> Location {
        let state = self.state();
        let before = state.segments.iter().rfind(|segment| segment.from <= from);
        let segment = before.or(state.segments.front()).map_or(1, |segment| segment.number);
        Location { segment, offset: HEADER_BYTES }
    }

    /// What comes at a place.
    pub(super) fn ahead(&self, at: Location) -> Ahead {
        let mut state = self.state();
        let at = state.normal(at);
        while state.memory.front().is_some_and(|queued| queued.written.at < at) {
            state.forget_oldest();
        }
        if state.memory.front().is_some_and(|queued| queued.written.at == at)
            && let Some(Queued { written, entry }) = state.memory.pop_front()
        {
            state.memory_bytes = state.memory_bytes.saturating_sub(bytes(written));
            return Ahead::Memory(entry, written.next);
        }
        match state.segments.iter().find(|segment| segment.number == at.segment) {
            Some(segment) if segment.bytes > at.offset => {
                Ahead::Disk { from: at, to: segment.bytes }
            }
            _ => Ahead::Nothing,
        }
    }

    /// Lets go of the segments that end before a position. Their files have to be removed in this order: a crash in the
    /// middle must leave no gap.
    pub(super) fn release(&self, position: Lsn) -> Vec<PathBuf> {
        let mut state = self.state();
        let mut gone = Vec::new();
        while state.segments.get(1).is_some_and(|second| second.from <= position) {
            gone.extend(state.segments.pop_front());
        }
        drop(state);
        gone.iter().map(|segment| self.path(segment.number)).collect()
    }

    /// As if a cursor had fallen behind all that is in memory.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        let mut state = self.state();
        while !state.memory.is_empty() {
            state.forget_oldest();
        }
    }

    /// There is room again.
    pub(super) fn released(&self) {
        self.room.notify_waiters();
    }
}

impl State {
    fn forget_oldest(&mut self) {
        if let Some(queued) = self.memory.pop_front() {
            self.memory_bytes = self.memory_bytes.saturating_sub(bytes(queued.written));
        }
    }

    /// The end of a segment that has a successor is the successor's beginning.
    fn normal(&self, at: Location) -> Location {
        let first = self.segments.front().map_or(at.segment, |segment| segment.number);
        if at.segment < first {
            // It was read, or it would not have been released.
            return Location { segment: first, offset: HEADER_BYTES };
        }
        let mut segments = self.segments.iter().skip_while(|segment| segment.number != at.segment);
        match (segments.next(), segments.next()) {
            (Some(this), Some(next)) if at.offset >= this.bytes => {
                Location { segment: next.number, offset: HEADER_BYTES }
            }
            _ => at,
        }
    }
}

fn bytes(written: Written) -> u64 {
    written.next.offset.saturating_sub(written.at.offset)
}
