//! The log, from a position on.

use std::sync::Arc;

use dovetail_core::batch::Closing;
use dovetail_core::change::Event;
use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;

use crate::config;

use super::failure::Failure;

#[derive(Debug)]
pub enum Item {
    /// A table's definition, before its first change and whenever it is another one.
    Relation(Arc<Relation>),
    /// Changes in the order of the log. Without events: an idle stretch that may be checkpointed.
    /// `closing` is `Open` or `Commit`.
    Batch { events: Vec<Event>, closing: Closing },
}

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The log before `from` is gone: the slot is missing, invalidated or of another kind (I7).
    #[error("...")]
    Lost { slot: String, from: Lsn, source: Option<Failure> },
    /// Somebody else streams from the slot.
    #[error("...")]
    Active { slot: String, pid: Option<i32> },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl StreamError {
    pub fn is_transient(&self) -> bool {
        unimplemented!()
    }
}

#[derive(Debug)]
pub struct Stream(());

impl Stream {
    /// Streams every transaction whose commit record starts at or after `from`.
    pub async fn open(_source: &config::Postgres, _from: Lsn) -> Result<Self, StreamError> {
        unimplemented!()
    }

    /// Cancel-safe.
    pub async fn next(&mut self) -> Result<Item, StreamError> {
        unimplemented!()
    }

    /// Lets the server forget the log before `position`. The only way in which it is ever told so; never goes back.
    pub fn acknowledge(&self, _position: Lsn) {
        unimplemented!()
    }
}
