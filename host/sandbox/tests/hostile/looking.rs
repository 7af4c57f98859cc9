//! Attacks that look for what was not granted. Most guests here are their own judges: what they find, they say.

use crate::attacks;
use crate::guest::process;
use crate::verdict::Verdict::{GivesUp, Harmless, Stopped};
use crate::verdict::misbehaving;
use dovetail_sandbox::TrapKind::Denied;

/// Gives up where a list, whose pointer and length an import wrote to 0x400, is not empty.
fn finds_no(function: &str) -> String {
    format!(
        "(call ${function} (i32.const 0x400)) (if (i32.load (i32.const 0x404)) (then unreachable))"
    )
}

attacks! {
    a26_file_of_passwords: misbehaving("open a file") => GivesUp("opened: false");
    a26_files_of_the_process: misbehaving("open /proc/self") => GivesUp("opened: 0");
    a26_environment_and_arguments: misbehaving("look around") => GivesUp("(0, 0)");
    a26_environment: process(&finds_no("get-environment"))
        .import("wasi:cli/environment@0.2.6", "get-environment", "(param i32)") => Harmless;
    a26_arguments: process(&finds_no("get-arguments"))
        .import("wasi:cli/environment@0.2.6", "get-arguments", "(param i32)") => Harmless;
    a26_working_directory: process(
        "(call $initial-cwd (i32.const 0x400)) (if (i32.load8_u (i32.const 0x400)) (then unreachable))")
        .import("wasi:cli/environment@0.2.6", "initial-cwd", "(param i32)") => Harmless;
    a26_directories: process(&finds_no("get-directories"))
        .import("wasi:filesystem/preopens@0.2.6", "get-directories", "(param i32)") => Harmless;
    a26_standard_input: process("(call $\"[method]input-stream.blocking-read\" (call $get-stdin)
        (i64.const 100) (i32.const 0x400)) (if (i32.eqz (i32.load8_u (i32.const 0x400))) (then unreachable))")
        .import("wasi:cli/stdin@0.2.6", "get-stdin", "(result i32)")
        .import("wasi:io/streams@0.2.6", "[method]input-stream.blocking-read", "(param i32 i64 i32)") => Harmless;
    a26_splice_of_streams: process("(call $\"[method]output-stream.splice\" (call $get-stdout) (call $get-stdin)
        (i64.const 100) (i32.const 0x400))")
        .import("wasi:cli/stdin@0.2.6", "get-stdin", "(result i32)")
        .import("wasi:cli/stdout@0.2.6", "get-stdout", "(result i32)")
        .import("wasi:io/streams@0.2.6", "[method]output-stream.splice", "(param i32 i32 i64 i32)")
        => Stopped(Denied, "process");

    a31_four_billion_random_bytes: process("(call $get-random-bytes (i64.const 0x100000000) (i32.const 0x400))")
        .import("wasi:random/random@0.2.6", "get-random-bytes", "(param i64 i32)") => Stopped(Denied, "process");
    a31_endless_insecure_random_bytes: process("(call $get-insecure-random-bytes (i64.const -1) (i32.const 0x400))")
        .import("wasi:random/insecure@0.2.6", "get-insecure-random-bytes", "(param i64 i32)")
        => Stopped(Denied, "process");
    /// The clock stands at the commit time of the batch, however long the guest measures.
    a32_clock_that_runs: process("(local.set $wide (call $now))
        (loop $l (local.set $a (i32.add (local.get $a) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $a) (i32.const 10000000))))
        (if (i64.ne (call $now) (local.get $wide)) (then unreachable))
        (if (i64.ne (local.get $wide) (i64.const 1764460800000000000)) (then unreachable))")
        .import("wasi:clocks/monotonic-clock@0.2.6", "now", "(result i64)") => Harmless;
    a32_wall_clock: process("(call $now (i32.const 0x400))
        (if (i64.ne (i64.load (i32.const 0x400)) (i64.const 1764460800)) (then unreachable))")
        .import("wasi:clocks/wall-clock@0.2.6", "now", "(param i32)") => Harmless;
}
