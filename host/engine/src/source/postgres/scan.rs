//! Reading the rows of a view, in chunks and in parallel.
//!
//! A chunk is a range of heap pages (`ctid`) of one table. All chunks of a scan are read in *one* view, by workers that
//! import its snapshot, and only that makes heap ranges legal: a row can move to another page at any time, but inside
//! one snapshot exactly one version of it is visible, at one place, for as long as the view is open. Read the ranges in
//! two views, and a row that moved in between is in both chunks, or in neither while the fence calls its update seen.
//! So nothing of this scan's ranges is kept: what a crash leaves over is read again as a whole, in a later view.
//!
//! The last range of a table has no end, because the pages are counted without stopping writers. Rows of a partition
//! are those of the root table, whose name and columns the stream uses; columns are named one by one, as a partition
//! may have them in another order.
//!
//! **Limits.** Pieces hold at most [`PIECE_ROWS`] rows or [`PIECE_BYTES`] (or one row), two of them wait per worker, and a
//! worker that has no room does not read its socket, which stops the server. Rows beyond [`LARGE_BYTES`] pass one at a
//! time over all workers, from before they are read until they are taken.

use std::sync::Arc;
use std::sync::Mutex;

use dovetail_core::batch::ChunkId;
use dovetail_core::change::{Change, Event};
use dovetail_core::decode::copy;
use dovetail_core::position::Position;
use dovetail_core::schema::{Relation, TableName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::catalog::Table;
use super::chunk::{self, Chunk};
use super::connection::Session;
use super::failure::Failure;
use super::view::View;
use super::wire::Wire;
use crate::progress::Table as Progress;
use crate::source::piece::{Options, Piece};

/// Rows in a piece: enough to amortize a hand-over between tasks (about a microsecond), few enough to be a small part of
/// a batch.
const PIECE_ROWS: usize = 1_000;
/// Memory of a piece. With two waiting for each worker this is what the scan holds beside the read buffers.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that wait per worker: one being taken, one ready.
const PIECES_WAITING: usize = 2;
/// From this size on a row is large. A few of them per worker must still be small beside 256 MB.
const LARGE_BYTES: usize = 4 << 20;

/// What a scan will read.
#[derive(Debug)]
pub struct Plan {
    tables: Vec<(Arc<Relation>, Vec<Chunk>)>,
}

impl Plan {
    /// Each table with the number of its chunks: 0 for an empty one.
    pub fn tables(&self) -> impl Iterator<Item = (&Arc<Relation>, u32)> {
        self.tables.iter().map(|(relation, chunks)| {
            let count = u32::try_from(chunks.len()).expect("chunks are numbered by u32");
            (relation, count)
        })
    }

    /// Leaves a table out of the scan.
    pub fn remove(&mut self, table: &TableName) {
        self.tables.retain(|(relation, _)| relation.table != *table);
    }
}

pub(super) async fn plan(
    session: &Session,
    tables: &[Table],
    chunk_rows: u32,
) -> Result<Plan, Failure> {
    let chunks = chunk::plan(session, tables, chunk_rows).await?;
    let relations = tables.iter().map(|table| Arc::clone(&table.relation));
    Ok(Plan { tables: relations.zip(chunks).collect() })
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Transient: a worker lost its connection, and with it the view. What was read so far is worth nothing without the
    /// rest: read the unfinished tables again in a later view.
    #[error("the view of the scan is lost; its unfinished tables are read again in a later one")]
    ViewLost(#[source] Failure),
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl ScanError {
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::ViewLost(_))
    }
}

/// A piece on its way, with the permit of its large row.
type Parcel = (Piece, Option<OwnedSemaphorePermit>);

/// A running scan. Dropped, it ends its workers, and the view.
#[derive(Debug)]
pub struct Scan {
    view: View,
    pieces: mpsc::Receiver<Parcel>,
    workers: JoinSet<Result<(), ScanError>>,
    progress: Vec<Arc<Progress>>,
}

impl Scan {
    pub(super) fn start(mut view: View, plan: Plan, options: Options) -> Self {
        let progress: Vec<Arc<Progress>> = plan
            .tables()
            .map(|(relation, chunks_planned)| {
                Arc::new(Progress::new(relation.table.clone(), chunks_planned))
            })
            .collect();
        let tasks: Vec<Task> = plan
            .tables
            .into_iter()
            .zip(&progress)
            .flat_map(|((relation, chunks), progress)| {
                chunks.into_iter().map(move |chunk| Task {
                    relation: Arc::clone(&relation),
                    chunk,
                    progress: Arc::clone(progress),
                })
            })
            .collect();
        let mut wires = view.take_workers();
        wires.truncate(tasks.len());
        let count = wires.len();
        let (sender, pieces) = mpsc::channel(count.max(1) * PIECES_WAITING);
        let tasks = Arc::new(Mutex::new(tasks.into_iter()));
        let large = Arc::new(Semaphore::new(1));
        let mut workers = JoinSet::new();
        for wire in wires {
            let worker = Worker {
                wire,
                sender: sender.clone(),
                large: Arc::clone(&large),
                template: Template {
                    options: options.clone(),
                    opened_micros: view.opened_micros(),
                },
            };
            let tasks = Arc::clone(&tasks);
            workers.spawn(worker.run(tasks));
        }
        Self { view, pieces, workers, progress }
    }

    /// The next piece, from whichever worker has one; `None` once every chunk has been read. Cancel-safe.
    ///
    /// # Errors
    /// The scan is over then.
    pub async fn next(&mut self) -> Result<Option<Piece>, ScanError> {
        loop {
            tokio::select! {
                biased;
                // A worker that failed stops the others at once: nothing they still read can be used.
                Some(ended) = self.workers.join_next() => ended.expect("workers do not panic")?,
                Some((piece, _permit)) = self.pieces.recv() => return Ok(Some(piece)),
                else => return Ok(None),
            }
        }
    }

    /// Counters in the order of the plan's tables.
    pub fn progress(&self) -> &[Arc<Progress>] {
        &self.progress
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

#[derive(Debug)]
struct Task {
    relation: Arc<Relation>,
    chunk: Chunk,
    progress: Arc<Progress>,
}

/// What all rows of a scan have in common.
struct Template {
    options: Options,
    opened_micros: i64,
}

impl Template {
    fn read(&self, relation: &Arc<Relation>, after: dovetail_core::value::Row) -> Event {
        Event {
            position: Position { commit: self.options.pin, ordinal: 0 },
            commit_time_micros: self.opened_micros,
            transaction: None,
            redelivery: self.options.redelivery,
            change: Change::Read { relation: Arc::clone(relation), after },
        }
    }
}

struct Worker {
    wire: Wire,
    sender: mpsc::Sender<Parcel>,
    large: Arc<Semaphore>,
    template: Template,
}

/// Nobody takes pieces any more: the scan was dropped.
struct Dropped;

impl Worker {
    async fn run(mut self, tasks: Arc<Mutex<std::vec::IntoIter<Task>>>) -> Result<(), ScanError> {
        loop {
            let task = tasks.lock().expect("held for one call, which cannot panic").next();
            let Some(task) = task else { return Ok(()) };
            if self.read(&task).await?.is_err() {
                return Ok(());
            }
        }
    }

    async fn read(&mut self, task: &Task) -> Result<Result<(), Dropped>, ScanError> {
        let what = format!("read {}", task.relation.table);
        self.wire.copy_out(&what, &task.chunk.statement).await.map_err(lost)?;
        let mut events = Vec::new();
        let mut memory = 0;
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        loop {
            let permit = self.room().await?;
            let Some(line) = self.wire.copy_row(&what).await.map_err(lost)? else { break };
            let row = copy::row(&task.relation, &line).map_err(|error| Failure::Definite {
                what: what.clone(),
                advice: "report it with the type of the column; nothing was skipped".into(),
                source: Some(error.into()),
            })?;
            rows += 1;
            bytes += u64::try_from(line.len()).unwrap_or(u64::MAX);
            let event = self.template.read(&task.relation, row);
            memory += event.memory_bytes();
            events.push(event);
            if events.len() >= PIECE_ROWS || memory >= PIECE_BYTES || permit.is_some() {
                task.count(&mut rows, &mut bytes);
                let events = std::mem::take(&mut events);
                memory = 0;
                if self.send(task, events, None, permit).await.is_err() {
                    return Ok(Err(Dropped));
                }
            }
        }
        task.count(&mut rows, &mut bytes);
        task.progress.chunk_done();
        Ok(self.send(task, events, Some(task.chunk.id), None).await)
    }

    /// Waits until the next row may be read into memory.
    async fn room(&mut self) -> Result<Option<OwnedSemaphorePermit>, ScanError> {
        while self.wire.announced().is_none() {
            self.wire.read().await.map_err(lost)?;
        }
        if self.wire.announced().is_none_or(|length| length < LARGE_BYTES) {
            return Ok(None);
        }
        let permit = Arc::clone(&self.large).acquire_owned().await;
        Ok(Some(permit.expect("the semaphore is never closed")))
    }

    async fn send(
        &self,
        task: &Task,
        events: Vec<Event>,
        chunk: Option<ChunkId>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Dropped> {
        let piece = Piece { relation: Arc::clone(&task.relation), events, chunk };
        self.sender.send((piece, permit)).await.map_err(|_| Dropped)
    }
}

impl Task {
    fn count(&self, rows: &mut u64, bytes: &mut u64) {
        self.progress.add(std::mem::take(rows), std::mem::take(bytes));
    }
}

/// A transaction cannot be taken up again on another connection.
fn lost(failure: Failure) -> ScanError {
    match failure.is_transient() {
        true => ScanError::ViewLost(failure),
        false => ScanError::Failure(failure),
    }
}
