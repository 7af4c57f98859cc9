//! Sees everything, passes everything, by the typed form and plain bindings.

wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "transform" });

use dovetail::plugin::types::{CallError, Event, Operation, Outcome, Relation};
use exports::dovetail::plugin::lifecycle::{self, Descriptor, Interest};
use exports::dovetail::plugin::typed;

struct Identity;

impl lifecycle::Guest for Identity {
    fn describe(_config: String) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "identity".to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: vec![
                    Operation::Read,
                    Operation::Insert,
                    Operation::Update,
                    Operation::Delete,
                    Operation::Truncate,
                    Operation::Message,
                ],
                columns: None,
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

impl typed::Guest for Identity {
    fn process(_sequence: u64, batch: Vec<Event>) -> Result<Vec<Outcome>, CallError> {
        Ok(batch.iter().map(|_| Outcome::Pass).collect())
    }
}

export!(Identity);
