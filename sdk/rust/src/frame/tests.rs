//! The same vectors, and random batches, through this crate's reader and writer and the host's.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dovetail_core::change::{Change, Event as CoreEvent, Xid};
use dovetail_core::frame::{Call, Encoder, Entry, Projection, decode_reply};
use dovetail_core::outcome::{self as core_outcome, Outcome as CoreOutcome};
use dovetail_core::position::{Lsn, Position as CorePosition};
use dovetail_core::schema::{self, Initial, RelationId, TableName};
use dovetail_core::value::{Row as CoreRow, TemporalSpecial as CoreSpecial, Text, Value as Core};
use proptest::prelude::*;

use super::{Request, Writer};
use crate::event::{Event, Operation, Position};
use crate::outcome::{Emission, Failure, FailureClass, Outcome, Patch, Payload};
use crate::relation::{Column, Kind, Relation};
use crate::value::{TemporalSpecial, Value};

/// One of every kind, in both vocabularies.
fn values() -> Vec<(Core, Value<'static>)> {
    let text = "grüße";
    let content: &[u8] = &[0, 1, 0xFE, 0xFF];
    let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xFF];
    let special = |core, sdk| (Core::TemporalSpecial(core), Value::TemporalSpecial(sdk));
    vec![
        (Core::Null, Value::Null),
        (Core::Unavailable, Value::Unavailable),
        (Core::Boolean(true), Value::Boolean(true)),
        (Core::Int(-2), Value::Int(-2)),
        (Core::Uint(u64::MAX), Value::Uint(u64::MAX)),
        (Core::Float32(-0.5), Value::Float32(-0.5)),
        (Core::Float64(1.0e300), Value::Float64(1.0e300)),
        (Core::Decimal(Text::from("-1.00")), Value::Decimal("-1.00".into())),
        (Core::Text(Text::from(text)), Value::Text(text.into())),
        (Core::Bytes(Bytes::from_static(content)), Value::Bytes(content.into())),
        (Core::Json(Text::from("{\"a\": 1}")), Value::Json("{\"a\": 1}".into())),
        (Core::Uuid(uuid), Value::Uuid(uuid)),
        (Core::Date(-719_528), Value::Date(-719_528)),
        (Core::Time(86_400_000_000), Value::Time(86_400_000_000)),
        (
            Core::TimeTz { micros: 1, offset_seconds: -3_600 },
            Value::TimeTz { micros: 1, offset_seconds: -3_600 },
        ),
        (Core::Timestamp(i64::MIN), Value::Timestamp(i64::MIN)),
        (Core::TimestampTz(i64::MAX), Value::TimestampTz(i64::MAX)),
        (
            Core::Interval { months: -1, days: 2, micros: -3 },
            Value::Interval { months: -1, days: 2, micros: -3 },
        ),
        (
            Core::Bits { length: 9, bytes: Bytes::from_static(&[0xA5, 0x80]) },
            Value::Bits { length: 9, bytes: Cow::Borrowed(&[0xA5, 0x80]) },
        ),
        special(CoreSpecial::Infinity, TemporalSpecial::Infinity),
        special(CoreSpecial::NegativeInfinity, TemporalSpecial::NegativeInfinity),
        special(
            CoreSpecial::Literal(Text::from("4714-11-24 BC")),
            TemporalSpecial::Literal("4714-11-24 BC".into()),
        ),
        (Core::Raw(Text::from("{1,NULL}")), Value::Raw("{1,NULL}".into())),
    ]
}

fn core_row() -> CoreRow {
    CoreRow::new(values().into_iter().map(|(core, _)| core).collect())
}

fn core_relation() -> Arc<schema::Relation> {
    let column = |index: usize| schema::Column {
        name: format!("c{index}"),
        type_name: "any".into(),
        type_modifier: -1,
        kind: schema::Kind::Text,
        initial: Initial::Null,
        number: None,
    };
    let table = TableName { namespace: "public".into(), name: "t".into() };
    let columns = (0..values().len()).map(column).collect();
    let relation = schema::Relation::new(RelationId(16_384), table, columns, vec![3]);
    // A digest in life; fixed here, so that the vectors do not depend on how it is made.
    Arc::new(schema::Relation { version: 0x0102_0304, ..relation })
}

fn sdk_relation() -> Relation {
    let core = core_relation();
    let column = |column: &schema::Column| Column {
        name: column.name.clone(),
        type_name: column.type_name.clone(),
        type_modifier: column.type_modifier,
        kind: Kind::Text,
        key_ordinal: None,
    };
    Relation {
        id: core.id.0,
        version: core.version,
        namespace: core.table.namespace.clone(),
        name: core.table.name.clone(),
        columns: core.columns.iter().map(column).collect(),
    }
}

fn core_event(ordinal: u32, change: Change) -> CoreEvent {
    CoreEvent {
        position: CorePosition { commit: Lsn::new(0x16_B374_D848), ordinal },
        commit_time_micros: -1,
        transaction: Some(Xid(0x1_0000_0303).into()),
        redelivery: false,
        change,
    }
}

/// Every operation, with every flag.
fn core_events() -> Vec<CoreEvent> {
    let relation = core_relation;
    let after = core_row();
    let before = core_row();
    let mut events = vec![
        core_event(0, Change::Read { relation: relation(), after: after.clone() }),
        core_event(
            1,
            Change::Insert { relation: relation(), after: after.clone(), moved_from: None },
        ),
        core_event(
            2,
            Change::Update {
                relation: relation(),
                before: Some(before.clone()),
                after: after.clone(),
            },
        ),
        core_event(3, Change::Delete { relation: relation(), before: before.clone(), moved: true }),
        core_event(4, Change::Insert { relation: relation(), after, moved_from: Some(before) }),
        core_event(5, Change::Truncate { relation: relation() }),
        core_event(
            6,
            Change::Message {
                prefix: "prefix".into(),
                content: Bytes::from_static(&[1, 2, 3]),
                transactional: true,
            },
        ),
    ];
    if let Some(first) = events.first_mut() {
        first.transaction = None;
        first.redelivery = true;
    }
    events
}

fn seen<'a>(row: Option<crate::Row<'a>>) -> Option<Vec<Value<'a>>> {
    row.map(|row| row.iter().map(|(_, value)| value).collect())
}

fn encode(events: &[CoreEvent], projection: &Projection) -> Vec<u8> {
    let entry = |event| Entry { event, projection: Some(projection) };
    let entries: Vec<Entry<'_>> = events
        .iter()
        .map(entry)
        .map(|entry| match entry.event.change.relation() {
            Some(_) => entry,
            None => Entry { projection: None, ..entry },
        })
        .collect();
    let mut frame = Vec::new();
    let call = Call { lane: 3, sequence: 0x0A0B_0C0D_0E0F };
    Encoder::default().encode(call, &entries, &mut frame).expect("small");
    frame
}

fn everything() -> Projection {
    Projection { columns: (0..values().len()).collect(), before: true }
}

/// Every kind of outcome, in both vocabularies.
fn outcomes() -> Vec<(Outcome, CoreOutcome)> {
    let mut patch = Patch::new();
    let mut cells = Vec::new();
    for (column, (core, sdk)) in values().into_iter().enumerate() {
        patch = patch.set_at(column, sdk);
        cells.push(core_outcome::Cell { column, value: core });
    }
    let row = values().into_iter().map(|(_, sdk)| sdk).collect();
    let sdk_emission = |topic: Option<&str>, key: Option<&[u8]>, payload, headers| Emission {
        topic: topic.map(str::to_owned),
        key: key.map(<[u8]>::to_vec),
        payload,
        headers,
    };
    let core_emission = |topic: Option<&str>, key: Option<&'static [u8]>, payload, headers| {
        core_outcome::Emission {
            topic: topic.map(str::to_owned),
            key: key.map(Bytes::from_static),
            payload,
            headers,
        }
    };
    let failure = |class| Failure { class, code: "code".into(), message: "what is wrong".into() };
    let core_failure = |class| core_outcome::Failure {
        class,
        code: "code".into(),
        message: "what is wrong".into(),
    };
    vec![
        (Outcome::Pass, CoreOutcome::Pass),
        (Outcome::Drop, CoreOutcome::Drop),
        (Outcome::Patch(patch), CoreOutcome::Patch(cells)),
        (Outcome::Patch(Patch::new()), CoreOutcome::Patch(Vec::new())),
        (
            Outcome::Emit(vec![
                sdk_emission(
                    Some("topic"),
                    Some(b"key"),
                    Payload::Row(row),
                    vec![("a".into(), vec![1]), (String::new(), Vec::new())],
                ),
                sdk_emission(None, Some(b""), Payload::Bytes(b"payload".to_vec()), Vec::new()),
                sdk_emission(Some(""), None, Payload::Tombstone, vec![("b".into(), vec![2, 3])]),
            ]),
            CoreOutcome::Emit(vec![
                core_emission(
                    Some("topic"),
                    Some(b"key"),
                    core_outcome::Payload::Row(core_row()),
                    vec![("a".into(), Bytes::from_static(&[1])), (String::new(), Bytes::new())],
                ),
                core_emission(
                    None,
                    Some(b""),
                    core_outcome::Payload::Bytes(Bytes::from_static(b"payload")),
                    Vec::new(),
                ),
                core_emission(
                    Some(""),
                    None,
                    core_outcome::Payload::Tombstone,
                    vec![("b".into(), Bytes::from_static(&[2, 3]))],
                ),
            ]),
        ),
        (Outcome::Emit(Vec::new()), CoreOutcome::Emit(Vec::new())),
        (Outcome::Route(vec![0, 0xFFFE, 1]), CoreOutcome::Route(vec![0, 0xFFFE, 1])),
        (
            Outcome::Fail(failure(FailureClass::InvalidData)),
            CoreOutcome::Fail(core_failure(core_outcome::FailureClass::InvalidData)),
        ),
        (
            Outcome::Fail(failure(FailureClass::Unsupported)),
            CoreOutcome::Fail(core_failure(core_outcome::FailureClass::Unsupported)),
        ),
        (
            Outcome::Fail(failure(FailureClass::Internal)),
            CoreOutcome::Fail(core_failure(core_outcome::FailureClass::Internal)),
        ),
    ]
}

fn write(outcomes: Vec<Outcome>) -> Vec<u8> {
    let relation = sdk_relation();
    let mut writer = Writer::default();
    writer.begin(outcomes.len());
    for outcome in outcomes {
        writer.push(outcome, Some(&relation));
    }
    writer.finish().expect("small")
}

/// A vector: hexadecimal bytes, and comments behind `#`.
fn vector(name: &str) -> Vec<u8> {
    let path = vector_path(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let words = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().split_ascii_whitespace());
    words.map(|word| u8::from_str_radix(word, 16).expect("two hexadecimal digits")).collect()
}

fn vector_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit/0.1.0/vectors").join(name)
}

/// Compares with the file; writes it instead where `DOVETAIL_WRITE_VECTORS` is set, for a new frame version.
fn check_vector(name: &str, bytes: &[u8], sections: &[(&str, usize, usize)]) {
    if std::env::var_os("DOVETAIL_WRITE_VECTORS").is_some() {
        let mut rest = bytes;
        let mut text = String::new();
        for &(section, size, count) in sections {
            for index in 0..count {
                writeln!(text, "# {section} {index}").expect("memory");
                let (entry, behind) = rest.split_at(size);
                rest = behind;
                hexadecimal(entry, &mut text);
            }
        }
        writeln!(text, "# heap").expect("memory");
        hexadecimal(rest, &mut text);
        std::fs::write(vector_path(name), text).expect("the folder is there");
    }
    assert!(vector(name) == bytes, "{name} is frozen, and differs");
}

fn hexadecimal(bytes: &[u8], text: &mut String) {
    for line in bytes.chunks(16) {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{}", words.join(" ")).expect("memory");
    }
}

#[test]
fn the_host_writes_the_request_vector() {
    let frame = encode(&core_events(), &everything());
    let cells = 7 * values().len() + 2;
    check_vector("request.hex", &frame, &[("header", 32, 1), ("row", 56, 7), ("cell", 16, cells)]);
}

#[test]
fn this_crate_reads_the_request_vector() {
    let frame = vector("request.hex");
    let request = Request::read(&frame).expect("a frame");
    let relation = sdk_relation();
    let rows: Vec<_> = request.iter().map(|row| row.expect("a row")).collect();
    let events: Vec<Event<'_>> = rows
        .iter()
        .map(|&row| Event {
            row,
            values: request.values(),
            relation: row.relation().map(|named| {
                assert_eq!(named, (relation.id, relation.version));
                &relation
            }),
        })
        .collect();

    let operations: Vec<Operation> = events.iter().map(Event::operation).collect();
    let expected = [
        Operation::Read,
        Operation::Insert,
        Operation::Update,
        Operation::Delete,
        Operation::Insert,
        Operation::Truncate,
        Operation::Message,
    ];
    assert_eq!(operations, expected);
    let whole: Vec<Value<'_>> = values().into_iter().map(|(_, sdk)| sdk).collect();
    for (ordinal, event) in (0..).zip(&events) {
        assert_eq!(event.position(), Position { high: 0, low: 0x16_B374_D848, ordinal });
        assert_eq!(event.commit_time_micros(), -1);
        assert_eq!(event.is_redelivery(), ordinal == 0);
        assert_eq!(event.is_moved(), matches!(ordinal, 3 | 4));
        let transaction = if ordinal == 0 { None } else { Some(0x1_0000_0303) };
        assert_eq!(event.transaction(), transaction);
        let image = |present: bool| present.then(|| whole.clone());
        assert_eq!(seen(event.before()), image(matches!(ordinal, 2..=4)), "{ordinal}");
        assert_eq!(seen(event.after()), image(matches!(ordinal, 0..=2 | 4)), "{ordinal}");
    }
    let message = events.last().and_then(Event::message).expect("the last one");
    assert_eq!((message.prefix, message.content), ("prefix", [1, 2, 3].as_slice()));
    assert!(message.transactional);
}

#[test]
fn this_crate_writes_the_reply_vector_and_the_host_reads_it() {
    let (sdk, core): (Vec<_>, Vec<_>) = outcomes().into_iter().unzip();
    let count = sdk.len();
    let cells = 2 * values().len();
    let sections = [
        ("header", 32, 1),
        ("outcome", 12, count),
        ("cell", 16, cells),
        ("emission", 36, 3),
        ("pair", 16, 6),
    ];
    check_vector("reply.hex", &write(sdk), &sections);
    assert_eq!(decode_reply(&vector("reply.hex"), count), Ok(core));
}

#[test]
fn a_patch_of_an_unknown_name_fails_its_event_only() {
    let unknown = Outcome::Patch(Patch::new().set("c2", Value::Null).set("nowhere", Value::Null));
    let known = Outcome::Patch(Patch::new().set("c2", Value::Boolean(false)));
    let decoded = decode_reply(&write(vec![unknown, known]), 2).expect("a reply");
    let [CoreOutcome::Fail(failure), CoreOutcome::Patch(cells)] = decoded.as_slice() else {
        panic!("{decoded:?}")
    };
    assert_eq!(failure.code, "sdk.unknown-column");
    assert_eq!(cells.as_slice(), [core_outcome::Cell { column: 2, value: Core::Boolean(false) }]);
}

#[test]
fn a_projection_leaves_the_other_columns_out() {
    let events = core_events();
    let projection = Projection { columns: vec![3, 8], before: false };
    let frame = encode(&events, &projection);
    let request = Request::read(&frame).expect("a frame");
    let update = request.iter().nth(2).expect("there").expect("a row");
    assert_eq!(update.before, None);
    let first = update.after.expect("an update has one");
    assert_eq!(request.values().value(first), Some(Value::Int(-2)));
    assert_eq!(request.values().value(first + 1), Some(Value::text("grüße")));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut frame = encode(&core_events(), &everything());
        for (place, byte) in changes {
            let place = place.index(frame.len());
            frame[place] = byte;
        }
        for frame in [&frame[..], &frame[..keep.index(frame.len())]] {
            let Ok(request) = Request::read(frame) else { continue };
            for row in request.iter().flatten() {
                for first in [row.before, row.after].into_iter().flatten() {
                    for cell in first..first.saturating_add(30) {
                        let _ = request.values().value(cell);
                    }
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_the_host_panic_or_accept_another_count(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let (sdk, _): (Vec<_>, Vec<_>) = outcomes().into_iter().unzip();
        let count = sdk.len();
        let mut reply = write(sdk);
        for (place, byte) in changes {
            let place = place.index(reply.len());
            reply[place] = byte;
        }
        for reply in [&reply[..], &reply[..keep.index(reply.len())]] {
            if let Ok(decoded) = decode_reply(reply, count) {
                prop_assert_eq!(decoded.len(), count);
            }
        }
    }
}
