//! Sends back what it was shown, by every kind of outcome in turn. `echo-packed` is its twin in the other form.

wit_bindgen::generate!({
    path: "../../../wit/0.1.0",
    world: "transform",
    additional_derives: [Clone],
});

use dovetail::plugin::types::{
    CallError, Cell, Emission, Event, Failure, FailureClass, Header, Operation, Outcome, Payload,
    Relation, TemporalSpecial, Value,
};
use exports::dovetail::plugin::lifecycle::{self, Descriptor, Interest};
use exports::dovetail::plugin::typed;

struct Echo;

impl lifecycle::Guest for Echo {
    fn describe(config: String) -> Result<Descriptor, String> {
        let columns = match config.as_str() {
            "" => None,
            names => Some(names.split(',').map(str::to_owned).collect()),
        };
        Ok(Descriptor {
            name: "echo".to_owned(),
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
                columns,
                before: true,
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

impl typed::Guest for Echo {
    fn process(_sequence: u64, batch: Vec<Event>) -> Result<Vec<Outcome>, CallError> {
        Ok(batch.iter().map(outcome).collect())
    }
}

export!(Echo);

fn outcome(event: &Event) -> Outcome {
    match event.position.ordinal % 7 {
        0 => Outcome::Pass,
        1 => Outcome::Drop,
        2 => Outcome::Patch(patch(event)),
        3 => Outcome::Emit(emissions(event)),
        4 => Outcome::Route(vec![1, 0]),
        5 => Outcome::Emit(Vec::new()),
        _ => Outcome::Fail(Failure {
            class: FailureClass::Unsupported,
            code: "echo".to_owned(),
            message: describe(event),
        }),
    }
}

fn patch(event: &Event) -> Vec<Cell> {
    let values = event.after.iter().flatten().cloned();
    values.zip(0..).map(|(value, column)| Cell { column, value }).collect()
}

fn emissions(event: &Event) -> Vec<Emission> {
    let header = |name: &str, value: &[u8]| Header { name: name.into(), value: value.into() };
    let mut emissions = vec![
        Emission {
            topic: Some("echo".to_owned()),
            key: None,
            payload: Payload::Bytes(describe(event).into_bytes()),
            headers: vec![header("a", &[1]), header("", &[])],
        },
        Emission {
            topic: None,
            key: Some(b"key".to_vec()),
            payload: Payload::Tombstone,
            headers: Vec::new(),
        },
    ];
    if let Some(row) = &event.after {
        emissions.push(Emission {
            topic: None,
            key: None,
            payload: Payload::Row(row.clone()),
            headers: vec![header("b", &[2, 3])],
        });
    }
    emissions
}

/// Everything that an event says, in words that the twin uses too.
fn describe(event: &Event) -> String {
    let position = event.position;
    let row =
        |row: &Option<Vec<Value>>| row.as_ref().map(|row| row.iter().map(word).collect::<Vec<_>>());
    let relation = event.relation.map(|relation| (relation.id, relation.version));
    let message = event
        .message
        .as_ref()
        .map(|message| (message.prefix.clone(), message.content.clone(), message.transactional));
    format!(
        "{:?} {:?} {relation:?} {} {:?} {} {} {:?} {:?} {message:?}",
        (position.high, position.low, position.ordinal),
        event.operation as u8,
        event.commit_time,
        event.transaction,
        event.redelivery,
        event.moved,
        row(&event.before),
        row(&event.after),
    )
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Unavailable => "unavailable".to_owned(),
        Value::Boolean(value) => format!("boolean {value}"),
        Value::Int(value) => format!("int {value}"),
        Value::Uint(value) => format!("uint {value}"),
        Value::Float32(value) => format!("float32 {value:?}"),
        Value::Float64(value) => format!("float64 {value:?}"),
        Value::Decimal(text) => format!("decimal {text}"),
        Value::Text(text) => format!("text {text}"),
        Value::Bytes(bytes) => format!("bytes {bytes:?}"),
        Value::Json(text) => format!("json {text}"),
        Value::Uuid(uuid) => {
            format!("uuid {:x}", u128::from(uuid.high) << 64 | u128::from(uuid.low))
        }
        Value::Date(days) => format!("date {days}"),
        Value::Time(micros) => format!("time {micros}"),
        Value::TimeTz(time) => format!("time-tz {} {}", time.micros, time.offset_seconds),
        Value::Timestamp(micros) => format!("timestamp {micros}"),
        Value::TimestampTz(micros) => format!("timestamp-tz {micros}"),
        Value::Interval(interval) => {
            format!("interval {} {} {}", interval.months, interval.days, interval.micros)
        }
        Value::Bits(bits) => format!("bits {} {:?}", bits.length, bits.bytes),
        Value::TemporalSpecial(TemporalSpecial::Infinity) => "infinity".to_owned(),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => "-infinity".to_owned(),
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => format!("literal {text}"),
        Value::Raw(text) => format!("raw {text}"),
    }
}
