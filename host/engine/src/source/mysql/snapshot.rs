//! Consistent reads with one content on several connections, and what they contain.
//!
//! A server gives a view to the connection that asks, and cannot hand it to another. So every connection opens its own,
//! and reads *in the same round trip* what the server says that it contains; the views are one view iff all say the
//! same. What a server can say depends on the [`Rung`]:
//!
//! - `snapshot` (MariaDB): the place in the log at which the snapshot was made. How it is known, although the server tells
//!   it in a doubtful way, is argued in [`snapshot_place`].
//! - `gtid` (MySQL): the set `E1` of executed transactions before the snapshot; those that are *owned*, `O`, after it;
//!   and the executed ones, `E2`, after that. The server executes in this order: a transaction gets its GTID and is owned;
//!   it commits in the engine (a snapshot sees it from here on); then, in one step, it is not owned any more and is
//!   executed. So what is in `E1` is in the snapshot; and what is in the snapshot was owned before, so it is in `O` or,
//!   if it left, in `E2`. If `O` is empty and `E1 = E2`, the snapshot holds `E1`, no more and no less. Comparing `E1` and
//!   `E2` alone is not enough: 1. T commits in the engine; 2. `E1`, snapshot (with T), `E2` are taken, equal, without T;
//!   3. T is executed. Result: T is streamed over rows that hold it, and a key that it wrote twice goes back.
//! - `log_status` (MySQL): the place in the log with commits held back for the moment in which it is read, before and
//!   after. Equal: nothing was committed in between.
//! - `lock`: the end of the log, while nobody may write to the tables. Exact for these tables; and so is the executed set
//!   that is read meanwhile: whoever wrote to them had given back the tables, and a server adds a GTID to the set before.
//! - `own_row`: the end of the log, before a row of our own was committed behind it. Commits become visible in the order
//!   of the log, so what is before that place is in the view. More may be: a lower bound.
//!
//! Under steady writes the views of several connections seldom agree at once. They are opened again a number of times,
//! then with half as many connections, down to one. One connection whose readings never agree keeps the last lower
//! bound: what is between it and the truth is streamed although it is in the rows, and [`Opened::is_exact`] is false.

use std::time::Duration;

use dovetail_core::fence::Fence;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;

use tokio::task::JoinSet;

use super::connection::{Session, Sets};
use super::failure::Failure;
use super::lock::TableLocks;
use super::server::{self, Place};
use super::snapshot_place::{self, Doubts};
use crate::config::{MySql, Rung};

const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
/// How often views are opened anew before they are tried with fewer connections. A round is under a millisecond of the
/// server's time; at a thousand commits a second about every third finds none under way.
const ROUNDS: u32 = 30;
/// Lets the commits that were seen go by.
const PAUSE: Duration = Duration::from_millis(3);

/// Views with the same content.
#[derive(Debug)]
pub(super) struct Opened {
    /// At least one; each inside its transaction.
    pub(super) sessions: Vec<Session>,
    pub(super) fence: Fence,
    pub(super) exact: bool,
    /// Every transaction on the tables that is in the views, and none that is not; known under locks.
    pub(super) gtids: Option<GtidSet>,
}

/// What one connection read around its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading {
    fence: Fence,
    exact: bool,
}

/// Opens views on up to so many connections.
///
/// # Errors
/// As the statements fail; transient where the tables could not be locked in time.
pub(super) async fn open(
    config: &MySql,
    rung: Rung,
    epoch: u32,
    connections: usize,
) -> Result<Opened, Failure> {
    let mut sessions = Vec::with_capacity(connections);
    for _ in 0..connections.max(1) {
        sessions.push(Session::open(&config.server).await?);
    }
    match rung {
        Rung::Snapshot => agree(sessions, rung, epoch, Some(Doubts::new(config))).await,
        Rung::Gtid | Rung::LogStatus => agree(sessions, rung, epoch, None).await,
        Rung::Lock => locked(sessions, config, epoch).await,
        Rung::OwnRow => behind_own_row(sessions, config, epoch).await,
    }
}

/// Until all say the same, and there is no doubt about it.
async fn agree(
    mut sessions: Vec<Session>,
    rung: Rung,
    epoch: u32,
    mut doubts: Option<Doubts<'_>>,
) -> Result<Opened, Failure> {
    let mut round = 0;
    loop {
        let readings = read_all(&mut sessions, rung, epoch).await?;
        let (Some(first), Some(session)) = (readings.first(), sessions.first_mut()) else {
            return Err(Failure::protocol("open a view without a connection"));
        };
        let agreed = first.exact && readings.iter().all(|reading| reading == first);
        let is_last = readings.len() == 1 && round + 1 >= ROUNDS;
        if agreed || is_last {
            let believed = match &mut doubts {
                Some(doubts) => doubts.believes(session, &first.fence).await?,
                None => true,
            };
            if believed {
                let fence = first.fence.clone();
                return Ok(Opened { sessions, fence, exact: agreed, gtids: None });
            }
        } else {
            round += 1;
        }
        if round >= ROUNDS {
            round = 0;
            let fewer = sessions.len().div_ceil(2);
            tracing::warn!(
                connections = fewer,
                "the server commits too often for views with one content on more connections"
            );
            sessions.truncate(fewer);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Every connection at the same time: the closer together, the likelier is the same content.
async fn read_all(
    sessions: &mut Vec<Session>,
    rung: Rung,
    epoch: u32,
) -> Result<Vec<Reading>, Failure> {
    let mut tasks = JoinSet::new();
    for mut session in sessions.drain(..) {
        tasks.spawn(async move {
            let reading = read(&mut session, rung, epoch).await;
            (session, reading)
        });
    }
    let mut readings = Vec::with_capacity(tasks.len());
    for (session, reading) in tasks.join_all().await {
        sessions.push(session);
        readings.push(reading?);
    }
    if rung == Rung::Snapshot {
        // Load-bearing: one after the other. Their answers come from one place of the server's.
        for (session, reading) in sessions.iter_mut().zip(&mut readings) {
            if let (true, Fence::Before(place)) = (reading.exact, &reading.fence) {
                reading.exact = snapshot_place::is_at(session, *place).await?;
            }
        }
    }
    Ok(readings)
}

/// Opens the snapshot, and reads what is read together with it.
async fn read(session: &mut Session, rung: Rung, epoch: u32) -> Result<Reading, Failure> {
    match rung {
        Rung::Snapshot => {
            let (place, exact) = snapshot_place::open(session, BEGIN, epoch).await?;
            Ok(Reading { fence: Fence::Before(place), exact })
        }
        Rung::Gtid => read_gtids(session).await,
        Rung::LogStatus => read_log_status(session, epoch).await,
        Rung::Lock | Rung::OwnRow => {
            session.run("open a view", BEGIN).await?;
            let end = server::log_end(session).await?;
            let place = server::numbered(&end, epoch, "open a view")?;
            Ok(Reading { fence: Fence::Before(place), exact: true })
        }
    }
}

async fn read_gtids(session: &mut Session) -> Result<Reading, Failure> {
    let what = "open a view";
    let statements = format!(
        "ROLLBACK; SELECT @@GLOBAL.gtid_executed; {BEGIN}; \
         SELECT @@GLOBAL.gtid_owned; SELECT @@GLOBAL.gtid_executed"
    );
    let sets = session.texts(what, &statements).await?;
    let before = gtids(&sets, 1, what)?;
    let after = gtids(&sets, 4, what)?;
    let none_owned = cell(&sets, 3).is_some_and(|owned| owned.trim().is_empty());
    let exact = none_owned && before == after;
    Ok(Reading { fence: Fence::Gtids(before), exact })
}

async fn read_log_status(session: &mut Session, epoch: u32) -> Result<Reading, Failure> {
    let what = "open a view";
    let statements = format!("ROLLBACK; {LOG_STATUS}; {BEGIN}; {LOG_STATUS}");
    let sets = session.texts(what, &statements).await?;
    let before = log_status(&sets, 1, what)?;
    let after = log_status(&sets, 3, what)?;
    let place = server::numbered(&before, epoch, what)?;
    Ok(Reading { fence: Fence::Before(place), exact: before == after })
}

/// Load-bearing: read before the views are opened, or between two readings.
pub(super) const LOG_STATUS: &str = "SELECT json_unquote(json_extract(local, '$.binary_log_file')), \
     json_unquote(json_extract(local, '$.binary_log_position')), \
     json_unquote(json_extract(local, '$.gtid_executed')) FROM performance_schema.log_status";

/// The executed set that belongs to the place, where the server keeps one.
pub(super) fn log_status_gtids(sets: &Sets) -> Option<GtidSet> {
    let text = sets.first()?.first()?.get(2)?.as_deref()?;
    text.parse().ok().filter(|gtids: &GtidSet| !gtids.is_empty())
}

pub(super) fn log_status(sets: &Sets, set: usize, what: &str) -> Result<Place, Failure> {
    let row = sets.get(set).and_then(|rows| rows.first());
    let text = |column: usize| row.and_then(|row| row.get(column)).cloned().flatten();
    let offset = text(1).and_then(|text| text.parse().ok());
    match (text(0).filter(|file| !file.is_empty()), offset) {
        (Some(file), Some(offset)) => Ok(Place { file, offset }),
        _ => Err(server::not_a_place(what)),
    }
}

pub(super) fn gtids(sets: &Sets, set: usize, what: &str) -> Result<GtidSet, Failure> {
    let text = cell(sets, set).unwrap_or_default();
    text.parse().map_err(|_| {
        Failure::definite(
            format!("{what}: the server's GTIDs are not understood"),
            "report it with the value of @@GLOBAL.gtid_executed",
        )
    })
}

pub(super) fn cell(sets: &Sets, set: usize) -> Option<String> {
    sets.get(set)?.first()?.first()?.clone()
}

/// While nobody can write to the tables.
async fn locked(mut sessions: Vec<Session>, config: &MySql, epoch: u32) -> Result<Opened, Failure> {
    let mut locks = TableLocks::take(config).await?;
    let readings = read_all(&mut sessions, Rung::Lock, epoch).await?;
    let what = "open a view under the locks";
    let end = server::numbered(&locks.log_end().await?, epoch, what)?;
    let gtids = locks.gtids().await?;
    locks.release().await?;
    // Other tables are written meanwhile: any of the places is right for the locked ones. The first is taken, so that
    // a change of another table is not taken for one that the views hold.
    let first = readings.into_iter().map(|reading| reading.fence).next();
    let fence = first.unwrap_or(Fence::Before(end));
    Ok(Opened { sessions, fence, exact: true, gtids })
}

async fn behind_own_row(
    mut sessions: Vec<Session>,
    config: &MySql,
    epoch: u32,
) -> Result<Opened, Failure> {
    let place = own_row(config, epoch).await?;
    // Views of several connections could differ in what is between the place and the views.
    sessions.truncate(1);
    read_all(&mut sessions, Rung::OwnRow, epoch).await?;
    Ok(Opened { sessions, fence: Fence::Before(place), exact: false, gtids: None })
}

/// Reads the end of the log, and commits a row of our own behind it.
pub(super) async fn own_row(config: &MySql, epoch: u32) -> Result<Lsn, Failure> {
    let what = "write a row of our own";
    let Some(table) = &config.own_table else {
        return Err(Failure::definite(
            format!("{what}: there is no table for it"),
            "name one in own_table, or choose another pin",
        ));
    };
    let mut session = Session::open(&config.server).await?;
    let end = server::log_end(&mut session).await?;
    let table = super::identifier::quote_table(table);
    // Another value each time: a row that does not change is not in the log.
    let statement = format!(
        "INSERT INTO {table} (id, touched) VALUES (1, 1) ON DUPLICATE KEY UPDATE touched = touched + 1"
    );
    session.run(what, &statement).await?;
    server::numbered(&end, epoch, what)
}
