//! The task that reads the log into the spool.
//!
//! It outlives a failed outlet: attempts come and go, and it goes on reading, so that the source need not keep its log for
//! an outlet that is down. It ends with its stream's connection, and then the attempt ends with it: the way back from a
//! lost source is one, with or without a spool.
//!
//! Appending does not wait for syncing. While one sync is under way the next entries are written, and a mark and another
//! sync follow: the group grows with the load. At the limit nothing more is read until something was released; the server
//! then keeps its log as it would without a spool.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use dovetail_core::batch::Closing;
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::error::Error as SpoolError;
use super::shared::{Fresh, Shared};
use super::writer::{Writer, Written};
use super::{Kept, Spool};
use crate::config::AtLimit;
use crate::error::Error;
use crate::offload::{Abandoned, Offload, detached};
use crate::source::{Item, Stream};
use crate::telemetry::field;

/// Between two syncs. Nothing but the source's own log waits for them.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// A running intake.
#[derive(Debug)]
pub struct Intake {
    /// One, the reader.
    task: JoinSet<Result<(), Error>>,
    closing: CancellationToken,
}

impl Intake {
    /// Reads a stream that was opened at the spool's end. The spool has to have been begun.
    ///
    /// # Errors
    /// It cannot be written, or another intake has it.
    pub async fn start(stream: Stream, spool: &mut Spool) -> Result<Self, SpoolError> {
        let writer = spool.writer().await?;
        let closing = CancellationToken::new();
        let reader = Reader {
            stream,
            writer,
            shared: Arc::clone(&spool.shared),
            already: None,
            syncing: None,
            sync_at: Instant::now(),
            unsynced: false,
            open: false,
            had_room: false,
        };
        let mut task = JoinSet::new();
        task.spawn(reader.run(closing.clone()));
        Ok(Self { task, closing })
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        !self.task.is_empty()
    }

    /// Until it has ended by itself: why. Pending for ever after that. Cancel-safe.
    pub async fn failed(&mut self) -> Error {
        match self.task.join_next().await {
            Some(ended) => why(ended),
            None => std::future::pending().await,
        }
    }

    /// As [`Self::failed`], if it has ended.
    pub fn try_failed(&mut self) -> Option<Error> {
        self.task.try_join_next().map(why)
    }

    /// Reads no more, syncs, and tells the source.
    pub async fn close(mut self) {
        self.closing.cancel();
        if let Some(ended) = self.task.join_next().await
            && let Err(error) = ended.expect("the intake does not panic")
        {
            debug!({ field::ERROR } = error.chain(), "the intake did not end in order");
        }
    }
}

fn why(ended: Result<Result<(), Error>, JoinError>) -> Error {
    match ended.expect("the intake does not panic") {
        Err(error) => error,
        Ok(()) => SpoolError::from(Abandoned).into(),
    }
}

struct Reader {
    stream: Stream,
    writer: Offload<Writer>,
    shared: Arc<Shared>,
    /// What starts at or before this is in the spool, though the stream begins before it.
    already: Option<Lsn>,
    syncing: Option<JoinHandle<Result<Lsn, SpoolError>>>,
    sync_at: Instant,
    /// Something was appended that no sync has begun for.
    unsynced: bool,
    /// The last item ended inside a transaction.
    open: bool,
    /// In this life, and more than what the next few changes take.
    had_room: bool,
}

enum Happened {
    Item(Item),
    Synced(Result<Lsn, SpoolError>),
    SyncDue,
    Closing,
}

impl Reader {
    async fn run(mut self, closing: CancellationToken) -> Result<(), Error> {
        let found = self.writer.run(|writer| (writer.last_event(), writer.closed())).await;
        let (already, closed) = found.map_err(SpoolError::from)?;
        self.already = already;
        // It was synced when it was opened, and perhaps the source was not told before.
        self.stream.acknowledge(Kept(closed));
        let outcome = self.read(&closing).await;
        let synced = match outcome {
            // After a write or a sync that failed, one that succeeds says nothing of what went before.
            Err(Error::Spool(_)) => Ok(()),
            // What was read is good, whyever it ended.
            _ => self.sync_all().await,
        };
        if let Err(error) = self.stream.close().await {
            debug!({ field::ERROR } = %error, "the stream did not end in order");
        }
        outcome.and(synced)
    }

    async fn read(&mut self, closing: &CancellationToken) -> Result<(), Error> {
        loop {
            self.wait_for_room(closing).await?;
            match self.wait(closing).await? {
                Happened::Item(item) => self.append(item).await?,
                Happened::Synced(position) => self.stream.acknowledge(Kept(position?)),
                Happened::SyncDue => self.sync().await?,
                Happened::Closing => return Ok(()),
            }
        }
    }

    /// Every future here is cancel-safe.
    async fn wait(&mut self, closing: &CancellationToken) -> Result<Happened, Error> {
        let syncing = self.syncing.is_some();
        tokio::select! {
            biased;
            () = closing.cancelled() => Ok(Happened::Closing),
            synced = joined(&mut self.syncing) => Ok(Happened::Synced(synced)),
            () = tokio::time::sleep_until(self.sync_at), if self.unsynced && !syncing => Ok(Happened::SyncDue),
            item = self.stream.next() => item.map(Happened::Item).map_err(Error::Stream),
        }
    }

    async fn append(&mut self, mut item: Item) -> Result<(), Error> {
        if let Item::Batch { events, closing } = &mut item {
            if let Some(already) = self.already {
                events.retain(|event: &Event| event.position.commit > already);
            }
            self.open = *closing == Closing::Open;
        }
        let appending = self.writer.run(move |writer| {
            let written = writer.append(&item)?;
            Ok::<_, SpoolError>((written, writer.closed(), writer.is_full(), item))
        });
        let (written, closed, full, item) = appending.await.map_err(SpoolError::from)??;
        self.shared.appended(written, Fresh::Item(item), closed);
        self.unsynced = true;
        if full && !self.open { self.follow().await } else { Ok(()) }
    }

    /// Marks what is complete, and begins to sync it. Inside a transaction nothing is.
    async fn sync(&mut self) -> Result<(), Error> {
        self.sync_at = Instant::now() + SYNC_INTERVAL;
        let Some((written, position, file)) = self.mark().await? else { return Ok(()) };
        self.unsynced = false;
        let path = self.shared.path(written.at.segment);
        self.syncing = Some(tokio::spawn(async move {
            let sync = move || {
                let synced = file.sync_data().and_then(|()| file.metadata());
                let metadata = synced.map_err(|error| SpoolError::io(&path, error))?;
                // Nobody would find it again.
                (metadata.nlink() > 0).then_some(()).ok_or_else(|| SpoolError::removed(&path))
            };
            detached(sync).await??;
            Ok(position)
        }));
        Ok(())
    }

    async fn mark(&mut self) -> Result<Option<(Written, Lsn, Arc<File>)>, Error> {
        let unmarked = self.writer.run(|writer| writer.unmarked()).await;
        let Some(position) = unmarked.map_err(SpoolError::from)? else { return Ok(None) };
        let note = self.stream.note(position);
        let marking = self.writer.run(move |writer| writer.mark(note)).await;
        let (written, mark, file) = marking.map_err(SpoolError::from)??;
        self.shared.appended(written, Fresh::Mark(mark), position);
        Ok(Some((written, position, file)))
    }

    /// Ends the segment and begins the next one. What is read meanwhile waits: that is once in many megabytes.
    async fn follow(&mut self) -> Result<(), Error> {
        self.mark().await?;
        let shared = Arc::clone(&self.shared);
        let following = self.writer.run(move |writer| {
            let position = writer.follow()?;
            shared.begun(writer);
            Ok::<_, SpoolError>(position)
        });
        let position = following.await.map_err(SpoolError::from)??;
        self.unsynced = false;
        self.stream.acknowledge(Kept(position));
        Ok(())
    }

    async fn sync_all(&mut self) -> Result<(), Error> {
        if self.syncing.is_some() {
            let position = joined(&mut self.syncing).await?;
            self.stream.acknowledge(Kept(position));
        }
        self.sync().await?;
        if self.syncing.is_some() {
            let position = joined(&mut self.syncing).await?;
            self.stream.acknowledge(Kept(position));
        }
        Ok(())
    }

    /// Waits at the limit, or refuses to.
    async fn wait_for_room(&mut self, closing: &CancellationToken) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let settings = shared.settings();
        let limit = settings.limit;
        let mut told = false;
        loop {
            let released = shared.next_release();
            tokio::pin!(released);
            released.as_mut().enable();
            // A transaction that is larger than the limit has to end before anything can be released.
            if self.open || self.shared.bytes() < limit {
                if told {
                    info!("the spool has room again");
                }
                self.had_room |= self.shared.bytes() < limit / 2;
                return Ok(());
            }
            // An earlier life has filled it, and the outlets were not asked yet: they may take something now.
            if settings.at_limit == AtLimit::Stop && self.had_room {
                return Err(SpoolError::Full { limit }.into());
            }
            if !told {
                warn!(
                    limit,
                    "the spool is full: the log is not read until an outlet has taken some of it"
                );
                told = true;
            }
            if self.unsynced && self.syncing.is_none() {
                self.sync().await?;
            }
            tokio::select! {
                () = closing.cancelled() => return Ok(()),
                synced = joined(&mut self.syncing) => self.stream.acknowledge(Kept(synced?)),
                () = released => {}
            }
        }
    }
}

/// The end of a sync. Cancel-safe.
async fn joined(
    syncing: &mut Option<JoinHandle<Result<Lsn, SpoolError>>>,
) -> Result<Lsn, SpoolError> {
    let Some(task) = syncing else { return std::future::pending().await };
    let result = task.await;
    *syncing = None;
    match result {
        Ok(result) => result,
        Err(failure) => match failure.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Abandoned.into()),
        },
    }
}
