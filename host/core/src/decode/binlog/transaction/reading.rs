//! Events of the log, one by one.

use bytes::Bytes;

use super::super::event::Event as LogEvent;
use super::super::format::Flavor;
use super::super::gtid::MariaDbGtid;
use super::super::header::Header;
use super::super::images::Images;
use super::super::rows::{NO_TABLE, Rows};
use super::super::tables::Mapped;
use super::prepared::Held;
use super::{Builder, Error, Open, State, Step};
use crate::change::TransactionId;
use crate::position::Lsn;

impl Builder {
    pub(super) fn apply(
        &mut self,
        event: &Bytes,
        header: &Header,
        decoded: LogEvent<'_>,
        start: Lsn,
    ) -> Result<Option<Step>, Error> {
        match decoded {
            LogEvent::Format(_) => {
                self.end_file()?;
                return Ok(self.passed(header));
            }
            LogEvent::Rotate { file, offset } => {
                self.end_file()?;
                let is_next = self.place.rotate(file, offset, header.is_logged())?;
                return Ok(is_next.then(|| self.closed(None)));
            }
            LogEvent::Heartbeat { file, offset, is_whole } => {
                let is_ahead = !self.is_open() && self.place.forward(file, offset, is_whole)?;
                return Ok(is_ahead.then(|| self.closed(None)));
            }
            LogEvent::PreviousGtids(_) | LogEvent::GtidList(_) | LogEvent::Nothing => {
                return Ok(self.passed(header));
            }
            LogEvent::MySqlGtid(gtid) => {
                let transaction =
                    gtid.gtid.map_or(TransactionId::Place(start), TransactionId::Gtid);
                let time = gtid.commit_time_micros.unwrap_or(micros(header));
                self.announce(Open::new(start, transaction, time))?;
            }
            LogEvent::MariaDbGtid(gtid) => self.announce_mariadb(gtid, start, header)?,
            LogEvent::Query(query) => self.query(&query, start, header)?,
            LogEvent::Commit => {
                self.open("commit")?;
                self.work.closes = true;
            }
            LogEvent::XaPrepare { is_commit, xid } => self.prepare(is_commit, xid)?,
            LogEvent::TableMap { table, description } => {
                self.open("description of a table")?;
                let flavor = self.decoder.format().map_or(Flavor::MySql, |format| format.flavor);
                let described = self.tables.map(table, description, flavor)?;
                return Ok(described.map(|described| Step::Table(Box::new(described))));
            }
            LogEvent::Rows(rows) => self.take_rows(event, &rows)?,
            LogEvent::Payload(payload) => {
                self.state.named("compressed transaction")?;
                self.work.payload = Some(payload);
            }
        }
        Ok(None)
    }

    /// What stands between transactions ends nothing, but the log is read up to there: behind a restart of the server
    /// there may be nothing else in a file for days, while the files before it are removed.
    fn passed(&self, header: &Header) -> Option<Step> {
        (header.is_logged() && !self.is_open()).then(|| self.closed(None))
    }

    fn outside(&self, what: &'static str) -> Result<(), Error> {
        match &self.state {
            State::Outside => Ok(()),
            State::Announced(open) | State::Open(open) => {
                Err(Error::Inside { what, start: open.start })
            }
        }
    }

    /// No transaction goes on in another file. One that a server crashed in the middle of writing was rolled back; its
    /// changes, if there were any, have been handed on.
    fn end_file(&mut self) -> Result<(), Error> {
        match &self.state {
            State::Open(open) if open.has_changes() => self.outside("end of a file"),
            _ => {
                self.state = State::Outside;
                self.tables.forget_numbers();
                Ok(())
            }
        }
    }

    pub(super) fn open(&mut self, what: &'static str) -> Result<&mut Open, Error> {
        match &mut self.state {
            State::Open(open) => Ok(open),
            State::Outside | State::Announced(_) => Err(Error::Outside { what }),
        }
    }

    fn announce(&mut self, open: Open) -> Result<(), Error> {
        self.outside("beginning of another transaction")?;
        self.state = State::Announced(open);
        Ok(())
    }

    /// MariaDB's names begin the transaction as well: no `BEGIN` follows.
    fn announce_mariadb(
        &mut self,
        gtid: MariaDbGtid,
        start: Lsn,
        header: &Header,
    ) -> Result<(), Error> {
        self.announce(Open::new(start, TransactionId::MariaDb(gtid.gtid), micros(header)))?;
        if !gtid.is_standalone {
            self.begin(gtid.is_prepared)?;
        }
        Ok(())
    }

    pub(super) fn begin(&mut self, is_xa: bool) -> Result<(), Error> {
        match std::mem::replace(&mut self.state, State::Outside) {
            State::Outside => return Err(Error::Outside { what: "begin" }),
            State::Open(open) => return Err(Error::Inside { what: "begin", start: open.start }),
            State::Announced(mut open) => {
                open.held = is_xa.then(Held::default);
                self.state = State::Open(open);
            }
        }
        Ok(())
    }

    fn take_rows(&mut self, event: &Bytes, rows: &Rows<'_>) -> Result<(), Error> {
        self.open("rows")?;
        if rows.table != NO_TABLE {
            match self.tables.mapped(rows.table) {
                Some(Mapped::Foreign) => {}
                Some(Mapped::Known(known)) => {
                    let images = Images::new(event, rows, std::sync::Arc::clone(known))?;
                    self.take_images(images)?;
                }
                Some(Mapped::Described(table)) => {
                    return Err(Error::Undefined { table: table.clone() });
                }
                None => return Err(Error::Undescribed { number: rows.table }),
            }
        }
        if rows.ends_statement {
            self.tables.forget_numbers();
        }
        Ok(())
    }

    fn take_images(&mut self, images: Images) -> Result<(), Error> {
        let State::Open(open) = &mut self.state else {
            return Err(Error::Outside { what: "rows" });
        };
        match &mut open.held {
            Some(held) => self.prepared.hold(images, held, open.start),
            None => {
                self.work.rows.push_back(images);
                Ok(())
            }
        }
    }
}

pub(super) fn micros(header: &Header) -> i64 {
    i64::from(header.timestamp) * 1_000_000
}
