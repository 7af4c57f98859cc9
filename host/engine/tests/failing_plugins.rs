//! A plugin that fails on some events: exactly those are lost to its policy, everything else passes once and in order.

#[expect(dead_code, reason = "hostile guests use the rest")]
#[path = "../../sandbox/tests/hostile/guest.rs"]
mod guest;

use std::num::NonZeroU16;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dovetail::config::{OnFailure, Plugin};
use dovetail::lanes::Processed;
use dovetail::plugins::{Halt, Plugins};
use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::outcome::{Body, Record};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use dovetail_core::value::{Row, Value};
use dovetail_sandbox::{Compiler, Grants};
use guest::Guest;
use proptest::prelude::*;

/// Ids from here on make the guest trap, break the contract, or not end.
const TRAPS: i64 = 1_000_000;
const BREAKS: i64 = 2_000_000;
const HANGS: i64 = 3_000_000;

/// Looks at every row's first cell.
fn fragile() -> Guest {
    guest::process("").every_call(
        "(if (i32.load offset=8 (local.get $frame)) (then (loop $rows
          (local.set $wide (i64.load offset=40 (i32.add (local.get $frame)
            (i32.add (i32.mul (i32.load offset=8 (local.get $frame)) (i32.const 56))
              (i32.mul (i32.const 16) (i32.load offset=48
                (i32.add (local.get $frame) (i32.mul (local.get $a) (i32.const 56)))))))))
          (if (i64.ge_s (local.get $wide) (i64.const 3000000)) (then (loop $l (br $l))))
          (if (i64.ge_s (local.get $wide) (i64.const 2000000)) (then (return (call $ok (i32.const 0) (i32.const 0)))))
          (if (i64.ge_s (local.get $wide) (i64.const 1000000)) (then unreachable))
          (local.set $a (i32.add (local.get $a) (i32.const 1)))
          (br_if $rows (i32.lt_u (local.get $a) (i32.load offset=8 (local.get $frame)))))))",
    )
}

/// Gives up for good at every call.
fn hopeless() -> Guest {
    let words = b"the key is gone\n";
    guest::process("").data(0x800, words).every_call(
        "(i32.store8 (i32.const 0x300) (i32.const 1)) (i32.store8 (i32.const 0x304) (i32.const 1))
         (i32.store (i32.const 0x308) (i32.const 0x800)) (i32.store (i32.const 0x30C) (i32.const 16))
         (return (i32.const 0x300))",
    )
}

fn load(guest: &Guest, on_failure: OnFailure) -> Plugins {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plugin.wasm");
    std::fs::write(&file, guest.build()).expect("written");
    let plugin = Plugin {
        name: "tried".into(),
        file,
        config: "{}".into(),
        grants: Grants::all_rows(),
        on_failure,
        memory_bytes_max: 64 << 20,
        batch_timeout: Duration::from_millis(20),
    };
    let compiled = directory.path().join("compiled");
    Plugins::load(&[plugin], &Compiler::InProcess, &compiled, 1).expect("loads")
}

fn relation() -> Arc<Relation> {
    let id = Column {
        name: "id".into(),
        type_name: "int8".into(),
        type_modifier: -1,
        kind: Kind::Int,
        initial: Initial::Null,
        number: None,
    };
    let name = TableName { namespace: "public".into(), name: "t".into() };
    Arc::new(Relation::new(RelationId(1), name, vec![id], vec![0]))
}

fn events(ids: &[i64]) -> Vec<Event> {
    let relation = relation();
    let event = |(ordinal, id): (u32, &i64)| Event {
        position: Position { commit: Lsn::new(100), ordinal },
        commit_time_micros: 0,
        transaction: Some(Xid(7).into()),
        redelivery: false,
        change: Change::Insert {
            relation: Arc::clone(&relation),
            after: Row::new(vec![Value::Int(*id)]),
            moved_from: None,
        },
    };
    (0..).zip(ids).map(event).collect()
}

/// The ordinals of what passed.
fn passed(plugins: &Plugins, ids: &[i64]) -> Result<Vec<u32>, Halt> {
    let mut chain = plugins.chains(NonZeroU16::MIN).pop().expect("one lane");
    let ordinal = |slot| match slot {
        Processed::One(Record { body: Body::Event(event), .. }) => Some(event.position.ordinal),
        _ => None,
    };
    Ok(chain.process(events(ids))?.into_iter().filter_map(ordinal).collect())
}

/// An honest event, or, one time in eight, one that the guest fails on at once.
fn id() -> impl Strategy<Value = i64> {
    prop_oneof![14 => 0..1_000_i64, 1 => Just(TRAPS), 1 => Just(BREAKS)]
}

proptest! {
    #[test]
    fn exactly_the_guilty_events_are_left_out(ids in prop::collection::vec(id(), 0..200)) {
        static PLUGINS: OnceLock<Plugins> = OnceLock::new();
        let plugins = PLUGINS.get_or_init(|| load(&fragile(), OnFailure::Skip));
        let honest = (0_u32..).zip(&ids).filter(|(_, id)| **id < TRAPS).map(|(ordinal, _)| ordinal);
        prop_assert_eq!(passed(plugins, &ids).expect("skips"), honest.collect::<Vec<_>>());
    }
}

#[test]
fn an_event_that_takes_for_ever_is_left_out_alone() {
    let mut ids: Vec<i64> = (0..512).collect();
    ids[300] = HANGS;
    let expected: Vec<u32> = (0..512).filter(|ordinal| *ordinal != 300).collect();
    assert_eq!(passed(&load(&fragile(), OnFailure::Skip), &ids).expect("skips"), expected);
}

#[test]
fn the_first_guilty_event_halts_where_the_policy_says_so() {
    let ids = [1, 2, TRAPS, 3, BREAKS];
    let halt = passed(&load(&fragile(), OnFailure::Halt), &ids).expect_err("halts");
    assert_eq!((halt.plugin.as_str(), halt.position.ordinal), ("tried", 2));
    assert!(halt.to_string().contains("unreachable"), "{halt}");
    assert!(
        halt.to_string().ends_with("or set `on_failure: skip` to leave such changes out"),
        "{halt}"
    );
}

/// Skipping would leave out every event that is to come.
#[test]
fn a_plugin_that_gives_up_halts_whatever_its_policy() {
    for policy in [OnFailure::Skip, OnFailure::Halt] {
        let halt = passed(&load(&hopeless(), policy), &[1, 2, 3]).expect_err("halts");
        assert_eq!(
            halt.to_string(),
            "plugin tried could not handle the change at 0/64+0 (the key is gone ); repair the plugin or its \
             configuration and start again"
        );
    }
}

#[test]
fn a_plugin_that_does_not_start_halts_whatever_its_policy() {
    for policy in [OnFailure::Skip, OnFailure::Halt] {
        let plugins = load(&guest::honest().init("unreachable"), policy);
        let halt = passed(&plugins, &[1, 2, 3]).expect_err("halts");
        assert!(halt.to_string().contains("plugin stopped in `init`: unreachable"), "{halt}");
    }
}

#[test]
fn without_compiled_plugins_everything_passes() {
    let none = Plugins::load(&[], &Compiler::InProcess, Path::new("/nonexistent"), 1);
    assert_eq!(passed(&none.expect("nothing to load"), &[1, TRAPS]).expect("passes"), [0, 1]);
}
