//! The outlet that counts and forgets, for measurements: what it "made durable" is nothing.

use super::{Delivery, Landed, landed};

#[derive(Debug)]
pub struct Discard {
    target: u16,
    records: u64,
}

impl Discard {
    pub(in crate::outlet) fn new(target: u16) -> Self {
        Self { target, records: 0 }
    }

    pub(in crate::outlet) fn write(&mut self, group: &[Delivery]) -> Vec<Landed> {
        for delivery in group {
            self.records += delivery.records_for(self.target).count() as u64;
        }
        group.iter().filter_map(|delivery| landed(delivery.closing)).collect()
    }

    /// How many records it was given.
    pub fn records(&self) -> u64 {
        self.records
    }
}
