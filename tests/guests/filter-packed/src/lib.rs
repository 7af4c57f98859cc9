//! Reads one column: rows whose `active` is false are dropped.

use dovetail_sdk::{
    Descriptor, Event, Interest, Lane, Operation, Outcome, Transform, Value, export,
};

struct Filter;

impl Transform for Filter {
    fn describe(_config: &str) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "filter".to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: Operation::ROWS.to_vec(),
                columns: Some(vec!["active".to_owned()]),
                before: false,
            }],
        })
    }

    fn new(_config: &str, _lane: Lane) -> Result<Self, String> {
        Ok(Self)
    }

    fn event(&mut self, event: Event<'_>) -> Outcome {
        match event.after().and_then(|row| row.get("active")) {
            Some(Value::Boolean(false)) => Outcome::Drop,
            _ => Outcome::Pass,
        }
    }
}

export!(Filter);
