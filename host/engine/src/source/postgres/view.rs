//! Consistent reads: what a scan sees, and what it contains in terms that the stream can be tested against.
//!
//! A view is a `REPEATABLE READ` transaction, whatever the server's default is, that stays open until it is dropped.
//! The first one is the pin's own: it holds exactly what committed before the pin, so nothing of the stream is in it
//! and it needs no fence. Any other is a view of its own moment, with `pg_current_snapshot()` as its fence and a
//! horizon, which is read *after* the view was opened:
//!
//! 1. The horizon is read; 2. T commits; 3. the view is opened and contains T. With that horizon the fence would retire
//!    before T is streamed. Result: T's changes are applied over rows that hold them, a key goes back.
//!
//! **A view does not protect from everything.** TRUNCATE, and an ALTER that rewrites the table, take effect for older
//! views too: they find the new, empty file. So after the view is opened, each table is locked in ACCESS SHARE, and then
//! its definition (with the file that it lives in) as the view sees it is compared with the one that a session sees
//! now. If they are equal, nothing of the kind happened before the lock, and behind it nothing can. If they are not,
//! the view is refused as [stale](ViewError::Stale) before a row was read, and another one is opened.
//!
//! **A view is whole when it is handed out**: the connections of its workers are in it by then, with locks of their own.
//!
//! 1. The view locks table T; 2. a TRUNCATE of T waits for the view; 3. a worker joins, and its lock of T queues behind
//!    the TRUNCATE, for as long as the view is held. Result: nobody moves, or the view is given up after a barrier for
//!    its rows has emptied the outlets, and all is read again.
//!
//! The same may happen while the locks are taken one after the other. Nothing was said of the view then: all of them
//! are let go, what waited for one passes, and they are taken again.
//!
//! Rows come from a view only, and a view is made in one of two ways; it cannot be put together from its parts:
//!
//! ```compile_fail
//! # async fn wrong(source: &dovetail::config::Postgres) {
//! use dovetail::source::postgres::{connection::Session, view::View};
//! let session = Session::open(&source.server).await.unwrap();
//! let view = View { session, workers: Vec::new(), tables: Vec::new(), fence: None };
//! let plan = view.plan(1000).await;
//! # }
//! ```

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use dovetail_core::fence::Fence;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};
use tokio::time::Instant;

use crate::config;
use crate::source::piece::Options;

use super::catalog::{self, Heap, Table, get};
use super::connection::Session;
use super::failure::Failure;
use super::identifier::quote_table;
use super::scan::{self, Plan, Scan};
use super::slot::Pin;
use super::wire::{Purpose, Wire};

/// How long one attempt to lock the tables waits. Behind a waiting lock of ours nothing queues but what needs the table
/// for itself, so this only sets how often the wait is reported.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to try. Redefinitions that take longer are better waited for without a view, which keeps VACUUM from
/// cleaning.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// `lock_not_available`
const LOCK_NOT_AVAILABLE: &str = "55P03";

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Transient: open another view. (The first one: drop the slot, and pin anew; nothing was emitted from it.)
    #[error(
        "table {table} was redefined, truncated or rewritten while the view was opened; another view is needed"
    )]
    Stale { table: TableName },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl ViewError {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Stale { .. } => true,
            Self::Failure(failure) => failure.is_transient(),
        }
    }
}

/// An open, consistent read of some tables, which cannot be redefined or truncated until it is dropped.
#[derive(Debug)]
pub struct View {
    session: Session,
    /// In the view, each with its locks.
    workers: Vec<Wire>,
    tables: Vec<Table>,
    snapshot: Snapshot,
    fence: Option<Fence>,
    horizon: Lsn,
}

/// A snapshot of an open transaction, for others to import.
#[derive(Debug)]
struct Snapshot {
    name: String,
    /// `pg_current_snapshot()`.
    contains: String,
    opened_micros: i64,
}

impl View {
    /// The pin's own view. The connection that created the slot is not needed any more after it, and is closed.
    ///
    /// # Errors
    /// The pin is used up: after a transient error drop the slot and pin anew.
    pub async fn pinned(
        pin: Pin,
        source: &config::Postgres,
        tables: &[TableName],
        workers: NonZeroU16,
    ) -> Result<Self, ViewError> {
        let session = Session::open(&source.server).await?;
        begin(&session).await?;
        import(&session, pin.snapshot()).await?;
        let snapshot = export(&session).await?;
        let mut view = Self {
            session,
            workers: Vec::new(),
            tables: Vec::new(),
            snapshot,
            fence: None,
            horizon: pin.position(),
        };
        view.hold(source, tables, workers).await?;
        Ok(view)
    }

    /// A view of now.
    pub async fn later(
        source: &config::Postgres,
        tables: &[TableName],
        workers: NonZeroU16,
    ) -> Result<Self, ViewError> {
        let session = Session::open(&source.server).await?;
        begin(&session).await?;
        let snapshot = export(&session).await?;
        // Load-bearing: behind `export`, whose statement opens the view.
        let horizon = insert_position(&session).await?;
        let fence = snapshot.contains.parse().map_err(|_| {
            Failure::protocol("the view's snapshot is not of the form 10:20:10,14,15")
        })?;
        let fence = Some(fence);
        let mut view =
            Self { session, workers: Vec::new(), tables: Vec::new(), snapshot, fence, horizon };
        view.hold(source, tables, workers).await?;
        Ok(view)
    }

    /// What the view contains; `None` for the pin's own, in which nothing of the
    /// stream is.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Every transaction that the view contains has its commit record before this position.
    pub fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Microseconds since the Unix epoch, by the server's clock.
    pub fn opened_micros(&self) -> i64 {
        self.snapshot.opened_micros
    }

    pub fn relations(&self) -> impl Iterator<Item = &Arc<Relation>> {
        self.tables.iter().map(|table| &table.relation)
    }

    /// Cuts every table of the view into chunks of about so many rows.
    pub async fn plan(&self, chunk_rows: u32) -> Result<Plan, Failure> {
        scan::plan(&self.session, &self.tables, chunk_rows).await
    }

    /// Reads the plan's chunks. The view is held until the scan is dropped.
    pub fn scan(self, plan: Plan, options: Options) -> Scan {
        Scan::start(self, plan, options)
    }

    /// The connections of the workers; there are none for a view without tables.
    pub(super) fn take_workers(&mut self) -> Vec<Wire> {
        std::mem::take(&mut self.workers)
    }

    /// Locks the tables, for every connection of the view, and makes sure that it is not older than what they are now.
    async fn hold(
        &mut self,
        source: &config::Postgres,
        names: &[TableName],
        workers: NonZeroU16,
    ) -> Result<(), ViewError> {
        self.tables = catalog::tables(self.session.client(), names, &source.publication).await?;
        if !self.tables.is_empty() {
            for _ in 0..workers.get() {
                self.workers.push(join(source, &self.snapshot).await?);
            }
        }
        self.lock_all(source).await?;
        let other = Session::open(&source.server).await?;
        let now = catalog::tables(other.client(), names, &source.publication).await?;
        match self.tables.iter().zip(&now).find(|(seen, now)| seen != now) {
            None => Ok(()),
            Some((seen, _)) => Err(ViewError::Stale { table: seen.relation.table.clone() }),
        }
    }

    /// Takes the locks, or says who is in the way.
    async fn lock_all(&mut self, source: &config::Postgres) -> Result<(), Failure> {
        let Some(lock) = lock(&self.tables) else { return Ok(()) };
        let deadline = Instant::now() + LOCK_PATIENCE;
        // A lock that is not to be had would otherwise end the transaction, and the view with it.
        self.everywhere("SAVEPOINT lock").await?;
        loop {
            match self.try_lock(&lock).await {
                Ok(()) => return self.everywhere("RELEASE SAVEPOINT lock").await,
                Err(failure) if failure.sqlstate() == Some(LOCK_NOT_AVAILABLE) => {
                    // Of all: what waits for a lock of one is what another one waits for.
                    self.everywhere("ROLLBACK TO SAVEPOINT lock").await?;
                    let pids = holders(source, &self.tables).await?;
                    tracing::warn!(?pids, "waiting for the locks of the view");
                    if Instant::now() >= deadline {
                        return Err(Failure::transient(
                            format!("{LOCK}: sessions {pids:?} hold them in an exclusive mode"),
                            "let their transactions end, or end them (pg_terminate_backend)",
                        ));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn try_lock(&mut self, lock: &str) -> Result<(), Failure> {
        let timeout = LOCK_TIMEOUT.as_millis();
        self.everywhere(&format!("SET LOCAL lock_timeout = {timeout}")).await?;
        self.everywhere(lock).await?;
        self.everywhere("SET LOCAL lock_timeout = 0").await
    }

    async fn everywhere(&mut self, statement: &str) -> Result<(), Failure> {
        run(&self.session, LOCK, statement).await?;
        for worker in &mut self.workers {
            worker.query(LOCK, statement).await?;
        }
        Ok(())
    }
}

const LOCK: &str = "lock the tables of the view";
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

async fn begin(session: &Session) -> Result<(), Failure> {
    run(session, "begin a view", BEGIN).await
}

async fn run(session: &Session, what: &str, statement: &str) -> Result<(), Failure> {
    session.client().batch_execute(statement).await.map_err(|error| Failure::sql(what, error))
}

fn set_snapshot(name: &str) -> String {
    format!("SET TRANSACTION SNAPSHOT {}", super::identifier::literal(name))
}

async fn import(session: &Session, snapshot: &str) -> Result<(), Failure> {
    run(session, "import the snapshot of the pin", &set_snapshot(snapshot)).await
}

async fn export(session: &Session) -> Result<Snapshot, Failure> {
    const QUERY: &str = "SELECT pg_export_snapshot(), pg_current_snapshot()::text, \
         (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
    let what = "open a view";
    let row =
        session.client().query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    Ok(Snapshot {
        name: get(&row, 0, what)?,
        contains: get(&row, 1, what)?,
        opened_micros: get(&row, 2, what)?,
    })
}

async fn insert_position(session: &Session) -> Result<Lsn, Failure> {
    const QUERY: &str = "SELECT pg_current_wal_insert_lsn()::text";
    let what = "read the end of the log";
    let row =
        session.client().query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    get::<String>(&row, 0, what)?.parse().map_err(|_| Failure::protocol(what))
}

/// Another connection in the view of this snapshot.
async fn join(source: &config::Postgres, snapshot: &Snapshot) -> Result<Wire, Failure> {
    let what = "join the view of the scan";
    let mut wire = Wire::open(&source.server, Purpose::Sql).await?;
    wire.query(what, BEGIN).await?;
    wire.query(what, &set_snapshot(&snapshot.name)).await?;
    Ok(wire)
}

/// `None` when there is nothing to lock. `ONLY`, because the partitions that the view sees are named themselves.
fn lock(tables: &[Table]) -> Option<String> {
    let partitions = |table: &Table| -> Vec<String> {
        let heaps = table.heaps.iter().map(|heap: &Heap| quote_table(&heap.table));
        heaps.chain([quote_table(&table.relation.table)]).collect()
    };
    let mut names: Vec<String> = tables.iter().flat_map(partitions).collect();
    names.sort_unstable();
    names.dedup();
    let list = names.join(", ONLY ");
    (!names.is_empty()).then(|| format!("LOCK TABLE ONLY {list} IN ACCESS SHARE MODE"))
}

/// Who holds one of the tables so that it cannot even be read.
async fn holders(source: &config::Postgres, tables: &[Table]) -> Result<Vec<i32>, Failure> {
    const QUERY: &str = "\
        SELECT DISTINCT coalesce(pid, 0) FROM pg_locks \
        WHERE locktype = 'relation' AND relation = ANY($1::oid[]) AND granted \
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
            AND mode = 'AccessExclusiveLock' ORDER BY 1";
    let what = "read who locks the tables";
    let heaps = tables.iter().flat_map(|table| table.heaps.iter().map(|heap| heap.id.0));
    let ids: Vec<u32> = heaps.chain(tables.iter().map(|table| table.relation.id.0)).collect();
    // In a session of its own: ours may be the one that an error has stopped.
    let session = Session::open(&source.server).await?;
    let rows =
        session.client().query(QUERY, &[&ids]).await.map_err(|error| Failure::sql(what, error))?;
    rows.iter().map(|row| get(row, 0, what)).collect()
}

#[cfg(test)]
mod tests {
    use dovetail_core::schema::RelationId;

    use super::*;

    #[test]
    fn nothing_to_lock_is_no_statement() {
        assert_eq!(lock(&[]), None);
        let table = TableName { namespace: "public".into(), name: "T".into() };
        let relation = Relation::new(RelationId(1), table, Vec::new(), Vec::new());
        let table = Table { relation: Arc::new(relation), heaps: Vec::new() };
        let expected = "LOCK TABLE ONLY \"public\".\"T\" IN ACCESS SHARE MODE";
        assert_eq!(lock(&[table]).as_deref(), Some(expected));
    }
}
