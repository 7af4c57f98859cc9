//! Many changes, one row each: what a run of writes on a keyed table comes to.
//!
//! Only the state at a commit is ever visible, so of several writes on one key the last is enough, and writes on
//! different keys need no order. What a later write leaves out (a column that was not in the log) is filled from an
//! earlier one; nothing is lost.
//!
//! Which keys are one is the outlet's to say: a database that holds 1.0 and 1.00 as numbers has one row for both, one
//! that holds them as text has two.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::key::Key;
use dovetail_core::schema::Relation;
use dovetail_core::value::{Row, Value};

use crate::outlet::Error;
use crate::outlet::table::incomplete;

/// What becomes of the row under a key.
#[derive(Debug, PartialEq)]
pub(in crate::outlet) enum Fate<'a> {
    /// It is this row, all of it, whatever was there.
    Put(Cow<'a, Row>),
    /// It is there, and these columns of it change.
    Change(Cow<'a, Row>),
    /// It is not there. Holds a row with its key.
    Gone(Cow<'a, Row>),
}

/// When the outlet takes two keys for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::outlet) enum Equality {
    /// When they are the same value: decimals are numbers there.
    ByValue,
    /// When they are written alike: decimals are text there.
    BySpelling,
}

/// The writes on one table since the last flush.
#[derive(Debug)]
pub(in crate::outlet) struct Fold<'a> {
    pub(in crate::outlet) relation: Arc<Relation>,
    equality: Equality,
    places: HashMap<Key, usize>,
    fates: Vec<Fate<'a>>,
    /// Rows of a table without a key.
    loose: Vec<&'a Row>,
    bytes: usize,
}

impl<'a> Fold<'a> {
    pub(in crate::outlet) fn new(relation: &Arc<Relation>, equality: Equality) -> Self {
        Self {
            relation: Arc::clone(relation),
            equality,
            places: HashMap::new(),
            fates: Vec::new(),
            loose: Vec::new(),
            bytes: 0,
        }
    }

    pub(in crate::outlet) fn is_empty(&self) -> bool {
        self.fates.is_empty() && self.loose.is_empty()
    }

    pub(in crate::outlet) fn rows(&self) -> usize {
        self.fates.len() + self.loose.len()
    }

    pub(in crate::outlet) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::outlet) fn into_parts(self) -> (Vec<Fate<'a>>, Vec<&'a Row>) {
        (self.fates, self.loose)
    }

    pub(in crate::outlet) fn put(&mut self, row: &'a Row) -> Result<(), Error> {
        self.bytes += row.memory_bytes();
        if !self.relation.has_key() {
            if !row.is_whole() {
                return Err(incomplete(&self.relation));
            }
            self.loose.push(row);
            return Ok(());
        }
        self.put_under_key(Cow::Borrowed(row))
    }

    pub(in crate::outlet) fn remove(&mut self, row: Cow<'a, Row>) -> Result<(), Error> {
        self.bytes += row.memory_bytes();
        let key = self.key(&row)?;
        self.set(key, Fate::Gone(row));
        Ok(())
    }

    /// Moves a row to another key if all of the new row is at hand. Otherwise nothing is changed, and the answer is
    /// no: the row at the outlet has what is missing.
    pub(in crate::outlet) fn replace(&mut self, from: &Row, to: &'a Row) -> Result<bool, Error> {
        let (old, new) = (self.key(from)?, self.key(to)?);
        if old == new {
            self.put_under_key(Cow::Borrowed(to))?;
            return Ok(true);
        }
        let whole = match self.places.get(&old).and_then(|&place| self.fates.get(place)) {
            _ if to.is_whole() => Cow::Borrowed(to),
            Some(Fate::Put(row)) => Cow::Owned(filled(to, row)),
            _ => return Ok(false),
        };
        self.set(old, Fate::Gone(Cow::Owned(from.clone())));
        self.set(new, Fate::Put(whole));
        Ok(true)
    }

    fn put_under_key(&mut self, row: Cow<'a, Row>) -> Result<(), Error> {
        let key = self.key(&row)?;
        if row.is_whole() {
            self.set(key, Fate::Put(row));
            return Ok(());
        }
        let fate = match self.places.get(&key).and_then(|&place| self.fates.get(place)) {
            Some(Fate::Put(earlier)) => Fate::Put(Cow::Owned(filled(&row, earlier))),
            Some(Fate::Change(earlier)) => Fate::Change(Cow::Owned(filled(&row, earlier))),
            Some(Fate::Gone(_)) => return Err(incomplete(&self.relation)),
            None => Fate::Change(row),
        };
        self.set(key, fate);
        Ok(())
    }

    fn set(&mut self, key: Key, fate: Fate<'a>) {
        match self.places.get(&key).and_then(|&place| self.fates.get_mut(place)) {
            Some(earlier) => *earlier = fate,
            None => {
                self.places.insert(key, self.fates.len());
                self.fates.push(fate);
            }
        }
    }

    fn key(&self, row: &Row) -> Result<Key, Error> {
        let key = match self.equality {
            Equality::ByValue => Key::of(&self.relation, row),
            Equality::BySpelling => Key::of(&self.relation, &spelled(row)),
        };
        key.ok_or_else(|| {
            Error::definite(
                format!("a row for {} lacks its key", self.relation.table),
                "let plugins leave key columns as they are",
            )
        })
    }
}

/// A row whose decimals are told apart as they are written.
fn spelled(row: &Row) -> Row {
    let cell = |value: &Value| match value {
        Value::Decimal(text) => Value::Text(text.clone()),
        value => value.clone(),
    };
    Row::new(row.values().iter().map(cell).collect())
}

/// A row, with what it lacks taken from an earlier one.
fn filled(row: &Row, earlier: &Row) -> Row {
    let cell = |(column, value): (usize, &Value)| match value {
        Value::Unavailable => earlier.get(column).unwrap_or(value).clone(),
        value => value.clone(),
    };
    Row::new(row.values().iter().enumerate().map(cell).collect())
}
