//! Whether a start can go on from what is recorded, without losing or inventing anything (I7).
//!
//! Four parties remember a position: the record, the outlet, the slot and the server's log. Going on is safe only in
//! this order: slot <= record <= outlet <= end of the log. Each pair out of order has a refusal of its own, because
//! each has another cause and another cure. In particular the server does not complain when a slot stands past the
//! position that is asked for: it silently skips what lies between.

use std::collections::BTreeSet;

use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

use super::protocol::{Mode, Recorded, Refusal, Slot, Start};
use super::record::{Pin, Record, Scan};

/// Where the stream goes on; `None` before there is a pin.
pub(super) fn resume_position(record: &Record, outlet: Option<Lsn>) -> Option<Lsn> {
    let Pin::At(pin) = record.pin else { return None };
    Some(pin).max(record.checkpoint).max(outlet)
}

pub(super) fn examine(record: &Record, start: &Start) -> Result<(), Refusal> {
    match record.pin {
        Pin::At(pin) => {
            examine_tables(record, start)?;
            examine_mode(record, start)?;
            let saved = record.checkpoint.unwrap_or(pin).max(pin);
            examine_resumption(saved, record.checkpoint.is_some(), start)
        }
        Pin::None if start.slot != Slot::Absent => Err(Refusal::SlotTaken),
        Pin::Intended if !may_be_ours(start.slot) => Err(Refusal::SlotTaken),
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

/// Whether a slot may be what a killed creation left: nobody has streamed from such a one.
fn may_be_ours(slot: Slot) -> bool {
    match slot {
        Slot::Absent => true,
        Slot::Present { streamed, .. } => !streamed,
        Slot::Lost => false,
    }
}

/// Streaming alone would leave a table for ever as a scan left it that did not end.
fn examine_mode(record: &Record, start: &Start) -> Result<(), Refusal> {
    if start.mode != Mode::Never {
        return Ok(());
    }
    let begun = |table: &&TableName| matches!(record.tables.get(table), Some(Scan::Due { attempts }) if *attempts > 0);
    let tables: BTreeSet<_> = start.tables.keys().filter(begun).cloned().collect();
    if tables.is_empty() { Ok(()) } else { Err(Refusal::ScanUnfinished { tables }) }
}

fn examine_resumption(saved: Lsn, delivered: bool, start: &Start) -> Result<(), Refusal> {
    let log_end = start.log_end;
    let from = start.outlet.position().map_or(saved, |recorded| recorded.max(saved));
    if from > log_end {
        return Err(Refusal::ServerBehind { position: from, log_end });
    }
    match start.outlet {
        Recorded::At(recorded) if recorded < saved => {
            return Err(Refusal::OutletBehind { recorded: Some(recorded), saved });
        }
        Recorded::Empty if delivered => {
            return Err(Refusal::OutletBehind { recorded: None, saved });
        }
        _ => {}
    }
    match start.slot {
        Slot::Absent => Err(Refusal::SlotMissing { from }),
        Slot::Lost => Err(Refusal::SlotLost { from }),
        Slot::Present { confirmed, .. } if confirmed > from => {
            Err(Refusal::SlotAhead { from, to: confirmed })
        }
        Slot::Present { .. } => Ok(()),
    }
}
