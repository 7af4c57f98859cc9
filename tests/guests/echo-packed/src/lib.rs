//! Sends back what it was shown, by every kind of outcome in turn. `echo-typed` is its twin in the other form.

use dovetail_sdk::{
    Descriptor, Emission, Event, Failure, FailureClass, Interest, Lane, Operation, Outcome, Patch,
    Payload, Row, TemporalSpecial, Transform, Value, export,
};

struct Echo;

impl Transform for Echo {
    fn describe(config: &str) -> Result<Descriptor, String> {
        let columns = match config {
            "" => None,
            names => Some(names.split(',').map(str::to_owned).collect()),
        };
        Ok(Descriptor {
            name: "echo".to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: Operation::ALL.to_vec(),
                columns,
                before: true,
            }],
        })
    }

    fn new(_config: &str, _lane: Lane) -> Result<Self, String> {
        Ok(Self)
    }

    fn event(&mut self, event: Event<'_>) -> Outcome {
        match event.position().ordinal % 7 {
            0 => Outcome::Pass,
            1 => Outcome::Drop,
            2 => Outcome::Patch(patch(&event)),
            3 => Outcome::Emit(emissions(&event)),
            4 => Outcome::Route(vec![1, 0]),
            5 => Outcome::Emit(Vec::new()),
            _ => Outcome::Fail(Failure {
                class: FailureClass::Unsupported,
                code: "echo".to_owned(),
                message: describe(&event),
            }),
        }
    }
}

export!(Echo);

fn patch(event: &Event<'_>) -> Patch {
    let mut patch = Patch::new();
    for (index, value) in event.after().iter().flat_map(Row::iter).map(|(_, v)| v).enumerate() {
        patch = patch.set_at(index, owned(value));
    }
    patch
}

fn emissions(event: &Event<'_>) -> Vec<Emission> {
    let mut emissions = vec![
        Emission {
            topic: Some("echo".to_owned()),
            key: None,
            payload: Payload::Bytes(describe(event).into_bytes()),
            headers: vec![("a".to_owned(), vec![1]), (String::new(), Vec::new())],
        },
        Emission {
            topic: None,
            key: Some(b"key".to_vec()),
            payload: Payload::Tombstone,
            headers: Vec::new(),
        },
    ];
    if let Some(row) = event.after() {
        emissions.push(Emission {
            topic: None,
            key: None,
            payload: Payload::Row(row.iter().map(|(_, value)| owned(value)).collect()),
            headers: vec![("b".to_owned(), vec![2, 3])],
        });
    }
    emissions
}

fn owned(value: Value<'_>) -> Value<'static> {
    let text = |text: std::borrow::Cow<'_, str>| text.into_owned().into();
    match value {
        Value::Null => Value::Null,
        Value::Unavailable => Value::Unavailable,
        Value::Boolean(value) => Value::Boolean(value),
        Value::Int(value) => Value::Int(value),
        Value::Uint(value) => Value::Uint(value),
        Value::Float32(value) => Value::Float32(value),
        Value::Float64(value) => Value::Float64(value),
        Value::Decimal(value) => Value::Decimal(text(value)),
        Value::Text(value) => Value::Text(text(value)),
        Value::Bytes(bytes) => Value::Bytes(bytes.into_owned().into()),
        Value::Json(value) => Value::Json(text(value)),
        Value::Uuid(bytes) => Value::Uuid(bytes),
        Value::Date(days) => Value::Date(days),
        Value::Time(micros) => Value::Time(micros),
        Value::TimeTz { micros, offset_seconds } => Value::TimeTz { micros, offset_seconds },
        Value::Timestamp(micros) => Value::Timestamp(micros),
        Value::TimestampTz(micros) => Value::TimestampTz(micros),
        Value::Interval { months, days, micros } => Value::Interval { months, days, micros },
        Value::Bits { length, bytes } => Value::Bits { length, bytes: bytes.into_owned().into() },
        Value::TemporalSpecial(special) => Value::TemporalSpecial(match special {
            TemporalSpecial::Infinity => TemporalSpecial::Infinity,
            TemporalSpecial::NegativeInfinity => TemporalSpecial::NegativeInfinity,
            TemporalSpecial::Literal(value) => TemporalSpecial::Literal(text(value)),
        }),
        Value::Raw(value) => Value::Raw(text(value)),
    }
}

/// Everything that an event says, in words that the twin uses too.
fn describe(event: &Event<'_>) -> String {
    let position = event.position();
    let row = |row: Option<Row<'_>>| {
        row.map(|row| row.iter().map(|(_, value)| word(&value)).collect::<Vec<_>>())
    };
    let relation = event.relation().map(|relation| (relation.id, relation.version));
    let message = event.message().map(|message| {
        (message.prefix.to_owned(), message.content.to_vec(), message.transactional)
    });
    format!(
        "{:?} {:?} {relation:?} {} {:?} {} {} {:?} {:?} {message:?}",
        (position.high, position.low, position.ordinal),
        event.operation() as u8,
        event.commit_time_micros(),
        event.transaction(),
        event.is_redelivery(),
        event.is_moved(),
        row(event.before()),
        row(event.after()),
    )
}

fn word(value: &Value<'_>) -> String {
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
        Value::Uuid(bytes) => format!("uuid {:x}", u128::from_be_bytes(*bytes)),
        Value::Date(days) => format!("date {days}"),
        Value::Time(micros) => format!("time {micros}"),
        Value::TimeTz { micros, offset_seconds } => format!("time-tz {micros} {offset_seconds}"),
        Value::Timestamp(micros) => format!("timestamp {micros}"),
        Value::TimestampTz(micros) => format!("timestamp-tz {micros}"),
        Value::Interval { months, days, micros } => format!("interval {months} {days} {micros}"),
        Value::Bits { length, bytes } => format!("bits {length} {bytes:?}"),
        Value::TemporalSpecial(TemporalSpecial::Infinity) => "infinity".to_owned(),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => "-infinity".to_owned(),
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => format!("literal {text}"),
        Value::Raw(text) => format!("raw {text}"),
    }
}
