//! What a killed server left at the end of a file.
//!
//! A server that is killed while it writes to its log leaves a transaction there that is not whole. When it starts again
//! that transaction is rolled back in its tables, and it writes on in a new file. MySQL cuts the old file back to its last
//! whole transaction. MariaDB leaves it as it is, and then two things go wrong for whoever reads on there:
//!
//! 1. Events of the transaction that are whole are sent like any others, and its rows are handed on, because a transaction may
//!    be larger than memory. Result: rows that never were (I3).
//! 2. At the event that is not whole the server ends the stream with its general error of a log that it cannot send, at
//!    every attempt. Result: nothing is read any more, though nothing is missing. (MariaDB's own replicas stop there, for
//!    an operator to move them.)
//!
//! **So a file that is not the newest is looked at before it is read.** If it ends as a file does that was left in order, in
//! `ROTATE` or `STOP`, there is nothing else to see. Otherwise it is read once, without its rows, to find where its whole
//! transactions end ([`Extent`]). The stream leaves it there, and goes on at the beginning of the next file.
//!
//! **Why nothing is lost by that.** What the server found whole when it started again, it counts as committed, and writes
//! that down at the beginning of the next file. If that is exactly what is whole before the place where the file is left,
//! nothing behind that place was committed. If it is not, the log is damaged, and the stream stops (I7). The text of
//! the server's error is not asked.
//!
//! **Why the newest file needs no look.** While a stream is connected, the server has not been killed: no file that was the
//! newest when the stream began, or is newer, can have such an end. A stream that begins again looks again.
//!
//! **A doubt.** A disk that lost what lay in the middle of the file when the machine lost its power looks the same, if the
//! server's tables kept what the log lost. No server that syncs its log at each commit comes to that.

use dovetail_core::decode::binlog::extent::Extent;
use dovetail_core::decode::binlog::kind;
use dovetail_core::gtid::mariadb::GtidState;
use dovetail_core::position::Lsn;
use tokio::time::timeout;

use super::continuity::Log;
use super::dump::{Dump, Origin};
use super::event;
use super::failure::Failure;
use super::identity::Replica;
use super::reader;
use super::server::{FIRST_OFFSET, Place};
use super::stream::StreamError;
use super::wire::{Wire, malformed};
use crate::config::{MySql, MySqlKind};

/// Header and offset, before the name of the next file; with and without a checksum.
const ROTATE_LENGTHS: [u64; 2] = [31, 27];
/// Header; likewise.
const STOP_LENGTHS: [u64; 2] = [23, 19];

/// The ends of the files that there were when the stream began.
#[derive(Debug)]
pub(super) struct Tails {
    config: MySql,
    /// Oldest first, with their lengths. None of a server that leaves no such end.
    files: Vec<Place>,
}

/// An end that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tail {
    /// Where it begins.
    pub at: Lsn,
    pub bytes: u64,
    /// Where the log goes on.
    next: Place,
}

impl Tails {
    pub(super) fn of(config: &MySql, log: &Log) -> Self {
        let files = match config.kind {
            MySqlKind::MariaDb => log.files().to_vec(),
            MySqlKind::MySql => Vec::new(),
        };
        // Load-bearing: the configured id is that of the stream under way, which the server would end.
        Self { config: MySql { server_id: None, ..config.clone() }, files }
    }

    /// Whether there is a file behind the one of a position, so that it has to be looked at.
    pub(super) fn concern(&self, at: Lsn) -> bool {
        self.around(at).is_some()
    }

    /// The file of a position, and the next one.
    fn around(&self, at: Lsn) -> Option<(&Place, &Place)> {
        let is_it = |file: &Place| file.lsn(0).is_some_and(|lsn| lsn.number() == at.number());
        let mut files = self.files.iter().skip_while(|file| !is_it(file));
        Some((files.next()?, files.next()?))
    }

    /// The end of the file of a position that is not to be read, if there is one.
    ///
    /// # Errors
    /// Definite where it may hold what was committed.
    pub(super) async fn behind(&self, from: Lsn) -> Result<Option<Tail>, StreamError> {
        let Some((file, next)) = self.around(from) else { return Ok(None) };
        if from.offset() >= file.offset || self.ends_in_order(file, next).await? {
            return Ok(None);
        }
        let next = Place { file: next.file.clone(), offset: FIRST_OFFSET };
        let mut begin = Place { file: file.file.clone(), offset: from.offset() };
        if !event::is_in_reach(&begin) {
            begin.offset = FIRST_OFFSET;
        }
        let mut wire = Wire::open(&self.config.server).await?;
        let before = committed(&mut wire, &begin).await?;
        let after = committed(&mut wire, &next).await?;
        let Some(extent) = self.extent(begin, from, before, wire).await? else { return Ok(None) };
        let at = extent.end();
        let bytes = file.offset.saturating_sub(at.offset());
        if bytes == 0 {
            return Ok(None);
        }
        if *extent.committed() != after {
            return Err(StreamError::Undecodable { position: at, source: DAMAGED.into() });
        }
        Ok(Some(Tail { at, bytes, next }))
    }

    /// Whether the last event of a file is one with which a file is left.
    async fn ends_in_order(&self, file: &Place, next: &Place) -> Result<bool, Failure> {
        let name = u64::try_from(next.file.len()).unwrap_or(u64::MAX);
        let rotate = ROTATE_LENGTHS.map(|length| (kind::ROTATE, length.saturating_add(name)));
        let stop = STOP_LENGTHS.map(|length| (kind::STOP, length));
        for (kind, length) in [rotate[0], stop[0], rotate[1], stop[1]] {
            if event::event_before(&self.config, file, kind, length).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How far the whole transactions reach; `None` where that cannot be told, at which the stream will stop by itself.
    async fn extent(
        &self,
        begin: Place,
        from: Lsn,
        committed: GtidState,
        mut wire: Wire,
    ) -> Result<Option<Extent>, Failure> {
        let lsn = Lsn::binlog(from.epoch(), from.number(), begin.offset);
        let mut extent = Extent::new(lsn, committed);
        let replica = Replica::choose(&mut wire, None).await?;
        let mut dump = Dump::begin(wire, self.config.kind, &replica, &Origin::Place(begin)).await?;
        loop {
            match timeout(reader::SILENCE, dump.event()).await {
                Ok(Ok(event)) => match extent.take(&event) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Some(extent)),
                    Err(_) => return Ok(None),
                },
                Ok(Err(Failure::Definite { source, .. })) if reader::is_fatal(source.as_ref()) => {
                    return Ok(Some(extent));
                }
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(reader::silent()),
            }
        }
    }

    /// The log from behind such an end on, under an id of its own: the server may not have noticed yet that the stream
    /// before it has ended.
    pub(super) async fn pass(&self, tail: &Tail) -> Result<Dump, Failure> {
        let mut wire = Wire::open(&self.config.server).await?;
        let replica = Replica::choose(&mut wire, None).await?;
        Dump::begin(wire, self.config.kind, &replica, &Origin::Place(tail.next.clone())).await
    }
}

const DAMAGED: &str = "the file ends there although the server has committed what follows: it is damaged. Have the \
     tables scanned again: remove the state directory, empty the outlet, and start";

/// What the server had committed at a place.
async fn committed(wire: &mut Wire, place: &Place) -> Result<GtidState, Failure> {
    // The name is the server's own, of a listing; quoted all the same.
    let file = place.file.replace('\\', "\\\\").replace('\'', "''");
    let query = format!("SELECT BINLOG_GTID_POS('{file}', {})", place.offset);
    let rows = wire.query("read the GTIDs of a file", &query).await?;
    let text = rows.into_iter().flatten().next().flatten().ok_or_else(malformed)?;
    text.parse().map_err(|_| malformed())
}
