//! Transactions of the stream: events with their positions, and what closes them.
//!
//! The stream sends whole transactions in the order of their commit records, one after the other. Events leave as they
//! are decoded, because a transaction may be larger than memory; only its commit closes it, with the end of the commit
//! record. From there the server sends again exactly the transactions whose commit record starts at or behind
//! (`SnapBuildXactNeedsSkip` compares the start of the record with the position that the stream begins at).
//!
//! A message outside a transaction arrives when the server reads it, with the *end* of its own record, E. It gets the
//! position of its record's last byte, E - 1, and closes at E:
//!
//! 1. T inserts a row, emits such a message, and commits; no other session writes, so the commit record starts at E.
//! 2. The message closes at E + 1, and that is saved. Crash.
//! 3. The stream begins at E + 1, T's commit record starts before: the server skips T. Result: row lost.
//!
//! At E, T comes again and the message, whose record starts before E, does not. And with E itself as its position the
//! message could not be told from T's first change, nor its order to it.

use std::sync::Arc;

use bytes::Bytes;

use crate::change::{Change, Event, Xid};
use crate::decode::pgoutput::{self, InvalidMessage, Message, Old, Tuple};
use crate::decode::relations::{
    InvalidRow, NotDescribed, OldRow, RawRelation, Relations, UnknownType,
};
use crate::position::{Lsn, Position};
use crate::schema::{Relation, RelationId};

pub(crate) mod update;
use self::update::{NoKey, Update};

/// What one message of the stream amounts to, beside the events that it appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing is closed.
    Open,
    /// A table is described: its rows wait for [`Builder::define`].
    Relation(RawRelation),
    /// Every transaction whose commit record starts before this position has been sent.
    Commit(Lsn),
}

/// Definite: the stream cannot be followed any further without a guess.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("message of the stream that cannot be read")]
    Message(#[from] InvalidMessage),
    #[error("row of the stream that cannot be read")]
    Row(#[from] InvalidRow),
    #[error("table with a column that cannot be read")]
    Type(#[from] UnknownType),
    #[error("{what} outside a transaction")]
    Outside { what: &'static str },
    #[error("{what} inside the transaction that commits at {commit}")]
    Inside { what: &'static str, commit: Lsn },
    #[error("transaction announced to commit at {announced} commits at {commit}")]
    OtherCommit { announced: Lsn, commit: Lsn },
    #[error("transaction that commits at {commit} has more changes than can be counted")]
    TooLong { commit: Lsn },
    #[error(
        "change of {table} without its key; give it, and each of its partitions, the same REPLICA IDENTITY, an index or FULL, and update the server"
    )]
    NoKey { table: String },
}

/// Reads the messages of one connection, in their order. A new connection begins at a transaction's edge and describes
/// its tables anew, so it gets a new builder.
#[derive(Debug)]
pub struct Builder {
    relations: Relations,
    open: Option<Open>,
    /// The latest transaction id, by which the next one of 32 bits is extended.
    latest: Xid,
}

/// The transaction that is being sent.
#[derive(Debug, Clone, Copy)]
struct Open {
    commit: Lsn,
    commit_time_micros: i64,
    transaction: Xid,
    /// Of the latest change.
    ordinal: u32,
}

impl Builder {
    /// `reference` is a transaction id at most two billion away from the first of the stream: the source's current one
    /// will do, as the server never lets ids that are further apart live side by side.
    pub fn new(reference: Xid) -> Self {
        Self { relations: Relations::default(), open: None, latest: reference }
    }

    /// Answers a [`Step::Relation`].
    ///
    /// # Errors
    /// When the stream has not described that table, or described it with another number of columns.
    pub fn define(&mut self, relation: Arc<Relation>) -> Result<(), NotDescribed> {
        self.relations.define(relation)
    }

    /// Whether a transaction has begun and not been committed.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Appends the events of one message. `clock_micros` is that of the message's frame; it dates a message outside a
    /// transaction, which has no commit.
    ///
    /// # Errors
    /// The builder is not to be used any further then.
    pub fn apply(
        &mut self,
        payload: &Bytes,
        clock_micros: i64,
        events: &mut Vec<Event>,
    ) -> Result<Step, Error> {
        match pgoutput::message(payload)? {
            Message::Begin { commit, commit_time_micros, transaction } => {
                self.outside("begin")?;
                self.latest = self.latest.extend(transaction);
                let transaction = self.latest;
                self.open = Some(Open { commit, commit_time_micros, transaction, ordinal: 0 });
            }
            Message::Commit { commit, end } => return self.commit(commit, end),
            Message::Origin => {
                self.inside("origin")?;
            }
            Message::Relation(definition) => {
                return Ok(Step::Relation(self.relations.describe(&definition)?));
            }
            Message::Type { id, namespace, name } => self.relations.name_type(id, namespace, name),
            Message::Insert { relation: id, new } => {
                let after = self.relations.new_row(id, &new)?;
                let relation = self.relations.get(id)?;
                self.push(Change::Insert { relation, after, moved_from: None }, events)?;
            }
            Message::Update { relation, old, new } => self.update(relation, &old, &new, events)?,
            Message::Delete { relation, old } => self.delete(relation, &old, events)?,
            Message::Truncate { relations, .. } => {
                for id in relations {
                    let relation = self.relations.get(id)?;
                    self.push(Change::Truncate { relation }, events)?;
                }
            }
            Message::Message { transactional, end, prefix, content } => {
                let prefix = prefix.to_owned();
                let change = Change::Message { prefix, content, transactional };
                if !transactional {
                    return self.message_outside(end, clock_micros, change, events);
                }
                self.push(change, events)?;
            }
        }
        Ok(Step::Open)
    }

    fn outside(&self, what: &'static str) -> Result<(), Error> {
        match &self.open {
            None => Ok(()),
            Some(open) => Err(Error::Inside { what, commit: open.commit }),
        }
    }

    fn inside(&mut self, what: &'static str) -> Result<&mut Open, Error> {
        self.open.as_mut().ok_or(Error::Outside { what })
    }

    fn commit(&mut self, commit: Lsn, end: Lsn) -> Result<Step, Error> {
        let announced = self.inside("commit")?.commit;
        if announced != commit {
            return Err(Error::OtherCommit { announced, commit });
        }
        self.open = None;
        Ok(Step::Commit(end))
    }

    fn message_outside(
        &self,
        end: Lsn,
        clock_micros: i64,
        change: Change,
        events: &mut Vec<Event>,
    ) -> Result<Step, Error> {
        self.outside("message that belongs to no transaction")?;
        let commit = Lsn::new(end.offset().saturating_sub(1));
        events.push(Event {
            position: Position { commit, ordinal: 1 },
            commit_time_micros: clock_micros,
            transaction: None,
            redelivery: false,
            change,
        });
        Ok(Step::Commit(end))
    }

    fn push(&mut self, change: Change, events: &mut Vec<Event>) -> Result<(), Error> {
        let open = self.inside("change")?;
        let commit = open.commit;
        open.ordinal = open.ordinal.checked_add(1).ok_or(Error::TooLong { commit })?;
        events.push(Event {
            position: Position { commit, ordinal: open.ordinal },
            commit_time_micros: open.commit_time_micros,
            transaction: Some(open.transaction.into()),
            redelivery: false,
            change,
        });
        Ok(())
    }

    fn update(
        &mut self,
        id: RelationId,
        old: &Old<'_>,
        new: &Tuple<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let mut after = self.relations.new_row(id, new)?;
        let old = self.relations.old_row(id, old)?;
        let relation = self.relations.get(id)?;
        if let Some(old) = &old {
            old.complete(&mut after);
        }
        let before = old.map(|OldRow { row, full }| (row, full));
        match update::update(relation, before, after)? {
            Update::Same(change) => self.push(change, events),
            Update::Moved { delete, insert } => {
                self.push(delete, events)?;
                self.push(insert, events)
            }
        }
    }

    fn delete(
        &mut self,
        id: RelationId,
        old: &Old<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let old = self.relations.old_row(id, old)?;
        let relation = self.relations.get(id)?;
        let Some(OldRow { row: before, .. }) = old else {
            return Err(Error::NoKey { table: relation.table.to_string() });
        };
        self.push(update::delete(relation, before)?, events)
    }
}

impl From<NoKey> for Error {
    fn from(NoKey { table }: NoKey) -> Self {
        Self::NoKey { table }
    }
}

#[cfg(test)]
mod tests;
