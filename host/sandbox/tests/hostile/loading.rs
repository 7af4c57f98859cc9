//! Attacks in the file: what is not a plugin, what belongs to another host, what is made to be expensive.

use dovetail_sandbox::Limits;

use crate::guest::honest;
use crate::verdict::Verdict::Refused;
use crate::verdict::misbehaving;
use crate::{attacks, usual};

fn text(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the suite's own text")
}

fn module(items: &str) -> Vec<u8> {
    text(&format!("(component (core module {items}))"))
}

fn imports(name: &str) -> Vec<u8> {
    text(&format!(r#"(component (import "{name}" (instance)))"#))
}

fn exports(name: &str) -> Vec<u8> {
    text(&format!(r#"(component (instance $i) (export "{name}" (instance $i)))"#))
}

/// The honest guest, cut off there.
fn cut(numerator: usize, denominator: usize) -> Vec<u8> {
    let mut whole = honest().build();
    whole.truncate(whole.len() * numerator / denominator);
    whole
}

/// The honest guest with a byte of it changed.
fn flipped(numerator: usize, denominator: usize) -> Vec<u8> {
    let mut whole = honest().build();
    let at = whole.len() * numerator / denominator;
    whole[at] ^= 0xFF;
    whole
}

attacks! {
    a25_import_of_sockets: honest().import("wasi:sockets/instance-network@0.2.6", "instance-network", "(result i32)")
        .init("(drop (call $instance-network))") => Refused("imports `wasi:sockets/instance-network@0.2.6`");
    a25_import_of_http: honest().import("wasi:http/outgoing-handler@0.2.6", "handle", "(result i32)")
        .init("(drop (call $handle))") => Refused("imports `wasi:http/outgoing-handler@0.2.6`");
    a25_import_of_what_nobody_knows: imports("acme:db/query") => Refused("imports `acme:db/query`");
    a25_import_of_what_no_host_has: honest().import("wasi:keyvalue/store@0.2.6", "open", "(result i32)")
        .init("(drop (call $open))") => Refused("imports `wasi:keyvalue/store@0.2.6`");
    a25_import_of_a_module: text(r#"(component (import "code" (core module)))"#) => Refused("imports `code`");
    a25_import_of_a_component: text(r#"(component (import "code" (component)))"#) => Refused("not a valid component");
    a25_import_of_a_bare_function: text(r#"(component (import "wasi:cli/environment@0.2.6" (func)))"#)
        => Refused("exports neither");
    a25_import_whose_name_is_a_paragraph: imports(&format!("acme:{}/query", "a".repeat(50_000)))
        => Refused("imports `acme:aaa");

    a34_empty_file: Vec::new()
        => Refused("not WebAssembly: the file does not begin with its magic number (it is empty)");
    a34_text: b"(component)".to_vec() => Refused("(it is text: compile it first)");
    a34_core_module: text("(module)") => Refused("a core module, not a component: build for `wasm32-wasip2`");
    a34_magic_number_alone: b"\0asm".to_vec() => Refused("not a valid component");
    a34_header_alone: b"\0asm\x0d\0\x01\0".to_vec() => Refused("exports neither");
    a34_cut_off_in_the_middle: cut(1, 2) => Refused("not a valid component");
    a34_cut_off_at_nine_tenths: cut(9, 10) => Refused("");
    a34_byte_changed_early: flipped(1, 10) => Refused("not a valid component");
    a34_zeros: vec![0; 1 << 20] => Refused("does not begin with its magic number");
    a35_machine_code: [b"\x7fELF\x02\x01\x01".as_slice(), &[0xFF; 1_000]].concat()
        => Refused("(it is machine code: give the component that it was compiled from)");

    a40_package_of_a_later_version: exports("dovetail:plugin/packed@0.2.0")
        => Refused("built against `dovetail:plugin/packed@0.2.0`; this host serves `dovetail:plugin@0.1.0`");
    a40_import_of_a_later_version: imports("dovetail:plugin/logging@0.2.0")
        => Refused("built against `dovetail:plugin/logging@0.2.0`");
    a40_import_of_what_the_package_does_not_have: imports("dovetail:plugin/secrets@0.1.0")
        => Refused("imports `dovetail:plugin/secrets@0.1.0`");
    a40_nothing_exported: text("(component)")
        => Refused("build it against the world `transform` or `transform-packed`");
    a40_exports_without_functions: exports("dovetail:plugin/packed@0.1.0")
        => Refused("does not export `dovetail:plugin/lifecycle@0.1.0`");
    a40_init_with_one_parameter_less: honest()
        .against("lane: u32, lanes: u32) -> result<_, string>", "lane: u64) -> result<_, string>").init_takes("i32 i32 i64") => Refused("its interface is not that of `dovetail:plugin@0.1.0`");
    a40_process_of_another_type: honest()
        .against("(frame: list<u8>) -> result<list<u8>, call-error>", "(frame: list<s8>) -> result<list<u8>, call-error>")
        => Refused("its interface is not that of `dovetail:plugin@0.1.0`");
    a40_logging_of_another_type: honest().against("message: string)", "message: list<u8>)")
        .import("dovetail:plugin/logging@0.1.0", "log", "(param i32 i32 i32)")
        .init("(call $log (i32.const 0) (i32.const 0) (i32.const 0))")
        => Refused("its interface is not that of `dovetail:plugin@0.1.0`");
    a41_configuration_is_refused: misbehaving("refuse")
        => Refused("its `describe` refuses the configuration: no such setting");

    a43_memory_of_64_bits: module("(memory i64 1)") => Refused("not a valid component");
    a43_several_memories: module("(memory 1) (memory 1)") => Refused("not a valid component");
    a43_shared_memory: module("(memory 1 1 shared)") => Refused("not a valid component");
    a43_threads: module("(memory 1) (func (drop (i32.atomic.load (i32.const 0))))") => Refused("not a valid component");
    a43_garbage_collection: module("(type (struct (field i32)))") => Refused("not a valid component");
    a43_exceptions: module("(tag)") => Refused("not a valid component");
    a43_relaxed_simd: module("(func (param v128 v128) (drop (i8x16.relaxed_swizzle (local.get 0) (local.get 1))))")
        => Refused("not a valid component");
    a43_pages_of_one_byte: module("(memory 1 (pagesize 1))") => Refused("not a valid component");
    a43_wide_arithmetic: module("(func (param i64) (i64.mul_wide_u (local.get 0) (local.get 0)) drop drop)")
        => Refused("not a valid component");
    a43_asynchronous_function: text(r#"(component (type (func async)))"#) => Refused("not a valid component");

    a05_more_instances_than_allowed: misbehaving(""), within Limits { instances: 1, ..usual() }
        => Refused("its `describe` failed");
}
