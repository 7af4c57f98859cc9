//! What the database did, by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_core::position::Lsn;

use super::history::{Image, Operation, RowKey, Transaction, Write};

/// One change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Index of its transaction in the history.
    pub(super) transaction: usize,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Insert(Image),
    Update(Image),
    Delete,
    /// The table was truncated while the row was there.
    Truncate,
}

impl Effect {
    pub(super) fn image(self) -> Option<Image> {
        match self {
            Self::Insert(image) | Self::Update(image) => Some(image),
            Self::Delete | Self::Truncate => None,
        }
    }

    pub(super) fn is_delivered_as(self, operation: Operation) -> bool {
        matches!(
            (self, operation),
            (Self::Insert(_), Operation::Insert)
                | (Self::Update(_), Operation::Update)
                | (Self::Delete, Operation::Delete)
        )
    }
}

/// The committed changes of every key, in their order, and of every transaction.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) rows: BTreeMap<RowKey, Vec<Entry>>,
    /// By index of the transaction: the keys it wrote, with the index of the entry there.
    pub(super) writes: Vec<Vec<(RowKey, usize)>>,
    pub(super) commits: Vec<Option<Lsn>>,
    pub(super) ids: Vec<u64>,
    by_id: BTreeMap<u64, usize>,
}

impl Ledger {
    /// `positions`: commits that only the deliveries know.
    pub(super) fn of(transactions: &[Transaction], positions: &BTreeMap<u64, Lsn>) -> Self {
        let mut ledger = Self::default();
        for (index, transaction) in transactions.iter().enumerate() {
            let known = positions.get(&transaction.id).copied();
            ledger.commits.push(transaction.commit.or(known));
            ledger.ids.push(transaction.id);
            ledger.by_id.insert(transaction.id, index);
            ledger.writes.push(Vec::new());
            for write in &transaction.writes {
                ledger.take(index, write);
            }
        }
        ledger
    }

    pub(super) fn transaction(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn entries(&self, row: &RowKey) -> &[Entry] {
        self.rows.get(row).map_or(&[], Vec::as_slice)
    }

    fn take(&mut self, transaction: usize, write: &Write) {
        match write {
            Write::Insert(row, image) => self.push(transaction, row, Effect::Insert(*image)),
            Write::Update(row, image) => self.push(transaction, row, Effect::Update(*image)),
            Write::Delete(row) => self.push(transaction, row, Effect::Delete),
            Write::Move { from, to, image } => {
                self.push(transaction, from, Effect::Delete);
                self.push(transaction, to, Effect::Insert(*image));
            }
            Write::Truncate(table) => self.truncate(transaction, table),
        }
    }

    fn push(&mut self, transaction: usize, row: &RowKey, effect: Effect) {
        let entries = self.rows.entry(row.clone()).or_default();
        self.writes[transaction].push((row.clone(), entries.len()));
        entries.push(Entry { transaction, effect });
    }

    fn truncate(&mut self, transaction: usize, table: &Arc<str>) {
        let first = RowKey::new(table.clone(), "");
        for (row, entries) in
            self.rows.range_mut(first..).take_while(|(row, _)| row.table == *table)
        {
            if entries.last().is_some_and(|entry| entry.effect.image().is_some()) {
                self.writes[transaction].push((row.clone(), entries.len()));
                entries.push(Entry { transaction, effect: Effect::Truncate });
            }
        }
    }
}
