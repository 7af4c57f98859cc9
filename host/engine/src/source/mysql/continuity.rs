//! Whether a server's log is still the one that a position is of.
//!
//! A position names a byte of a file, and nothing in it says whose file. Four things make the same name mean other bytes,
//! and following it all the same would skip changes in silence, or invent some (I7):
//!
//! 1. The files were reset and begin again at number 1; after a while the same file is long enough again.
//! 2. The server was put back from a backup, and writes on from an older place.
//! 3. The name of the host leads to another server now. Its files are numbered as it pleases.
//! 4. The file is gone, because it was old enough.
//!
//! So three things are compared. *Who*: the server's own identity. *What it has executed*: the set of GTIDs beside the
//! position must be in the server's, or what was read has been undone. *The bytes*: the last event before the position,
//! by its digest ([`Footprint`]). Without GTIDs, or on MariaDB, which begins to count anew after a reset, a server can
//! come to the same file, offset and GTID with other contents; it cannot come to the same bytes there, which hold the
//! time, the server's running number of the transaction, and their checksum.
//!
//! A position on one server says nothing on another one, but the set does: who has executed all of it, and still has the
//! log of everything else, can go on. Its positions are of a new epoch then.
//!
//! Of a pin, before which nothing was read, what can be had of this is looked for ([`event`](super::event)).
//!
//! **A doubt.** Where the file of the footprint was removed by age, as the first of two
//! files can be when the position is at the very beginning of the second, the bytes can't be compared any more.

use dovetail_core::gtid::mariadb::{Gtid, GtidState};
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use dovetail_core::seam::Continuity;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::server::{FIRST_OFFSET, Place};
use super::wire::{Wire, malformed};
use crate::config::MySqlKind;

/// The last event before a position, whatever it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    pub start: Lsn,
    /// Of its bytes as they are in the file.
    pub digest: u64,
}

impl Footprint {
    pub(super) fn of(start: Lsn, event: &[u8]) -> Self {
        Self { start, digest: digest(event) }
    }

    pub(super) fn is_of(&self, event: &[u8]) -> bool {
        self.digest == digest(event)
    }
}

fn digest(event: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(event)
}

/// What had been committed at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gtids {
    /// Positions are all there is.
    None,
    Set(GtidSet),
    State(GtidState),
}

/// A position, and what is known beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub at: Lsn,
    pub server: Option<String>,
    pub gtids: Gtids,
}

/// What a server has of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Log {
    pub server: Option<String>,
    /// Oldest first, with their lengths; never empty.
    files: Vec<Place>,
    executed: Executed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Executed {
    /// MySQL without GTIDs.
    Nothing,
    Set {
        executed: GtidSet,
        purged: GtidSet,
    },
    /// MariaDB: the last transaction of each server in each domain, and what lies before the oldest file.
    State {
        executed: Vec<Gtid>,
        purged: Vec<Gtid>,
    },
}

impl Log {
    /// What the server of this session has.
    pub(super) async fn read(wire: &mut Wire, kind: MySqlKind) -> Result<Self, Failure> {
        let files = files(wire).await?;
        let first = files.first().ok_or_else(no_log)?;
        let (server, executed) = match kind {
            MySqlKind::MySql => (mysql_server(wire).await?, mysql_executed(wire).await?),
            MySqlKind::MariaDb => {
                (mariadb_server(wire).await?, mariadb_executed(wire, &first.file).await?)
            }
        };
        Ok(Self { server, files, executed })
    }

    /// Oldest first, with their lengths.
    pub(super) fn files(&self) -> &[Place] {
        &self.files
    }

    /// Where the oldest file begins.
    pub(super) fn first(&self, epoch: u32) -> Option<Lsn> {
        let number = number(&self.files.first()?.file)?;
        Some(Lsn::binlog(epoch, number, FIRST_OFFSET))
    }

    /// Where the newest file ended.
    pub(super) fn end(&self, epoch: u32) -> Option<Lsn> {
        let last = self.files.last()?;
        Some(Lsn::binlog(epoch, number(&last.file)?, last.offset))
    }

    /// A position as the server names it; `None` where it has no such file.
    pub(super) fn place(&self, at: Lsn) -> Option<Place> {
        let file = self.files.iter().find(|file| number(&file.file) == Some(at.number()))?;
        Some(Place { file: file.file.clone(), offset: at.offset() })
    }

    /// What can be said without reading the log. On the same server, a position whose file is older than the oldest one
    /// is for the caller to notice, by [`first`](Self::first).
    pub(super) fn judge(&self, known: &Known) -> Continuity {
        let has = self.has(&known.gtids);
        let same = known.server.is_none() || known.server == self.server;
        match (same, has) {
            (true, Has::Everything) if self.reaches(known.at) => Continuity::Same,
            // It was there once.
            (true, _) => Continuity::Reset,
            (false, Has::Everything) => match &known.gtids {
                // Nothing can be found again by a position alone.
                Gtids::None => Continuity::Diverged,
                gtids if self.keeps_what_follows(gtids) => Continuity::Elsewhere,
                _ => Continuity::Purged,
            },
            (false, Has::Less) => Continuity::Behind,
            (false, Has::Other) => Continuity::Diverged,
        }
    }

    fn reaches(&self, at: Lsn) -> bool {
        match (self.first(at.epoch()), self.place(at)) {
            (Some(first), None) => at < first,
            (_, Some(place)) => {
                self.files.iter().any(|file| file.file == place.file && place.offset <= file.offset)
            }
            (None, None) => false,
        }
    }

    fn has(&self, gtids: &Gtids) -> Has {
        match (gtids, &self.executed) {
            (Gtids::None, _) => Has::Everything,
            (Gtids::Set(set), Executed::Set { executed, .. }) => {
                if set.is_subset(executed) {
                    Has::Everything
                } else if executed.is_subset(set) {
                    Has::Less
                } else {
                    Has::Other
                }
            }
            (Gtids::State(state), Executed::State { executed, .. }) => {
                state.gtids().map(|gtid| has(gtid, executed)).max().unwrap_or(Has::Everything)
            }
            // GTIDs were switched off, or it is the other kind of server.
            _ => Has::Other,
        }
    }

    fn keeps_what_follows(&self, gtids: &Gtids) -> bool {
        match (gtids, &self.executed) {
            (Gtids::Set(set), Executed::Set { purged, .. }) => purged.is_subset(set),
            (Gtids::State(state), Executed::State { purged, .. }) => {
                purged.iter().all(|gtid| state.contains(*gtid))
            }
            _ => false,
        }
    }
}

/// Worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Has {
    Everything,
    Less,
    Other,
}

/// Domains are numbered along the log; whose transaction has the number tells logs apart that forked.
fn has(gtid: Gtid, executed: &[Gtid]) -> Has {
    let mut reaches = false;
    for other in executed.iter().filter(|other| other.domain == gtid.domain) {
        if other.sequence >= gtid.sequence {
            if other.server == gtid.server {
                return Has::Everything;
            }
            reaches = true;
        }
    }
    if reaches { Has::Other } else { Has::Less }
}

fn number(file: &str) -> Option<u32> {
    file.rsplit_once('.')?.1.parse().ok()
}

fn no_log() -> Failure {
    Failure::definite(
        "the server writes no binary log",
        "start the server with log_bin; `dovetail check` says more",
    )
}

async fn files(wire: &mut Wire) -> Result<Vec<Place>, Failure> {
    let rows = wire.query("list the files of the log", "SHOW BINARY LOGS").await?;
    rows.into_iter()
        .map(|row| {
            let mut columns = row.into_iter();
            let file = columns.next().flatten().ok_or_else(malformed)?;
            let length = columns.next().flatten().and_then(|length| length.parse().ok());
            number(&file).ok_or_else(malformed)?;
            Ok(Place { file, offset: length.ok_or_else(malformed)? })
        })
        .collect()
}

async fn mysql_server(wire: &mut Wire) -> Result<Option<String>, Failure> {
    let row = row(wire, "read the server's identity", "SELECT @@GLOBAL.server_uuid").await?;
    Ok(row.into_iter().next().flatten())
}

/// MariaDB makes one out of the machine and the port; it is there from 10.10 on. Before that the server id, which a group
/// of servers has to keep apart, is all that there is.
async fn mariadb_server(wire: &mut Wire) -> Result<Option<String>, Failure> {
    let what = "read the server's identity";
    let rows = wire.query(what, "SHOW GLOBAL VARIABLES LIKE 'server\\_uid'").await?;
    let unique = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten();
    let row = row(wire, what, "SELECT @@GLOBAL.server_id").await?;
    let id = row.into_iter().next().flatten().ok_or_else(malformed)?;
    Ok(Some(match unique {
        Some(unique) => format!("{unique}/{id}"),
        None => id,
    }))
}

async fn mysql_executed(wire: &mut Wire) -> Result<Executed, Failure> {
    let query = "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged";
    let row = row(wire, "read the executed GTIDs", query).await?;
    let [mode, executed, purged] = <[Option<String>; 3]>::try_from(row).map_err(|_| malformed())?;
    if !mode.is_some_and(|mode| mode.eq_ignore_ascii_case("on")) {
        return Ok(Executed::Nothing);
    }
    let set = |text: Option<String>| text.unwrap_or_default().parse().map_err(|_| malformed());
    Ok(Executed::Set { executed: set(executed)?, purged: set(purged)? })
}

async fn mariadb_executed(wire: &mut Wire, first: &str) -> Result<Executed, Failure> {
    let what = "read the executed GTIDs";
    // The name is the server's own, of a listing; quoted all the same.
    let first = first.replace('\\', "\\\\").replace('\'', "''");
    let query =
        format!("SELECT @@GLOBAL.gtid_binlog_state, BINLOG_GTID_POS('{first}', {FIRST_OFFSET})");
    let row = row(wire, what, &query).await?;
    let [executed, purged] = <[Option<String>; 2]>::try_from(row).map_err(|_| malformed())?;
    Ok(Executed::State { executed: list(executed)?, purged: list(purged)? })
}

/// A state of the server's, which has several GTIDs of a domain where several servers wrote to it.
fn list(text: Option<String>) -> Result<Vec<Gtid>, Failure> {
    let text = text.unwrap_or_default();
    let gtids = text.split(',').map(str::trim).filter(|gtid| !gtid.is_empty());
    gtids.map(|gtid| gtid.parse().map_err(|_| malformed())).collect()
}

async fn row(wire: &mut Wire, what: &str, query: &str) -> Result<Vec<Option<String>>, Failure> {
    wire.query(what, query).await?.into_iter().next().ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(intervals: &str) -> GtidSet {
        match intervals {
            "" => GtidSet::default(),
            intervals => format!("{UUID}:{intervals}").parse().unwrap(),
        }
    }

    fn files(numbers: std::ops::RangeInclusive<u32>, length: u64) -> Vec<Place> {
        numbers.map(|n| Place { file: format!("binlog.{n:06}"), offset: length }).collect()
    }

    fn mysql(server: &str, executed: &str, purged: &str) -> Log {
        let executed = Executed::Set { executed: set(executed), purged: set(purged) };
        Log { server: Some(server.into()), files: files(3..=7, 1000), executed }
    }

    fn mariadb(server: &str, executed: &str, purged: &str) -> Log {
        let list = |text: &str| list(Some(text.into())).unwrap();
        let executed = Executed::State { executed: list(executed), purged: list(purged) };
        Log { server: Some(server.into()), files: files(3..=7, 1000), executed }
    }

    fn known(number: u32, offset: u64, gtids: Gtids) -> Known {
        Known { at: Lsn::binlog(0, number, offset), server: Some("a".into()), gtids }
    }

    #[test]
    fn the_same_server_goes_on_while_its_files_reach() {
        let log = mysql("a", "1-100", "1-10");
        for (number, offset, expected) in [
            (5, 500, Continuity::Same),
            (7, 1000, Continuity::Same),
            // Older than the oldest: purged, which the position itself tells.
            (2, 500, Continuity::Same),
            (7, 1001, Continuity::Reset),
            (8, 4, Continuity::Reset),
        ] {
            for gtids in [Gtids::None, Gtids::Set(set("1-90"))] {
                assert_eq!(log.judge(&known(number, offset, gtids)), expected, "{number}:{offset}");
            }
        }
        assert_eq!(log.first(2), Some(Lsn::binlog(2, 3, 4)));
        assert_eq!(log.end(2), Some(Lsn::binlog(2, 7, 1000)));
    }

    #[test]
    fn a_server_that_lost_what_it_had_was_reset() {
        let gtids = || Gtids::Set(set("1-90"));
        assert_eq!(mysql("a", "1-89", "").judge(&known(5, 500, gtids())), Continuity::Reset);
        let state = || Gtids::State("0-1-90".parse().unwrap());
        assert_eq!(mariadb("a", "0-1-89", "").judge(&known(5, 500, state())), Continuity::Reset);
        assert_eq!(mariadb("a", "0-1-90", "").judge(&known(5, 500, state())), Continuity::Same);
    }

    #[test]
    fn another_server_of_mysql_is_judged_by_sets() {
        let gtids = || Gtids::Set(set("1-90"));
        for (executed, purged, expected) in [
            ("1-90", "1-90", Continuity::Elsewhere),
            ("1-200", "1-50", Continuity::Elsewhere),
            ("1-200", "1-91", Continuity::Purged),
            ("1-80", "", Continuity::Behind),
            ("1-80:100", "", Continuity::Diverged),
        ] {
            let judged = mysql("b", executed, purged).judge(&known(99, 4, gtids()));
            assert_eq!(judged, expected, "{executed}");
        }
        let judged = mysql("b", "1-200", "").judge(&known(5, 4, Gtids::None));
        assert_eq!(judged, Continuity::Diverged);
    }

    #[test]
    fn another_server_of_mariadb_is_judged_by_domains_and_writers() {
        let gtids = || Gtids::State("0-1-90,2-1-5".parse().unwrap());
        for (executed, purged, expected) in [
            ("0-1-90,2-1-5", "", Continuity::Elsewhere),
            ("0-1-95,0-2-120,2-1-5", "0-1-90", Continuity::Elsewhere),
            ("0-1-95,0-2-120,2-1-5", "0-1-95", Continuity::Purged),
            ("0-1-90", "", Continuity::Behind),
            ("0-1-80,2-1-5", "", Continuity::Behind),
            // It took over at 80 and counted on by itself.
            ("0-1-80,0-2-120,2-1-5", "", Continuity::Diverged),
            ("0-1-80,0-2-120", "", Continuity::Diverged),
        ] {
            let judged = mariadb("b", executed, purged).judge(&known(99, 4, gtids()));
            assert_eq!(judged, expected, "{executed}");
        }
    }

    #[test]
    fn a_footprint_is_of_its_bytes() {
        let footprint = Footprint::of(Lsn::binlog(0, 3, 500), b"event");
        assert!(footprint.is_of(b"event"));
        assert!(!footprint.is_of(b"Event"));
    }
}
