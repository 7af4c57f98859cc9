//! The pin: a position from which every later change is streamed, while everything before it is in the views.
//!
//! *Every transaction at or before the pin is visible in the view.* A position and a view that are taken one after the
//! other do not have that by themselves: the log moves before a transaction becomes visible, so "the end of the log,
//! then a view" loses what was between the two, and "a view, then the end of the log" loses what came between the
//! statements. What keeps the promise is a ladder, best first; see [`snapshot`](super::snapshot) for what each rung reads:
//!
//! | rung | server | pin | view |
//! |---|---|---|---|
//! | `snapshot` | MariaDB | the place that the snapshot tells | comes with the pin, exact; under heavy load later |
//! | `gtid` | MySQL with GTIDs | the executed set; in the log, from the start of the file that was written to *before* the set was read | later, behind the set |
//! | `log_status` | MySQL, `BACKUP_ADMIN` | the place in `log_status` | later |
//! | `lock` | both | the end of the log under the locks | comes with the pin, exact |
//! | `own_row` | both, ordered commits | the end of the log before our row | later |
//!
//! The forbidden orders are not in the type. For `gtid`: transactions that are not in the set yet were under way when it
//! was read, or began later. Those under way are in the file that was current before, or in a later one, because the
//! server does not change files while a transaction is between the log and the engine. So from the start of that file on
//! everything that is not in the set is found, and what is in the set is passed over by its GTID.
//!
//! Beside the position is kept what the log looks like there ([`event`](super::event)): between a pin and the first
//! checkpoint nothing else tells that the log has begun anew under the same names.
//!
//! A pin has no public constructor, and a view of its own only where the server gives one:
//!
//! ```compile_fail
//! # async fn wrong(config: &dovetail::config::MySql) {
//! use dovetail::source::mysql::{pin::Pin, view::View};
//! use dovetail_core::position::Lsn;
//! // A place in the log is not a pin: nothing says what its view would have to hold.
//! let view = View::pinned(Pin { at: Lsn::binlog(0, 1, 4) }, config, &[]).await;
//! # }
//! ```

use std::fmt;
use std::num::NonZeroU16;

use dovetail_core::fence::Fence;
use dovetail_core::gtid::mariadb::GtidState;
use dovetail_core::position::Lsn;

use super::connection::Session;
use super::event;
use super::failure::{self, Failure, code};
use super::grants::Grants;
use super::note::Note;
use super::prepared;
use super::server::{self, FIRST_OFFSET, Place, Settings};
use super::snapshot::{self, Opened};
use crate::config::{MySql, PinChoice, Rung};

pub use super::settle::settle;

/// The rung that will be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub rung: Rung,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Definite: what the server and the account allow is not enough.
    #[error("no way to tie a view to a position: {0}")]
    NoRung(String),
    /// Transient: long transactions end.
    #[error(
        "transactions up to {mark} were not visible within {seconds} s; let them end (XA prepared ones too), or raise pin_timeout"
    )]
    Waiting { seconds: u64, mark: String },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl PinError {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoRung(_) => false,
            Self::Waiting { .. } => true,
            Self::Failure(failure) => failure.is_transient(),
        }
    }
}

/// A position from which every later change will be streamed, with the views that hold what is before it where the
/// server gives both at once.
#[derive(Debug)]
pub struct Pin {
    config: MySql,
    /// With its position.
    note: Note,
    opened: Option<Opened>,
}

impl Pin {
    /// Takes the first pin. The log's file may be gone by the time it is streamed; who saves the pin looks for it first.
    ///
    /// # Errors
    /// As the server refuses; transient where it takes too long.
    pub async fn take(
        config: &MySql,
        rung: Rung,
        connections: NonZeroU16,
    ) -> Result<Self, PinError> {
        Self::take_in(config, rung, connections, 0).await
    }

    /// Takes a pin whose position is of this epoch: past those of every pin that was given up.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_in(
        config: &MySql,
        rung: Rung,
        connections: NonZeroU16,
        epoch: u32,
    ) -> Result<Self, PinError> {
        let connections = usize::from(connections.get());
        let mut session = Session::open(&config.server).await?;
        let server = Some(server::identity(&mut session).await?);
        // Load-bearing: before anything of the pin is read.
        let asked = prepared::wait(config, rung, epoch).await?;
        let note = Note { at: Lsn::binlog(epoch, 0, 0), server, asked, ..Note::of(rung) };
        let mut pin = match rung {
            Rung::Snapshot | Rung::Lock => {
                with_views(config, note, &mut session, connections).await?
            }
            Rung::Gtid => by_gtids(config, &mut session, note).await?,
            Rung::LogStatus => by_log_status(config, &mut session, note).await?,
            Rung::OwnRow => {
                let at = snapshot::own_row(config, epoch).await?;
                Self::at(config, at, note, None)
            }
        };
        let at = pin.position();
        let end = server::log_end(&mut session).await?;
        let file = server::file_like(&end.file, at.number());
        let file = file.ok_or_else(|| server::not_a_place("look at the log before the pin"))?;
        pin.note.head = event::head(config, &file, at).await?;
        pin.note.footprint = event::footprint(config, &file, at).await?;
        Ok(pin)
    }

    /// Everything that starts in the log before it is in every view that is opened from now on.
    pub fn position(&self) -> Lsn {
        self.note.at
    }

    pub fn note(&self) -> &Note {
        &self.note
    }

    /// Whether a view came with it, which holds exactly what is before the position.
    pub fn has_view(&self) -> bool {
        self.opened.is_some()
    }

    pub(super) fn into_opened(self) -> (MySql, Option<Opened>) {
        (self.config, self.opened)
    }

    fn at(config: &MySql, at: Lsn, note: Note, opened: Option<Opened>) -> Self {
        Self { config: config.clone(), note: Note { at, ..note }, opened }
    }
}

async fn with_views(
    config: &MySql,
    mut note: Note,
    session: &mut Session,
    connections: usize,
) -> Result<Pin, PinError> {
    let opened = snapshot::open(config, note.rung, note.at.epoch(), connections).await?;
    let Fence::Before(at) = opened.fence else {
        return Err(Failure::protocol("pin a position: the views have no place in the log").into());
    };
    if session.version().maria_db {
        note.gtid_state = gtid_state(session, at).await?;
    }
    note.gtids = opened.gtids.clone();
    // Views that hold more than what is before the position need a fence: they are later views.
    let opened = Some(opened).filter(|opened| opened.exact);
    Ok(Pin::at(config, at, note, opened))
}

/// The GTIDs of a MariaDB position.
async fn gtid_state(session: &mut Session, at: Lsn) -> Result<Option<GtidState>, Failure> {
    let end = server::log_end(session).await?;
    let Some(file) = server::file_like(&end.file, at.number()) else { return Ok(None) };
    let query = "SELECT BINLOG_GTID_POS(?, ?)";
    let rows: Vec<Option<String>> =
        session.rows_with("read the GTIDs of a position", query, (file, at.offset())).await?;
    // A state that is not understood is none: positions go on without it, and other servers are refused.
    Ok(rows.into_iter().next().flatten().and_then(|text| text.parse().ok()))
}

async fn by_gtids(config: &MySql, session: &mut Session, mut note: Note) -> Result<Pin, PinError> {
    let what = "pin a set of transactions";
    // Load-bearing: the file first, the set after it.
    let end = server::log_end(session).await?;
    let sets = session.texts(what, "SELECT @@GLOBAL.gtid_executed").await?;
    note.gtids = Some(snapshot::gtids(&sets, 0, what)?);
    let start = Place { file: end.file, offset: FIRST_OFFSET };
    let at = server::numbered(&start, note.at.epoch(), what)?;
    Ok(Pin::at(config, at, note, None))
}

async fn by_log_status(
    config: &MySql,
    session: &mut Session,
    mut note: Note,
) -> Result<Pin, PinError> {
    let what = "pin a place in the log";
    let sets = session.texts(what, snapshot::LOG_STATUS).await?;
    let mode = session.texts(what, "SELECT @@GLOBAL.gtid_mode").await?;
    let has_gtids = snapshot::cell(&mode, 0).is_some_and(|mode| mode.eq_ignore_ascii_case("on"));
    note.gtids = snapshot::log_status_gtids(&sets).filter(|_| has_gtids);
    let place = snapshot::log_status(&sets, 0, what)?;
    let at = server::numbered(&place, note.at.epoch(), what)?;
    Ok(Pin::at(config, at, note, None))
}

/// Chooses the rung: the configured one if the server and the account allow it, else the best that they allow.
///
/// # Errors
/// When none is left, with what to grant.
pub async fn choose(config: &MySql, session: &mut Session) -> Result<Chosen, PinError> {
    let settings = Settings::read(session).await?;
    if !settings.is_on("log_bin") {
        return Err(PinError::NoRung("the server writes no binary log; set log_bin".into()));
    }
    let facts = Facts {
        maria_db: session.version().maria_db,
        whole_groups: settings.shows_groups_whole(),
        gtids: settings.has_gtids(),
        log_status: !session.version().maria_db && may_read_log_status(session).await?,
        locks: Grants::read(session).await?.may_lock(&config.tables),
        ordered: settings.orders_commits(),
        own_table: config.own_table.is_some(),
    };
    facts.choose(config.pin).map_err(PinError::NoRung)
}

async fn may_read_log_status(session: &mut Session) -> Result<bool, Failure> {
    match session.texts("look at the log's status", snapshot::LOG_STATUS).await {
        Ok(_) => Ok(true),
        Err(failure) => match failure::number(&failure) {
            Some(
                code::SPECIFIC_ACCESS_DENIED
                | code::TABLE_ACCESS_DENIED
                | code::DATABASE_ACCESS_DENIED
                | code::NO_SUCH_TABLE,
            ) => Ok(false),
            _ => Err(failure),
        },
    }
}

/// What decides.
#[derive(Debug, Clone, Copy)]
struct Facts {
    maria_db: bool,
    whole_groups: bool,
    gtids: bool,
    log_status: bool,
    locks: bool,
    ordered: bool,
    own_table: bool,
}

impl Facts {
    fn choose(self, choice: PinChoice) -> Result<Chosen, String> {
        let ladder = [Rung::Snapshot, Rung::Gtid, Rung::LogStatus, Rung::Lock, Rung::OwnRow];
        match choice {
            PinChoice::Rung(rung) => {
                let judged = self.judge(rung);
                judged.map(|reason| Chosen { rung, reason: format!("as configured; {reason}") })
            }
            PinChoice::Auto => {
                let mut refused = Vec::new();
                for rung in ladder {
                    match self.judge(rung) {
                        Ok(reason) => return Ok(Chosen { rung, reason: reason.into() }),
                        Err(reason) => refused.push(format!("{}: {reason}", name(rung))),
                    }
                }
                Err(refused.join("; "))
            }
        }
    }

    /// Why the rung can be used, or why not.
    fn judge(self, rung: Rung) -> Result<&'static str, String> {
        let no = |reason: &str| Err(reason.to_owned());
        match rung {
            Rung::Snapshot if self.maria_db && !self.whole_groups => no(
                "binlog_optimize_thread_scheduling is OFF, so the place that is told can be ahead of the snapshot",
            ),
            Rung::Snapshot if self.maria_db => {
                Ok("the server tells the place of a snapshot in its log; no lock")
            }
            Rung::Snapshot => no("only MariaDB tells the place of a snapshot in its log"),
            Rung::Gtid if self.maria_db => no("on MariaDB the snapshot itself is exact"),
            Rung::Gtid if self.gtids => Ok("gtid_mode is ON; no lock"),
            Rung::Gtid => no("gtid_mode is not ON"),
            Rung::LogStatus if self.log_status => {
                Ok("performance_schema.log_status can be read; no lock on tables")
            }
            Rung::LogStatus => {
                no("the account lacks BACKUP_ADMIN, or SELECT on performance_schema.log_status")
            }
            Rung::Lock if self.locks => Ok("the tables can be locked for a moment"),
            Rung::Lock => no("the account lacks RELOAD (or FLUSH_TABLES) or LOCK TABLES"),
            Rung::OwnRow if !self.ordered => {
                no("binlog_order_commits is OFF, so commits become visible in any order")
            }
            Rung::OwnRow if self.own_table => {
                Ok("a row of our own marks a place in the log; no lock")
            }
            Rung::OwnRow => no("own_table names no table to write to"),
        }
    }
}

/// As in the configuration.
pub fn name(rung: Rung) -> &'static str {
    match rung {
        Rung::Snapshot => "snapshot",
        Rung::Gtid => "gtid",
        Rung::LogStatus => "log_status",
        Rung::Lock => "lock",
        Rung::OwnRow => "own_row",
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", name(self.rung), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Facts = Facts {
        maria_db: false,
        whole_groups: true,
        gtids: false,
        log_status: false,
        locks: false,
        ordered: true,
        own_table: false,
    };

    fn auto(facts: Facts) -> Option<Rung> {
        facts.choose(PinChoice::Auto).ok().map(|chosen| chosen.rung)
    }

    #[test]
    fn the_best_rung_that_is_allowed_is_chosen() {
        let all = Facts { gtids: true, log_status: true, locks: true, own_table: true, ..NOTHING };
        assert_eq!(auto(all), Some(Rung::Gtid));
        assert_eq!(auto(Facts { maria_db: true, log_status: false, ..all }), Some(Rung::Snapshot));
        assert_eq!(auto(Facts { gtids: false, ..all }), Some(Rung::LogStatus));
        assert_eq!(auto(Facts { gtids: false, log_status: false, ..all }), Some(Rung::Lock));
        assert_eq!(auto(Facts { own_table: true, ..NOTHING }), Some(Rung::OwnRow));
        assert_eq!(auto(NOTHING), None);
    }

    #[test]
    fn a_place_that_is_ahead_of_its_snapshot_is_not_used() {
        let facts = Facts { maria_db: true, whole_groups: false, locks: true, ..NOTHING };
        assert_eq!(auto(facts), Some(Rung::Lock));
        let refused = facts.choose(PinChoice::Rung(Rung::Snapshot)).expect_err("refused");
        assert!(refused.contains("binlog_optimize_thread_scheduling"), "{refused}");
    }

    #[test]
    fn an_own_row_is_refused_where_commits_are_not_ordered() {
        let facts = Facts { own_table: true, ordered: false, ..NOTHING };
        assert_eq!(auto(facts), None);
        let refused = facts.choose(PinChoice::Rung(Rung::OwnRow)).expect_err("refused");
        assert!(refused.contains("binlog_order_commits"), "{refused}");
    }
}
