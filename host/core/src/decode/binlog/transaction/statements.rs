//! Statements that stand in the log as text.

use super::super::header::Header;
use super::super::query::Query;
use super::super::statement::{Statement, classify};
use super::prepared::Held;
use super::reading::micros;
use super::{Builder, Error, Open, State};
use crate::change::TransactionId;
use crate::position::Lsn;
use crate::schema::TableName;

impl Builder {
    pub(super) fn query(
        &mut self,
        query: &Query<'_>,
        start: Lsn,
        header: &Header,
    ) -> Result<(), Error> {
        if let State::Outside = self.state {
            // Without GTIDs the statement itself is the first event.
            let place = TransactionId::Place(start);
            self.state = State::Announced(Open::new(start, place, micros(header)));
        }
        match classify(&query.text, &query.schema, query.modes) {
            Statement::Begin => self.begin(false)?,
            Statement::XaStart(_) => match &mut self.state {
                // MariaDB has begun it already.
                State::Open(open) if open.held.is_none() && open.ordinal == 0 => {
                    open.held = Some(Held::default());
                }
                State::Open(_) => {}
                _ => self.begin(true)?,
            },
            Statement::XaEnd => {
                self.open("XA END")?;
            }
            Statement::XaPrepare(xid) => self.prepare(false, xid.ok_or(Error::XaName)?)?,
            Statement::Commit => {
                self.open("commit")?;
                self.work.closes = true;
            }
            Statement::XaCommit(xid) => self.commit_prepared(&xid.ok_or(Error::XaName)?)?,
            Statement::XaRollback(xid) => {
                self.roll_back_prepared(&xid.ok_or(Error::XaName)?);
            }
            Statement::Rollback => {
                self.roll_back()?;
                self.work.closes = true;
            }
            Statement::RollbackTo => self.roll_back()?,
            Statement::Empty(tables) => {
                let captured = tables.iter().filter_map(|table| self.tables.captured(table));
                self.work.emptied.extend(captured);
                self.define_anew();
            }
            Statement::DropSchema(schema) => {
                self.work.emptied.extend(self.tables.captured_in(&schema));
                self.define_anew();
            }
            Statement::Unlogged(tables) => {
                if let Some(table) = tables.iter().find_map(|table| self.tables.captured(table)) {
                    return Err(Error::Unlogged { table });
                }
                self.close_statement();
            }
            Statement::Rename(pairs) => {
                let mut names = pairs.iter().flat_map(|(from, to)| [from, to]);
                if let Some(table) = names.find_map(|name| self.tables.captured(name)) {
                    return Err(Error::Renamed { table });
                }
                self.define_anew();
            }
            Statement::Ddl { begins } => {
                self.tables.forget_unnamed();
                match &self.state {
                    State::Announced(_) if begins => self.begin(false)?,
                    _ => self.close_statement(),
                }
            }
            Statement::Dml(table) => {
                if !table.as_ref().is_some_and(is_of_server) {
                    return Err(Error::Statement { table });
                }
                self.close_statement();
            }
            Statement::Savepoint | Statement::Nothing => self.close_statement(),
            Statement::Unknown(word) => return Err(Error::UnknownStatement { word }),
        }
        Ok(())
    }

    fn define_anew(&mut self) {
        self.tables.forget_unnamed();
        self.close_statement();
    }

    /// A statement that commits itself ends what announced it; inside a transaction it ends nothing.
    fn close_statement(&mut self) {
        self.work.closes |= matches!(self.state, State::Announced(_));
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        let open = self.open("rollback")?;
        if open.has_changes() {
            return Err(Error::RolledBack { start: open.start });
        }
        Ok(())
    }
}

/// Written by the server for itself.
fn is_of_server(table: &TableName) -> bool {
    const SCHEMAS: [&str; 4] = ["mysql", "sys", "performance_schema", "information_schema"];
    SCHEMAS.iter().any(|schema| table.namespace.eq_ignore_ascii_case(schema))
}
