//! Whatever a guest does, the host goes on, knows whose fault it was, and a fresh instance has none of it.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dovetail_core::change::{Change, Event};
use dovetail_core::outcome::Outcome;
use dovetail_sandbox::{CallError, Instance, Limits, Refusal, Trap, TrapKind, Violation};
use support::{event, inserts, limits, load, refs, try_load, user, users};

fn quick() -> Limits {
    Limits {
        batch_timeout: Duration::from_millis(50),
        start_timeout: Duration::from_millis(500),
        ..limits()
    }
}

fn start(behaviour: &str) -> Instance {
    start_with(limits(), behaviour)
}

fn start_with(limits: Limits, behaviour: &str) -> Instance {
    let plugin = try_load("misbehaving", limits, behaviour).expect("loads");
    plugin.instantiate(0, 1).expect("starts")
}

fn call(instance: &mut Instance) -> Result<Vec<Outcome>, CallError> {
    let events = inserts(&users(), 5);
    instance.process(1, &refs(&events))
}

fn trap(error: CallError) -> Trap {
    match error {
        CallError::Trap(trap) => *trap,
        other => panic!("not a trap: {other:?}"),
    }
}

fn trapped(behaviour: &str) -> Trap {
    trap(call(&mut start(behaviour)).expect_err("traps"))
}

fn violation(behaviour: &str) -> Violation {
    match call(&mut start(behaviour)) {
        Err(CallError::Contract(violation)) => violation,
        other => panic!("{behaviour}: {other:?}"),
    }
}

#[test]
fn an_endless_loop_is_interrupted_wherever_it_is() {
    let begun = Instant::now();
    let described = try_load("misbehaving", quick(), "spin in describe");
    let Err(Refusal::Describe(error)) = described else { panic!("{described:?}") };
    assert_eq!(trap(error).kind, TrapKind::Deadline);

    let plugin = try_load("misbehaving", quick(), "spin in init").expect("describes");
    let error = plugin.instantiate(0, 1).err().expect("spins");
    let stopped = trap(error);
    assert_eq!((stopped.kind, stopped.function), (TrapKind::Deadline, "init"));

    for (behaviour, function) in [("spin", "process"), ("spin in on-relation", "on-relation")] {
        let stopped = trap(call(&mut start_with(quick(), behaviour)).expect_err("spins"));
        assert_eq!((stopped.kind, stopped.function), (TrapKind::Deadline, function));
    }
    // Four deadlines, and three components compiled; generous, for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
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
fn memory_table_and_stack_end_where_the_limits_say() {
    assert_eq!(trapped("allocate").kind, TrapKind::Memory);
    assert_eq!(trapped("recurse").kind, TrapKind::Stack);
    let stopped = trapped("recurse with locals");
    assert_eq!(stopped.kind, TrapKind::Other);
    assert!(stopped.detail.contains("out of bounds memory access"), "{}", stopped.detail);
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
fn what_a_guest_prints_is_kept_in_part() {
    let stopped = trapped("panic at length");
    assert!(stopped.output.len() <= 4 << 10, "{}", stopped.output.len());
}

#[test]
fn exit_and_sleep_are_traps() {
    assert_eq!(trapped("exit").kind, TrapKind::Exit);
    assert_eq!(trapped("sleep").kind, TrapKind::Denied);
}

#[test]
fn there_is_nothing_to_see_in_the_empty_wasi() {
    let fatal = |behaviour| match call(&mut start(behaviour)) {
        Err(CallError::Fatal(words)) => words,
        other => panic!("{behaviour}: {other:?}"),
    };
    assert_eq!(fatal("open a file"), "opened: false");
    assert_eq!(fatal("look around"), "(0, 0)");
}

#[test]
fn clock_and_random_numbers_are_those_of_the_batch() {
    let words = |commit_time_micros| {
        let relation = users();
        let insert = Change::Insert { relation, after: user(1), moved_from: None };
        let event = Event { commit_time_micros, ..event(1, insert) };
        match start("tell the time").process(1, &[&event]) {
            Err(CallError::Fatal(words)) => words,
            other => panic!("{other:?}"),
        }
    };
    assert!(words(1_234_567).starts_with("Ok(1234567) "), "{}", words(1_234_567));
    assert_eq!(words(1_234_567), words(1_234_567));
}

#[test]
fn a_reply_of_another_count_breaks_the_contract() {
    for (behaviour, found) in
        [("too few outcomes", 4), ("too many outcomes", 6), ("no outcomes", 0)]
    {
        let broken = violation(behaviour);
        assert!(broken.to_string().contains(&format!("{found} outcomes for 5 events")), "{broken}");
    }
}

#[test]
fn a_reply_that_is_no_frame_breaks_the_contract() {
    for behaviour in ["empty reply", "garbage", "cut off"] {
        let broken = violation(behaviour);
        assert!(matches!(broken, Violation::Frame(_)), "{behaviour}: {broken}");
    }
}

#[test]
fn a_reply_that_is_too_large_or_not_text_is_a_trap() {
    assert_eq!(trapped("huge reply").kind, TrapKind::Abi);
    assert_eq!(trapped("invalid text").kind, TrapKind::Abi);
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
fn an_instance_that_was_stopped_is_not_called_again() {
    for behaviour in ["panic", "too few outcomes"] {
        let mut instance = start(behaviour);
        call(&mut instance).expect_err("first call");
        let again = call(&mut instance).expect_err("second call");
        assert_eq!(trap(again).kind, TrapKind::Discarded);
    }
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

#[test]
fn a_flood_of_log_lines_is_cut_off_and_counted() {
    let mut instance = start("flood the log");
    call(&mut instance).expect("logging is no fault");
    let log = instance.take_log();
    let kept: usize = log.lines.iter().map(|(_, line)| line.len()).sum();
    assert!(kept <= limits().log_bytes, "{kept}");
    assert!(log.dropped > 9_900, "{}", log.dropped);
    assert_eq!(instance.take_log().lines.len(), 0);

    let mut instance = start("flood with empty lines");
    call(&mut instance).expect("logging is no fault");
    assert!(instance.take_log().lines.len() <= limits().log_bytes / 32);
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
