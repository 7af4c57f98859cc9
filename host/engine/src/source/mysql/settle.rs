//! Waiting until what is in the log can be seen.
//!
//! A transaction is in the log before it is visible, and can stay in between for long: with semi-synchronous replication,
//! until a replica has it. A view that is opened meanwhile lacks it. That is a loss where the stream does not bring it, and
//! it lets rows go back where an earlier life has delivered it already; which can be anything up to the log's end at the
//! start, since an outlet may be ahead of the checkpoint and even of its own position. So a later view is opened only when
//! everything is visible that starts before `before`, a place that the log had reached when this began. By rung:
//!
//! - `gtid`: a transaction gets its GTID, and is *owned*, before it is written to the log; when it is visible it is
//!   *executed* and, in the same step, not owned any more. So what was in the log is owned or executed now. Those that are
//!   owned now are waited for. When none of them is owned any more each has been executed or rolled back, so what is
//!   executed then holds all that was in the log: it is the mark. (A transaction that a replica applies is owned from its
//!   beginning on, and waited for though it was not in the log. To find out by reading the log would take longer.)
//! - `snapshot`: the server tells up to which place transactions are visible, see
//!   [`snapshot_place`](super::snapshot_place); that place has to reach `before`. It can stay behind the log's end on a
//!   server at rest, when a group of commits sets it after an event that is no commit was written behind the group. Where
//!   such an event is all that is between, the place itself is the mark.
//! - `lock`, `log_status`, `own_row`: the view's own place is read behind `before` and is one before which everything is
//!   visible: under locks for which all who wrote had to end; while the server holds all commits back; behind a row of our
//!   own, in the order of commits. There is nothing to wait for here but that the log reaches `before`.
//!
//! A view whose fence does not cover the mark all the same is not used: the seam settles again.

use std::time::Duration;

use dovetail_core::fence::Mark;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use tokio::time::Instant;

use super::connection::Session;
use super::failure::Failure;
use super::note::Note;
use super::pin::PinError;
use super::server;
use super::snapshot;
use super::snapshot_place;
use crate::config::{MySql, Rung};

/// How often a wait looks again. Waits are for other sessions' transactions.
pub(super) const POLL: Duration = Duration::from_millis(100);
const WHAT: &str = "wait for transactions to become visible";

/// Waits until everything that starts before `before` is visible, so that a view which is opened afterwards holds it, and
/// says how that is recognised in the view's fence. `note` is what was kept with the position that the stream begins at.
///
/// # Errors
/// When it takes longer than the pin may.
pub async fn settle(
    config: &MySql,
    rung: Rung,
    before: Lsn,
    note: Option<&Note>,
) -> Result<Mark, PinError> {
    let mut session = Session::open(&config.server).await?;
    let mut wait = Wait { started: Instant::now(), limit: config.pin_timeout, before };
    match rung {
        Rung::Gtid => {
            let noted = note.and_then(|note| note.gtids.clone()).ok_or_else(|| {
                Failure::definite(
                    format!("{WHAT}: the GTIDs of the position before {before} were not kept"),
                    "remove the state directory and start anew to copy the tables again",
                )
            })?;
            let (under_way, _) = owned_and_executed(&mut session).await?;
            loop {
                let (owned, executed) = owned_and_executed(&mut session).await?;
                if are_disjoint(&under_way, &owned) && noted.is_subset(&executed) {
                    return Ok(Mark::Gtids(executed));
                }
                wait.pause().await?;
            }
        }
        Rung::Snapshot => loop {
            let visible = snapshot_place::visible(&mut session, before.epoch()).await?;
            if visible >= before {
                break;
            }
            if snapshot_place::is_no_commit_between(config, &mut session, visible, before).await? {
                return Ok(Mark::Log(visible));
            }
            wait.pause().await?;
        },
        Rung::Lock | Rung::LogStatus | Rung::OwnRow => loop {
            let end = server::log_end(&mut session).await?;
            if server::numbered(&end, before.epoch(), WHAT)? >= before {
                break;
            }
            wait.pause().await?;
        },
    }
    Ok(Mark::Log(before))
}

struct Wait {
    started: Instant,
    limit: Duration,
    before: Lsn,
}

impl Wait {
    async fn pause(&mut self) -> Result<(), PinError> {
        if self.started.elapsed() > self.limit {
            let seconds = self.limit.as_secs();
            return Err(PinError::Waiting { seconds, mark: self.before.to_string() });
        }
        tokio::time::sleep(POLL).await;
        Ok(())
    }
}

/// Load-bearing: the owned ones first, or one could leave them and not be found in either.
async fn owned_and_executed(session: &mut Session) -> Result<(GtidSet, GtidSet), Failure> {
    let query = "SELECT @@GLOBAL.gtid_owned; SELECT @@GLOBAL.gtid_executed";
    let sets = session.texts(WHAT, query).await?;
    let owned = owned(&snapshot::cell(&sets, 0).unwrap_or_default());
    let owned = owned.ok_or_else(|| {
        Failure::definite(
            format!("{WHAT}: the server's owned GTIDs are not understood"),
            "report it with the value of @@GLOBAL.gtid_owned",
        )
    })?;
    Ok((owned, snapshot::gtids(&sets, 1, WHAT)?))
}

/// Each number is followed by its owners: `3e11fa47-71ca-11e1-9e33-c80aa9429562:5#12:6#14`.
fn owned(text: &str) -> Option<GtidSet> {
    let mut parts = text.split('#');
    let mut set = parts.next()?.to_owned();
    for part in parts {
        set.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    set.parse().ok()
}

fn are_disjoint(set: &GtidSet, other: &GtidSet) -> bool {
    let mut rest = set.clone();
    rest.subtract(other);
    rest == *set
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    #[test]
    fn owners_are_left_out_of_what_they_own() {
        let set = |text: &str| text.parse::<GtidSet>().unwrap();
        assert_eq!(owned(""), Some(GtidSet::default()));
        assert_eq!(owned(&format!("{UUID}:5#12")), Some(set(&format!("{UUID}:5"))));
        let several = format!("{UUID}:5#12:6#14#15,\n{UUID}:tag:7#16");
        assert_eq!(owned(&several), Some(set(&format!("{UUID}:5-6,{UUID}:tag:7"))));
        assert_eq!(owned("nonsense"), None);
    }

    #[test]
    fn sets_that_share_a_number_are_not_disjoint() {
        let set = |intervals: &str| format!("{UUID}:{intervals}").parse::<GtidSet>().unwrap();
        assert!(are_disjoint(&set("5-7"), &set("8-9")));
        assert!(are_disjoint(&set("5"), &GtidSet::default()));
        assert!(are_disjoint(&GtidSet::default(), &set("5")));
        assert!(!are_disjoint(&set("5-7"), &set("7-9")));
    }
}
