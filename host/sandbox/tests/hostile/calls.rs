//! Attacks in the course of a call: on time, memory, stack, host functions.

use dovetail_sandbox::TrapKind::{
    Abi, Deadline, Denied, Exit, HostCalls, Memory, Other, Stack, Unreachable,
};

use crate::guest::{honest, process, typed};
use crate::verdict::Verdict::{GivesUp, Harmless, LogCut, Refused, Stopped};
use crate::verdict::misbehaving;
use crate::{attacks, short, small};

const FOR_EVER: &str = "(loop $l (br $l))";
/// Asks for a page at a time until it gets none, and writes to each.
const GROW_AND_TOUCH: &str = "(loop $l
    (local.set $a (memory.grow (i32.const 1)))
    (if (i32.ne (local.get $a) (i32.const -1)) (then
      (i32.store (i32.mul (local.get $a) (i32.const 65536)) (i32.const 1))
      (br $l))))";
const LOGGING: (&str, &str, &str) = ("dovetail:plugin/logging@0.1.0", "log", "(param i32 i32 i32)");
const STDOUT: (&str, &str, &str) = ("wasi:cli/stdout@0.2.6", "get-stdout", "(result i32)");

/// In the guilty call, so many times.
fn times(count: u32, code: &str) -> String {
    format!(
        "(loop $l {code}
           (local.set $a (i32.add (local.get $a) (i32.const 1)))
           (br_if $l (i32.lt_u (local.get $a) (i32.const {count}))))"
    )
}

attacks! {
    a01_endless_loop: misbehaving("spin"), within short() => Stopped(Deadline, "process");
    a01_endless_loop_in_the_typed_form: typed(FOR_EVER), within short() => Stopped(Deadline, "process");
    a01_endless_loop_of_calls_to_the_host: process("(loop $l (drop (call $max-level)) (br $l))")
        .import("dovetail:plugin/logging@0.1.0", "max-level", "(result i32)")
        => Stopped(HostCalls, "process");
    a01_endless_copying: process("(loop $l
        (memory.copy (i32.const 0x20000) (i32.const 0x10000) (i32.const 0x100000)) (br $l))"),
        within short() => Stopped(Deadline, "process");

    a02_endless_loop_in_describe: misbehaving("spin in describe"), within short()
        => Refused("its `describe` failed: plugin stopped in `describe`: deadline");
    a02_endless_loop_in_init: misbehaving("spin in init"), within short() => Stopped(Deadline, "init");
    a02_endless_loop_in_on_relation: misbehaving("spin in on-relation"), within short()
        => Stopped(Deadline, "on-relation");
    a02_endless_loop_in_the_start_function:
        honest().items("(func $spin (loop $l (br $l))) (start $spin)"), within short()
        => Refused("plugin stopped in `describe`: deadline");
    a02_trap_in_describe: honest().describe("unreachable")
        => Refused("plugin stopped in `describe`: unreachable");
    a02_trap_in_the_start_function: honest().items("(func $trap unreachable) (start $trap)")
        => Refused("plugin stopped in `describe`: unreachable");
    a02_trap_in_init: honest().init("unreachable") => Stopped(Unreachable, "init");
    a02_trap_in_on_relation: honest().on_relation("unreachable") => Stopped(Unreachable, "on-relation");

    /// The guest's allocator runs while the host hands over a batch.
    a03_endless_loop_in_the_allocator: honest()
        .realloc("(if (i32.gt_u (local.get $size) (i32.const 1000)) (then (loop $l (br $l))))"),
        within short() => Stopped(Deadline, "process");
    a03_allocator_gives_what_is_not_its_memory: honest()
        .realloc("(if (i32.gt_u (local.get $size) (i32.const 1000)) (then (return (i32.const -16))))")
        => Stopped(Abi, "process");
    a03_allocator_gives_what_is_not_aligned: typed("").realloc(
        "(if (i32.gt_u (local.get $size) (i32.const 500)) (then (return (i32.const 0x100001))))")
        => Stopped(Abi, "process");
    a03_endless_loop_behind_the_result: honest().items(
        "(global $calls (mut i32) (i32.const 0))
         (func (export \"cabi_post_dovetail:plugin/packed@0.1.0#process\") (param i32)
           (if (i32.gt_u (i32.load (i32.const 0x308)) (i32.const 80)) (then (loop $l (br $l)))))"),
        within short() => Stopped(Deadline, "process");
    a44_trap_behind_the_result: honest().items(
        "(func (export \"cabi_post_dovetail:plugin/packed@0.1.0#process\") (param i32)
           (if (i32.gt_u (i32.load (i32.const 0x308)) (i32.const 80)) (then unreachable)))")
        => Stopped(Unreachable, "process");

    a04_memory_until_the_limit: process(GROW_AND_TOUCH), within small() => Harmless;
    a04_memory_until_the_program_gives_up: misbehaving("allocate"), within small()
        => Stopped(Memory, "process");
    a04_memory_beyond_the_limit_at_the_start: honest().memory_pages(256), within small()
        => Refused("plugin stopped in `describe`: memory");
    a04_memory_of_four_gigabytes_at_the_start: honest().memory_pages(65_536)
        => Refused("plugin stopped in `describe`: memory");
    a05_table_until_the_limit: process("(loop $l (br_if $l (i32.ne (i32.const -1)
        (table.grow $t (ref.null func) (i32.const 1000)))))").items("(table $t 1 funcref)") => Harmless;
    a05_table_of_ten_million_elements_at_the_start: honest().items("(table 10000000 funcref)")
        => Refused("plugin stopped in `describe`: memory");

    a06_recursion: misbehaving("recurse") => Stopped(Stack, "process");
    a06_recursion_with_locals_in_memory: misbehaving("recurse with locals") => Stopped(Other, "process");
    a06_recursion_in_the_start_function: honest().items("(func $r (call $r)) (start $r)")
        => Refused("plugin stopped in `describe`: stack");
    a06_recursion_in_the_allocator: honest().items("(func $r (call $r))")
        .realloc("(if (i32.gt_u (local.get $size) (i32.const 1000)) (then (call $r)))")
        => Stopped(Stack, "process");

    a18_log_of_ten_thousand_long_lines: misbehaving("flood the log") => LogCut;
    a18_log_of_many_short_lines: misbehaving("flood with short lines") => LogCut;
    a18_log_line_of_a_megabyte: process(
        "(call $log (i32.const 2) (i32.const 0x10000) (i32.const 0xE0000))")
        .import(LOGGING.0, LOGGING.1, LOGGING.2) => LogCut;
    a18_log_line_longer_than_a_call_may_hand_over: process(
        "(call $log (i32.const 2) (i32.const 0x10000) (i32.const 0x700000))")
        .import(LOGGING.0, LOGGING.1, LOGGING.2).memory_pages(200) => Stopped(Abi, "process");
    a18_log_line_of_a_level_that_is_none: process(
        "(call $log (i32.const 77) (i32.const 0) (i32.const 1))")
        .import(LOGGING.0, LOGGING.1, LOGGING.2) => Stopped(Abi, "process");
    a18_log_line_that_is_not_text: process(
        "(call $log (i32.const 2) (i32.const 0x10000) (i32.const 2))")
        .data(0x10000, &[0xFF, 0xFE]).import(LOGGING.0, LOGGING.1, LOGGING.2) => Stopped(Abi, "process");

    a20_panic: misbehaving("panic") => Stopped(Unreachable, "process");
    a20_panic_of_ten_megabytes: misbehaving("panic at length") => Stopped(Unreachable, "process");
    a20_panic_while_panicking: misbehaving("panic while panicking") => Stopped(Unreachable, "process");
    a20_output_without_end: process(&format!("(local.set $b (call $get-stdout)) {}", times(20_000,
        "(call $\"[method]output-stream.write\" (local.get $b) (i32.const 0x10000) (i32.const 0x1000) (i32.const 0x400))")))
        .import(STDOUT.0, STDOUT.1, STDOUT.2)
        .import("wasi:io/streams@0.2.6", "[method]output-stream.write", "(param i32 i32 i32 i32)")
        => Harmless;

    a24_handles_without_end: process("(loop $l (drop (call $get-stdout)) (br $l))")
        .import(STDOUT.0, STDOUT.1, STDOUT.2) => Stopped(HostCalls, "process");
    /// A handle that is let go counts no more.
    a24_handles_that_are_given_back: process(&times(20_000, "(call $\"[resource-drop]output-stream\"
        (call $get-stdout))")).import(STDOUT.0, STDOUT.1, STDOUT.2)
        .import("wasi:io/streams@0.2.6", "[resource-drop]output-stream", "(param i32)") => Harmless;
    a24_handle_that_is_none: process("(call $\"[method]output-stream.write\"
        (i32.const 4711) (i32.const 0x10000) (i32.const 1) (i32.const 0x400))")
        .import("wasi:io/streams@0.2.6", "[method]output-stream.write", "(param i32 i32 i32 i32)")
        => Stopped(Abi, "process");

    a30_sleep_of_an_hour: misbehaving("sleep") => Stopped(Denied, "process");
    a30_wait_for_a_timer: process("(drop (call $subscribe-duration (i64.const 3600000000000)))")
        .import("wasi:clocks/monotonic-clock@0.2.6", "subscribe-duration", "(param i64) (result i32)")
        => Stopped(Denied, "process");
    a30_wait_for_input: process("(call $\"[method]pollable.block\" (call $\"[method]input-stream.subscribe\"
        (call $get-stdin)))").import("wasi:cli/stdin@0.2.6", "get-stdin", "(result i32)")
        .import("wasi:io/streams@0.2.6", "[method]input-stream.subscribe", "(param i32) (result i32)")
        .import("wasi:io/poll@0.2.6", "[method]pollable.block", "(param i32)") => Harmless;
    a30_poll_of_a_million_pollables: process("(call $poll (i32.const 0) (i32.const 8000000) (i32.const 0x400))")
        .import("wasi:io/poll@0.2.6", "poll", "(param i32 i32 i32)").memory_pages(900)
        => Stopped(Abi, "process");

    a44_exit: misbehaving("exit") => Stopped(Exit, "process");
    a44_exit_with_success: process("(call $exit (i32.const 0))")
        .import("wasi:cli/exit@0.2.6", "exit", "(param i32)") => Stopped(Exit, "process");
    a44_exit_in_the_start_function: honest().items("(func $leave (call $exit (i32.const 0))) (start $leave)")
        .import("wasi:cli/exit@0.2.6", "exit", "(param i32)")
        => Refused("plugin stopped in `describe`: exit");
    a44_division_by_zero: process("(drop (i32.div_u (i32.const 1) (local.get $a)))")
        => Stopped(Other, "process");

    a45_gives_up: misbehaving("give up") => GivesUp("broken for good");
    a45_gives_up_at_a_relation: misbehaving("refuse the relation") => GivesUp("no such table, please");
    a45_gives_up_in_init: misbehaving("fail in init") => GivesUp("cannot start");
}
