//! The replication slot, and the pin that its creation gives.
//!
//! A logical slot is created at a *consistent point*: the server waits until every transaction that ran when it began
//! has ended, and then exports a snapshot which holds exactly the transactions whose commit record lies before that
//! point. Every later one will be streamed. So point and snapshot are one thing, [`Pin`], which only [`create`] makes
//! and which a [`View`](super::view::View) is opened from. A position that is read beside a snapshot is no pin: a
//! commit between the two is in neither.
//!
//! The wait is the server's, and can be long. It is watched from a second session; at the time limit it is cancelled,
//! and what it may have left is dropped.
//!
//! The snapshot lives as long as the connection that created the slot does nothing else, and no view can be made
//! without it:
//!
//! ```compile_fail
//! # async fn wrong(source: &dovetail::config::Postgres) {
//! use dovetail::source::postgres::{slot::Pin, view::View};
//! use dovetail_core::position::Lsn;
//! // A position is not a pin: nothing says what its view would have to hold.
//! let view = View::pinned(Pin { position: Lsn::new(1) }, source, &[], std::num::NonZeroU16::MIN).await;
//! # }
//! ```

use std::fmt;
use std::time::Duration;

use dovetail_core::change::Xid;
use dovetail_core::position::Lsn;
use tokio::time::Instant;

use crate::config;

use super::catalog::get;
use super::connection::Session;
use super::failure::Failure;
use super::identifier::quote;
use super::wire::{Purpose, TextRow, Wire};

/// How often the wait is reported: often enough to be seen by a person, seldom enough not to fill a log.
const WATCH: Duration = Duration::from_secs(1);
/// How long a cancelled creation, or the end of a connection to a slot, may take to be noticed by the server.
const SETTLE_TIME: Duration = Duration::from_secs(10);
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

mod code {
    pub(super) const DUPLICATE_OBJECT: &str = "42710";
    pub(super) const UNDEFINED_OBJECT: &str = "42704";
    pub(super) const OBJECT_IN_USE: &str = "55006";
}

/// What the creation of a slot waits for: a transaction that runs since before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    Session {
        pid: i32,
        xid: Option<String>,
        /// Of its transaction, where this role may see it.
        age_seconds: Option<i64>,
    },
    Prepared {
        gid: String,
        xid: String,
        age_seconds: i64,
    },
    /// The holder of the transaction cannot be seen.
    Transaction {
        xid: String,
    },
}

impl Blocker {
    /// Whether both are the same transaction, whatever its age.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Session { pid, xid, .. }, Self::Session { pid: p, xid: x, .. }) => {
                pid == p && xid == x
            }
            (Self::Prepared { xid, .. }, Self::Prepared { xid: x, .. })
            | (Self::Transaction { xid }, Self::Transaction { xid: x }) => xid == x,
            _ => false,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { pid, xid, age_seconds } => {
                write!(f, "pid {pid}")?;
                if let Some(xid) = xid {
                    write!(f, " (xid {xid})")?;
                }
                match age_seconds {
                    Some(age) => write!(f, ", open for {age} s"),
                    None => Ok(()),
                }
            }
            Self::Prepared { gid, xid, age_seconds } => {
                write!(f, "prepared transaction '{gid}' (xid {xid}), open for {age_seconds} s")
            }
            Self::Transaction { xid } => write!(f, "xid {xid}"),
        }
    }
}

fn list(blockers: &[Blocker]) -> String {
    if blockers.is_empty() {
        return "nothing that can be seen".into();
    }
    blockers.iter().map(Blocker::to_string).collect::<Vec<_>>().join("; ")
}

/// A position from which every later change will be streamed, with the snapshot that holds everything before it.
#[derive(Debug)]
pub struct Pin {
    position: Lsn,
    snapshot: String,
    /// Keeps the snapshot.
    connection: Wire,
}

impl Pin {
    /// Every transaction whose commit record starts before it is in the snapshot, every other will be streamed.
    pub fn position(&self) -> Lsn {
        self.position
    }

    pub(super) fn snapshot(&self) -> &str {
        &self.snapshot
    }

    /// The server's process that keeps the snapshot.
    pub fn process_id(&self) -> i32 {
        self.connection.process_id()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Transient: long transactions end. Nothing is left of the slot.
    #[error(
        "the slot could not be created within {seconds} s, because it waits for transactions that were running: {}; \
         end them (pg_terminate_backend, ROLLBACK PREPARED) or raise pin_timeout", list(.blockers)
    )]
    Waiting { seconds: u64, blockers: Vec<Blocker> },
    #[error(
        "replication slot {slot} exists already, and this state does not know it; if nothing else uses it, drop it \
         (SELECT pg_drop_replication_slot('{slot}')), or choose another name"
    )]
    Exists { slot: String },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl CreateError {
    /// Whether it is certain that there is no slot of ours. A connection that broke does not tell.
    pub fn left_nothing(&self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Exists { .. } => true,
            Self::Failure(failure) => !failure.is_transient() && failure.sqlstate().is_some(),
        }
    }

    pub fn is_transient(&self) -> bool {
        match self {
            Self::Waiting { .. } => true,
            Self::Exists { .. } => false,
            Self::Failure(failure) => failure.is_transient(),
        }
    }
}

/// Creates the slot of the configuration. `waiting` is told every second what the server waits for; it may be nothing
/// that can be seen.
///
/// Not cancel-safe: a call that is dropped, as one that is killed, can leave a slot behind. That is why the intent is
/// saved before.
///
/// # Errors
/// After each of them nothing is left of the slot, unless the connection broke.
pub async fn create(
    source: &config::Postgres,
    mut waiting: impl FnMut(&[Blocker]),
) -> Result<Pin, CreateError> {
    let mut connection = Wire::open(&source.server, Purpose::Replication).await?;
    let pid = connection.process_id();
    // The older spelling of the options, which every version understands.
    let command =
        format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT", quote(&source.slot));
    let deadline = Instant::now() + source.pin_timeout;
    let mut blockers = Vec::new();
    let created = {
        let creation = connection.query("create the replication slot", &command);
        tokio::pin!(creation);
        let mut watch = None;
        let mut next = Instant::now() + WATCH;
        loop {
            tokio::select! {
                biased;
                created = &mut creation => break created,
                () = tokio::time::sleep_until(deadline) => {
                    give_up(source, pid, watch, creation).await?;
                    let seconds = source.pin_timeout.as_secs();
                    return Err(CreateError::Waiting { seconds, blockers });
                }
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + WATCH;
                    // The watch is a courtesy: without a second connection the wait goes on unseen.
                    match tokio::time::timeout(WATCH, watched(source, &mut watch, pid)).await {
                        Ok(Ok(seen)) => {
                            blockers = seen;
                            waiting(&blockers);
                        }
                        Ok(Err(error)) => tracing::warn!(error = %error, "cannot see what the slot waits for"),
                        Err(_) => watch = None,
                    }
                }
            }
        }
    };
    match created {
        Ok(rows) => pin(rows, connection).map_err(CreateError::from),
        Err(failure) if failure.sqlstate() == Some(code::DUPLICATE_OBJECT) => {
            Err(CreateError::Exists { slot: source.slot.clone() })
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Columns: slot name, consistent point, snapshot name, plugin.
fn pin(rows: Vec<TextRow>, connection: Wire) -> Result<Pin, Failure> {
    let odd = || Failure::protocol("create the replication slot: an answer of another form");
    let row = rows.into_iter().next().unwrap_or_default();
    let [_, Some(point), Some(snapshot), _] = row.as_slice() else { return Err(odd()) };
    let position = point.parse().map_err(|_| odd())?;
    Ok(Pin { position, snapshot: snapshot.clone(), connection })
}

/// Cancels the creation and sees to it that no slot is left, also when it was faster than the cancelling.
async fn give_up(
    source: &config::Postgres,
    pid: i32,
    watch: Option<Session>,
    creation: impl Future<Output = Result<Vec<TextRow>, Failure>>,
) -> Result<(), Failure> {
    let session = match watch {
        Some(session) => session,
        None => Session::open(&source.server).await?,
    };
    let what = "cancel the creation of the replication slot";
    session
        .client()
        .execute("SELECT pg_cancel_backend($1)", &[&pid])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    match tokio::time::timeout(SETTLE_TIME, creation).await {
        Ok(Err(failure)) if failure.sqlstate() != Some(code::DUPLICATE_OBJECT) => Ok(()),
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(_)) => drop(&session, &source.slot).await,
        Err(_) => Err(Failure::transient(what, "the server does not react")),
    }
}

async fn watched(
    source: &config::Postgres,
    watch: &mut Option<Session>,
    pid: i32,
) -> Result<Vec<Blocker>, Failure> {
    let session = match watch.take() {
        Some(session) if !session.is_closed() => session,
        _ => Session::open(&source.server).await?,
    };
    blockers(watch.insert(session), pid).await
}

/// Whom this process of the server waits for. Names and numbers only: the text of somebody's statement is theirs.
async fn blockers(session: &Session, pid: i32) -> Result<Vec<Blocker>, Failure> {
    const QUERY: &str = "\
        SELECT wanted.transactionid::text, holder.pid, \
            extract(epoch FROM clock_timestamp() - activity.xact_start)::int8, \
            prepared.gid, extract(epoch FROM clock_timestamp() - prepared.prepared)::int8 \
        FROM pg_locks wanted \
        LEFT JOIN pg_prepared_xacts prepared ON prepared.transaction = wanted.transactionid \
        LEFT JOIN pg_locks holder ON holder.locktype = 'transactionid' AND holder.granted \
            AND holder.transactionid = wanted.transactionid AND holder.pid IS NOT NULL \
        LEFT JOIN pg_stat_activity activity ON activity.pid = holder.pid \
        WHERE wanted.pid = $1 AND wanted.locktype = 'transactionid' AND NOT wanted.granted";
    let what = "read what the replication slot waits for";
    let rows =
        session.client().query(QUERY, &[&pid]).await.map_err(|error| Failure::sql(what, error))?;
    rows.iter()
        .map(|row| {
            let xid: String = get::<Option<_>>(row, 0, what)?.unwrap_or_default();
            let (pid, gid) = (get::<Option<i32>>(row, 1, what)?, get(row, 3, what)?);
            Ok(match (pid, gid) {
                (_, Some(gid)) => {
                    let age_seconds = get::<Option<_>>(row, 4, what)?.unwrap_or_default();
                    Blocker::Prepared { gid, xid, age_seconds }
                }
                (Some(pid), None) => {
                    Blocker::Session { pid, xid: Some(xid), age_seconds: get(row, 2, what)? }
                }
                (None, None) => Blocker::Transaction { xid },
            })
        })
        .collect()
}

/// The transactions that are older than this one and have not ended.
pub(super) async fn running_before(
    session: &Session,
    transaction: Xid,
) -> Result<Vec<Blocker>, Failure> {
    const SESSIONS: &str = "SELECT pid, backend_xid::text,
            extract(epoch FROM clock_timestamp() - xact_start)::bigint
        FROM pg_stat_activity
        WHERE age(backend_xid) > age($1::text::xid8::xid)";
    const PREPARED: &str = "SELECT gid, transaction::text,
            extract(epoch FROM clock_timestamp() - prepared)::bigint
        FROM pg_prepared_xacts
        WHERE age(transaction) > age($1::text::xid8::xid)";
    let what = "list running transactions";
    let (client, own) = (session.client(), transaction.0.to_string());
    let failed = |error| Failure::sql(what, error);
    let mut blockers = Vec::new();
    for row in client.query(SESSIONS, &[&own]).await.map_err(failed)? {
        let (pid, xid) = (get(&row, 0, what)?, get(&row, 1, what)?);
        blockers.push(Blocker::Session { pid, xid, age_seconds: get(&row, 2, what)? });
    }
    for row in client.query(PREPARED, &[&own]).await.map_err(failed)? {
        let (gid, xid) = (get(&row, 0, what)?, get(&row, 1, what)?);
        blockers.push(Blocker::Prepared { gid, xid, age_seconds: get(&row, 2, what)? });
    }
    Ok(blockers)
}

/// A slot as the server shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// `None` for a physical slot.
    pub plugin: Option<String>,
    pub database: Option<String>,
    /// Who streams from it.
    pub active_pid: Option<i32>,
    /// From where the server keeps its log.
    pub restart: Option<Lsn>,
    /// Up to where it has been acknowledged.
    pub confirmed: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: Option<String>,
    /// Why it is lost, where the server says so (17 and later; 16 only knows conflicts).
    pub invalidation: Option<String>,
    /// Somebody streams from it, or has got transactions from it since the server's statistics were reset.
    pub streamed: bool,
}

impl Slot {
    /// Whether log that it should have kept is gone, so that no stream can start from it.
    pub fn is_lost(&self) -> bool {
        self.wal_status.as_deref() == Some("lost") || self.invalidation.is_some()
    }
}

/// The slot of that name; `None` when there is none.
pub async fn inspect(session: &Session, name: &str) -> Result<Option<Slot>, Failure> {
    // As JSON, the absence of a column in an older version is no error.
    const QUERY: &str = "\
        SELECT plugin::text, database::text, active_pid, restart_lsn::text, \
            confirmed_flush_lsn::text, wal_status, \
            coalesce(to_jsonb(slot) ->> 'invalidation_reason', \
                CASE WHEN to_jsonb(slot) ->> 'conflicting' = 'true' THEN 'conflict' END), \
            EXISTS (SELECT FROM pg_stat_replication_slots used \
                WHERE used.slot_name = slot.slot_name AND used.total_txns > 0) \
            OR EXISTS (SELECT FROM pg_stat_replication sender \
                WHERE sender.pid = slot.active_pid AND sender.state IN ('catchup', 'streaming')) \
        FROM pg_replication_slots slot WHERE slot_name = $1";
    let what = "read the state of the replication slot";
    let row = session
        .client()
        .query_opt(QUERY, &[&name])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    let Some(row) = row else { return Ok(None) };
    let lsn = |column| -> Result<Option<Lsn>, Failure> {
        let text = get::<Option<String>>(&row, column, what)?;
        text.map(|text| text.parse().map_err(|_| Failure::protocol(what))).transpose()
    };
    Ok(Some(Slot {
        plugin: get(&row, 0, what)?,
        database: get(&row, 1, what)?,
        active_pid: get(&row, 2, what)?,
        restart: lsn(3)?,
        confirmed: lsn(4)?,
        wal_status: get(&row, 5, what)?,
        invalidation: get(&row, 6, what)?,
        streamed: get(&row, 7, what)?,
    }))
}

/// Drops the slot; one that is not there is no error. A connection of ours that has just ended may still hold it for a
/// moment, so it is tried for some seconds.
///
/// # Errors
/// Transient when somebody still streams from it; they are left alone.
pub async fn drop(session: &Session, name: &str) -> Result<(), Failure> {
    const COMMAND: &str = "SELECT pg_drop_replication_slot($1::text::name)";
    let deadline = Instant::now() + SETTLE_TIME;
    loop {
        let Err(error) = session.client().execute(COMMAND, &[&name]).await else { return Ok(()) };
        let failure = Failure::sql(format!("drop replication slot {name}"), error);
        match failure.sqlstate() {
            Some(code::UNDEFINED_OBJECT) => return Ok(()),
            Some(code::OBJECT_IN_USE) if Instant::now() < deadline => {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
            _ => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_told_in_numbers_and_names() {
        let blockers = [
            Blocker::Session { pid: 7, xid: Some("740".into()), age_seconds: Some(9) },
            Blocker::Prepared { gid: "g1".into(), xid: "741".into(), age_seconds: 60 },
            Blocker::Transaction { xid: "742".into() },
        ];
        let error = CreateError::Waiting { seconds: 60, blockers: blockers.to_vec() };
        let text = error.to_string();
        for part in ["pid 7 (xid 740), open for 9 s", "'g1' (xid 741)", "xid 742", "60 s"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
