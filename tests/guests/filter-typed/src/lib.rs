//! Reads one column, by the typed form: rows whose `active` is false are dropped.

wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "transform" });

use dovetail::plugin::types::{CallError, Event, Operation, Outcome, Relation, Value};
use exports::dovetail::plugin::lifecycle::{self, Descriptor, Interest};
use exports::dovetail::plugin::typed;

struct Filter;

impl lifecycle::Guest for Filter {
    fn describe(_config: String) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "filter".to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: vec![Operation::Read, Operation::Insert, Operation::Update],
                columns: Some(vec!["active".to_owned()]),
                before: false,
            }],
        })
    }

    fn init(_config: String, _lane: u32, _lanes: u32) -> Result<(), String> {
        Ok(())
    }

    fn on_relation(_relation: Relation) -> Result<(), CallError> {
        Ok(())
    }
}

impl typed::Guest for Filter {
    fn process(_sequence: u64, batch: Vec<Event>) -> Result<Vec<Outcome>, CallError> {
        let outcome = |event: &Event| match event.after.as_deref() {
            Some([Value::Boolean(false)]) => Outcome::Drop,
            _ => Outcome::Pass,
        };
        Ok(batch.iter().map(outcome).collect())
    }
}

export!(Filter);
