//! The place of a MariaDB snapshot in the log, which the server knows exactly and tells in a doubtful way.
//!
//! When a snapshot is opened the server copies the place up to which transactions are visible, under the lock under which
//! it makes them visible. So the place is exact. But there are two ways in which it can be another one than we are told.
//!
//! **The answer of another session.** `SHOW STATUS` first puts what it is about to show into variables that all sessions
//! share, and then shows them; in between nothing keeps others out. 1. Our snapshot is opened at P; 2. commits move the
//! log to Q; 3. we ask; a monitor asks in the same microseconds; we are told Q. Result: what lies between P and Q is in
//! neither the view nor the stream. (Seen: 4 of 400 answers under two busy monitors, and rows lost in 16 of 500 pins.)
//! To ask several times makes it seldom, not impossible. What makes it impossible is to ask *before* the snapshot is
//! opened. What is told then, whoever it is of, was the place of a snapshot that is older than ours, or the server's
//! own place a moment ago; the server's place only grows; so it is at or before P. That place is our fence: a lower bound
//! that is certain. Behind the snapshot its own place is asked for, one session after the other; where every answer is
//! the lower bound, the two are one. (An answer can be put together from two: the file of one, the offset of the other.
//! So we ask twice before as well, and take the lower one; and a place that is not in the log yet is not believed.)
//!
//! **A place that is ahead of what is visible.** A group of commits sets the server's place as it makes itself visible.
//! Two others set it to the end of the log without regard to a group that is still on its way from the log to the
//! engine: who begins a new file (the leader of a group that has filled the old one among them, before it makes its
//! group visible), and who writes the event by which an old file is given free. With semi-synchronous replication such a
//! group waits in that state for a replica. 1. A group fills a file, and a new one is begun: the place is its head;
//! 2. our snapshot is opened there, without the group; 3. the group becomes visible. Result: row lost. Both events are
//! `BINLOG_CHECKPOINT`s, and no group of commits ends in one. So the event before the place is looked at. Behind a
//! `BINLOG_CHECKPOINT` the place is believed only when it has stood still for [`STILL`], no session waits for a replica,
//! and the snapshot was opened after that; on a server that writes, the place moves on before.
//!
//! With `binlog_optimize_thread_scheduling = OFF` the place of a whole group is set before the first of it is visible;
//! there is no such rung then ([`pin`](super::pin)).
//!
//! **A doubt** stays about a group that is stopped for longer than [`STILL`] by a disk that does not answer, exactly
//! between its last byte in a full file and the engine.

use std::time::Duration;

use dovetail_core::decode::binlog::{header, kind};
use dovetail_core::fence::Fence;
use dovetail_core::position::Lsn;
use tokio::time::Instant;

use super::connection::Session;
use super::event;
use super::failure::Failure;
use super::server::{self, Place};
use crate::config::MySql;

const TELL: &str = "SHOW STATUS LIKE 'binlog_snapshot_%'";
/// Twice, against an answer that is put together from two.
const ANSWERS_BEFORE: usize = 2;
/// As often wrong in the same way, a view would be taken for exact that holds more; nothing would be lost.
const ANSWERS: usize = 3;
/// A hundred times what a disk takes to sync a file that was just begun. A server at rest is pinned later by it.
const STILL: Duration = Duration::from_secs(1);

/// Opens a snapshot, and says which place it is at or behind, and whether the server was of one mind about that.
pub(super) async fn open(
    session: &mut Session,
    begin: &str,
    epoch: u32,
) -> Result<(Lsn, bool), Failure> {
    let what = "open a view";
    let before = [TELL; ANSWERS_BEFORE].join("; ");
    // Load-bearing: the place first.
    let sets = session.texts(what, &format!("ROLLBACK; {before}; {begin}")).await?;
    places(&sets, epoch, what)
}

/// Whether the snapshot that the session has open is at this place.
pub(super) async fn is_at(session: &mut Session, place: Lsn) -> Result<bool, Failure> {
    let what = "read the place of a view";
    let sets = session.texts(what, &[TELL; ANSWERS].join("; ")).await?;
    Ok(places(&sets, place.epoch(), what)? == (place, true))
}

/// The place up to which transactions are visible, or an earlier one.
pub(super) async fn visible(session: &mut Session, epoch: u32) -> Result<Lsn, Failure> {
    let what = "read up to where transactions are visible";
    let sets = session.texts(what, &[TELL; ANSWERS_BEFORE].join("; ")).await?;
    places(&sets, epoch, what).map(|(place, _)| place)
}

/// Whether an event that is no commit, and nothing else, is between two places.
pub(super) async fn is_no_commit_between(
    config: &MySql,
    session: &mut Session,
    from: Lsn,
    to: Lsn,
) -> Result<bool, Failure> {
    let file = server::log_end(session).await?.file;
    let (true, Some(file)) = (from.file() == to.file(), server::file_like(&file, from.number()))
    else {
        return Ok(false);
    };
    let event = event::event_at(config, Place { file, offset: from.offset() }).await?;
    Ok(event.is_some_and(|event| {
        header::header(&event).is_ok_and(|header| {
            let end = from.offset().saturating_add(u64::from(header.size));
            header.kind == kind::BINLOG_CHECKPOINT && end == to.offset()
        })
    }))
}

/// The lowest of the places that were told, and whether all are the same.
fn places(
    sets: &[Vec<Vec<Option<String>>>],
    epoch: u32,
    what: &str,
) -> Result<(Lsn, bool), Failure> {
    let told = sets.iter().filter(|rows| !rows.is_empty());
    let places = told.map(|rows| place_of(rows, epoch, what)).collect::<Result<Vec<_>, _>>()?;
    let lowest = places.iter().min().copied().ok_or_else(|| server::not_a_place(what))?;
    Ok((lowest, places.iter().all(|place| *place == lowest)))
}

fn place_of(rows: &[Vec<Option<String>>], epoch: u32, what: &str) -> Result<Lsn, Failure> {
    let value = |name: &str| {
        let row = rows.iter().find(
            |row| matches!(row.first(), Some(Some(found)) if found.eq_ignore_ascii_case(name)),
        )?;
        row.get(1)?.clone()
    };
    let file = value("Binlog_snapshot_file").filter(|file| !file.is_empty());
    let offset = value("Binlog_snapshot_position").and_then(|text| text.parse().ok());
    let (Some(file), Some(offset)) = (file, offset) else {
        return Err(server::not_a_place(what));
    };
    server::numbered(&Place { file, offset }, epoch, what)
}

/// Which places may be ahead of what is visible.
#[derive(Debug)]
pub(super) struct Doubts<'a> {
    config: &'a MySql,
    started: Instant,
    place: Lsn,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Believed,
    /// Behind an event that is no commit.
    Doubted {
        since: Instant,
    },
    /// Not in the log.
    Absent,
}

impl<'a> Doubts<'a> {
    pub(super) fn new(config: &'a MySql) -> Self {
        Self { config, started: Instant::now(), place: Lsn::ZERO, state: State::Absent }
    }

    /// Whether a snapshot that was opened just now, at or behind this place, shows everything before it.
    ///
    /// # Errors
    /// Transient when that could not be said for as long as a pin may take.
    pub(super) async fn believes(
        &mut self,
        session: &mut Session,
        fence: &Fence,
    ) -> Result<bool, Failure> {
        let Fence::Before(place) = *fence else { return Ok(true) };
        if place != self.place || matches!(self.state, State::Absent) {
            let state = look(self.config, session, place).await?;
            (self.place, self.state) = (place, state);
        } else if let State::Doubted { since } = self.state
            && since.elapsed() >= STILL
            && !waits_for_a_replica(session).await?
        {
            // For the next snapshot: this one was opened before that was known.
            self.state = State::Believed;
            return Ok(false);
        }
        if matches!(self.state, State::Believed) {
            return Ok(true);
        }
        if self.started.elapsed() > self.config.pin_timeout {
            return Err(Failure::transient(
                format!("open a view: transactions before {place} may not be visible yet"),
                "let the replicas of semi-synchronous replication acknowledge them, or raise pin_timeout",
            ));
        }
        Ok(false)
    }
}

async fn look(config: &MySql, session: &mut Session, place: Lsn) -> Result<State, Failure> {
    let what = "look at the event before a view";
    let end = server::log_end(session).await?;
    if place > server::numbered(&end, place.epoch(), what)? {
        return Ok(State::Absent);
    }
    let Some(file) = server::file_like(&end.file, place.number()) else {
        return Err(server::not_a_place(what));
    };
    let doubted =
        is_behind_no_commit(config, session, &Place { file, offset: place.offset() }).await?;
    Ok(if doubted { State::Doubted { since: Instant::now() } } else { State::Believed })
}

/// Whether a `BINLOG_CHECKPOINT` ends at the place, or may end there. Its length is known.
async fn is_behind_no_commit(
    config: &MySql,
    session: &mut Session,
    place: &Place,
) -> Result<bool, Failure> {
    if !event::is_in_reach(place) {
        return Ok(true);
    }
    let what = "read binlog_checksum";
    let checksum: String = session.one(what, "SELECT @@GLOBAL.binlog_checksum").await?;
    let length = checkpoint_length(&place.file, !checksum.eq_ignore_ascii_case("none"));
    let event = event::event_before(config, place, kind::BINLOG_CHECKPOINT, length).await?;
    Ok(event.is_some())
}

/// Of an event that holds the name of a file.
fn checkpoint_length(file: &str, has_checksum: bool) -> u64 {
    const NAME_LENGTH: usize = 4;
    const CHECKSUM: usize = 4;
    let checksum = if has_checksum { CHECKSUM } else { 0 };
    let length = header::LENGTH + NAME_LENGTH + file.len() + checksum;
    u64::try_from(length).unwrap_or(u64::MAX)
}

async fn waits_for_a_replica(session: &mut Session) -> Result<bool, Failure> {
    let query = "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_master\\_wait\\_sessions'";
    let rows: Vec<(String, String)> =
        session.rows("look for transactions that wait for a replica", query).await?;
    Ok(rows.iter().any(|(_, waiting)| waiting != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(file: &str, offset: u64) -> Vec<Vec<Option<String>>> {
        let row = |name: &str, value: String| vec![Some(name.to_owned()), Some(value)];
        vec![
            row("Binlog_snapshot_file", file.into()),
            row("Binlog_snapshot_position", offset.to_string()),
        ]
    }

    #[test]
    fn the_lowest_of_several_places_counts() {
        let at = |offset| Lsn::binlog(0, 7, offset);
        let places = |sets: &[Vec<Vec<Option<String>>>]| places(sets, 0, "read").ok();
        let seven = |offset| told("binlog.000007", offset);
        assert_eq!(places(&[vec![], seven(90), seven(90), vec![]]), Some((at(90), true)));
        assert_eq!(places(&[seven(90), seven(120)]), Some((at(90), false)));
        assert_eq!(places(&[told("binlog.000008", 4), seven(120)]), Some((at(120), false)));
        assert_eq!(places(&[vec![]]), None);
        assert_eq!(places(&[told("", 0)]), None);
    }

    #[test]
    fn an_event_that_names_a_file_has_a_known_length() {
        assert_eq!(checkpoint_length("binlog.000001", true), 40);
        assert_eq!(checkpoint_length("mariadb-bin.1000001", false), 42);
    }
}
