//! What a plugin makes of one event, and the record that leaves the plugins.

use std::sync::Arc;

use bytes::Bytes;

use crate::change::Event;
use crate::position::Position;
use crate::schema::Relation;
use crate::value::{Row, Value};

/// A plugin's verdict on one event: one per event, in the events' order.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Pass,
    Drop,
    /// Replaces these cells of the row after the change; all others stay.
    Patch(Vec<Cell>),
    /// Replaces the event by these, which stay adjacent, in its lane.
    Emit(Vec<Emission>),
    /// Indices into the targets that the operator configured.
    Route(Vec<u16>),
    /// This event only; the plugin's failure policy decides.
    Fail(Failure),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub column: usize,
    pub value: Value,
}

/// What a plugin puts in an event's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Emission {
    pub topic: Option<String>,
    /// Instead of the key of the input.
    pub key: Option<Bytes>,
    pub payload: Payload,
    pub headers: Vec<(String, Bytes)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A row of the input's relation.
    Row(Row),
    Bytes(Bytes),
    /// Nothing is left under this key.
    Tombstone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    InvalidData,
    Unsupported,
    Internal,
}

/// Why a plugin could not handle an event, in its own words. They may hold row values: kept with a dead letter, never
/// logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    pub code: String,
    pub message: String,
}

/// What leaves the plugins and goes to the outlets.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub body: Body,
    /// Indices into the pipeline's targets; `None` is all of them.
    pub route: Option<Vec<u16>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Event(Event),
    Emission {
        /// Of the input, with which all its emissions share it.
        position: Position,
        redelivery: bool,
        /// Of the input; a message has none.
        relation: Option<Arc<Relation>>,
        /// The input's row, for its key.
        input: Option<Row>,
        emission: Emission,
    },
}

impl Record {
    pub fn position(&self) -> Position {
        match &self.body {
            Body::Event(event) => event.position,
            Body::Emission { position, .. } => *position,
        }
    }
}
