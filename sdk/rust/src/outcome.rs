//! What a plugin makes of an event.

use std::borrow::Cow;

use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Pass,
    Drop,
    /// Replaces some cells of the row after the change.
    Patch(Patch),
    /// Replaces the event by these.
    Emit(Vec<Emission>),
    /// Indices into the targets that the operator configured.
    Route(Vec<u16>),
    /// This event only; the operator's policy for failures decides.
    Fail(Failure),
}

impl Outcome {
    /// An event that this plugin cannot handle because of what is in it.
    pub fn invalid(code: impl Into<String>, message: impl Into<String>) -> Self {
        let class = FailureClass::InvalidData;
        Self::Fail(Failure { class, code: code.into(), message: message.into() })
    }
}

/// Cells to replace, by name or by index.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Patch {
    pub(crate) cells: Vec<(Place, Value<'static>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    Index(usize),
    Name(Cow<'static, str>),
}

impl Patch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the value of a named column. A name that the relation does not have fails the event.
    #[must_use]
    pub fn set(mut self, column: impl Into<Cow<'static, str>>, value: Value<'static>) -> Self {
        self.cells.push((Place::Name(column.into()), value));
        self
    }

    /// Replaces the value of a column by its index in [`Relation::columns`](crate::Relation::columns).
    #[must_use]
    pub fn set_at(mut self, column: usize, value: Value<'static>) -> Self {
        self.cells.push((Place::Index(column), value));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Emission {
    pub topic: Option<String>,
    /// Instead of the input's key.
    pub key: Option<Vec<u8>>,
    pub payload: Payload,
    pub headers: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// One value for each of the relation's columns.
    Row(Vec<Value<'static>>),
    Bytes(Vec<u8>),
    /// Nothing is left under this key.
    Tombstone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    InvalidData,
    Unsupported,
    Internal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// Short and stable, for counting.
    pub code: String,
    /// For a person. Kept with the event, not logged.
    pub message: String,
}
