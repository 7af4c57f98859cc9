//! What is durable of the hand-over, and the steps by which it changes.
//!
//! [`Record::with`] is the only definition of what a step means: the store writes by it, the explorer crashes by it and
//! the seam thinks by it. It is total, and holds the two rules that no order of steps may break: a pin never moves, and
//! a checkpoint never falls. What both mean ends with a gap that an operator has accepted: [`Record::given_up`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fence::Fence;
use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

/// Where the stream starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Pin {
    #[default]
    None,
    /// One is about to be taken at the server, or was; nothing was ever emitted from it.
    Intended,
    At(Lsn),
}

/// How far the scan of one table is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Scan {
    Due {
        /// Scans of which rows may have reached an outlet.
        attempts: u32,
    },
    /// Every row of the scan is durable.
    Done {
        /// The table that was read. Another one of the same name was not.
        relation: RelationId,
        /// `None`: nothing of the stream is in the scan.
        fenced: Option<Fenced>,
    },
    /// It was not read: only what is streamed of it is at the outlets. Due again in a mode that scans.
    Skipped { relation: RelationId },
}

/// What a table's scan in a later view holds of the stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Fenced {
    pub fence: Fence,
    /// The log's end, read after the view was opened: the commit record of every transaction in the fence starts before
    /// it. Once the checkpoint is here the fence has nothing left to say.
    pub horizon: Lsn,
}

/// The durable state of one pipeline's hand-over.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub pin: Pin,
    #[serde(with = "entries")]
    pub tables: BTreeMap<TableName, Scan>,
    pub checkpoint: Option<Lsn>,
    /// Every wanted table is done, and no fence is in force.
    pub finished: bool,
}

/// One atomic durable write.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Step {
    /// A pin is about to be taken at the server.
    Intend,
    /// None was taken: a slot of that name is somebody else's again.
    Forgo,
    Pin(Lsn),
    /// These are scanned again, though they were done: rows of them are at the outlet.
    Again(BTreeSet<TableName>),
    /// These are not scanned at all.
    Skip(BTreeMap<TableName, RelationId>),
    /// Rows of these may reach an outlet from now on.
    Attempt(BTreeSet<TableName>),
    /// Every row of this table is durable.
    Scanned {
        table: TableName,
        relation: RelationId,
        fenced: Option<Fenced>,
    },
    Checkpoint(Lsn),
    Finish,
}

impl Step {
    /// The tables that it says something of by name; [`Step::Finish`] forgets every fence.
    pub fn tables(&self) -> BTreeSet<&TableName> {
        match self {
            Self::Again(tables) | Self::Attempt(tables) => tables.iter().collect(),
            Self::Skip(tables) => tables.keys().collect(),
            Self::Scanned { table, .. } => [table].into(),
            Self::Intend | Self::Forgo | Self::Pin(_) | Self::Checkpoint(_) | Self::Finish => {
                BTreeSet::new()
            }
        }
    }
}

impl Record {
    /// What of the record a step can change, besides fences that are forgotten.
    #[must_use]
    pub fn part(&self, step: &Step) -> Self {
        let tables = step.tables();
        let tables = tables.into_iter().filter_map(|table| self.tables.get_key_value(table));
        let tables = tables.map(|(table, scan)| (table.clone(), scan.clone())).collect();
        Self { tables, pin: self.pin, checkpoint: self.checkpoint, finished: self.finished }
    }

    /// The record after this step. What would move a pin or lower a checkpoint changes nothing.
    #[must_use]
    pub fn with(mut self, step: &Step) -> Self {
        match step {
            Step::Intend => {
                if self.pin == Pin::None {
                    self.pin = Pin::Intended;
                }
            }
            Step::Forgo => {
                if self.pin == Pin::Intended {
                    self.pin = Pin::None;
                }
            }
            Step::Pin(lsn) => {
                if !matches!(self.pin, Pin::At(_)) {
                    self.pin = Pin::At(*lsn);
                }
            }
            Step::Again(tables) => {
                for table in tables {
                    let attempts = self.attempts(table).max(1);
                    self.tables.insert(table.clone(), Scan::Due { attempts });
                }
                self.finished = false;
            }
            Step::Skip(tables) => {
                for (table, relation) in tables {
                    self.tables.insert(table.clone(), Scan::Skipped { relation: *relation });
                }
            }
            Step::Attempt(tables) => {
                for table in tables {
                    let attempts = self.attempts(table).saturating_add(1);
                    self.tables.insert(table.clone(), Scan::Due { attempts });
                }
                self.finished = false;
            }
            Step::Scanned { table, relation, fenced } => {
                let scan = Scan::Done { relation: *relation, fenced: fenced.clone() };
                self.tables.insert(table.clone(), scan);
            }
            Step::Checkpoint(lsn) => self.checkpoint = self.checkpoint.max(Some(*lsn)),
            Step::Finish => {
                for scan in self.tables.values_mut() {
                    if let Scan::Done { fenced, .. } = scan {
                        *fenced = None;
                    }
                }
                self.finished = true;
            }
        }
        self
    }

    /// The record behind a gap that was accepted: what is missing cannot be had, so nothing that was delivered can be gone
    /// on from. A new pin is taken, and every table is scanned again, behind a barrier: rows of it are at the outlets. It
    /// begins as a killed intent does, so that what the server still holds for the old pin is dropped first.
    #[must_use]
    pub fn given_up(self) -> Self {
        let again = |(table, scan)| {
            let attempts = match scan {
                Scan::Due { attempts } => attempts.max(1),
                Scan::Done { .. } | Scan::Skipped { .. } => 1,
            };
            (table, Scan::Due { attempts })
        };
        let tables = self.tables.into_iter().map(again).collect();
        Self { pin: Pin::Intended, tables, checkpoint: None, finished: false }
    }

    /// Whether it was given up and has no new pin yet. Nothing else leaves rows at the outlets without a pin.
    pub fn is_given_up(&self) -> bool {
        let is_begun = |scan: &Scan| !matches!(scan, Scan::Due { attempts: 0 });
        !matches!(self.pin, Pin::At(_)) && self.tables.values().any(is_begun)
    }

    /// Scans of this table of which rows may be at an outlet.
    pub fn attempts(&self, table: &TableName) -> u32 {
        match self.tables.get(table) {
            Some(Scan::Due { attempts }) => *attempts,
            Some(Scan::Done { .. } | Scan::Skipped { .. }) => 1,
            None => 0,
        }
    }

    /// Done tables whose fence may still be asked: the checkpoint has not reached its horizon.
    pub fn fenced(&self) -> impl Iterator<Item = &TableName> {
        self.tables.iter().filter_map(|(table, scan)| match scan {
            Scan::Done { fenced: Some(fenced), .. } => {
                (Some(fenced.horizon) > self.checkpoint).then_some(table)
            }
            _ => None,
        })
    }

    pub fn is_done(&self, table: &TableName) -> bool {
        matches!(self.tables.get(table), Some(Scan::Done { .. }))
    }

    pub fn is_skipped(&self, table: &TableName) -> bool {
        matches!(self.tables.get(table), Some(Scan::Skipped { .. }))
    }

    /// The tables of which everything is at the outlets, or will be by the stream alone.
    pub fn relations(&self) -> impl Iterator<Item = (&TableName, RelationId)> {
        self.tables.iter().filter_map(|(table, scan)| match scan {
            Scan::Done { relation, .. } | Scan::Skipped { relation } => Some((table, *relation)),
            Scan::Due { .. } => None,
        })
    }
}

/// A map whose keys are no strings, as a list of pairs, so that any format can hold it.
mod entries {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Scan, TableName};

    pub(super) fn serialize<S: Serializer>(
        tables: &BTreeMap<TableName, Scan>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(tables)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<TableName, Scan>, D::Error> {
        Ok(Vec::<(TableName, Scan)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName { namespace: "public".into(), name: name.into() }
    }

    fn fenced() -> Option<Fenced> {
        let fence = "10:20:14".parse().unwrap();
        Some(Fenced { fence, horizon: Lsn::new(90) })
    }

    fn scanned(name: &str) -> Step {
        Step::Scanned { table: table(name), relation: RelationId(7), fenced: fenced() }
    }

    #[test]
    fn a_pin_never_moves_and_a_checkpoint_never_falls() {
        let record = Record::default().with(&Step::Intend).with(&Step::Pin(Lsn::new(5)));
        let moved = record.clone().with(&Step::Pin(Lsn::new(9))).with(&Step::Intend);
        assert_eq!(moved, record);
        let saved =
            record.with(&Step::Checkpoint(Lsn::new(8))).with(&Step::Checkpoint(Lsn::new(7)));
        assert_eq!(saved.checkpoint, Some(Lsn::new(8)));
    }

    #[test]
    fn rows_that_may_be_at_the_outlet_are_never_forgotten() {
        let only = BTreeSet::from([table("a")]);
        let record = Record::default().with(&Step::Attempt(only.clone()));
        assert_eq!(record.attempts(&table("a")), 1);
        let done = record.with(&scanned("a"));
        let again = done.with(&Step::Again(only));
        assert_eq!(again.tables.get(&table("a")), Some(&Scan::Due { attempts: 1 }));
    }

    #[test]
    fn what_is_given_up_is_scanned_again_from_a_new_pin() {
        let record = Record::default().with(&Step::Intend);
        assert!(!record.is_given_up());
        let record = record
            .with(&Step::Pin(Lsn::new(50)))
            .with(&scanned("a"))
            .with(&Step::Skip([(table("c"), RelationId(8))].into()))
            .with(&Step::Attempt([table("b")].into()))
            .with(&Step::Checkpoint(Lsn::new(60)));
        assert!(!record.is_given_up());
        let record = record.given_up();
        assert!(record.is_given_up());
        assert_eq!((record.pin, record.checkpoint), (Pin::Intended, None));
        for name in ["a", "b", "c"] {
            assert_eq!(record.attempts(&table(name)), 1, "behind a barrier");
            assert!(!record.is_done(&table(name)));
        }
        // A log that was restored is behind the old one.
        let record = record.with(&Step::Pin(Lsn::new(9))).with(&Step::Checkpoint(Lsn::new(10)));
        assert_eq!((record.pin, record.checkpoint), (Pin::At(Lsn::new(9)), Some(Lsn::new(10))));
        assert!(!record.is_given_up());
    }

    #[test]
    fn a_record_survives_being_stored() {
        let tables = BTreeSet::from([table("a"), table("b")]);
        let record = Record::default()
            .with(&Step::Intend)
            .with(&Step::Pin(Lsn::new(5)))
            .with(&Step::Attempt(tables))
            .with(&scanned("a"))
            .with(&Step::Skip([(table("c"), RelationId(8))].into()))
            .with(&Step::Checkpoint(Lsn::new(6)));
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
        let packed = rmp_serde::to_vec(&record).unwrap();
        assert_eq!(rmp_serde::from_slice::<Record>(&packed).unwrap(), record);
    }
}
