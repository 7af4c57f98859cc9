//! Reading the rows of a view, in chunks and in parallel.
//!
//! Every worker has one of the view's connections, and all of these have the same content, so the ranges of one table
//! may be read by different workers: together they hold every row of the view once (see [`chunk`]). Rows come by
//! the binary protocol, which gives floating-point numbers exactly, and are never collected.
//!
//! **Limits.** Pieces hold at most [`PIECE_ROWS`] rows or [`PIECE_BYTES`] (or one row), two of them wait per worker, and a
//! worker that has no room does not read its socket, which stops the server. A row is read as a whole before its size is
//! known, so every worker may hold one large row; beyond [`LARGE_BYTES`] only one at a time waits to be taken.

use std::sync::Arc;
use std::time::Duration;

use dovetail_core::batch::ChunkId;
use dovetail_core::change::{Change, Event};
use dovetail_core::decode::mysql::{Cell, ColumnDefinition, InvalidCell, from_result};
use dovetail_core::position::Position;
use dovetail_core::schema::{Relation, TableName};
use dovetail_core::value::Row;
use mysql_async::Value;
use mysql_async::prelude::Queryable;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::catalog::Table;
use super::chunk::{self, Key};
use super::connection::Session;
use super::cutter::{Range, Task};
use super::failure::{self, Failure};
use super::guard::{Gate, Guard};
use super::view::View;
use crate::progress::Table as Progress;
use crate::source::{Options, Piece};

/// As for PostgreSQL: enough to amortize a hand-over between tasks.
const PIECE_ROWS: usize = 1_000;
/// Memory of a piece. With two waiting for each worker this is what the scan holds beside the read buffers.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that wait per worker: one being taken, one ready.
const PIECES_WAITING: usize = 2;
/// From this size on a row is large.
const LARGE_BYTES: usize = 4 << 20;
/// A server that is asked for rows along an index has the next one within moments; one that says nothing for so long,
/// though somebody is listening, is gone without a word.
const SILENCE: Duration = Duration::from_secs(300);

/// What a scan will read.
#[derive(Debug)]
pub struct Plan {
    tables: Vec<(Table, u32)>,
    chunk_rows: u32,
}

impl Plan {
    pub(super) fn new(tables: &[Table], chunk_rows: u32) -> Self {
        let planned = |table: &Table| (table.clone(), chunk::count(table, chunk_rows));
        Self { tables: tables.iter().map(planned).collect(), chunk_rows }
    }

    /// Each table with the number of its chunks.
    pub fn tables(&self) -> impl Iterator<Item = (&Arc<Relation>, u32)> {
        self.tables.iter().map(|(table, chunks)| (&table.relation, *chunks))
    }

    /// Leaves a table out of the scan.
    pub fn remove(&mut self, table: &TableName) {
        self.tables.retain(|(it, _)| it.relation.table != *table);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Transient: a worker lost its connection, or a table was redefined, and with it the view. What was read so far is
    /// worth nothing without the rest: read the unfinished tables again in a later view.
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
    pieces: mpsc::Receiver<Parcel>,
    workers: JoinSet<Result<(), ScanError>>,
    progress: Vec<Arc<Progress>>,
    _guard: Guard,
}

impl Scan {
    pub(super) async fn start(view: View, plan: Plan, options: Options) -> Result<Self, Failure> {
        let guard = Guard::start(view.config()).await?;
        let progress: Vec<Arc<Progress>> = plan
            .tables()
            .map(|(relation, chunks)| Arc::new(Progress::new(relation.table.clone(), chunks)))
            .collect();
        let tasks: Arc<[Task]> = plan
            .tables
            .into_iter()
            .zip(&progress)
            .map(|((table, chunks), progress)| Task::new(table, chunks, Arc::clone(progress)))
            .collect();
        let opened_micros = view.opened_micros();
        let sessions = view.into_sessions();
        let (sender, pieces) = mpsc::channel(sessions.len().max(1) * PIECES_WAITING);
        let large = Arc::new(Semaphore::new(1));
        let mut workers = JoinSet::new();
        for session in sessions {
            let worker = Worker {
                session,
                sender: sender.clone(),
                large: Arc::clone(&large),
                gate: guard.gate(),
                chunk_rows: plan.chunk_rows.max(1),
                template: Template { options: options.clone(), opened_micros },
            };
            workers.spawn(worker.run(Arc::clone(&tasks)));
        }
        Ok(Self { pieces, workers, progress, _guard: guard })
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
}

/// What all rows of a scan have in common.
struct Template {
    options: Options,
    opened_micros: i64,
}

impl Template {
    fn read(&self, relation: &Arc<Relation>, after: Row) -> Event {
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
    session: Session,
    sender: mpsc::Sender<Parcel>,
    large: Arc<Semaphore>,
    gate: Gate,
    chunk_rows: u32,
    template: Template,
}

/// Why a worker goes no further.
enum Stop {
    /// Nobody takes pieces any more: the scan was dropped.
    Dropped,
    Failed(ScanError),
}

impl From<Failure> for Stop {
    /// A view cannot be taken up again on another connection.
    fn from(failure: Failure) -> Self {
        Self::Failed(match failure.is_transient() {
            true => ScanError::ViewLost(failure),
            false => ScanError::Failure(failure),
        })
    }
}

impl Worker {
    async fn run(mut self, tasks: Arc<[Task]>) -> Result<(), ScanError> {
        for task in &*tasks {
            match self.read(task).await {
                Ok(()) => {}
                Err(Stop::Dropped) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Chunks of one table, until all are dealt out.
    async fn read(&mut self, task: &Task) -> Result<(), Stop> {
        loop {
            self.gate.pass().await;
            let Some((id, range)) = task.take(&mut self.session, self.chunk_rows).await? else {
                return Ok(());
            };
            let mut pieces = Pieces { worker: self, task, events: Vec::new(), memory: 0 };
            match range {
                Range::Empty => {}
                Range::Upto(after, end) => {
                    let (statement, values) = task.statements.range(after.as_ref(), &end);
                    pieces.rows(&statement, values, 0).await?;
                }
                Range::Whole => {
                    let (statement, values) = task.statements.page(None, 0);
                    pieces.rows(&statement, values, 0).await?;
                }
                Range::Rest(after) => pieces.rest(after).await?,
            }
            pieces.close(id).await?;
        }
    }
}

/// The rows of one chunk on their way out.
struct Pieces<'a> {
    worker: &'a mut Worker,
    task: &'a Task,
    events: Vec<Event>,
    memory: usize,
}

impl Pieces<'_> {
    /// Page by page, so that the guard may come in between.
    async fn rest(&mut self, mut after: Option<Key>) -> Result<(), Stop> {
        let rows = self.worker.chunk_rows;
        let key_columns = self.task.statements.key_columns();
        loop {
            let (statement, values) = self.task.statements.page(after.as_ref(), rows);
            let (count, last) = self.rows(&statement, values, key_columns).await?;
            if last.is_none() || count < u64::from(rows) {
                return Ok(());
            }
            if last == after {
                let table = &self.task.table.relation.table;
                return Err(Failure::definite(
                    format!(
                        "read {table}: the server gives the rows behind a key that end with it"
                    ),
                    "report it with the definition of the table; nothing was skipped",
                )
                .into());
            }
            after = last;
            self.worker.gate.pass().await;
        }
    }

    /// The rows of one statement, whose last `key_columns` columns are not the row's. Answers with their number, and the
    /// key of the last.
    async fn rows(
        &mut self,
        statement: &str,
        values: Vec<Value>,
        key_columns: usize,
    ) -> Result<(u64, Option<Key>), Stop> {
        let relation = &self.task.table.relation;
        let what = format!("read {}", relation.table);
        let sql = |error| failure::sql(what.clone(), error);
        let silent = |_| {
            let seconds = SILENCE.as_secs();
            Failure::transient(format!("{what}: nothing came for {seconds} s"), "it is read again")
        };
        let Worker { session, sender, large, template, .. } = &mut *self.worker;
        let connection = session.begin_reading();
        let mut result = connection.exec_iter(statement, values).await.map_err(sql)?;
        let (mut count, mut last) = (0, None);
        loop {
            let next = timeout(SILENCE, result.next()).await.map_err(silent)?;
            let Some(row) = next.map_err(sql)? else { break };
            let mut cells = row.unwrap();
            if key_columns > 0 {
                last = Some(cells.split_off(cells.len().saturating_sub(key_columns)));
            }
            let (row, bytes) = decode(&self.task.table.definitions, cells)
                .map_err(|error| undecodable(&what, error))?;
            count += 1;
            self.task.progress.add(1, u64::try_from(bytes).unwrap_or(u64::MAX));
            let permit = match bytes >= LARGE_BYTES {
                true => {
                    let permit = Arc::clone(large).acquire_owned().await;
                    Some(permit.expect("the semaphore is never closed"))
                }
                false => None,
            };
            let event = template.read(relation, row);
            self.memory += event.memory_bytes();
            self.events.push(event);
            let full = self.events.len() >= PIECE_ROWS || self.memory >= PIECE_BYTES;
            if full || permit.is_some() {
                let events = std::mem::take(&mut self.events);
                self.memory = 0;
                let piece = Piece { relation: Arc::clone(relation), events, chunk: None };
                sender.send((piece, permit)).await.map_err(|_| Stop::Dropped)?;
            }
        }
        drop(result);
        session.end_reading();
        Ok((count, last))
    }

    /// The last piece of the chunk.
    async fn close(self, id: ChunkId) -> Result<(), Stop> {
        self.task.progress.chunk_done();
        let relation = Arc::clone(&self.task.table.relation);
        let piece = Piece { relation, events: self.events, chunk: Some(id) };
        self.worker.sender.send((piece, None)).await.map_err(|_| Stop::Dropped)
    }
}

fn undecodable(what: &str, error: InvalidCell) -> Failure {
    Failure::Definite {
        what: what.to_owned(),
        advice: "report it with the type of the column; nothing was skipped".into(),
        source: Some(error.into()),
    }
}

/// The row, and about how many bytes it came in.
fn decode(
    definitions: &[ColumnDefinition],
    cells: Vec<Value>,
) -> Result<(Row, usize), InvalidCell> {
    let mut bytes = 0;
    let mut values = Vec::with_capacity(cells.len());
    for (definition, value) in definitions.iter().zip(cells) {
        bytes += match &value {
            Value::Bytes(text) => text.len(),
            _ => size_of::<u64>(),
        };
        values.push(from_result(definition, cell(value))?);
    }
    Ok((Row::new(values), bytes))
}

fn cell(value: Value) -> Cell {
    match value {
        Value::NULL => Cell::Null,
        Value::Bytes(bytes) => Cell::Bytes(bytes.into()),
        Value::Int(number) => Cell::Int(number),
        Value::UInt(number) => Cell::Uint(number),
        Value::Float(number) => Cell::Float(number),
        Value::Double(number) => Cell::Double(number),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            Cell::Date { year, month, day, hour, minute, second, micros }
        }
        Value::Time(negative, days, hours, minutes, seconds, micros) => {
            Cell::Time { negative, days, hours, minutes, seconds, micros }
        }
    }
}
