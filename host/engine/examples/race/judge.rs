//! What became of the rows around a pin.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result};
use dovetail_core::change::TransactionId;
use dovetail_core::position::Lsn;
use dovetail_tests::mysql::log::Transaction;

use crate::bed::IDS;
use crate::order::{BELOW, Sample, Stream, lsn};

/// How far past the last row that a view shows rows are looked at. Further ones were written much later.
const BEYOND: i64 = 30;

const EXAMPLES: usize = 6;

/// Every committed row, by its id.
pub(crate) struct Log {
    rows: HashMap<i64, Committed>,
}

struct Committed {
    start: Lsn,
    transaction: TransactionId,
}

#[derive(Default)]
pub(crate) struct Found {
    pins: u32,
    judged: u64,
    inexact: u32,
    connections: usize,
    lost: u64,
    pub(crate) lost_pins: u32,
    doubled: u64,
    /// As doubled, where the fence does not claim to be exact; the engine flags these.
    flagged: u64,
    /// Shown by one connection of a view and not by another; counted as lost or doubled by what each connection shows.
    split: u64,
    /// Some of what must not be.
    examples: Vec<String>,
    /// Shown, but starting behind the horizon, or not in the log at all.
    misplaced: u64,
}

impl Found {
    pub(crate) fn is_clean(&self) -> bool {
        let Self { judged, lost, doubled, misplaced, .. } = self;
        *judged > 0 && lost + doubled + misplaced == 0
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pins, judged, inexact, connections, lost, lost_pins, .. } = self;
        let Self { doubled, flagged, split, misplaced, .. } = self;
        write!(
            f,
            "{pins} pins, {judged} rows judged: {lost} lost in {lost_pins} pins, {doubled} doubled, {split} split, \
             {misplaced} misplaced; {connections} connections, {inexact} inexact views with {flagged} flagged"
        )
    }
}

impl Log {
    pub(crate) fn of(transactions: Vec<Transaction>) -> Result<Self> {
        let mut rows = HashMap::new();
        for transaction in transactions {
            let start = lsn(transaction.start);
            for row in transaction.rows.iter().filter(|row| row.table == "race.t") {
                let name = name(transaction.gtid.as_deref(), start)?;
                let id = row.first.context("the id of a row")?;
                rows.insert(id, Committed { start, transaction: name });
            }
        }
        Ok(Self { rows })
    }

    pub(crate) fn judge(&self, sample: &Sample, found: &mut Found) {
        found.pins += 1;
        found.inexact += u32::from(!sample.exact);
        found.connections += sample.shown.len();
        let lost = found.lost;
        for (number, floor) in (0_i64..).zip(sample.floor) {
            let base = number * IDS;
            let shown = sample.shown.iter().flatten();
            let last = shown.filter(|id| **id / IDS == number).max().copied();
            let last = last.unwrap_or(base + floor).max(base + floor);
            for id in base + floor - BELOW..=last + BEYOND {
                self.row(id, sample, found);
            }
        }
        found.lost_pins += u32::from(found.lost > lost);
    }

    fn row(&self, id: i64, sample: &Sample, found: &mut Found) {
        let views = sample.shown.iter().filter(|ids| ids.contains(&id)).count();
        let Some(row) = self.rows.get(&id) else {
            // The writers ended before it was written, or a view shows what was never committed.
            found.misplaced += u64::from(views > 0);
            return;
        };
        found.judged += 1;
        let streamed = sample.stream.brings(row);
        let held = sample.fence.as_ref();
        let held = held.is_some_and(|fence| fence.contains(&row.transaction, row.start));
        let emitted = streamed && !held;
        if views < sample.shown.len() && !emitted {
            found.lost += 1;
            found.example("lost", id, row, sample);
        } else if views > 0 && emitted && sample.exact {
            found.doubled += 1;
            found.example("doubled", id, row, sample);
        } else if views > 0 && emitted {
            found.flagged += 1;
        }
        found.split += u64::from(views > 0 && views < sample.shown.len());
        if views > 0 && held && sample.horizon.is_some_and(|horizon| row.start >= horizon) {
            found.misplaced += 1;
        }
    }
}

impl Found {
    fn example(&mut self, what: &str, id: i64, row: &Committed, sample: &Sample) {
        if self.examples.len() < EXAMPLES {
            let shown: Vec<_> = sample.shown.iter().map(|ids| ids.contains(&id)).collect();
            let Committed { start, transaction } = row;
            let stream = &sample.stream;
            let fence = sample.fence.as_ref().map(ToString::to_string);
            self.examples.push(format!(
                "{what}: row {id} of {transaction} at {start}, shown {shown:?}, stream {stream:?}, fence {fence:?}"
            ));
        }
    }

    /// What went wrong, for orders in which nothing may.
    pub(crate) fn examples(&self) -> &[String] {
        &self.examples
    }
}

impl Stream {
    fn brings(&self, row: &Committed) -> bool {
        match (self, &row.transaction) {
            (Self::From(start), _) => row.start >= *start,
            (Self::Except(start, gtids), TransactionId::Gtid(gtid)) => {
                row.start >= *start && !gtids.contains(gtid)
            }
            (Self::After(sequence), TransactionId::MariaDb(gtid)) => gtid.sequence > *sequence,
            _ => false,
        }
    }
}

/// As the engine's stream names it.
fn name(gtid: Option<&str>, start: Lsn) -> Result<TransactionId> {
    let Some(gtid) = gtid else { return Ok(TransactionId::Place(start)) };
    if gtid.contains(':') {
        return Ok(TransactionId::Gtid(gtid.parse().context("a GTID of MySQL")?));
    }
    Ok(TransactionId::MariaDb(gtid.parse().context("a GTID of MariaDB")?))
}
