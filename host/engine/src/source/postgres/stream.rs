//! The log, from a position on.
//!
//! A task of its own reads the connection, decodes, and hands over batches through a bounded queue; while the queue is
//! full it stops reading, which stops the server, but goes on answering it. What leaves here is cut at commits: a batch
//! says `Commit` only if everything before that position is in it or in earlier ones.
//!
//! **Nothing is skipped in silence (I7).** The server, asked to start at a position behind which the slot already stands,
//! starts at the slot's without a word; one whose log is gone, or a slot of that name which is another one, loses
//! changes too. So before streaming the slot is looked at, and each of these is [`Lost`](StreamError::Lost).
//!
//! **Acknowledged is only what was said to be (I6).** [`Stream::acknowledge`] is the one way to move what the server may
//! forget. A keepalive's position never does: inside a transaction it says nothing of what has been received, and
//! outside one it only becomes a batch without events, which has to be saved like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dovetail_core::change::Xid;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::timeline::History;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::source::piece::Item;
use crate::spool::Kept;

use super::catalog::{self, get};
use super::connection::Session;
use super::definition::Definitions;
use super::failure::Failure;
use super::identifier::{literal, quote};
use super::note::Note;
use super::reader::{self, Reader};
use super::slot;
use super::wire::{Purpose, Wire};

/// How long to wait for a slot that somebody streams from: the half-open connection of an engine that was killed lasts
/// for `wal_sender_timeout`, 60 s by default.
const ACTIVE_PATIENCE: Duration = Duration::from_secs(75);
const ACTIVE_PAUSE: Duration = Duration::from_millis(500);

mod code {
    pub(super) const UNDEFINED_OBJECT: &str = "42704";
    pub(super) const OBJECT_IN_USE: &str = "55006";
    pub(super) const NOT_IN_PREREQUISITE_STATE: &str = "55000";
}

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Definite: changes from `from` on cannot be had any more.
    #[error(
        "replication slot {slot} cannot deliver the changes from {from} on: {reason}; what was not delivered is lost, \
         so drop the slot, remove the state directory, empty the outlet, and start again with a new scan"
    )]
    Lost { slot: String, from: Lsn, reason: String },
    /// Transient: it was waited for.
    #[error(
        "replication slot {slot} is in use by {}; stop the other one, or choose another slot",
        .pid.map_or("another process".to_owned(), |pid| format!("pid {pid} of the server"))
    )]
    Active { slot: String, pid: Option<i32> },
    /// Definite: the stream cannot be followed without a guess.
    #[error("the stream cannot be understood at {position}; nothing behind it was delivered")]
    Undecodable { position: Lsn, source: super::failure::Cause },
    /// Definite: a captured table is another one than it was.
    #[error("{0}; restore it, or scan it again under a new pipeline")]
    Identity(String),
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl StreamError {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Undecodable { .. } | Self::Identity(_) => false,
            Self::Active { .. } => true,
            Self::Failure(failure) => failure.is_transient(),
        }
    }
}

/// An item on its way, with its share of the queue's memory.
pub(super) type Parcel = (Item, Option<OwnedSemaphorePermit>);

/// A running stream. Dropped, it just ends; [`close`](Self::close) tells the server first what was acknowledged.
#[derive(Debug)]
pub struct Stream {
    items: mpsc::Receiver<Parcel>,
    acknowledged: Arc<AtomicU64>,
    closing: CancellationToken,
    /// One task, the reader.
    reader: JoinSet<Result<(), StreamError>>,
    /// Of the server.
    history: Option<History>,
}

impl Stream {
    /// Streams every transaction whose commit record starts at or after `from`. `known` is what the state knows of the
    /// captured tables' ids; a table that was dropped and created again, or renamed, is then noticed.
    ///
    /// A slot in use is waited for, for over a minute. Dropping the future leaves nothing behind.
    pub async fn open(
        source: &config::Postgres,
        from: Lsn,
        known: &[(RelationId, TableName)],
    ) -> Result<Self, StreamError> {
        let session = Session::open(&source.server).await?;
        let reference = Xid(catalog::newest_transaction(session.client()).await?);
        let timeout = sender_timeout(&session).await?;
        let wire = start(source, &session, from).await?;

        let definitions = Definitions::new(source.clone(), session, known);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let closing = CancellationToken::new();
        let (sender, items) = mpsc::channel(reader::ITEMS_WAITING);
        let reader = Reader::new(
            wire,
            reader::Start { from, reference, sender_timeout: timeout },
            definitions,
            reader::Ends {
                items: sender,
                memory: Arc::new(Semaphore::new(reader::MEMORY_PERMITS)),
                acknowledged: Arc::clone(&acknowledged),
                closing: closing.clone(),
            },
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(reader.run());
        Ok(Self { items, acknowledged, closing, reader: tasks, history: None })
    }

    /// Of a server with this history.
    pub(super) fn of(self, history: Option<History>) -> Self {
        Self { history, ..self }
    }

    /// What has to be kept with a position.
    pub fn note(&self, at: Lsn) -> Option<String> {
        self.history.clone().map(|history| Note { at, history }.to_text())
    }

    /// The next item. Cancel-safe.
    ///
    /// # Errors
    /// The stream is over then.
    pub async fn next(&mut self) -> Result<Item, StreamError> {
        // What was read before an error is in order and complete, so it comes first.
        if let Some((item, _permit)) = self.items.recv().await {
            return Ok(item);
        }
        match self.reader.join_next().await {
            Some(ended) => {
                ended.expect("the reader does not panic")?;
                Err(Failure::transient("read the stream", "it was closed").into())
            }
            None => Err(Failure::transient("read the stream", "it has ended").into()),
        }
    }

    /// Lets the server forget the log before `position`. Never goes back.
    pub fn acknowledge(&self, position: Kept) {
        self.acknowledged.fetch_max(position.get().offset(), Ordering::Relaxed);
    }

    /// Ends the stream after the server has been told of the latest acknowledgement. Items not taken are dropped.
    pub async fn close(mut self) -> Result<(), StreamError> {
        self.closing.cancel();
        self.items.close();
        match self.reader.join_next().await {
            Some(ended) => ended.expect("the reader does not panic"),
            None => Ok(()),
        }
    }
}

/// How long the server bears our silence; `None` for ever.
async fn sender_timeout(session: &Session) -> Result<Option<Duration>, Failure> {
    const QUERY: &str = "SELECT setting::int8 FROM pg_settings WHERE name = 'wal_sender_timeout'";
    let what = "read wal_sender_timeout";
    let row =
        session.client().query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    let millis = u64::try_from(get::<i64>(&row, 0, what)?).unwrap_or(0);
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}

/// Starts streaming, once nobody else does.
async fn start(
    source: &config::Postgres,
    session: &Session,
    from: Lsn,
) -> Result<Wire, StreamError> {
    let deadline = Instant::now() + ACTIVE_PATIENCE;
    let mut told = false;
    loop {
        examine(source, session, from).await?;
        match begin(source, from).await {
            Err(StreamError::Active { .. }) if Instant::now() < deadline => {
                if !told {
                    let pid = active_pid(source, session).await?;
                    tracing::warn!(slot = %source.slot, ?pid, "waiting for a replication slot in use");
                    told = true;
                }
                tokio::time::sleep(ACTIVE_PAUSE).await;
            }
            Err(StreamError::Active { slot, .. }) => {
                return Err(StreamError::Active { slot, pid: active_pid(source, session).await? });
            }
            result => return result,
        }
    }
}

async fn active_pid(source: &config::Postgres, session: &Session) -> Result<Option<i32>, Failure> {
    Ok(slot::inspect(session, &source.slot).await?.and_then(|slot| slot.active_pid))
}

/// Whether the slot can deliver everything from `from` on.
async fn examine(
    source: &config::Postgres,
    session: &Session,
    from: Lsn,
) -> Result<(), StreamError> {
    let lost = |reason: String| StreamError::Lost { slot: source.slot.clone(), from, reason };
    let Some(slot) = slot::inspect(session, &source.slot).await? else {
        return Err(lost("it does not exist".into()));
    };
    if slot.is_lost() {
        let reason = slot.invalidation.unwrap_or_else(|| "max_slot_wal_keep_size".into());
        return Err(lost(format!("the server invalidated it ({reason})")));
    }
    if slot.plugin.as_deref() != Some("pgoutput") {
        return Err(lost("it is a slot of another kind".into()));
    }
    if slot.database.as_deref() != Some(source.server.database.as_str()) {
        return Err(lost("it belongs to another database".into()));
    }
    match slot.confirmed {
        Some(confirmed) if confirmed > from => Err(lost(format!(
            "it has been acknowledged up to {confirmed}, by something else or by a later state of this pipeline"
        ))),
        _ => Ok(()),
    }
}

async fn begin(source: &config::Postgres, from: Lsn) -> Result<Wire, StreamError> {
    let mut wire = Wire::open(&source.server, Purpose::Replication).await?;
    // Protocol 1: whole transactions at their commit, nothing of open or rolled-back ones.
    let command = format!(
        "START_REPLICATION SLOT {} LOGICAL {from} (proto_version '1', publication_names {}, messages 'true')",
        quote(&source.slot),
        literal(&quote(&source.publication)),
    );
    let slot = source.slot.clone();
    match wire.copy_both("start the stream", &command).await {
        Ok(()) => Ok(wire),
        Err(failure) => Err(match failure.sqlstate() {
            Some(code::OBJECT_IN_USE) => StreamError::Active { slot, pid: None },
            Some(code::UNDEFINED_OBJECT) => {
                StreamError::Lost { slot, from, reason: "it does not exist".into() }
            }
            Some(code::NOT_IN_PREREQUISITE_STATE) => {
                StreamError::Lost { slot, from, reason: "the log that it needs is gone".into() }
            }
            _ => failure.into(),
        }),
    }
}
