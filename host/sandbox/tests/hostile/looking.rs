//! Attacks that look for what was not granted. Most guests here are their own judges: what they find, they say.

use dovetail_core::change::Operation;
use dovetail_sandbox::TrapKind::{Denied, Unreachable};
use dovetail_sandbox::{Grant, Grants};

use crate::attacks;
use crate::guest::{honest, process, reply};
use crate::reply::{cell, patch};
use crate::verdict::Verdict::{Fails, GivesUp, Harmless, Refused, Stopped};
use crate::verdict::misbehaving;

/// Looks for a part of the events' e-mail addresses in all that it was handed, and gives up where it finds one.
const SEARCH: &str = "(loop $l
    (if (i32.eq (i32.load (i32.add (local.get $frame) (local.get $a))) (i32.const 0x61786540)) (then unreachable))
    (local.set $a (i32.add (local.get $a) (i32.const 1)))
    (br_if $l (i32.lt_u (i32.add (local.get $a) (i32.const 4)) (local.get $length))))";

/// What the guests' table `public.users` is granted in these operations and columns.
fn rows(table: &str, columns: Option<&[&str]>, operations: &[Operation]) -> Grants {
    let columns = columns.map(|names| names.iter().map(|&name| name.into()).collect());
    let operations = operations.iter().copied().collect();
    Grants {
        rows: vec![Grant { tables: vec![table.into()], columns, operations }],
        ..Grants::default()
    }
}

const TWO_COLUMNS: Option<&[&str]> = Some(&["id", "name"]);

fn with_clock() -> Grants {
    Grants { clock: true, ..Grants::all_rows() }
}

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

    a46_nothing_granted: honest().granted(Grants::default())
        => Refused("asks for what it is not granted (messages; table `*`): grant it, or take a plugin that asks for less");
    a46_column_that_is_named_and_not_granted: honest()
        // Instead of all columns: one, whose name is `secret`.
        .data(0x140 + 16, &[1, 0, 0, 0, 0xC0, 0x01, 0, 0, 1, 0, 0, 0]).data(0x1C0, &[0xC8, 1, 0, 0, 6, 0, 0, 0])
        .data(0x1C8, b"secret").granted(rows("public.users", TWO_COLUMNS, &Operation::ALL))
        => Refused("asks for what it is not granted (column `secret` of `*`)");
    a46_table_that_is_named_and_not_granted: honest().data(0x180, &[0xC8, 1, 0, 0, 11, 0, 0, 0])
        .data(0x1C8, b"public.cash").granted(rows("public.users", None, &Operation::ALL))
        => Refused("asks for what it is not granted (table `public.cash`)");
    a46_operation_that_is_not_granted: honest().granted(rows("public.users", None, &[Operation::Insert]))
        => Refused("read, update, delete, truncate of `*`");
    /// The control: where it is granted, the guest finds what it looks for.
    a46_column_that_is_granted: process(SEARCH) => Stopped(Unreachable, "process");
    a46_column_that_is_not_granted: process(SEARCH).granted(rows("public.users", TWO_COLUMNS, &Operation::ALL))
        => Harmless;
    a46_number_of_columns: process("(if (i32.ne (i32.load16_u offset=42 (local.get $frame)) (i32.const 2)) (then unreachable))")
        .granted(rows("public.*", TWO_COLUMNS, &Operation::ALL)) => Harmless;
    a46_announcement_of_a_column_that_is_not_granted: honest()
        .on_relation("(if (i32.ne (local.get 7) (i32.const 2)) (then unreachable))")
        .granted(rows("*", TWO_COLUMNS, &Operation::ALL)) => Harmless;
    a46_patch_of_a_column_that_is_not_granted: reply(&patch(cell(3, 2, 0, 1)))
        .granted(rows("*", TWO_COLUMNS, &Operation::ALL)) => Fails("host.column");
    a46_event_of_a_table_that_is_not_granted: process("unreachable")
        .granted(rows("public.orders", None, &Operation::ALL)) => Harmless;
    a32_clock_that_is_granted: process("(call $now (i32.const 0x400))
        (if (i64.le_u (i64.load (i32.const 0x400)) (i64.const 1764460800)) (then unreachable))")
        .import("wasi:clocks/wall-clock@0.2.6", "now", "(param i32)").granted(with_clock()) => Harmless;
}
