//! The engine of the small world: the real seam, and what the driver around it holds.
//!
//! The driver performs one action at a time. Reading and writing run beside that, as they do in the engine: a chunk or a
//! transaction goes into the pipe when it is read, and news of it come back when the outlet has it. The pipe is the only
//! thing between them, and keeps its order; that the lanes keep it too is not explored here.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::TableName;
use dovetail_core::seam::{Action, Due, Record, Seam, Verdict};

use super::bug::Bug;
use super::database::{Database, Logged, View};
use super::scenario::Table;
use crate::checker::history::{Delivered, Image, Observation, Operation, RowKey, Write};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Engine {
    pub(super) seam: Seam,
    pub(super) todo: VecDeque<Action>,
    pub(super) settling: Option<Settling>,
    /// What came with the pin.
    pub(super) exported: Option<View>,
    /// What is not streamed from the pin on, though it may lie behind it; until that is saved.
    pub(super) noted: Option<View>,
    pub(super) view: Option<View>,
    pub(super) scans: BTreeMap<TableName, Scan>,
    pub(super) stream: Option<Stream>,
    pub(super) pipe: VecDeque<Batch>,
}

/// What has to become visible before a later view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Settling {
    /// The id below which every transaction has to end.
    Below(u64),
    All(View),
}

/// What is left to read of a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Scan {
    pub(super) due: Due,
    pub(super) next: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stream {
    /// Index in the log.
    pub(super) next: usize,
    /// What is passed over.
    pub(super) skipped: Option<View>,
    pub(super) again_before: Lsn,
    pub(super) closed: Lsn,
}

/// What goes through the pipe.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Batch {
    pub(super) observations: Vec<Observation>,
    pub(super) closing: Closing,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for observation in &self.observations {
            match observation {
                Observation::Delivered(Delivered { position, operation, row, .. }) => {
                    write!(f, "{operation:?} {row} at {position}, ")?;
                }
                Observation::Truncated { table, transaction: Some(_), .. } => {
                    write!(f, "truncate {table}, ")?;
                }
                Observation::Truncated { table, .. } => write!(f, "empty {table}, ")?,
                _ => {}
            }
        }
        write!(f, "closing {:?}", self.closing)
    }
}

/// What reading a transaction came to.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) skipped: bool,
    pub(super) dropped: bool,
    pub(super) repeated: bool,
}

impl Engine {
    pub(super) fn new(record: Record) -> Self {
        Self {
            seam: Seam::new(record),
            todo: VecDeque::new(),
            settling: None,
            exported: None,
            noted: None,
            view: None,
            scans: BTreeMap::new(),
            stream: None,
            pipe: VecDeque::new(),
        }
    }

    /// One chunk, which is one key. Answers with its id.
    pub(super) fn read_chunk(&mut self, database: &Database, table: &Table, pin: Lsn) -> ChunkId {
        let view = self.view.as_ref().expect("a scan has a view");
        let scan = self.scans.get_mut(&table.name).expect("asked for a table that is scanned");
        let row = &table.keys[scan.next];
        let image = database.read(view, &table.name, row);
        let delivered = image.map(|image| {
            Observation::Delivered(Delivered {
                position: Position { commit: pin, ordinal: 0 },
                transaction: None,
                row: row.clone(),
                operation: Operation::Read,
                image: Some(image),
                redelivery: scan.due.again,
            })
        });
        let offset = u32::try_from(scan.next).expect("a small world");
        let chunk = ChunkId { table: table.id, number: scan.due.first_chunk + offset };
        scan.next += 1;
        if scan.next == table.keys.len() {
            self.scans.remove(&table.name);
        }
        let observations = delivered.into_iter().collect();
        self.pipe.push_back(Batch { observations, closing: Closing::Chunk(chunk) });
        chunk
    }

    /// The next transaction of the log, in batches of one change.
    pub(super) fn read_transaction(
        &mut self,
        database: &Database,
        wanted: &[Table],
        bug: Option<Bug>,
    ) -> Judged {
        let stream = self.stream.as_mut().expect("asked while streaming");
        let index = stream.next;
        let commit = database.commit(index);
        if stream.skipped.as_ref().is_some_and(|skipped| skipped.contains(index)) {
            stream.next += 1;
            return Judged { skipped: true, ..Judged::default() };
        }
        let repeated = commit < stream.again_before;
        let mut judged = Judged { repeated, ..Judged::default() };
        let logged = &database.log[index];
        let flagged = judged.repeated && bug != Some(Bug::RepetitionNotFlagged);
        let mut kept = Vec::new();
        for (ordinal, change) in (1..).zip(changes(logged)) {
            let Some(table) = wanted.iter().find(|it| *it.name.name == *change.table()) else {
                continue;
            };
            let verdict = self.seam.judge(table.id, &database.id(index), commit);
            if verdict == Verdict::Drop && bug != Some(Bug::NoFenceOnRescan) {
                judged.dropped = true;
                continue;
            }
            kept.push(change.observation(Position { commit, ordinal }, logged.xid, flagged));
        }
        let closed = database.end(commit);
        stream.next += 1;
        stream.closed = closed;
        let last = kept.pop();
        for observation in kept {
            self.pipe.push_back(Batch { observations: vec![observation], closing: Closing::Open });
        }
        let observations = last.into_iter().collect();
        self.pipe.push_back(Batch { observations, closing: Closing::Commit(closed) });
        judged
    }

    /// Nothing is open and nothing is left to read: the end is closed too.
    pub(super) fn keep_alive(&mut self, end: Lsn) {
        if let Some(stream) = &mut self.stream {
            stream.closed = end;
        }
        self.pipe.push_back(Batch { observations: Vec::new(), closing: Closing::Commit(end) });
    }
}

/// One change of one key, or of a whole table.
enum Change<'a> {
    Row(&'a RowKey, Operation, Option<Image>),
    Truncate(&'a Arc<str>),
}

fn changes(logged: &Logged) -> Vec<Change<'_>> {
    let mut changes = Vec::new();
    for write in &logged.writes {
        match write {
            Write::Insert(row, image) => {
                changes.push(Change::Row(row, Operation::Insert, Some(*image)));
            }
            Write::Update(row, image) => {
                changes.push(Change::Row(row, Operation::Update, Some(*image)));
            }
            Write::Delete(row) => changes.push(Change::Row(row, Operation::Delete, None)),
            Write::Move { from, to, image } => {
                changes.push(Change::Row(from, Operation::Delete, None));
                changes.push(Change::Row(to, Operation::Insert, Some(*image)));
            }
            Write::Truncate(table) => changes.push(Change::Truncate(table)),
        }
    }
    changes
}

impl Change<'_> {
    fn table(&self) -> &str {
        match self {
            Self::Row(row, ..) => &row.table,
            Self::Truncate(table) => table,
        }
    }

    fn observation(&self, position: Position, xid: u64, redelivery: bool) -> Observation {
        match self {
            Self::Row(row, operation, image) => Observation::Delivered(Delivered {
                position,
                transaction: Some(xid),
                row: (*row).clone(),
                operation: *operation,
                image: *image,
                redelivery,
            }),
            Self::Truncate(table) => Observation::Truncated {
                table: (*table).clone(),
                transaction: Some(xid),
                redelivery,
            },
        }
    }
}
