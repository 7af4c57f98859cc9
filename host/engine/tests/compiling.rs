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

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number % 128).expect("seven bits");
        number /= 128;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [vec![id], leb(content.len()), content.to_owned()].concat()
}

/// A component of functions that take long to compile: four kilobytes each, of arithmetic on what is only known when they
/// run. Written byte by byte, because reading so much text takes longer than compiling it.
fn expensive(functions: usize) -> Vec<u8> {
    // local 0 = local 0 * (local 1 + local 0), four hundred times; then local 0.
    let step = [0x20, 0, 0x20, 1, 0x20, 0, 0x6A, 0x6C, 0x21, 0];
    let body = [vec![0], step.repeat(400), vec![0x20, 0, 0x0B]].concat();
    let body = [leb(body.len()), body].concat();
    let types = section(1, &[1, 0x60, 2, 0x7F, 0x7F, 1, 0x7F]);
    let declared = section(3, &[leb(functions), vec![0; functions]].concat());
    let code = section(10, &[leb(functions), body.repeat(functions)].concat());
    let module = [b"\0asm\x01\0\0\0".to_vec(), types, declared, code].concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module)].concat()
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
    let bomb = expensive(15_000);
    let begun = Instant::now();
    let refusal = load(&sandbox(limits, None), &bomb).to_string();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(refusal.starts_with("could not be compiled within 1 s and 4096 MiB"), "{refusal}");
}

#[test]
fn what_takes_too_much_memory_is_given_up() {
    let limits = CompileLimits { memory_bytes: 256 << 20, ..USUAL };
    let refusal = load(&sandbox(limits, None), &expensive(15_000)).to_string();
    assert!(refusal.starts_with("could not be compiled within 120 s and 256 MiB"), "{refusal}");
}
