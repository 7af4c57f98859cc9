//! Write Dovetail plugins in Rust.
//!
//! Implement [`Transform`], name the type in [`export!`], build for `wasm32-wasip2` as a `cdylib`: the file that comes
//! out is the plugin. The README beside this crate shows a whole one.
//!
//! The SDK talks the packed form of the interface: a batch arrives as one list of bytes, and values are read out of it
//! where they lie. An event that passes costs no allocation.

mod event;
mod export;
mod frame;
pub mod log;
mod outcome;
mod relation;
mod value;

pub use event::{Event, Message, Operation, Position, Row};
pub use outcome::{Emission, Failure, FailureClass, Outcome, Patch, Payload};
pub use relation::{Column, Kind, Relation};
pub use value::{TemporalSpecial, Value};

/// What a plugin wants to see; everything else passes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Letters, digits, dots, hyphens, plus signs and underscores.
    pub name: String,
    /// In the same characters.
    pub version: String,
    /// A table gets the union of all interests that name it.
    pub interests: Vec<Interest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Globs on `namespace.name`, in which `*` stands for any run of characters.
    pub tables: Vec<String>,
    pub operations: Vec<Operation>,
    /// `None` is all columns. Ask for as few as you read: each costs.
    pub columns: Option<Vec<String>>,
    /// Whether you read the row before the change.
    pub before: bool,
}

/// Which of the lanes an instance serves. All changes of a key take the same lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub number: u32,
    pub count: u32,
}

/// A call as a whole fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Come again with the same batch, after so many milliseconds if you know.
    Retry(Option<u32>),
    /// Of no use to come again: an operator must act on this sentence.
    Fatal(String),
}

/// A plugin that filters, transforms and routes.
pub trait Transform: Sized {
    /// Says what the plugin wants to see. Pure: the same configuration gives the same answer.
    ///
    /// # Errors
    /// When the configuration is wrong, in a sentence for the operator.
    fn describe(config: &str) -> Result<Descriptor, String>;

    /// Makes an instance for one lane.
    ///
    /// # Errors
    /// As in [`describe`](Self::describe).
    fn new(config: &str, lane: Lane) -> Result<Self, String>;

    /// Called before the first event of a relation, and again after its definition changed: the place to find columns
    /// and to refuse types.
    ///
    /// # Errors
    /// When the relation cannot be handled.
    fn relation(&mut self, relation: &Relation) -> Result<(), CallError> {
        let _ = relation;
        Ok(())
    }

    /// Decides on one event.
    fn event(&mut self, event: Event<'_>) -> Outcome;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[doc(hidden)]
pub mod private {
    pub use crate::export::{Runtime, describe, lifecycle, packed};
}

#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        world: "transform-packed",
        pub_export_macro: true,
        export_macro_name: "export_bindings",
        default_bindings_module: "dovetail_sdk::bindings",
    });
}
