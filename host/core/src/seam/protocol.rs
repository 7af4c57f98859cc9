//! What the seam is told, and what it asks for.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::ChunkId;
use crate::fence::{Fence, Mark};
use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

use super::record::Step;

/// Which tables are scanned at a start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Those that were not scanned yet.
    Initial,
    /// Every one, again.
    Always,
    /// None: stream only.
    Never,
}

/// The slot of this pipeline's name, as the server shows it at the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    Absent,
    Present {
        /// `confirmed_flush_lsn`: the server silently starts from here when it is asked for less.
        confirmed: Lsn,
        /// Somebody has streamed from it.
        streamed: bool,
    },
    /// It is there, but the log that it needs is not (`wal_status = lost`, or invalidated).
    Lost,
    /// Whatever it holds is of another history: the server's left the one that was read at this position, which is
    /// before the one where this pipeline stands.
    Forked {
        at: Lsn,
    },
}

/// What the server holds of the log for this pipeline, as it shows it at the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Log {
    /// PostgreSQL keeps what a slot of ours still needs.
    Slot(Slot),
    /// MySQL and MariaDB keep files for everybody, and remove the oldest ones by their age.
    Files {
        /// Where the oldest file begins.
        first: Lsn,
        continuity: Continuity,
    },
}

/// Whether a server's binlog is the one that this pipeline stands in. There is nothing to continue before there is a
/// pin; it is [`Same`](Self::Same) then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Continuity {
    /// The same server, and its files have not begun anew: positions mean what they meant.
    Same,
    /// Another server that has all that was read, and the log of what follows. Its positions are of an epoch past
    /// every one that is recorded here or at an outlet: an outlet that passes over what lies before its position must not
    /// take them for positions of the server before.
    Elsewhere,
    /// Another server that has all that was read, but no longer the log of what follows.
    Purged,
    /// It lacks transactions that were read.
    Behind,
    /// It has other transactions in the place of some that were read.
    Diverged,
    /// The same server, and its files have begun anew.
    Reset,
}

/// What of the log the pipeline itself keeps, between the reader and the lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spool {
    /// Nothing: the log is read when it is streamed.
    Off,
    /// It is kept from now on.
    Empty,
    /// Every transaction whose position is at or past `from` and before `to`.
    Holds { from: Lsn, to: Lsn },
    /// Every transaction at or past `from`, now or soon: the reader of an earlier attempt is still at work. It has no end
    /// here, because what the server shows is of another moment: an end that was looked up later may be past the log's, one
    /// that was looked up earlier before what the server has been told of meanwhile; and neither is wrong.
    Growing { from: Lsn },
}

impl Spool {
    /// Whether the stream can go on from this position without anything that is not in it, and not to be read yet.
    pub(super) fn covers(self, position: Lsn) -> bool {
        match self {
            Self::Off | Self::Empty => false,
            Self::Holds { from, to } => (from..=to).contains(&position),
            Self::Growing { from } => from <= position,
        }
    }
}

/// The position that the outlet keeps beside its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Recorded {
    /// This kind of outlet keeps none.
    Unkept,
    /// It keeps one, and there is none yet.
    Empty,
    At(Lsn),
}

impl Recorded {
    pub(super) fn position(self) -> Option<Lsn> {
        match self {
            Self::Unkept | Self::Empty => None,
            Self::At(lsn) => Some(lsn),
        }
    }
}

/// What the driver found out before it does anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Start {
    /// The wanted tables, as the catalog has them now; `None`: there is none of that name.
    pub tables: BTreeMap<TableName, Option<RelationId>>,
    pub mode: Mode,
    pub log: Log,
    pub outlet: Recorded,
    pub spool: Spool,
    /// The log's end now (PostgreSQL's insert position): no earlier life can have delivered a commit record at or past
    /// it.
    pub log_end: Lsn,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// First, and once.
    Start(Start),
    PinDropped,
    /// The server holds the log from here on.
    Pinned {
        at: Lsn,
        /// A view came with it that holds exactly what is not streamed from there: it is [`View::Pinned`]. Without one
        /// the position is a lower bound: transactions behind it may be visible already.
        view: bool,
    },
    /// The server refused, or was told to give up, and left nothing behind. The driver says why, and stops.
    NotPinned,
    /// A step that was asked for is durable.
    Saved(Step),
    /// The workers read in the snapshot that was exported with the slot.
    PinnedViewOpened,
    /// Every transaction up to the mark is visible, and the mark is at or past every one that [`Action::Settle`] was for.
    /// One by ids is past them when its id was assigned after that.
    Settled {
        mark: Mark,
    },
    /// `horizon` was read after the view was opened; see [`Fenced`](super::Fenced).
    LaterViewOpened {
        fence: Fence,
        horizon: Lsn,
    },
    /// Comes before the first chunk of the table goes out. The chunks are numbered from the [`Due::first_chunk`] on;
    /// an empty table may have none.
    ChunksPlanned {
        table: TableName,
        relation: RelationId,
        count: u32,
    },
    ChunkDurable(ChunkId),
    /// The connection that holds the view, or was taking the pin, is gone before every row was read. Once all are
    /// read it may go: the rows are on their way.
    ViewLost,
    /// Every transaction whose commit record starts before this is durable at every outlet.
    CommitDurable(Lsn),
}

/// A view to open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// The one that came with the pin: holds exactly what is not streamed from there.
    Pinned,
    /// A new one, with its fence. It takes the place of an earlier one.
    Later,
}

/// A table to scan in the view that is open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Due {
    pub table: TableName,
    /// Rows of it may have been delivered before: its rows are flagged as a redelivery.
    pub again: bool,
    /// Number of its first chunk. Numbers are not used twice in one life, so that late news of a chunk of an abandoned
    /// scan cannot be taken for news of this one.
    pub first_chunk: u32,
}

/// What the driver has to do, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Answer with [`Input::Saved`] when it is durable.
    Save(Step),
    /// Left over at the server from an intent that was never saved as a pin: nothing was emitted from it.
    DropPin,
    /// Make the server hold the log, and open the view that belongs to it where there is one, on connections that stay
    /// open until it is no longer needed. Answer with [`Input::Pinned`] or [`Input::NotPinned`].
    TakePin,
    /// Wait until everything is visible that a later view must not lack, with the limit that taking a pin has; answer
    /// with [`Input::Settled`]. On PostgreSQL: take a transaction id of one's own, and wait until every smaller one has
    /// ended. With GTIDs: until those before the position, and those that the pin leaves out, have been executed.
    Settle {
        /// What starts before this the stream will not bring, or an earlier life may have delivered.
        before: Lsn,
    },
    OpenView(View),
    /// A barrier down the lanes that empties these tables, before any row of [`Action::Scan`].
    Truncate(BTreeSet<TableName>),
    Scan(Vec<Due>),
    /// Read the log into the spool, from here on; it is not streamed from there yet. An attempt that ends need not end
    /// the reading: the next one is told that the spool is [`Growing`](Spool::Growing).
    Read {
        from: Lsn,
        /// What the spool holds is of no use: it is emptied first.
        anew: bool,
    },
    /// Nothing follows from a view any more. Stream the log from here; out of the spool, where there is one.
    Stream {
        from: Lsn,
        /// Changes that committed before this may have been delivered by an earlier life.
        again_before: Lsn,
    },
    /// What committed before this is needed by nobody: the spool may let go of it; where there is none, tell the source
    /// that it need not keep it.
    Release(Lsn),
    /// Emit nothing further; stop this pipeline, and say why. No other action follows, ever.
    Refuse(Refusal),
}

impl Action {
    /// Whether it makes no sense any more once the view is lost. The driver forgets those that it has not performed
    /// when it says [`Input::ViewLost`]; the answer asks for what is still wanted.
    pub fn needs_view(&self) -> bool {
        match self {
            Self::TakePin
            | Self::Settle { .. }
            | Self::OpenView(_)
            | Self::Truncate(_)
            | Self::Scan(_) => true,
            Self::Save(_)
            | Self::DropPin
            | Self::Read { .. }
            | Self::Stream { .. }
            | Self::Release(_)
            | Self::Refuse(_) => false,
        }
    }
}

/// Why a pipeline cannot go on without losing or inventing something: definite, an operator has to act.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the outlet was filled up to {recorded}, but there is no record of it here: bring back the state directory, or \
         empty the outlet's tables (its position with them) and start anew"
    )]
    StateMissing { recorded: Lsn },
    #[error(
        "the outlet stands at {}, behind {saved}, which was durable there: it was restored from an older copy or \
         emptied. Restore the newer copy, or empty it, remove the state directory and the slot, and start anew",
        .recorded.map_or_else(|| "no position".to_owned(), |lsn| lsn.to_string())
    )]
    OutletBehind { recorded: Option<Lsn>, saved: Lsn },
    #[error(
        "a replication slot of this name exists, but not from this pipeline: choose another name, or drop it with \
         pg_drop_replication_slot"
    )]
    SlotTaken,
    #[error("the replication slot is gone: changes from {from} on are lost")]
    SlotMissing { from: Lsn },
    #[error(
        "the server removed the log that the replication slot needs: changes from {from} on are lost"
    )]
    SlotLost { from: Lsn },
    #[error(
        "the replication slot starts at {to}, past {from}, where this pipeline stands: it was made again or read by \
         another. Changes from {from} to {to} are lost. If another program uses it, give this pipeline another one"
    )]
    SlotAhead { from: Lsn, to: Lsn },
    #[error(
        "the server has removed its binlog from {from} to {to}: those changes are lost. Let the server keep its \
         binlog for longer (binlog_expire_logs_seconds) than a scan and the longest stop take"
    )]
    LogPurged { from: Lsn, to: Lsn },
    #[error(
        "the server's binlog was reset after {from}, where this pipeline stands: changes since then may be lost"
    )]
    LogReset { from: Lsn },
    #[error(
        "this server lacks transactions that were read before {position} from another one: it is a replica that lags \
         behind, or was restored from a backup. Let it catch up, or point the pipeline at a server that has them"
    )]
    ServerLacks { position: Lsn },
    #[error(
        "this server has other transactions in the place of some that were read before {position}: it went its own way \
         before it took over. Point the pipeline at a server that has them"
    )]
    ServerDiverged { position: Lsn },
    #[error(
        "this server's history left the one that was read at {fork}, before {position}, where this pipeline stands: it was \
         promoted without the changes in between, or restored from a backup. Point the pipeline at a server that has them"
    )]
    ServerForked { position: Lsn, fork: Lsn },
    #[error(
        "the server's log ends at {log_end}, before {position}, which was read from it: it was restored from a backup \
         or is another server. Point the pipeline at the right server"
    )]
    ServerBehind { position: Lsn, log_end: Lsn },
    #[error(
        "mode `never` would leave tables half copied ({}): finish their scan with mode `initial` first",
        list(.tables)
    )]
    ScanUnfinished { tables: BTreeSet<TableName> },
    #[error(
        "these are not the tables any more that were captured, but were dropped, made again or renamed: {}. What \
         happened to them since is lost. Take them out of `tables`, run until caught up, and put them back: they are \
         scanned again then",
        list(.tables)
    )]
    Replaced { tables: BTreeSet<TableName> },
    /// A defect of the driver. Stopping is safe, going on may not be.
    #[error("{input} came while {state}: this is a defect of dovetail, please report it")]
    OutOfOrder { input: &'static str, state: &'static str },
}

fn list(tables: &BTreeSet<TableName>) -> String {
    tables.iter().map(TableName::to_string).collect::<Vec<_>>().join(", ")
}

/// Changes that cannot be had any more, or not here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gap {
    pub loss: Loss,
    /// The last position up to which nothing is missing.
    pub from: Lsn,
    /// Where the log goes on, as far as it is known.
    pub to: Option<Lsn>,
}

/// How the log came to lack them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    SlotMissing,
    SlotLost,
    SlotAhead,
    Purged,
    Reset,
    Behind,
    Diverged,
}

impl Loss {
    pub fn name(self) -> &'static str {
        match self {
            Self::SlotMissing => "slot missing",
            Self::SlotLost => "slot lost",
            Self::SlotAhead => "slot ahead",
            Self::Purged => "purged",
            Self::Reset => "reset",
            Self::Behind => "behind",
            Self::Diverged => "diverged",
        }
    }
}

impl Refusal {
    /// What of the log is lost, for the gap ledger.
    pub fn gap(&self) -> Option<Gap> {
        let (loss, from, to) = match *self {
            Self::SlotMissing { from } => (Loss::SlotMissing, from, None),
            Self::SlotLost { from } => (Loss::SlotLost, from, None),
            Self::SlotAhead { from, to } => (Loss::SlotAhead, from, Some(to)),
            Self::LogPurged { from, to } => (Loss::Purged, from, Some(to)),
            Self::LogReset { from } => (Loss::Reset, from, None),
            Self::ServerLacks { position } => (Loss::Behind, position, None),
            Self::ServerBehind { position, .. } => (Loss::Behind, position, None),
            Self::ServerDiverged { position } => (Loss::Diverged, position, None),
            Self::ServerForked { fork, .. } => (Loss::Diverged, fork, None),
            Self::StateMissing { .. }
            | Self::OutletBehind { .. }
            | Self::SlotTaken
            | Self::ScanUnfinished { .. }
            | Self::Replaced { .. }
            | Self::OutOfOrder { .. } => return None,
        };
        Some(Gap { loss, from, to })
    }
}

impl Input {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::PinDropped => "pin dropped",
            Self::Pinned { .. } => "pinned",
            Self::NotPinned => "not pinned",
            Self::Saved(_) => "saved",
            Self::PinnedViewOpened => "pinned view opened",
            Self::Settled { .. } => "settled",
            Self::LaterViewOpened { .. } => "later view opened",
            Self::ChunksPlanned { .. } => "chunks planned",
            Self::ChunkDurable(_) => "chunk durable",
            Self::ViewLost => "view lost",
            Self::CommitDurable(_) => "commit durable",
        }
    }
}
