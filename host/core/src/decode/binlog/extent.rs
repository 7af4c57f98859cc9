//! How far the whole transactions of a file reach.
//!
//! A file can end in a transaction that was never committed: one in the middle of which the server was killed. Rows of a
//! large transaction are handed on before its end has been read, so who does not want them has to know beforehand where the
//! last whole transaction ends. That is all that is found out here: where each one begins and ends. Of a statement only the
//! words that end a transaction are looked at, and no row is decoded.
//!
//! Of MariaDB's files only, in which every transaction is named by a GTID. MySQL's hold no such end, because a server that
//! starts again cuts it off.

use bytes::Bytes;

use super::event::{Decoder, Event, InvalidEvent};
use super::place::{InvalidPlace, Place};
use super::statement::{Statement, classify};
use crate::gtid::mariadb::{Gtid, GtidState};
use crate::position::Lsn;

#[derive(Debug)]
pub struct Extent {
    decoder: Decoder,
    place: Place,
    inside: Option<Inside>,
    end: Lsn,
    committed: GtidState,
}

/// What has begun and not ended.
#[derive(Debug)]
struct Inside {
    gtid: Gtid,
    /// One statement, which ends it.
    is_standalone: bool,
}

/// Definite: the file cannot be followed any further.
#[derive(Debug, thiserror::Error)]
pub enum InvalidExtent {
    #[error(transparent)]
    Event(#[from] InvalidEvent),
    #[error(transparent)]
    Place(#[from] InvalidPlace),
}

impl Extent {
    /// From a position between two transactions, and what had been committed before it.
    pub fn new(from: Lsn, committed: GtidState) -> Self {
        Self {
            decoder: Decoder::default(),
            place: Place::new(from),
            inside: None,
            end: from,
            committed,
        }
    }

    /// The end of the last transaction that is whole, and of what stands between it and the next one.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// What had been committed there.
    pub fn committed(&self) -> &GtidState {
        &self.committed
    }

    /// Takes the next event of a dump; `false` when the log has gone on in another file.
    ///
    /// # Errors
    /// It is not to be used any further then.
    pub fn take(&mut self, event: &Bytes) -> Result<bool, InvalidExtent> {
        let (header, decoded) = self.decoder.decode(event)?;
        self.place.pass(&header)?;
        let end = self.place.at();
        let mut is_this_file = true;
        match decoded {
            Event::Rotate { file, offset } => {
                is_this_file = !self.place.rotate(file, offset, header.is_logged())?;
            }
            Event::MariaDbGtid(gtid) => {
                self.inside = Some(Inside { gtid: gtid.gtid, is_standalone: gtid.is_standalone });
            }
            Event::Commit | Event::XaPrepare { .. } => self.commit(),
            Event::Query(query) => {
                let ends = self.inside.as_ref().is_some_and(|inside| inside.is_standalone)
                    || matches!(
                        classify(&query.text, &query.schema, query.modes),
                        Statement::Commit
                            | Statement::Rollback
                            | Statement::XaCommit(_)
                            | Statement::XaRollback(_)
                    );
                if ends {
                    self.commit();
                }
            }
            _ => {}
        }
        if header.is_logged() && self.inside.is_none() {
            self.end = end;
        }
        Ok(is_this_file)
    }

    fn commit(&mut self) {
        if let Some(Inside { gtid, .. }) = self.inside.take() {
            self.committed.advance(gtid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::header;
    use super::super::kind;
    use super::super::tests::{MARIADB, MARIADB_11, events};
    use super::super::transaction::{Builder, Start, Step};
    use super::*;

    const BEGIN: u64 = 4;

    fn extent() -> Extent {
        Extent::new(Lsn::binlog(0, 1, BEGIN), GtidState::default())
    }

    fn kind_of(event: &Bytes) -> u8 {
        header::header(event).unwrap().kind
    }

    /// Where a stream says that everything before has been sent.
    fn closed(log: &[Bytes]) -> BTreeSet<Lsn> {
        let mut builder = Builder::new(Start {
            from: Lsn::binlog(0, 1, BEGIN),
            captured: BTreeSet::new(),
            folds_names: false,
            prepared_bytes_max: 1 << 20,
            view: None,
        });
        let mut ends = BTreeSet::new();
        for event in log {
            builder.give(event.clone());
            loop {
                match builder.next(&mut Vec::new()).unwrap() {
                    Step::Done => break,
                    Step::Commit { end, .. } => ends.extend([end]),
                    _ => {}
                }
            }
        }
        ends
    }

    #[test]
    fn it_ends_where_a_stream_is_between_two_transactions() {
        for file in [MARIADB[0], MARIADB_11[0]] {
            let mut log = events(file);
            log.retain(|event| kind_of(event) != kind::ROTATE);
            let mut extent = extent();
            let mut ends = BTreeSet::new();
            for event in &log {
                assert!(extent.take(event).unwrap());
                ends.extend([extent.end()]);
            }
            assert_eq!(ends, closed(&log));
            assert!(!extent.committed().is_empty());
        }
    }

    #[test]
    fn what_has_begun_is_not_counted_before_it_is_whole() {
        let log = events(MARIADB[0]);
        let last = log.iter().rposition(|event| kind_of(event) == kind::XID).unwrap();
        let begin =
            log[..last].iter().rposition(|event| kind_of(event) == kind::MARIADB_GTID).unwrap();
        let mut extent = extent();
        for event in &log[..begin] {
            extent.take(event).unwrap();
        }
        let (end, committed) = (extent.end(), extent.committed().clone());
        for event in &log[begin..last] {
            extent.take(event).unwrap();
            assert_eq!((extent.end(), extent.committed()), (end, &committed));
        }
        extent.take(&log[last]).unwrap();
        assert!(extent.end() > end && extent.committed() != &committed);
    }

    #[test]
    fn the_next_file_is_not_a_part_of_it() {
        let log = events(MARIADB[0]);
        let (rotate, before) = log.split_last().unwrap();
        assert_eq!(kind_of(rotate), kind::ROTATE);
        let mut extent = extent();
        for event in before {
            assert!(extent.take(event).unwrap());
        }
        assert!(!extent.take(rotate).unwrap());
        let length = u64::try_from(MARIADB[0].len()).unwrap();
        assert_eq!(extent.end(), Lsn::binlog(0, 1, length));
    }
}
