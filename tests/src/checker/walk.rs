//! The walk through what was observed, from the first life to the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dovetail_core::position::Lsn;

use super::history::{
    Delivered, History, Image, Life, Observation, Operation, RowKey, Rows, Write,
};
use super::ledger::{Effect, Ledger};
use super::violation::{Fact, Invariant, Subject, Violation};

/// What has become of one key so far.
#[derive(Debug, Default)]
struct Trace {
    /// By index of the entry.
    delivered: Vec<bool>,
    /// Highest entry that the stream or a scan brought.
    highest: Option<usize>,
    /// Highest entry that a scanned row held.
    read: Option<usize>,
    /// Last entry that the stream brought in this life.
    streamed: Option<usize>,
    /// First entry that the stream brought since the table was emptied for a scan.
    streamed_first: Option<usize>,
    /// Entry whose row the outlet holds.
    present: Option<usize>,
    /// A row of it was scanned in this life, since its table was last emptied.
    scanned: bool,
}

/// The walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    history: &'a History,
    ledger: &'a Ledger,
    traces: BTreeMap<RowKey, Trace>,
    pub(super) folded: Rows,
    pub(super) violations: Vec<Violation>,
    life: usize,
    /// In this life: changes of a transaction to a key.
    seen: BTreeMap<(usize, RowKey), usize>,
    /// Transactions of which something came since the outlet last showed something.
    unshown: BTreeSet<usize>,
    /// Transactions of known commit, in that order; those before `verified` lie behind a saved checkpoint.
    by_commit: Vec<(Lsn, usize)>,
    verified: usize,
    saved: Option<(usize, Lsn)>,
    /// Where there is a spool. It falls when that is begun anew.
    spooled: Option<(usize, Lsn)>,
    acknowledged: Option<(usize, Lsn)>,
    log_lost: Option<usize>,
    refused: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(history: &'a History, ledger: &'a Ledger) -> Self {
        let known = ledger.commits.iter().enumerate();
        let mut by_commit: Vec<_> =
            known.filter_map(|(index, commit)| Some(((*commit)?, index))).collect();
        by_commit.sort_unstable();
        Self {
            history,
            ledger,
            traces: BTreeMap::new(),
            folded: Rows::new(),
            violations: Vec::new(),
            life: 0,
            seen: BTreeMap::new(),
            unshown: BTreeSet::new(),
            by_commit,
            verified: 0,
            saved: None,
            spooled: None,
            acknowledged: None,
            log_lost: None,
            refused: false,
        }
    }

    pub(super) fn life(&mut self, number: usize, life: &Life) {
        self.life = number;
        self.seen.clear();
        self.unshown.clear();
        self.refused = false;
        for trace in self.traces.values_mut() {
            trace.streamed = None;
            trace.scanned = false;
        }
        for observation in &life.observations {
            self.observe(life, observation);
        }
    }

    fn observe(&mut self, life: &Life, observation: &Observation) {
        match observation {
            Observation::Delivered(delivered) => {
                self.nothing_after_a_stop(Fact::Delivered {
                    life: self.life,
                    position: delivered.position,
                    operation: delivered.operation,
                    image: delivered.image,
                });
                self.delivered(life, delivered);
            }
            Observation::Truncated { table, transaction, redelivery } => {
                self.nothing_after_a_stop(Fact::Truncated {
                    life: self.life,
                    transaction: *transaction,
                });
                match transaction {
                    Some(id) => self.truncated(life, table, *id, *redelivery),
                    None => self.emptied(table),
                }
                self.folded.retain(|row, _| row.table != *table);
            }
            Observation::Shown => self.shown(),
            Observation::Saved(lsn) => self.saved(*lsn),
            Observation::Spooled(lsn) => self.spooled = Some((self.life, *lsn)),
            Observation::Acknowledged(lsn) => self.acknowledged(*lsn),
            Observation::LogLost => self.log_lost = Some(self.life),
            Observation::Refused => self.refused = true,
        }
    }

    /// I7.
    fn nothing_after_a_stop(&mut self, found: Fact) {
        let expected = match self.log_lost {
            Some(life) if life < self.life => Fact::LogLost { life },
            _ if self.refused => Fact::Refused { life: self.life },
            _ => return,
        };
        self.report(Invariant::HonestStop, Subject::Pipeline, expected, found);
    }

    fn delivered(&mut self, life: &Life, delivered: &Delivered) {
        let found = Fact::Delivered {
            life: self.life,
            position: delivered.position,
            operation: delivered.operation,
            image: delivered.image,
        };
        let row = &delivered.row;
        let index = match delivered.transaction {
            None => self.read(delivered, &found),
            Some(id) => self.streamed(life, delivered, id, &found),
        };
        let Some(index) = index else { return };
        let written = self.ledger.entries(row).get(index).and_then(|entry| entry.effect.image());
        match (delivered.operation, delivered.image.or(written)) {
            (Operation::Delete, _) | (_, None) => {
                self.folded.remove(row);
                self.trace(row).present = None;
            }
            (_, Some(image)) => {
                self.folded.insert(row.clone(), image);
                self.trace(row).present = Some(index);
            }
        }
    }

    fn read(&mut self, delivered: &Delivered, found: &Fact) -> Option<usize> {
        let row = &delivered.row;
        let holds = |effect: Effect| effect.image().is_some() && effect.image() == delivered.image;
        let index = self.ledger.entries(row).iter().rposition(|entry| holds(entry.effect));
        let Some(index) = index.filter(|_| delivered.operation == Operation::Read) else {
            self.invention(row, delivered.image, found);
            return None;
        };
        let trace = self.trace(row);
        let highest = trace.highest;
        let twice = std::mem::replace(&mut trace.scanned, true);
        trace.highest = highest.max(Some(index));
        trace.read = trace.read.max(Some(index));
        let later = highest.filter(|highest| index < *highest || twice);
        if let Some(later) = later {
            let expected = self.written(row, later);
            self.report(Invariant::NoGoingBack, Subject::Row(row.clone()), expected, found.clone());
        }
        Some(index)
    }

    fn streamed(
        &mut self,
        life: &Life,
        delivered: &Delivered,
        id: u64,
        found: &Fact,
    ) -> Option<usize> {
        let row = &delivered.row;
        let transaction = self.ledger.transaction(id);
        let index = transaction.and_then(|it| self.next_of(it, row));
        let (Some(transaction), Some(index)) = (transaction, index) else {
            self.unmatched(transaction, delivered, found);
            return None;
        };
        let entry = &self.ledger.entries(row)[index];
        let commit = self.ledger.commits[transaction];
        let image = delivered.image.is_none() || delivered.image == entry.effect.image();
        let here = commit.is_none_or(|commit| commit == delivered.position.commit);
        if !image || !here || !entry.effect.is_delivered_as(delivered.operation) {
            let expected = self.written(row, index);
            self.report(Invariant::NoInvention, Subject::Row(row.clone()), expected, found.clone());
        }
        self.advance(life, row, index, delivered.redelivery, found);
        Some(index)
    }

    /// The transaction's next change of this key in this life: transactions come whole, from their beginning.
    fn next_of(&mut self, transaction: usize, row: &RowKey) -> Option<usize> {
        let entries = self.ledger.entries(row);
        let first = entries.partition_point(|entry| entry.transaction < transaction);
        let seen = self.seen.entry((transaction, row.clone())).or_default();
        let index = first + *seen;
        *seen += 1;
        entries.get(index).filter(|entry| entry.transaction == transaction).map(|_| index)
    }

    /// A change without a counterpart: of a transaction that did not touch the key, or one too many.
    fn unmatched(&mut self, transaction: Option<usize>, delivered: &Delivered, found: &Fact) {
        let row = &delivered.row;
        let entries = self.ledger.entries(row);
        let last = entries.iter().rposition(|entry| Some(entry.transaction) == transaction);
        match last {
            Some(last) => {
                let expected = self.written(row, last);
                let row = Subject::Row(row.clone());
                self.report(Invariant::NoGoingBack, row, expected, found.clone());
            }
            None => self.invention(row, delivered.image, found),
        }
    }

    fn invention(&mut self, row: &RowKey, image: Option<Image>, found: &Fact) {
        let undone =
            self.history.rolled_back.iter().any(|(it, was)| it == row && Some(*was) == image);
        let expected = if undone { Fact::RolledBack } else { Fact::NeverWritten };
        self.report(Invariant::NoInvention, Subject::Row(row.clone()), expected, found.clone());
    }

    /// I2 for a change that the stream brought.
    fn advance(&mut self, life: &Life, row: &RowKey, index: usize, flagged: bool, found: &Fact) {
        let ledger = self.ledger;
        let transaction = ledger.entries(row)[index].transaction;
        self.unshown.insert(transaction);
        let before_checkpoint = ledger.commits[transaction]
            .is_some_and(|commit| life.resumed_from.is_some_and(|from| commit < from));
        let trace = self.trace(row);
        let later = trace.streamed.filter(|last| index <= *last);
        let scanned = trace.read.filter(|read| index <= *read);
        let repeated = trace.delivered.get(index) == Some(&true);
        if trace.delivered.len() <= index {
            trace.delivered.resize(index + 1, false);
        }
        trace.delivered[index] = true;
        trace.highest = trace.highest.max(Some(index));
        trace.streamed = Some(index);
        trace.streamed_first = Some(trace.streamed_first.map_or(index, |it| it.min(index)));
        let expected = match (later, scanned) {
            (Some(later), _) => self.written(row, later),
            (None, Some(index)) => Fact::InTheScan { index },
            (None, None) if repeated && before_checkpoint => {
                let lsn = life.resumed_from.unwrap_or_default();
                Fact::Saved { life: self.life, lsn }
            }
            (None, None) if repeated && !flagged => Fact::NotFlagged,
            _ => return,
        };
        self.report(Invariant::NoGoingBack, Subject::Row(row.clone()), expected, found.clone());
    }

    fn truncated(&mut self, life: &Life, table: &Arc<str>, id: u64, flagged: bool) {
        let found = Fact::Truncated { life: self.life, transaction: Some(id) };
        let wrote = |write: &Write| matches!(write, Write::Truncate(it) if it == table);
        let transaction = self.ledger.transaction(id).filter(|index| {
            self.history.transactions.get(*index).is_some_and(|it| it.writes.iter().any(wrote))
        });
        let Some(transaction) = transaction else {
            let table = Subject::Table(table.clone());
            self.report(Invariant::NoInvention, table, Fact::NeverWritten, found);
            return;
        };
        self.unshown.insert(transaction);
        let ledger = self.ledger;
        for (row, index) in &ledger.writes[transaction] {
            let entry = &ledger.entries(row)[*index];
            if row.table != *table || entry.effect != Effect::Truncate {
                continue;
            }
            *self.seen.entry((transaction, row.clone())).or_default() += 1;
            self.advance(life, row, *index, flagged, &found);
        }
        for (_, trace) in self.traces.iter_mut().filter(|(row, _)| row.table == *table) {
            trace.present = None;
        }
    }

    /// The engine empties a table before it scans it again.
    fn emptied(&mut self, table: &Arc<str>) {
        for (_, trace) in self.traces.iter_mut().filter(|(row, _)| row.table == *table) {
            trace.present = None;
            trace.scanned = false;
            trace.streamed_first = None;
        }
    }

    /// I5 at a transactional outlet.
    fn shown(&mut self) {
        for transaction in std::mem::take(&mut self.unshown) {
            if let Some((row, index)) = self.missing(transaction) {
                let expected = self.written(&row, index);
                let found = Fact::Shown { life: self.life };
                self.report(Invariant::Atomicity, Subject::Row(row), expected, found);
            }
        }
    }

    /// I5 and I6: what lies behind a saved checkpoint is at the outlet, in one piece.
    fn saved(&mut self, lsn: Lsn) {
        let found = Fact::Saved { life: self.life, lsn };
        if let Some((life, saved)) = self.saved.filter(|(_, saved)| *saved > lsn) {
            let expected = Fact::Saved { life, lsn: saved };
            self.report(Invariant::DurabilityOrder, Subject::Pipeline, expected, found.clone());
        } else {
            self.saved = Some((self.life, lsn));
        }
        while let Some((commit, transaction)) = self.by_commit.get(self.verified).copied() {
            if commit >= lsn {
                break;
            }
            self.verified += 1;
            let Some((row, index)) = self.missing(transaction) else { continue };
            let writes = &self.ledger.writes[transaction];
            let split = writes.iter().any(|(row, index)| self.is_delivered(row, *index));
            let invariant = if split { Invariant::Atomicity } else { Invariant::DurabilityOrder };
            let expected = self.written(&row, index);
            self.report(invariant, Subject::Row(row), expected, found.clone());
        }
    }

    fn acknowledged(&mut self, lsn: Lsn) {
        let found = Fact::Acknowledged { life: self.life, lsn };
        let (kept, expected) = match (self.spooled, self.saved) {
            (Some((life, lsn)), _) => (Some(lsn), Fact::Spooled { life, lsn }),
            (None, Some((life, lsn))) => (Some(lsn), Fact::Saved { life, lsn }),
            (None, None) => (None, Fact::NotSaved),
        };
        if kept < Some(lsn) {
            self.report(Invariant::DurabilityOrder, Subject::Pipeline, expected, found.clone());
        }
        if let Some((life, last)) = self.acknowledged.filter(|(_, last)| *last > lsn) {
            let expected = Fact::Acknowledged { life, lsn: last };
            self.report(Invariant::DurabilityOrder, Subject::Pipeline, expected, found);
        } else {
            self.acknowledged = Some((self.life, lsn));
        }
    }

    /// I1, at rest.
    pub(super) fn nothing_is_missing(&mut self) {
        for transaction in 0..self.ledger.writes.len() {
            let Some((row, index)) = self.missing(transaction) else { continue };
            let expected = self.written(&row, index);
            self.report(Invariant::NoLoss, Subject::Row(row), expected, Fact::NotDelivered);
        }
    }

    /// The transaction's first change that did not come, and is in no scanned row either.
    fn missing(&self, transaction: usize) -> Option<(RowKey, usize)> {
        let commit = self.ledger.commits[transaction];
        let writes = self.ledger.writes[transaction].iter();
        writes
            .filter(|(row, _)| commit.is_none() || commit >= self.pin(&row.table))
            .filter(|(row, index)| !self.is_delivered(row, *index))
            .find(|(row, index)| !self.is_superseded(row, *index))
            .cloned()
    }

    fn pin(&self, table: &str) -> Option<Lsn> {
        self.history.added.get(table).copied().max(self.history.pin)
    }

    fn is_delivered(&self, row: &RowKey, index: usize) -> bool {
        let trace = self.traces.get(row);
        trace.is_some_and(|trace| trace.delivered.get(index) == Some(&true))
    }

    /// Whether a scan explains that a change did not come: a row of it holds this write or a later one; or there is no
    /// row, because one of the changes that did not come took it away (or it is truncated after them), the outlet holds
    /// nothing older, and the stream had reached neither the key nor the transaction in this table.
    fn is_superseded(&self, row: &RowKey, index: usize) -> bool {
        let none = Trace::default();
        let trace = self.traces.get(row).unwrap_or(&none);
        if trace.read.is_some_and(|read| read >= index) {
            return true;
        }
        let entries = self.ledger.entries(row);
        let came = |index: usize| trace.delivered.get(index) == Some(&true);
        let end = (index..entries.len()).find(|index| came(*index)).unwrap_or(entries.len());
        let effect = |index: usize| entries.get(index).map(|entry| entry.effect);
        let gone = (index..end)
            .any(|index| matches!(effect(index), Some(Effect::Delete | Effect::Truncate)))
            || effect(end) == Some(Effect::Truncate);
        let older_row = trace.present.is_some_and(|present| present < index);
        let reached = trace.streamed_first.is_some_and(|first| first <= index);
        gone && !older_row && !reached && !self.streams(entries[index].transaction, &row.table)
    }

    /// Whether the stream brought something of this transaction in this table, since it was last emptied for a scan.
    fn streams(&self, transaction: usize, table: &Arc<str>) -> bool {
        self.ledger.writes[transaction].iter().any(|(row, index)| {
            let since = self.traces.get(row).and_then(|trace| trace.streamed_first);
            row.table == *table
                && since.is_some_and(|first| first <= *index)
                && self.is_delivered(row, *index)
        })
    }

    fn written(&self, row: &RowKey, index: usize) -> Fact {
        let Some(entry) = self.ledger.entries(row).get(index) else { return Fact::NeverWritten };
        let transaction = self.ledger.ids[entry.transaction];
        Fact::Written { transaction, commit: self.ledger.commits[entry.transaction], index }
    }

    fn trace(&mut self, row: &RowKey) -> &mut Trace {
        if !self.traces.contains_key(row) {
            self.traces.insert(row.clone(), Trace::default());
        }
        self.traces.get_mut(row).expect("inserted above")
    }

    fn report(&mut self, invariant: Invariant, subject: Subject, expected: Fact, found: Fact) {
        self.violations.push(Violation { invariant, subject, expected, found });
    }
}
