//! What a plugin adds to an event: nanoseconds, the host's encoding and decoding included.
//!
//! Prints one figure a line, `figure NAME VALUE UNIT`. Batches of 512 inserts of eight columns; the median of many rounds,
//! so that a busy machine shifts it little.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use dovetail_core::change::Event;
use dovetail_sandbox::Plugin;
use support::{guest, inserts, limits, ready_made, refs, sandbox, users};

const BATCH: u32 = 512;
const ROUNDS: usize = 400;

fn main() {
    let relation = users();
    let events = inserts(&relation, BATCH);
    let mask = r#"{"columns": {"public.users.email": {"redact": "hidden"}}}"#;
    let guests = [
        ("identity_packed", guest("identity-packed"), ""),
        ("identity_typed", guest("identity-typed"), ""),
        ("filter_packed", guest("filter-packed"), ""),
        ("filter_typed", guest("filter-typed"), ""),
        ("mask_packed", ready_made("mask"), mask),
        ("mask_typed", guest("mask-typed"), mask),
    ];
    for (name, component, config) in guests {
        let plugin = sandbox()
            .load(&component, limits(), &dovetail_sandbox::Grants::all_rows(), config)
            .expect("guest loads");
        figure(&format!("plugin_ns_{name}"), nanoseconds_per_event(&plugin, &events), "ns");
        if name == "identity_packed" {
            figure("plugin_instantiate_us", microseconds_to_start(&plugin), "us");
        }
    }
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.1} {unit}");
}

fn nanoseconds_per_event(plugin: &Plugin, events: &[Event]) -> f64 {
    let mut instance = plugin.instantiate(0, 1).expect("guest starts");
    let events = refs(events);
    let mut sequence = 0;
    let mut round = || {
        sequence += 1;
        let started = Instant::now();
        black_box(instance.process(sequence, black_box(&events)).expect("guest works"));
        started.elapsed().as_nanos()
    };
    for _ in 0..20 {
        round();
    }
    median((0..ROUNDS).map(|_| round()).collect()) / f64::from(BATCH)
}

fn microseconds_to_start(plugin: &Plugin) -> f64 {
    let round = |_| {
        let started = Instant::now();
        drop(black_box(plugin.instantiate(0, 1).expect("guest starts")));
        started.elapsed().as_nanos()
    };
    median((0..ROUNDS).map(round).collect()) / 1_000.0
}

fn median(mut samples: Vec<u128>) -> f64 {
    samples.sort_unstable();
    let middle = samples.get(samples.len() / 2).copied().unwrap_or_default();
    // Rounds take microseconds: far below where a float loses whole nanoseconds.
    u32::try_from(middle).map_or(f64::INFINITY, f64::from)
}
