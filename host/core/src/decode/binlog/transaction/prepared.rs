//! XA transactions between their rows and their end.

use std::collections::{BTreeMap, VecDeque};

use super::super::images::Images;
use super::super::xid::Xid;
use super::{Builder, Error};
use crate::position::Lsn;

/// Rows of a transaction of which it is not known what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Held {
    rows: VecDeque<Images>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Prepared {
    by_xid: BTreeMap<Xid, (Lsn, Held)>,
    bytes_max: usize,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Prepared {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { by_xid: BTreeMap::new(), bytes_max }
    }

    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.by_xid.values().map(|(start, _)| *start).min()
    }

    fn bytes(&self) -> usize {
        self.by_xid.values().map(|(_, held)| held.bytes).sum()
    }

    /// Adds rows of the transaction that starts there.
    pub(super) fn hold(&self, images: Images, held: &mut Held, start: Lsn) -> Result<(), Error> {
        held.bytes = held.bytes.saturating_add(images.memory_bytes());
        held.rows.push_back(images);
        if held.bytes.saturating_add(self.bytes()) > self.bytes_max {
            let oldest = self.oldest().unwrap_or(start);
            return Err(Error::PreparedTooLarge { limit_bytes: self.bytes_max, oldest });
        }
        Ok(())
    }
}

impl Builder {
    /// The end of an XA transaction's rows.
    pub(super) fn prepare(&mut self, is_commit: bool, xid: Xid) -> Result<(), Error> {
        let open = self.open("XA PREPARE")?;
        let (start, held) = (open.start, open.held.take().unwrap_or_default());
        if is_commit {
            self.work.rows = held.rows;
        } else {
            self.prepared.by_xid.insert(xid, (start, held));
        }
        self.work.closes = true;
        Ok(())
    }

    pub(super) fn commit_prepared(&mut self, xid: &Xid) -> Result<(), Error> {
        let open = self.state.named("XA COMMIT")?;
        match self.prepared.by_xid.remove(xid) {
            Some((_, held)) => self.work.rows = held.rows,
            None => {
                let (transaction, start) = (open.transaction, open.start);
                let is_seen =
                    self.view.as_ref().is_some_and(|view| view.contains(&transaction, start));
                if !is_seen {
                    return Err(Error::UnknownPrepared);
                }
            }
        }
        self.work.closes = true;
        Ok(())
    }

    pub(super) fn roll_back_prepared(&mut self, xid: &Xid) {
        self.prepared.by_xid.remove(xid);
        self.work.closes = true;
    }
}
