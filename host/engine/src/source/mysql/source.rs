//! One MySQL or MariaDB server as a source: what the driver asks of it.
//!
//! The server keeps its log for everybody and holds nothing for us, so there is nothing to create or to drop. What has to
//! be remembered instead is in the [`Note`]s, which the state keeps with the pin and with each checkpoint.

use std::collections::BTreeMap;

use dovetail_core::fence::Mark;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::seam::{Continuity, Log as LogSeen, Mode, Record, Recorded, Spool, Start};
use tracing::{info, warn};

use super::catalog;
use super::connection::Session;
use super::failure::Failure;
use super::note::Note;
use super::pin::{self, Pin, PinError};
use super::preflight;
use super::prepared;
use super::server;
use super::stream::{self, Notebook, Stream, StreamError};
use super::view::{View, ViewError};
use crate::config::{MySql, MySqlKind, Rung, SnapshotMode};
use crate::origin::{Kind, Origin};
use crate::source::Wanted;
use crate::source::finding::Finding;
use crate::state::Notes;

pub struct Source {
    config: MySql,
    /// Of the server that the pin was taken at, or would be.
    system: String,
    pinned: Option<Note>,
    checkpoint: Option<Note>,
    /// Of what was given up before: nothing is compared with it, and positions are past its own.
    former: Option<Note>,
    /// Of where the log was read to.
    read: Option<Note>,
    /// Of the server's positions; see [`start`](Self::start).
    epoch: u32,
    /// Of the latest stream.
    notebook: Option<Notebook>,
}

impl Source {
    /// `notes` are those that it gave in earlier lives.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the login; definite when it is of the other kind.
    pub async fn connect(
        config: &MySql,
        notes: &Notes,
        read: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut session = Session::open(&config.server).await?;
        let maria_db = session.version().maria_db;
        if maria_db != (config.kind == MySqlKind::MariaDb) {
            let (is, key) = if maria_db { ("MariaDB", "mariadb") } else { ("MySQL", "mysql") };
            return Err(Failure::definite(
                format!("the server is {is}"),
                format!("name it under `source: {key}:`"),
            ));
        }
        let texts =
            [notes.pin.as_deref(), notes.checkpoint.as_deref(), notes.former.as_deref(), read];
        let [pinned, checkpoint, former, read] = texts.map(|text| match text {
            None => Ok(None),
            Some(text) => Note::parse(text).map(Some).ok_or_else(unreadable_note),
        });
        let (pinned, checkpoint, former, read) = (pinned?, checkpoint?, former?, read?);
        let system = match notes.system.clone() {
            Some(system) => system,
            None => server::identity(&mut session).await?,
        };
        let noted = [&pinned, &checkpoint, &read].into_iter().flatten();
        let epoch = noted.map(|note| note.at.epoch()).max().unwrap_or(0);
        let (config, notebook) = (config.clone(), None);
        Ok(Self { config, system, pinned, checkpoint, former, read, epoch, notebook })
    }

    pub fn config(&self) -> &MySql {
        &self.config
    }

    pub fn origin(&self, pipeline: &str) -> Origin {
        let kind = match self.config.kind {
            MySqlKind::MySql => Kind::MySql,
            MySqlKind::MariaDb => Kind::MariaDb,
        };
        let source =
            crate::origin::Source { kind, system: self.system.clone(), database: String::new() };
        Origin { pipeline: pipeline.to_owned(), source }
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
        let mut session = Session::open(&self.config.server).await?;
        let due = |table: &&TableName| match mode {
            SnapshotMode::Initial => !record.is_done(table),
            SnapshotMode::Always => true,
            SnapshotMode::Never => false,
        };
        let due: Vec<TableName> = self.config.tables.iter().filter(due).cloned().collect();
        preflight::inspect(&mut session, &self.config, &due).await
    }

    /// What the seam has to know before anything is done. Where the log goes on at another server its positions are of an
    /// epoch past every one that is recorded, here or at the outlet. While the log is being read it is not looked at:
    /// it is the same.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn start(
        &mut self,
        mode: SnapshotMode,
        recorded: Recorded,
        reading: bool,
    ) -> Result<Start, StreamError> {
        let mut session = Session::open(&self.config.server).await?;
        let mut tables = BTreeMap::new();
        for name in &self.config.tables {
            let there = catalog::exists(&mut session, name).await?;
            tables.insert(name.clone(), there.then(|| RelationId::of_name(name)));
        }
        let mode = match mode {
            SnapshotMode::Initial => Mode::Initial,
            SnapshotMode::Always => Mode::Always,
            SnapshotMode::Never => Mode::Never,
        };
        let (mut continuity, mut first) = (Continuity::Same, Lsn::ZERO);
        if !reading {
            let used = self.notes().chain(&self.former).map(|note| note.at);
            let next_epoch = next_epoch(used, recorded);
            let at = self.notes().max_by_key(|note| note.at).map(|note| (note.at, Some(note)));
            // The pin that takes the place of one that was given up.
            let is_new = at.is_none() && self.former.is_some();
            let look = stream::look(&self.config, at, next_epoch).await?;
            (continuity, first) = (look.continuity, look.first);
            self.epoch = if is_new { next_epoch } else { look.epoch };
        }
        // Last, so that it is at or past every position that was read before.
        let end = server::log_end(&mut session).await?;
        let log_end = server::numbered(&end, self.epoch, "read the end of the log")?;
        let log = LogSeen::Files { first, continuity };
        Ok(Start { tables, mode, log, outlet: recorded, spool: Spool::Off, log_end })
    }

    /// Where the server writes its log now.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn flushed(&self) -> Result<Lsn, Failure> {
        let mut session = Session::open(&self.config.server).await?;
        let end = server::log_end(&mut session).await?;
        server::numbered(&end, self.epoch, "read the end of the log")
    }

    /// # Errors
    /// As [`Pin::take`].
    pub async fn take_pin(&mut self, wanted: &Wanted) -> Result<Pin, PinError> {
        let mut session = Session::open(&self.config.server).await?;
        let chosen = pin::choose(&self.config, &mut session).await?;
        info!(rung = pin::name(chosen.rung), reason = chosen.reason, "pinning");
        let pin = Pin::take_in(&self.config, chosen.rung, wanted.workers, self.epoch).await?;
        self.pinned = Some(pin.note().clone());
        Ok(pin)
    }

    /// Waits until everything that starts before this is visible.
    ///
    /// # Errors
    /// When that takes longer than the pin may.
    pub async fn settle(&self, before: Lsn) -> Result<Mark, PinError> {
        pin::settle(&self.config, self.rung().await?, before, self.known_before(before)).await
    }

    /// A view of now.
    ///
    /// # Errors
    /// As [`View::later`].
    pub async fn view(&self, wanted: &Wanted) -> Result<View, ViewError> {
        let rung = self.rung().await.map_err(|error| match error {
            PinError::Failure(failure) => failure,
            error => Failure::definite(error.to_string(), "`dovetail check` says more"),
        })?;
        if rung == Rung::Snapshot {
            // MariaDB commits a prepared transaction in its engine later than in the log.
            prepared::let_end(&self.config).await?;
        }
        let view =
            View::later(&self.config, rung, self.epoch, &wanted.tables, wanted.workers).await?;
        if !view.is_exact() {
            warn!(
                horizon = %view.horizon(),
                "what the view holds is known to a lower bound only: changes that committed while it was opened may come twice"
            );
        }
        Ok(view)
    }

    /// The rung of the pin: only views of the same one can be compared with what was noted there.
    async fn rung(&self) -> Result<Rung, PinError> {
        if let Some(note) = &self.pinned {
            return Ok(note.rung);
        }
        let mut session = Session::open(&self.config.server).await?;
        Ok(pin::choose(&self.config, &mut session).await?.rung)
    }

    /// What has to be kept with this position. At the pin, and until something behind it has been read, that is the pin's.
    pub fn note(&self, at: Lsn) -> Option<String> {
        let read = self.notebook.as_ref().map(|notebook| notebook.note(at));
        let known = read.as_ref().map_or(at, |note| note.at);
        let pinned = self.pinned.as_ref().filter(|note| note.at == at || note.at == known);
        pinned.or(read.as_ref()).map(Note::to_text)
    }

    /// Streams what starts at or after a position.
    ///
    /// # Errors
    /// As [`Stream::open`].
    pub async fn stream(&mut self, from: Lsn) -> Result<Stream, StreamError> {
        let note = self.known_before(from);
        let start =
            stream::Start { from: note.map_or(from, |note| note.at), note, epoch: self.epoch };
        let stream = Stream::open(&self.config, start).await?;
        self.notebook = Some(stream.notebook());
        Ok(stream.without_what_starts_before(from))
    }

    /// What to stream from a position with.
    pub fn note_before(&self, from: Lsn) -> Option<String> {
        self.known_before(from).map(Note::to_text)
    }

    /// The newest note that is not of a later position.
    fn known_before(&self, position: Lsn) -> Option<&Note> {
        self.notes().filter(|note| note.at <= position).max_by_key(|note| note.at)
    }

    fn notes(&self) -> impl Iterator<Item = &Note> {
        [&self.pinned, &self.checkpoint, &self.read].into_iter().flatten()
    }
}

/// Past every one that positions here or at the outlet are of. An outlet that is ahead of the checkpoint can be of a later
/// one than the notes are, where a life ended between its first commit on another server and the checkpoint.
fn next_epoch(noted: impl Iterator<Item = Lsn>, recorded: Recorded) -> u32 {
    let recorded = match recorded {
        Recorded::At(at) => Some(at),
        Recorded::Unkept | Recorded::Empty => None,
    };
    let used = noted.chain(recorded).map(Lsn::epoch).max();
    used.unwrap_or(0).saturating_add(1)
}

fn unreadable_note() -> Failure {
    Failure::definite(
        "the state's note of the source is not understood",
        "bring back the state directory as it was, or remove it and start anew to copy the tables again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_epoch_is_past_those_of_the_notes_and_of_the_outlet() {
        let at = |epoch| Lsn::binlog(epoch, 7, 4);
        let next = |noted: &[u32], recorded| next_epoch(noted.iter().copied().map(at), recorded);
        assert_eq!(next(&[0], Recorded::Unkept), 1);
        assert_eq!(next(&[1, 0], Recorded::Empty), 2);
        assert_eq!(next(&[1, 0], Recorded::At(at(0))), 2);
        assert_eq!(next(&[1, 0], Recorded::At(at(2))), 3, "the outlet is ahead of the checkpoint");
    }
}
