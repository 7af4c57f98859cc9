//! Consistent reads: what a scan sees, and what it contains in terms that the stream can be tested against.
//!
//! A view is a number of connections, each in a `REPEATABLE READ` transaction of the same content; see
//! [`snapshot`](super::snapshot) for how that is known. One that comes with the pin holds exactly what is before the pin: nothing of
//! the stream is in it, and it needs no fence. Any other brings the fence of its own moment, and a horizon, which is
//! read *after* it was opened: the log's end then is past everything that the view can hold, because a transaction is in
//! the log before it is visible.
//!
//! **A view does not protect from everything.** A table that is redefined, truncated or made again after the view was
//! opened cannot be read in it any more: the server says so (`ER_TABLE_DEF_CHANGED`), and the view is
//! [stale](ViewError::Stale). To have that before the first row and not in the middle, every connection reads one row of
//! every table when the view is opened. From then on the connection holds the table's definition in the way of whoever
//! wants to change it, until the view is dropped: an ALTER waits for the scan, and the definition that is read behind
//! this point is the view's. (Non-transactional engines have no views. What is read of such a table is of the moment of
//! its reading; `check` says so.)
//!
//! Rows come from a view only, and a view is made in one of two ways; it cannot be put together from its parts:
//!
//! ```compile_fail
//! # async fn wrong(config: &dovetail::config::MySql) {
//! use dovetail::source::mysql::{connection::Session, view::View};
//! let session = Session::open(&config.server).await.unwrap();
//! let view = View { sessions: vec![session], fence: None };
//! # }
//! ```

use std::num::NonZeroU16;
use std::sync::Arc;

use dovetail_core::fence::Fence;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};
use tokio::task::JoinSet;

use super::catalog::{self, Table};
use super::connection::Session;
use super::failure::{self, Failure, code};
use super::identifier::quote_table;
use super::pin::Pin;
use super::scan::{Plan, Scan};
use super::server;
use super::snapshot::{self, Opened};
use crate::config::{MySql, Rung};
use crate::source::Options;

/// How long one table's definition is waited for. Behind a waiting reader nobody queues.
const LOCK_WAIT_SECONDS: u32 = 30;

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Transient: open another view. (The first one: pin anew; nothing was emitted from it.)
    #[error(
        "table {table} was redefined, truncated or made again while the view was opened; another view is needed"
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
    config: MySql,
    sessions: Vec<Session>,
    tables: Vec<Table>,
    fence: Option<Fence>,
    horizon: Lsn,
    opened_micros: i64,
}

impl View {
    /// The pin's own view.
    ///
    /// # Errors
    /// The pin is used up: after a transient error pin anew. Definite where the pin has no view.
    pub async fn pinned(pin: Pin, tables: &[TableName]) -> Result<Self, ViewError> {
        let at = pin.position();
        let (config, opened) = pin.into_opened();
        let opened = opened.ok_or_else(|| {
            Failure::definite(
                "open the view of the pin: it has none",
                "this is a defect of dovetail, please report it",
            )
        })?;
        let mut view = Self::of(config, opened, at.epoch(), tables).await?;
        view.fence = None;
        view.horizon = at;
        Ok(view)
    }

    /// A view of now, on up to so many connections. Load-bearing: of a table without a key only where all is known that
    /// it holds. What may be in it already comes again, and an equal row cannot be told from one that is there twice.
    pub async fn later(
        config: &MySql,
        rung: Rung,
        epoch: u32,
        tables: &[TableName],
        connections: NonZeroU16,
    ) -> Result<Self, ViewError> {
        let opened = snapshot::open(config, rung, epoch, usize::from(connections.get())).await?;
        let view = Self::of(config.clone(), opened, epoch, tables).await?;
        let keyless = view.tables.iter().find(|table| !table.relation.has_key());
        match keyless {
            Some(table) if !view.is_exact() => Err(undecidable(rung, &table.relation.table).into()),
            _ => Ok(view),
        }
    }

    async fn of(
        config: MySql,
        opened: Opened,
        epoch: u32,
        tables: &[TableName],
    ) -> Result<Self, ViewError> {
        let Opened { mut sessions, fence, exact, .. } = opened;
        let fence = if exact { fence } else { fence.at_least() };
        let what = "open a view";
        let Some(first) = sessions.first_mut() else {
            return Err(Failure::protocol("a view without a connection").into());
        };
        // Load-bearing: behind the snapshots.
        let horizon = server::numbered(&server::log_end(first).await?, epoch, what)?;
        let opened_micros: i64 =
            first.one(what, "SELECT cast(unix_timestamp(now(6)) * 1000000 AS signed)").await?;
        hold_all(&mut sessions, tables).await?;
        let Some(first) = sessions.first_mut() else {
            return Err(Failure::protocol("a view without a connection").into());
        };
        // Load-bearing: behind the hold, so that they are the view's.
        let tables = catalog::tables(first, tables).await?;
        Ok(Self { config, sessions, tables, fence: Some(fence), horizon, opened_micros })
    }

    /// What the view contains; `None` for the pin's own, in which nothing of the stream is.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Whether the fence is all that the view contains. Where it is not, a change that committed before the horizon and
    /// is not inside the fence may be in the rows already.
    pub fn is_exact(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::is_exact)
    }

    /// Every transaction that the view contains starts in the log before this position.
    pub fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Microseconds since the Unix epoch, by the server's clock.
    pub fn opened_micros(&self) -> i64 {
        self.opened_micros
    }

    pub fn relations(&self) -> impl Iterator<Item = &Arc<Relation>> {
        self.tables.iter().map(|table| &table.relation)
    }

    /// The connections, each inside the view.
    pub fn sessions(&mut self) -> &mut [Session] {
        &mut self.sessions
    }

    /// Cuts every table of the view into chunks of about so many rows.
    pub fn plan(&self, chunk_rows: u32) -> Plan {
        Plan::new(&self.tables, chunk_rows)
    }

    /// Reads the plan's chunks, on the view's connections. The view is held until the scan is dropped.
    ///
    /// # Errors
    /// Transient: the server cannot be reached any more; open another view.
    pub async fn scan(self, plan: Plan, options: Options) -> Result<Scan, Failure> {
        Scan::start(self, plan, options).await
    }

    pub(super) fn config(&self) -> &MySql {
        &self.config
    }

    pub(super) fn into_sessions(self) -> Vec<Session> {
        self.sessions
    }
}

fn undecidable(rung: Rung, table: &TableName) -> Failure {
    if rung == Rung::OwnRow {
        return Failure::definite(
            format!(
                "table {table} has no key, and views of the pin `own_row` may hold more than is known"
            ),
            "give the table a key, or let another pin be taken in a new pipeline; `dovetail check` says what that needs",
        );
    }
    Failure::transient(
        format!(
            "table {table} has no key, and the server commits too often to say exactly what a view of it holds"
        ),
        "it is tried again; a key for the table, or a quieter hour, ends this",
    )
}

/// On every connection, side by side.
async fn hold_all(sessions: &mut Vec<Session>, tables: &[TableName]) -> Result<(), ViewError> {
    let mut tasks = JoinSet::new();
    for mut session in sessions.drain(..) {
        let tables = tables.to_vec();
        tasks.spawn(async move { hold(&mut session, &tables).await.map(|()| session) });
    }
    while let Some(held) = tasks.join_next().await {
        sessions.push(held.expect("holding does not panic")?);
    }
    Ok(())
}

/// Makes sure that the tables are what the view sees, and stay that.
async fn hold(session: &mut Session, tables: &[TableName]) -> Result<(), ViewError> {
    let what = "hold the tables of the view";
    session.run(what, &format!("SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")).await?;
    for table in tables {
        let statement = format!("SELECT 1 FROM {} LIMIT 1", quote_table(table));
        match session.run(what, &statement).await {
            Ok(()) => {}
            Err(failure) if failure::number(&failure) == Some(code::TABLE_DEFINITION_CHANGED) => {
                return Err(ViewError::Stale { table: table.clone() });
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}
