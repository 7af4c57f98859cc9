//! Two forms, one meaning: the same events through the typed and the packed twin of a guest give the same outcomes, and
//! what a guest sends back unchanged is what it was sent.

mod support;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::outcome::{Outcome, Payload};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use dovetail_core::value::{Row, TemporalSpecial, Text, Value};
use dovetail_sandbox::Plugin;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use support::{load, refs};

const KINDS: [Kind; 18] = [
    Kind::Boolean,
    Kind::Int,
    Kind::Uint,
    Kind::Float32,
    Kind::Float64,
    Kind::Decimal,
    Kind::Text,
    Kind::Bytes,
    Kind::Json,
    Kind::Uuid,
    Kind::Date,
    Kind::Time,
    Kind::TimeTz,
    Kind::Timestamp,
    Kind::TimestampTz,
    Kind::Interval,
    Kind::Bits,
    Kind::Raw,
];

fn text() -> impl Strategy<Value = Text> {
    "\\PC{0,12}".prop_map(Text::from)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

fn special() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(TemporalSpecial::Infinity),
        Just(TemporalSpecial::NegativeInfinity),
        text().prop_map(TemporalSpecial::Literal),
    ]
    .prop_map(Value::TemporalSpecial)
}

fn bits() -> impl Strategy<Value = Value> {
    bytes().prop_flat_map(|bytes| {
        let most = u32::try_from(8 * bytes.len()).expect("short");
        let least = most.saturating_sub(7).min(most);
        (least..=most).prop_map(move |length| Value::Bits { length, bytes: bytes.clone() })
    })
}

/// A value that fits a column's kind: null and unavailable too.
fn value(kind: Kind) -> BoxedStrategy<Value> {
    let temporal = |value: BoxedStrategy<Value>| prop_oneof![4 => value, 1 => special()].boxed();
    let fits = match kind {
        Kind::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Kind::Int => any::<i64>().prop_map(Value::Int).boxed(),
        Kind::Uint => any::<u64>().prop_map(Value::Uint).boxed(),
        Kind::Float32 => any::<f32>().prop_map(Value::Float32).boxed(),
        Kind::Float64 => any::<f64>().prop_map(Value::Float64).boxed(),
        Kind::Decimal => text().prop_map(Value::Decimal).boxed(),
        Kind::Text => text().prop_map(Value::Text).boxed(),
        Kind::Bytes => bytes().prop_map(Value::Bytes).boxed(),
        Kind::Json => text().prop_map(Value::Json).boxed(),
        Kind::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        Kind::Date => temporal(any::<i32>().prop_map(Value::Date).boxed()),
        Kind::Time => temporal(any::<i64>().prop_map(Value::Time).boxed()),
        Kind::TimeTz => temporal(
            any::<(i64, i32)>()
                .prop_map(|(micros, offset_seconds)| Value::TimeTz { micros, offset_seconds })
                .boxed(),
        ),
        Kind::Timestamp => temporal(any::<i64>().prop_map(Value::Timestamp).boxed()),
        Kind::TimestampTz => temporal(any::<i64>().prop_map(Value::TimestampTz).boxed()),
        Kind::Interval => temporal(
            any::<(i32, i32, i64)>()
                .prop_map(|(months, days, micros)| Value::Interval { months, days, micros })
                .boxed(),
        ),
        Kind::Bits => bits().boxed(),
        Kind::Raw => text().prop_map(Value::Raw).boxed(),
    };
    prop_oneof![8 => fits, 1 => Just(Value::Null), 1 => Just(Value::Unavailable)].boxed()
}

/// One column of each kind; the second is the key.
static RELATION: LazyLock<Arc<Relation>> = LazyLock::new(|| {
    let column = |(index, kind): (usize, &Kind)| Column {
        name: format!("c{index}"),
        type_name: format!("{kind:?}"),
        type_modifier: -1,
        kind: *kind,
        initial: Initial::Null,
        number: None,
    };
    let table = TableName { namespace: "public".into(), name: "every kind".into() };
    let columns = KINDS.iter().enumerate().map(column).collect();
    Arc::new(Relation::new(RelationId(7), table, columns, vec![1]))
});

fn row() -> impl Strategy<Value = Row> {
    KINDS.map(value).to_vec().prop_map(Row::new)
}

fn change() -> impl Strategy<Value = Change> {
    let relation = || Arc::clone(&RELATION);
    prop_oneof![
        row().prop_map(move |after| Change::Read { relation: relation(), after }),
        (row(), option::of(row())).prop_map(move |(after, moved_from)| Change::Insert {
            relation: relation(),
            after,
            moved_from
        }),
        (option::of(row()), row()).prop_map(move |(before, after)| Change::Update {
            relation: relation(),
            before,
            after
        }),
        (row(), any::<bool>()).prop_map(move |(before, moved)| Change::Delete {
            relation: relation(),
            before,
            moved
        }),
        Just(()).prop_map(move |()| Change::Truncate { relation: relation() }),
        ("\\PC{0,9}", bytes(), any::<bool>()).prop_map(|(prefix, content, transactional)| {
            Change::Message { prefix, content, transactional }
        }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    (any::<(u64, u32, i64)>(), option::of(any::<u64>()), any::<bool>(), change()).prop_map(
        |((commit, ordinal, commit_time_micros), transaction, redelivery, change)| Event {
            position: Position { commit: Lsn::new(commit), ordinal },
            commit_time_micros,
            transaction: transaction.map(|xid| Xid(xid).into()),
            redelivery,
            change,
        },
    )
}

fn outcomes(plugin: &Plugin, events: &[Event]) -> Vec<Outcome> {
    let mut instance = plugin.instantiate(0, 1).expect("starts");
    instance.process(1, &refs(events)).expect("an honest guest")
}

/// By their text, under which a NaN is equal to itself.
fn shown<T: std::fmt::Debug>(value: &T) -> String {
    format!("{value:?}")
}

fn check_echo(event: &Event, outcome: &Outcome) {
    let after = event.change.after();
    match (event.position.ordinal % 7, outcome) {
        (0, Outcome::Pass) | (1, Outcome::Drop) => {}
        (2, Outcome::Patch(cells)) => {
            let after = after.expect("a patch needs a row");
            for cell in cells {
                assert_eq!(shown(&after.get(cell.column)), shown(&Some(&cell.value)));
            }
        }
        (2, Outcome::Fail(failure)) => {
            assert!(after.is_none(), "{failure:?}");
            assert_eq!(failure.code, "host.patch-no-row");
        }
        (3, Outcome::Emit(emissions)) => {
            let rows = emissions.iter().filter_map(|emission| match &emission.payload {
                Payload::Row(row) => Some(row),
                Payload::Bytes(_) | Payload::Tombstone => None,
            });
            assert_eq!(shown(&rows.collect::<Vec<_>>()), shown(&after.iter().collect::<Vec<_>>()));
        }
        (4, Outcome::Route(targets)) => assert_eq!(targets, &[1, 0]),
        (5, Outcome::Emit(emissions)) => assert!(emissions.is_empty()),
        (6, Outcome::Fail(failure)) => assert_eq!(failure.code, "echo"),
        (turn, outcome) => panic!("turn {turn}: {outcome:?}"),
    }
}

static TWINS: LazyLock<[Plugin; 2]> =
    LazyLock::new(|| ["echo-packed", "echo-typed"].map(|guest| load(guest, "")));
static NARROW: LazyLock<[Plugin; 2]> =
    LazyLock::new(|| ["echo-packed", "echo-typed"].map(|guest| load(guest, "c6,c1,c17,nowhere")));

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_forms_say_the_same_and_lose_nothing(events in vec(event(), 0..20)) {
        let [packed, typed] = TWINS.each_ref().map(|plugin| outcomes(plugin, &events));
        prop_assert_eq!(shown(&packed), shown(&typed));
        prop_assert_eq!(packed.len(), events.len());
        for (event, outcome) in events.iter().zip(&packed) {
            check_echo(event, outcome);
        }
    }

    #[test]
    fn a_projection_changes_nothing_but_what_is_seen(events in vec(event(), 0..20)) {
        let [packed, typed] = NARROW.each_ref().map(|plugin| outcomes(plugin, &events));
        prop_assert_eq!(shown(&packed), shown(&typed));
        for (event, outcome) in events.iter().zip(&packed) {
            check_echo(event, outcome);
            if let Outcome::Patch(cells) = outcome {
                let columns: Vec<_> = cells.iter().map(|cell| cell.column).collect();
                prop_assert_eq!(columns, [1, 6, 17]);
            }
        }
    }
}
