//! XA transactions that are prepared while a pin is taken, or a view.
//!
//! The rows of such a transaction are in the log where it was prepared, and happen where it is committed, any time later,
//! by an event without rows. So a pin between the two would lose them:
//!
//! 1. T writes a row and is prepared; 2. the pin is taken, its views do not hold the row; 3. T is committed. Result: what
//!    is streamed says that T happened, and not what it did.
//!
//! Therefore a pin is taken only after a moment in which nothing was prepared, and the stream is asked for from *before*
//! that moment on ([`Asked`]). Then a transaction that was prepared before has ended, and is in the views; one that is
//! prepared behind it is streamed with its rows, on whichever side of the pin they are. What starts before the pin is
//! read for that alone and handed to nobody.
//!
//! **Doubts.** In between its event in the log and the answer to the client, a prepared transaction is in no list. One that
//! is not in the list for that reason and is committed behind the pin is noticed when its commit is read: the stream stops,
//! nothing is lost in silence. And MariaDB commits a prepared transaction in the engine *after* the log and not in its
//! order, so a view that is opened between the two has a place behind it and not its rows. That needs one that is
//! prepared, and whose commit is logged, within the milliseconds between the look and the view; or, where the view is a
//! later one, one that is committed in the very moment in which it is opened, which a short wait makes less likely.
//!
//! On MySQL the list needs `XA_RECOVER_ADMIN`. Without it nothing is waited for, and what was prepared at the pin stops
//! the stream when it is committed; `check` says so.

use std::time::Duration;

use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use mysql_async::Row;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::connection::Session;
use super::failure::{self, Failure, code};
use super::server;
use super::settle::POLL;
use super::snapshot;
use crate::config::{MySql, Rung};

/// Where a stream that joins a pin is asked to begin: at or before the pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    At(Lsn),
    /// Everything that is not in the set.
    Behind(GtidSet),
}

/// Before a view that is not a pin's is opened on MariaDB: the best of a short wait. What was prepared long ago is no
/// danger, unless it is committed in just that moment, and may stay prepared for days.
const VIEW_WAIT: Duration = Duration::from_secs(1);

/// Waits for a moment in which no XA transaction is prepared, so long as a view may.
///
/// # Errors
/// When the server cannot be asked.
pub(super) async fn let_end(config: &MySql) -> Result<(), Failure> {
    let mut session = Session::open(&config.server).await?;
    let started = Instant::now();
    while list(&mut session).await?.is_some_and(|count| count > 0) && started.elapsed() < VIEW_WAIT
    {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Waits for a moment in which no XA transaction is prepared. `None` where the account may not see them.
///
/// # Errors
/// Transient where that takes longer than the pin may.
pub(super) async fn wait(config: &MySql, rung: Rung, epoch: u32) -> Result<Option<Asked>, Failure> {
    let mut session = Session::open(&config.server).await?;
    let started = Instant::now();
    let mut is_said = false;
    loop {
        // Load-bearing: before the look.
        let asked = asked(&mut session, rung, epoch).await?;
        let count = match list(&mut session).await? {
            None => return Ok(None),
            Some(0) => return Ok(Some(asked)),
            Some(count) => count,
        };
        if started.elapsed() > config.pin_timeout {
            let seconds = config.pin_timeout.as_secs();
            return Err(Failure::transient(
                format!("{count} XA transactions are prepared, and none ended within {seconds} s"),
                "commit them or roll them back (XA RECOVER names them), or raise pin_timeout; rows that are prepared now would be lost",
            ));
        }
        if !is_said {
            tracing::info!(count, "waiting until no XA transaction is prepared");
            is_said = true;
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn asked(session: &mut Session, rung: Rung, epoch: u32) -> Result<Asked, Failure> {
    let what = "read the end of the log";
    if rung == Rung::Gtid {
        let sets = session.texts(what, "SELECT @@GLOBAL.gtid_executed").await?;
        return Ok(Asked::Behind(snapshot::gtids(&sets, 0, what)?));
    }
    let end = server::log_end(session).await?;
    Ok(Asked::At(server::numbered(&end, epoch, what)?))
}

/// How many are prepared.
///
/// # Errors
/// When the server cannot be asked.
pub(super) async fn list(session: &mut Session) -> Result<Option<usize>, Failure> {
    match session.rows::<Row>("look for prepared XA transactions", "XA RECOVER").await {
        Ok(rows) => Ok(Some(rows.len())),
        Err(failure) => match failure::number(&failure) {
            Some(code::XA_RECOVER_DENIED | code::SPECIFIC_ACCESS_DENIED) => Ok(None),
            _ => Err(failure),
        },
    }
}
