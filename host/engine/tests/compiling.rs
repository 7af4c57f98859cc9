//! Components are compiled by the program itself, in a process that may be killed.

use std::path::Path;
use std::time::{Duration, Instant};

use dovetail_sandbox::{
    CompileLimits, Compiler, ComponentLimits, EngineOptions, Grants, Limits, Refusal, Sandbox,
};

fn sandbox(compile: CompileLimits, cache: Option<&Path>) -> Sandbox {
    let program = env!("CARGO_BIN_EXE_dovetail").into();
    let compiler = Compiler::Child { program, arguments: vec!["compile-plugin".into()] };
    let component = ComponentLimits { compile, ..ComponentLimits::usual() };
    let options = EngineOptions { cache_dir: cache.map(Into::into), component, compiler };
    Sandbox::new(options).expect("starts")
}

fn load(sandbox: &Sandbox, component: &[u8]) -> Refusal {
    let limits = Limits::around(64 << 20, Duration::from_secs(1), 1);
    sandbox
        .load(component, limits, &Grants::all_rows(), "{}")
        .expect_err("none of these is a plugin")
}

/// Functions that take long to compile: each many additions of what is only known at run time.
fn expensive(functions: usize) -> Vec<u8> {
    let additions =
        "(local.set 0 (i32.mul (local.get 0) (i32.add (local.get 1) (local.get 0))))".repeat(400);
    let function = format!("(func (param i32 i32) (result i32) {additions} (local.get 0))");
    let text = format!("(component (core module {}))", function.repeat(functions));
    wat::parse_str(text).expect("valid")
}

const USUAL: CompileLimits = ComponentLimits::usual().compile;

#[test]
fn what_the_child_compiled_is_loaded_and_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("compiled");
    for _ in 0..2 {
        let refusal = load(&sandbox(USUAL, Some(&cache)), &expensive(1));
        assert!(matches!(refusal, Refusal::World), "compiled, and then no plugin: {refusal}");
        assert_eq!(std::fs::read_dir(&cache).expect("was made").count(), 1);
    }
}

#[test]
fn what_is_not_valid_is_refused_in_the_childs_words() {
    let component = wat::parse_str("(component (core module (memory i64 1)))").expect("syntax");
    let refusal = load(&sandbox(USUAL, None), &component).to_string();
    assert!(refusal.starts_with("not a valid component"), "{refusal}");
    assert!(refusal.contains("memory64"), "{refusal}");
}

#[test]
fn what_compiles_too_long_is_given_up() {
    let limits = CompileLimits { time: Duration::from_secs(1), ..USUAL };
    let bomb = expensive(4_000);
    let begun = Instant::now();
    let refusal = load(&sandbox(limits, None), &bomb).to_string();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(refusal.starts_with("could not be compiled within 1 s and 4096 MiB"), "{refusal}");
}

#[test]
fn what_takes_too_much_memory_is_given_up() {
    let limits = CompileLimits { memory_bytes: 256 << 20, ..USUAL };
    let refusal = load(&sandbox(limits, None), &expensive(4_000)).to_string();
    assert!(refusal.starts_with("could not be compiled within 120 s and 256 MiB"), "{refusal}");
}
