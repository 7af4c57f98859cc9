//! Sees everything, passes everything.

use dovetail_sdk::{Descriptor, Event, Interest, Lane, Operation, Outcome, Transform, export};

struct Identity;

impl Transform for Identity {
    fn describe(_config: &str) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "identity".to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: Operation::ALL.to_vec(),
                columns: None,
                before: false,
            }],
        })
    }

    fn new(_config: &str, _lane: Lane) -> Result<Self, String> {
        Ok(Self)
    }

    fn event(&mut self, _event: Event<'_>) -> Outcome {
        Outcome::Pass
    }
}

export!(Identity);
