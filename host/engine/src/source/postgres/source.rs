//! One PostgreSQL database as a source: what the driver asks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use dovetail_core::change::Xid;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::seam::{Log, Pin as Pinned, Record, Recorded, Slot as SlotSeen, Spool, Start};
use dovetail_core::timeline::History;
use tracing::{info, warn};

use super::catalog::{self, Identity};
use super::connection::Session;
use super::failure::Failure;
use super::note::{self, Note};
use super::preflight::{self, Prepared, SlotState};
use super::slot::{self, Blocker, CreateError, Pin};
use super::stream::{Stream, StreamError};
use super::view::{View, ViewError};
use crate::config::{self, SnapshotMode};
use crate::origin::{Kind, Origin};
use crate::source::finding::Finding;
use crate::state::Notes;

/// How often a wait looks again. Waits are for other sessions' transactions, of seconds or more.
const POLL: Duration = Duration::from_millis(200);

pub struct Source {
    config: config::Postgres,
    session: Session,
    identity: Identity,
    /// What was read of the log was of this history; none where nothing was.
    noted: Option<Note>,
    /// Of the server, from the [start](Self::start) on.
    history: Option<History>,
}

impl Source {
    /// `notes` are those that it gave in earlier lives; `read` is the one of where the log was read to.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the login.
    pub async fn connect(
        config: &config::Postgres,
        notes: &Notes,
        read: Option<&str>,
    ) -> Result<Self, Failure> {
        let session = Session::open(&config.server).await?;
        let identity = catalog::identity(session.client()).await?;
        let texts = [notes.pin.as_deref(), notes.checkpoint.as_deref(), read];
        let mut noted: Option<Note> = None;
        for text in texts.into_iter().flatten() {
            let note = Note::parse(text).ok_or_else(unreadable_note)?;
            noted = noted.filter(|other| other.at > note.at).or(Some(note));
        }
        Ok(Self { config: config.clone(), session, identity, noted, history: None })
    }

    pub(in crate::source) fn config(&self) -> &config::Postgres {
        &self.config
    }

    pub fn origin(&self, pipeline: &str) -> Origin {
        Origin {
            pipeline: pipeline.to_owned(),
            source: crate::origin::Source {
                kind: Kind::Postgres,
                system: self.identity.system.to_string(),
                database: self.identity.database.clone(),
            },
        }
    }

    /// What `dovetail check` prints.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn findings(
        &self,
        record: &Record,
        mode: SnapshotMode,
    ) -> Result<Vec<Finding>, Failure> {
        let slot = match record.pin {
            Pinned::None => SlotState::Absent,
            Pinned::Intended => SlotState::Intended,
            Pinned::At(_) => SlotState::Pinned,
        };
        let is_due = |table: &&TableName| match mode {
            SnapshotMode::Initial => !record.is_done(table),
            SnapshotMode::Always => true,
            SnapshotMode::Never => false,
        };
        let due = self.config.tables.iter().filter(is_due).cloned().collect();
        let continuing = continuing(record, mode);
        preflight::inspect(&self.session, &self.config, slot, &due, continuing.as_ref()).await
    }

    /// Creates or extends the publication where the operator consented to it.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn prepare_publication(
        &self,
        record: &Record,
        mode: SnapshotMode,
    ) -> Result<(), Failure> {
        let continuing = continuing(record, mode);
        let prepared =
            preflight::prepare_publication(&self.session, &self.config, continuing.as_ref());
        match prepared.await? {
            Prepared::Unchanged => {}
            Prepared::Created => {
                info!(publication = self.config.publication, "publication created");
            }
            Prepared::Extended(tables) => {
                let (publication, tables) = (&self.config.publication, tables.len());
                info!(publication, tables, "publication extended");
            }
        }
        Ok(())
    }

    /// What the seam has to know before anything is done.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn start(
        &mut self,
        mode: SnapshotMode,
        recorded: Recorded,
    ) -> Result<Start, Failure> {
        let history = note::history(&self.config.server).await?;
        let forked = self.forked(&history, recorded);
        self.history = Some(history);
        let slot = match slot::inspect(&self.session, &self.config.slot).await? {
            None => SlotSeen::Absent,
            Some(slot) => match slot.confirmed {
                Some(confirmed) if !slot.is_lost() => {
                    SlotSeen::Present { confirmed, streamed: slot.streamed }
                }
                _ => SlotSeen::Lost,
            },
        };
        let slot = forked.map_or(slot, |at| SlotSeen::Forked { at });
        let names = &self.config.tables;
        let relations = catalog::relations(self.session.client(), names).await?;
        let tables: BTreeMap<_, _> = names.iter().cloned().zip(relations).collect();
        // Last, so that it is at or past every position that was read before.
        let log_end = self.log_end().await?;
        Ok(Start {
            tables,
            mode: mode.into(),
            log: Log::Slot(slot),
            outlet: recorded,
            spool: Spool::Off,
            log_end,
        })
    }

    /// Where the server's history left the one that was read, if that is before what was read of it.
    fn forked(&self, history: &History, recorded: Recorded) -> Option<Lsn> {
        let noted = self.noted.as_ref()?;
        let at = match recorded {
            Recorded::At(recorded) => noted.at.max(recorded),
            Recorded::Unkept | Recorded::Empty => noted.at,
        };
        noted.history.fork(history).filter(|fork| *fork < at)
    }

    /// What has to be kept with a position.
    pub fn note(&self, at: Lsn) -> Option<String> {
        self.history.clone().map(|history| Note { at, history }.to_text())
    }

    /// What has to be kept before anything is read where the server has another history than the one that was noted.
    /// Otherwise an outlet that is ahead of the checkpoint would be of the new history, and seem to be of the old one.
    pub fn renewed_note(&self) -> Option<String> {
        let (noted, history) = (self.noted.as_ref()?, self.history.as_ref()?);
        let note = Note { at: noted.at, history: history.clone() };
        (note != *noted).then(|| note.to_text())
    }

    /// The log's insert position: nothing was ever written at or past it.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn log_end(&self) -> Result<Lsn, Failure> {
        self.position("SELECT pg_current_wal_insert_lsn()::text").await
    }

    /// Where the log is on disk, and so what a stream can reach by itself. An idle server may leave the last bytes
    /// before the insert position unwritten for seconds; a commit is not among them unless `synchronous_commit` is off.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn flushed(&self) -> Result<Lsn, Failure> {
        self.position("SELECT pg_current_wal_flush_lsn()::text").await
    }

    async fn position(&self, query: &str) -> Result<Lsn, Failure> {
        let what = "read the log's position";
        let failed = |error| Failure::sql(what, error);
        let row = self.session.client().query_one(query, &[]).await.map_err(failed)?;
        let text: String = catalog::get(&row, 0, what)?;
        text.parse().map_err(|_| Failure::protocol("the log's position is no LSN"))
    }

    /// # Errors
    /// As [`slot::create`].
    pub async fn create_slot(&self) -> Result<Pin, CreateError> {
        let mut reported = Vec::new();
        slot::create(&self.config, |blockers| report(blockers, &mut reported)).await
    }

    /// # Errors
    /// When the server refuses.
    pub async fn drop_slot(&self) -> Result<(), Failure> {
        slot::drop(&self.session, &self.config.slot).await
    }

    /// Takes a transaction id and waits until every smaller one has ended, as the creation of a slot does.
    ///
    /// # Errors
    /// When that takes longer than the pin may.
    pub async fn settle(&self) -> Result<Xid, CreateError> {
        let failed = |error| Failure::sql("wait for running transactions", error);
        // Or this session's own commit would wait for a standby that is not there.
        let setting = "SET synchronous_commit = local";
        self.session.client().batch_execute(setting).await.map_err(failed)?;
        let ask = "SELECT pg_current_xact_id()::text";
        let row = self.session.client().query_one(ask, &[]).await.map_err(failed)?;
        let own = transaction_id(&row)?;
        let ask = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text";
        let started = Instant::now();
        let mut reported = Vec::new();
        loop {
            let row = self.session.client().query_one(ask, &[]).await.map_err(failed)?;
            if transaction_id(&row)? > own {
                return Ok(own);
            }
            let blockers = slot::running_before(&self.session, own).await?;
            report(&blockers, &mut reported);
            if started.elapsed() > self.config.pin_timeout {
                let seconds = self.config.pin_timeout.as_secs();
                return Err(CreateError::Waiting { seconds, blockers });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// # Errors
    /// As [`View::pinned`].
    pub async fn view_of(
        &self,
        pin: Pin,
        tables: &[TableName],
        workers: NonZeroU16,
    ) -> Result<View, ViewError> {
        View::pinned(pin, &self.config, tables, workers).await
    }

    /// # Errors
    /// As [`View::later`].
    pub async fn view_of_now(
        &self,
        tables: &[TableName],
        workers: NonZeroU16,
    ) -> Result<View, ViewError> {
        View::later(&self.config, tables, workers).await
    }

    /// # Errors
    /// As [`Stream::open`].
    pub async fn stream(
        &self,
        from: Lsn,
        known: &[(RelationId, TableName)],
    ) -> Result<Stream, StreamError> {
        let stream = Stream::open(&self.config, from, known).await?;
        // Behind one address another server may answer by now.
        if self.history.is_some() && self.history != Some(note::history(&self.config.server).await?)
        {
            return Err(Failure::transient(
                "stream the log: the server has another timeline than a moment ago",
                "it is tried again",
            )
            .into());
        }
        Ok(stream.of(self.history.clone()))
    }
}

fn unreadable_note() -> Failure {
    Failure::definite(
        "the state's note of the source is not understood",
        "bring back the state directory as it was, or remove it with the slot and start anew to copy the tables again",
    )
}

/// The tables that go on by the stream alone; `None` before there is a pin.
fn continuing(record: &Record, mode: SnapshotMode) -> Option<BTreeSet<TableName>> {
    let Pinned::At(_) = record.pin else { return None };
    let goes_on = |table: &&TableName| match mode {
        SnapshotMode::Initial => record.is_done(table),
        SnapshotMode::Always => false,
        SnapshotMode::Never => true,
    };
    let tables = record.relations().map(|(table, _)| table);
    Some(tables.filter(goes_on).cloned().collect())
}

/// Says what is waited for, each once.
fn report(blockers: &[Blocker], reported: &mut Vec<Blocker>) {
    for blocker in blockers {
        if !reported.iter().any(|it| it.is_same(blocker)) {
            warn!(%blocker, "waiting for a transaction to end");
            reported.push(blocker.clone());
        }
    }
}

fn transaction_id(row: &tokio_postgres::Row) -> Result<Xid, Failure> {
    let text: String = catalog::get(row, 0, "read a transaction id")?;
    let id = text.parse().map_err(|_| Failure::protocol("a transaction id is no number"))?;
    Ok(Xid(id))
}
