//! Whether a start can go on from what is recorded, without losing or inventing anything (I7).
//!
//! Four parties remember a position: the record, the outlet, what the server keeps of the log (from a slot on, or from
//! its oldest file on) and the log's end. Going on is safe only in this order: kept from <= record <= outlet <= end. Each
//! pair out of order has a refusal of its own, because each has another cause and another cure. In particular PostgreSQL
//! does not complain when a slot stands past the position that is asked for: it silently skips what lies between.
//!
//! All that compares positions of one log. A binlog's positions are of one server, so first of all it has to be the same
//! server, or one that the source found to continue it ([`Continuity`]). At another server, where positions are of a
//! later epoch:
//! - the stream goes on from the record and not from an outlet that is ahead of it: the place of the outlet's position
//!   in the other log is not known. What lies between comes again, flagged.
//! - a fence that may still be asked names places or transactions of the log before, with a horizon there, which the
//!   first checkpoint of the new epoch would pass though transactions of the fence are yet to come. So tables with such a
//!   fence are scanned again ([`fenced_elsewhere`]).

use std::collections::BTreeSet;

use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

use super::protocol::{Continuity, Log, Mode, Recorded, Refusal, Slot, Spool, Start};
use super::record::{Pin, Record, Scan};

/// Where the stream goes on; `None` before there is a pin.
pub(super) fn resume_position(record: &Record, start: &Start) -> Option<Lsn> {
    let saved = saved_position(record)?;
    Some(outlet_position(record, start).map_or(saved, |recorded| recorded.max(saved)))
}

/// Where the log is read from: behind what the spool holds, unless the stream goes on before or behind that. `true`: what
/// the spool holds is of no use. `None` where it is being read already, or there is no pin.
pub(super) fn reading_position(record: &Record, start: &Start) -> Option<(Lsn, bool)> {
    let from = resume_position(record, start)?;
    match start.spool {
        Spool::Holds { to, .. } if start.spool.covers(from) => Some((to, false)),
        Spool::Growing { .. } if start.spool.covers(from) => None,
        _ => Some((from, true)),
    }
}

/// What the outlet says of where to go on: a position of this log, or of what the spool holds.
pub(super) fn outlet_position(record: &Record, start: &Start) -> Option<Lsn> {
    let is_spooled = |recorded: &Lsn| {
        let saved = saved_position(record);
        saved.is_some_and(|saved| start.spool.covers(saved)) && start.spool.covers(*recorded)
    };
    start.outlet.position().filter(|recorded| !is_elsewhere(start) || is_spooled(recorded))
}

fn saved_position(record: &Record) -> Option<Lsn> {
    let Pin::At(pin) = record.pin else { return None };
    Some(record.checkpoint.unwrap_or(pin).max(pin))
}

fn is_elsewhere(start: &Start) -> bool {
    matches!(start.log, Log::Files { continuity: Continuity::Elsewhere, .. })
}

/// Tables that are done by a fence of another server's log.
pub(super) fn fenced_elsewhere(record: &Record, start: &Start) -> BTreeSet<TableName> {
    record.fenced().filter(|_| is_elsewhere(start)).cloned().collect()
}

/// Whether a pipeline may go on.
///
/// # Errors
/// Definite: see the module.
pub fn examine(record: &Record, start: &Start) -> Result<(), Refusal> {
    match record.pin {
        Pin::At(pin) => {
            examine_tables(record, start)?;
            examine_mode(record, start)?;
            examine_outlet(record, pin, start)?;
            examine_log(record, start)
        }
        Pin::None if !is_free(start.log) => Err(Refusal::SlotTaken),
        // Given up: the pipeline has streamed from it.
        Pin::Intended if !may_be_ours(start.log) && !record.is_given_up() => {
            Err(Refusal::SlotTaken)
        }
        Pin::None | Pin::Intended => match start.outlet.position() {
            Some(recorded) => Err(Refusal::StateMissing { recorded }),
            None => Ok(()),
        },
    }
}

/// The log tells a table from another one that has taken its name, and so do fences; a name does not.
fn examine_tables(record: &Record, start: &Start) -> Result<(), Refusal> {
    let is_replaced = |(table, relation): &(&TableName, RelationId)| {
        start.tables.get(*table).is_some_and(|now| *now != Some(*relation))
    };
    let replaced = record.relations().filter(is_replaced);
    let tables: BTreeSet<_> = replaced.map(|(table, _)| table.clone()).collect();
    if tables.is_empty() { Ok(()) } else { Err(Refusal::Replaced { tables }) }
}

/// Whether nothing stands in the way of a pin. Binlog files are there for everybody.
fn is_free(log: Log) -> bool {
    matches!(log, Log::Slot(Slot::Absent) | Log::Files { .. })
}

/// Whether a slot may be what a killed creation left: nobody has streamed from such a one.
fn may_be_ours(log: Log) -> bool {
    is_free(log) || matches!(log, Log::Slot(Slot::Present { streamed: false, .. }))
}

/// Streaming alone would leave a table for ever as a scan left it that did not end.
fn examine_mode(record: &Record, start: &Start) -> Result<(), Refusal> {
    if start.mode != Mode::Never {
        return Ok(());
    }
    let begun = |table: &&TableName| matches!(record.tables.get(table), Some(Scan::Due { attempts }) if *attempts > 0);
    let begun = start.tables.keys().filter(begun).cloned();
    let tables: BTreeSet<_> = begun.chain(fenced_elsewhere(record, start)).collect();
    if tables.is_empty() { Ok(()) } else { Err(Refusal::ScanUnfinished { tables }) }
}

fn examine_outlet(record: &Record, pin: Lsn, start: &Start) -> Result<(), Refusal> {
    let saved = saved_position(record).unwrap_or(pin);
    match start.outlet {
        Recorded::At(recorded) if recorded < saved => {
            Err(Refusal::OutletBehind { recorded: Some(recorded), saved })
        }
        Recorded::Empty if record.checkpoint.is_some() => {
            Err(Refusal::OutletBehind { recorded: None, saved })
        }
        _ => Ok(()),
    }
}

/// What has to be in the server's log is what is read from there, not what the spool holds.
fn examine_log(record: &Record, start: &Start) -> Result<(), Refusal> {
    let Some((from, _)) = reading_position(record, start) else { return Ok(()) };
    examine_continuity(from, start.log)?;
    if from > start.log_end {
        return Err(Refusal::ServerBehind { position: from, log_end: start.log_end });
    }
    examine_kept(from, start.log)
}

/// Before positions are compared at all: whether they are of one log.
fn examine_continuity(from: Lsn, log: Log) -> Result<(), Refusal> {
    let (first, continuity) = match log {
        Log::Files { first, continuity } => (first, continuity),
        Log::Slot(Slot::Forked { at }) => {
            return Err(Refusal::ServerForked { position: from, fork: at });
        }
        Log::Slot(_) => return Ok(()),
    };
    match continuity {
        Continuity::Same | Continuity::Elsewhere => Ok(()),
        Continuity::Purged => Err(Refusal::LogPurged { from, to: first }),
        Continuity::Behind => Err(Refusal::ServerLacks { position: from }),
        Continuity::Diverged => Err(Refusal::ServerDiverged { position: from }),
        Continuity::Reset => Err(Refusal::LogReset { from }),
    }
}

fn examine_kept(from: Lsn, log: Log) -> Result<(), Refusal> {
    match log {
        Log::Slot(Slot::Absent) => Err(Refusal::SlotMissing { from }),
        Log::Slot(Slot::Lost) => Err(Refusal::SlotLost { from }),
        Log::Slot(Slot::Present { confirmed, .. }) if confirmed > from => {
            Err(Refusal::SlotAhead { from, to: confirmed })
        }
        // Another server's first file says nothing about a position of the server before.
        Log::Files { first, continuity: Continuity::Same } if first > from => {
            Err(Refusal::LogPurged { from, to: first })
        }
        Log::Slot(Slot::Present { .. } | Slot::Forked { .. }) | Log::Files { .. } => Ok(()),
    }
}
