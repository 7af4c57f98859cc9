//! Does what its configuration says, which is always wrong somehow, in one call; the others are honest.

wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "transform-packed" });

use std::cell::RefCell;

use dovetail::plugin::logging::{Level, log};
use dovetail::plugin::types::{CallError, Operation, Relation};
use exports::dovetail::plugin::lifecycle::{self, Descriptor, Interest};
use exports::dovetail::plugin::packed;

thread_local! {
    static CONFIG: RefCell<String> = const { RefCell::new(String::new()) };
    static CALLS: RefCell<u32> = const { RefCell::new(0) };
}

/// The call of this sequence goes wrong, the others do not: so one can see that a lane goes on.
const GUILTY: u64 = 13;

struct Misbehaving;

fn spin() -> ! {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(3));
    }
}

/// Needs no memory but the runtime's own stack.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == u64::MAX { 0 } else { recurse(depth + 1).wrapping_mul(3) ^ depth }
}

/// Exhausts the stack that the guest keeps in its linear memory.
#[inline(never)]
fn recurse_with_locals(depth: u64) -> u64 {
    let locals = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { recurse_with_locals(depth + 1) + locals[3] }
}

fn allocate() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
}

impl lifecycle::Guest for Misbehaving {
    fn describe(config: String) -> Result<Descriptor, String> {
        match config.as_str() {
            "spin in describe" => spin(),
            "refuse" => return Err("no such setting".to_owned()),
            _ => {}
        }
        let name = if config == "forge a name" { "a\nb" } else { "misbehaving" };
        Ok(Descriptor {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            interests: vec![Interest {
                tables: vec!["*".to_owned()],
                operations: vec![Operation::Read, Operation::Insert, Operation::Update],
                columns: None,
                before: false,
            }],
        })
    }

    fn init(config: String, _lane: u32, _lanes: u32) -> Result<(), String> {
        match config.as_str() {
            "spin in init" => spin(),
            "fail in init" => return Err("cannot start".to_owned()),
            _ => {}
        }
        CONFIG.with(|kept| *kept.borrow_mut() = config);
        Ok(())
    }

    fn on_relation(_relation: Relation) -> Result<(), CallError> {
        match CONFIG.with(|config| config.borrow().clone()).as_str() {
            "spin in on-relation" => spin(),
            "refuse the relation" => Err(CallError::Fatal("no such table, please".to_owned())),
            _ => Ok(()),
        }
    }
}

/// What cannot even be shown.
struct Panics;

impl std::fmt::Display for Panics {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("in the middle of a panic")
    }
}

/// A reply that passes so many events.
fn passes(count: u32) -> Vec<u8> {
    let mut reply = b"DOVR".to_vec();
    for word in [1, count, 0, 0, 0, 0, 0] {
        reply.extend_from_slice(&u32::to_le_bytes(word));
    }
    reply.resize(reply.len() + count as usize * 12, 0);
    reply
}

impl packed::Guest for Misbehaving {
    fn process(frame: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let calls = CALLS.with(|calls| {
            *calls.borrow_mut() += 1;
            *calls.borrow()
        });
        let rows = u32::from_le_bytes([frame[8], frame[9], frame[10], frame[11]]);
        let config = CONFIG.with(|config| config.borrow().clone());
        if config == "leak" {
            std::mem::forget(std::hint::black_box(vec![1_u8; 1 << 20]));
        }
        let sequence = u64::from_le_bytes(frame[24..32].try_into().expect("eight bytes"));
        let counts = matches!(config.as_str(), "count calls" | "panic in the second call");
        if sequence != GUILTY && !counts {
            return Ok(passes(rows));
        }
        match config.as_str() {
            "spin" => spin(),
            "recurse" => return Ok(vec![recurse(0) as u8]),
            "recurse with locals" => return Ok(vec![recurse_with_locals(0) as u8]),
            "allocate" => allocate(),
            "panic" => panic!("secret value 4711"),
            "panic in the second call" if calls == 2 => panic!("second call"),
            "panic at length" => panic!("{}", "x".repeat(10 << 20)),
            "panic while panicking" => panic!("{}", Panics),
            "exit" => std::process::exit(0),
            "sleep" => std::thread::sleep(std::time::Duration::from_secs(3_600)),
            "open a file" => {
                let opened = std::fs::read("/etc/passwd").is_ok();
                return Err(CallError::Fatal(format!("opened: {opened}")));
            }
            "open /proc/self" => {
                let files = ["environ", "cmdline", "maps", "mem", "cwd", "root", "fd/0"];
                let opened = |name: &&&str| std::fs::File::open(format!("/proc/self/{name}")).is_ok();
                let opened = files.iter().filter(opened).count();
                return Err(CallError::Fatal(format!("opened: {opened}")));
            }
            "look around" => {
                let found = (std::env::vars().count(), std::env::args().count());
                return Err(CallError::Fatal(format!("{found:?}")));
            }
            "tell the time" => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let hash = std::hash::BuildHasher::hash_one(
                    &std::collections::hash_map::RandomState::new(),
                    1,
                );
                return Err(CallError::Fatal(format!("{:?} {hash}", now.map(|n| n.as_micros()))));
            }
            "retry" => return Err(CallError::Retry(Some(250))),
            "give up" => return Err(CallError::Fatal("broken for good".to_owned())),
            "too few outcomes" => return Ok(passes(rows - 1)),
            "too many outcomes" => return Ok(passes(rows + 1)),
            "no outcomes" => return Ok(passes(0)),
            "empty reply" => return Ok(Vec::new()),
            "garbage" => return Ok(vec![0xA5; 1_000]),
            "cut off" => {
                let mut reply = passes(rows);
                reply.pop();
                return Ok(reply);
            }
            "huge reply" => return Ok(vec![0; 32 << 20]),
            "invalid text" => {
                let bytes = vec![0xFF, 0xFE];
                // SAFETY: breaks what `String` promises, on purpose: the host has to notice.
                let text = unsafe { String::from_utf8_unchecked(bytes) };
                return Err(CallError::Fatal(text));
            }
            "flood the log" => {
                for _ in 0..10_000 {
                    log(Level::Info, &"y".repeat(10_000));
                }
            }
            "flood with short lines" => {
                for _ in 0..50_000 {
                    log(Level::Info, "a");
                }
            }
            "count calls" => return Err(CallError::Fatal(calls.to_string())),
            _ => {}
        }
        Ok(passes(rows))
    }
}

export!(Misbehaving);
