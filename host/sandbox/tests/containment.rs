//! What holds of every instance, beside the table of attacks in `hostile`: its deadline, its clock, its secrets, its end.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dovetail_core::change::{Change, Event};
use dovetail_core::outcome::Outcome;
use dovetail_sandbox::{CallError, Grants, Instance, Limits, Trap, TrapKind};
use support::{event, inserts, limits, load, load_granted, refs, try_load, user, users};

/// The call in which the guest does what its configuration says.
const GUILTY: u64 = 13;

fn start(behaviour: &str) -> Instance {
    start_with(limits(), behaviour)
}

fn start_with(limits: Limits, behaviour: &str) -> Instance {
    let plugin = try_load("misbehaving", limits, behaviour).expect("loads");
    plugin.instantiate(0, 1).expect("starts")
}

fn call(instance: &mut Instance) -> Result<Vec<Outcome>, CallError> {
    let events = inserts(&users(), 5);
    instance.process(GUILTY, &refs(&events))
}

fn trap(error: CallError) -> Trap {
    match error {
        CallError::Trap(trap) => *trap,
        other => panic!("not a trap: {other:?}"),
    }
}

#[test]
fn the_deadline_starts_anew_with_each_call() {
    let mut instance =
        start_with(Limits { batch_timeout: Duration::from_millis(300), ..limits() }, "");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        call(&mut instance).expect("an honest call is short");
    }
}

#[test]
fn a_panic_is_told_to_who_may_know_and_to_nobody_else() {
    let error = call(&mut start("panic")).expect_err("panics");
    assert!(!error.to_string().contains("4711"), "{error}");
    let stopped = trap(error);
    assert_eq!(stopped.kind, TrapKind::Unreachable, "{}", stopped.detail);
    assert!(stopped.output.contains("secret value 4711"), "{}", stopped.output);
    assert!(!stopped.detail.contains("4711"), "{}", stopped.detail);
}

#[test]
fn clock_and_random_numbers_are_those_of_the_batch() {
    let words = |commit_time_micros| {
        let relation = users();
        let insert = Change::Insert { relation, after: user(1), moved_from: None };
        let event = Event { commit_time_micros, ..event(1, insert) };
        match start("tell the time").process(GUILTY, &[&event]) {
            Err(CallError::Fatal(words)) => words,
            other => panic!("{other:?}"),
        }
    };
    assert!(words(1_234_567).starts_with("Ok(1234567) "), "{}", words(1_234_567));
    assert_eq!(words(1_234_567), words(1_234_567));
}

#[test]
fn a_granted_clock_runs_and_granted_random_numbers_differ() {
    let grants = Grants { clock: true, randomness: true, ..Grants::all_rows() };
    let plugin = load_granted("misbehaving", &grants, "tell the time");
    let words = || {
        let mut instance = plugin.instantiate(0, 1).expect("starts");
        match call(&mut instance) {
            Err(CallError::Fatal(words)) => words,
            other => panic!("{other:?}"),
        }
    };
    let told = words();
    let micros = told.trim_start_matches("Ok(").split_once(')').expect("a time").0;
    let told_micros: u128 = micros.parse().expect("a number");
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let difference = now.as_micros().abs_diff(told_micros);
    assert!(difference < 60_000_000, "{difference}");
    assert_ne!(told.split_once(' '), words().split_once(' '));
}

#[test]
fn a_plugin_may_ask_to_be_called_again_or_give_up() {
    assert_eq!(call(&mut start("retry")), Err(CallError::Retry(Some(250))));
    assert_eq!(call(&mut start("give up")), Err(CallError::Fatal("broken for good".into())));
    let refused = call(&mut start("refuse the relation"));
    assert_eq!(refused, Err(CallError::Fatal("no such table, please".into())));
    let plugin = load("misbehaving", "fail in init");
    let failed = plugin.instantiate(0, 1).err();
    assert_eq!(failed, Some(CallError::Fatal("cannot start".into())));
}

#[test]
fn a_fresh_instance_has_none_of_the_old_state() {
    let plugin = load("misbehaving", "panic in the second call");
    let mut first = plugin.instantiate(0, 1).expect("starts");
    call(&mut first).expect("first call");
    assert_eq!(trap(call(&mut first).expect_err("second call")).kind, TrapKind::Unreachable);
    let mut second = plugin.instantiate(0, 1).expect("starts");
    call(&mut second).expect("counts from one again");
}

/// A megabyte a call, a gigabyte in all.
#[test]
fn what_a_guest_leaks_ends_with_its_instance() {
    let plugin = try_load("misbehaving", Limits { calls: 1_000, ..limits() }, "leak");
    let plugin = plugin.expect("loads");
    let events = inserts(&users(), 1);
    let (mut instances, mut instance) = (0, None);
    for sequence in 100..1_100 {
        let mut current = instance.take().unwrap_or_else(|| {
            instances += 1;
            plugin.instantiate(0, 1).expect("starts")
        });
        current.process(sequence, &refs(&events)).expect("never at the limit");
        instance = Some(current).filter(|current| !current.is_worn());
    }
    // Three quarters of 64 MiB are 48 calls, less what the guest itself takes.
    assert!((20..30).contains(&instances), "{instances}");
}

#[test]
fn an_instance_that_was_called_often_is_worn() {
    let plugin = try_load("misbehaving", Limits { calls: 3, ..limits() }, "").expect("loads");
    let mut instance = plugin.instantiate(0, 1).expect("starts");
    let events = inserts(&users(), 1);
    let worn = [1, 2, 3].map(|sequence| {
        instance.process(sequence, &refs(&events)).expect("works");
        instance.is_worn()
    });
    assert_eq!(worn, [false, false, true]);
}

/// A guest that starts with more than three quarters of its memory is no fresher for being started again.
#[test]
fn an_instance_that_does_not_grow_is_not_worn() {
    let plugin = try_load("misbehaving", Limits { memory_bytes: 1_200 << 10, ..limits() }, "");
    let mut instance = plugin.expect("loads").instantiate(0, 1).expect("starts");
    call(&mut instance).expect("works");
    assert!(!instance.is_worn());
}

#[test]
fn instances_of_many_lanes_run_side_by_side() {
    let plugin = Arc::new(load("identity-packed", ""));
    let lane = |number| {
        let plugin = Arc::clone(&plugin);
        std::thread::spawn(move || {
            let mut instance = plugin.instantiate(number, 4).expect("starts");
            let events = inserts(&users(), 100);
            (0..50).all(|sequence| {
                instance.process(sequence, &refs(&events)).expect("works").len() == 100
            })
        })
    };
    let lanes: Vec<_> = (0..4).map(lane).collect();
    for lane in lanes {
        assert!(lane.join().expect("no lane panics"));
    }
}
