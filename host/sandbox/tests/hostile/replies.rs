//! Attacks in what a call gives back: its memory, its frame, its outcomes.

use dovetail_sandbox::TrapKind::{Abi, Other};

use crate::attacks;
use crate::guest::{honest, outcomes, process, reply};
use crate::reply::{EMIT, NONE, PATCH, Reply, cell, emit, patch, patch_with_heap, route, spoiled};
use crate::verdict::Verdict::{Broken, Fails, Refused, Stopped};
use crate::verdict::misbehaving;

const INT: u8 = 3;
const TEXT: u8 = 8;
/// The columns of the events' table.
const KEY: u16 = 0;
const NAME: u16 = 2;

/// One outcome of the typed form: its case, and the words behind it.
fn outcome(case: u8, words: &[u32]) -> Vec<u8> {
    let mut memory = vec![0; 24 * 5];
    memory[0] = case;
    for (at, word) in words.iter().enumerate() {
        memory[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_le_bytes());
    }
    memory
}

fn returns(pointer: &str, length: &str) -> String {
    format!("(return (call $ok (i32.const {pointer}) (i32.const {length})))")
}

/// A row of eight cells with another key.
fn row_of_another_key() -> Vec<[u8; 16]> {
    let mut row = vec![[0; 16]; 8];
    row[0] = cell(INT, 0, 0, 4_711);
    row
}

attacks! {
    a07_result_of_two_gigabytes_claimed: process(&returns("0x10000", "0x80000000"))
        => Stopped(Abi, "process");
    a07_result_larger_than_allowed: misbehaving("huge reply") => Stopped(Abi, "process");
    a08_three_million_headers: outcomes(&[outcome(3, &[0x1_8000, 1]), vec![0; 4]].concat(), 5)
        // One emission with an empty payload of bytes, and three million headers of nothing.
        .data(0x1_8000 + 24, &1_u32.to_le_bytes())
        .data(0x1_8000 + 36, &[0, 0, 0x20, 0, 0xC0, 0xC6, 0x2D, 0])
        .memory_pages(1_000) => Stopped(Abi, "process");
    a08_four_million_outcomes: outcomes(&[], 2_000_000).memory_pages(900) => Stopped(Abi, "process");
    a09_result_beyond_the_memory: process(&returns("0x1fff00", "0x1000")) => Stopped(Abi, "process");
    a09_result_around_the_end_of_memory: process(&returns("-16", "64")) => Stopped(Abi, "process");
    a09_result_area_beyond_the_memory: process("(return (i32.const -4))") => Stopped(Abi, "process");
    a09_result_area_not_aligned: process("(return (i32.const 0x301))") => Stopped(Abi, "process");
    a09_list_not_aligned: outcomes(&[0; 200], 5).process("(return (call $ok (i32.const 0x10001) (i32.const 5)))")
        => Stopped(Abi, "process");
    a09_access_beyond_the_memory: process("(drop (i32.load (i32.const -8)))") => Stopped(Other, "process");
    a10_text_that_is_not_utf8: misbehaving("invalid text") => Stopped(Abi, "process");
    a10_name_that_is_not_utf8: honest().data(0x1A0, &[0xC0, 0x80])
        => Refused("plugin stopped in `describe`: abi");
    a10_name_with_half_a_surrogate_pair: honest().utf16().data(0x1A0, &[0x00, 0xD8])
        => Refused("plugin stopped in `describe`: abi");
    a10_name_that_forges_a_log_line: misbehaving("forge a name") => Refused("its `describe` gave a name");
    a11_operation_that_is_none: honest().data(0x190, &[200]) => Refused("plugin stopped in `describe`: abi");
    a11_option_that_is_neither: honest().data(0x140 + 16, &[2]) => Refused("plugin stopped in `describe`: abi");
    a11_result_that_is_neither: process("(drop (call $ok (i32.const 0x10000) (i32.const 0)))
        (i32.store8 (i32.const 0x300) (i32.const 2)) (return (i32.const 0x300))") => Stopped(Abi, "process");
    a11_outcome_that_is_none: outcomes(&outcome(6, &[]), 5) => Stopped(Abi, "process");
    a11_class_of_failure_that_is_none: outcomes(&outcome(5, &[3]), 5) => Stopped(Abi, "process");
    a11_interests_without_end: honest().data(0x100 + 24, &100_000_u32.to_le_bytes()).memory_pages(100)
        => Refused("its `describe` ");

    a12_frame_empty: reply(b"") => Broken("reply");
    a12_frame_of_garbage: misbehaving("garbage") => Broken("does not begin with `DOVR`");
    a12_frame_of_another_magic_number: reply(&spoiled(0, b"DOVE")) => Broken("does not begin with `DOVR`");
    a12_frame_of_another_version: reply(&spoiled(4, &[2])) => Broken("reply of frame version 2");
    a12_frame_with_a_reserved_field_set: reply(&spoiled(28, &[1])) => Broken("reserved fields");
    a12_frame_cut_off: misbehaving("cut off") => Broken("but its header says");
    a12_frame_with_a_surplus: reply(&[Reply::default().frame(), vec![0]].concat()) => Broken("but its header says");
    a12_frame_that_claims_four_billion_outcomes: reply(&spoiled(8, &[0xFF; 4])) => Broken("but its header says");
    a12_frame_that_claims_four_billion_of_everything: reply(&spoiled(8, &[0xFF; 20])) => Broken("but its header says");
    a12_frame_with_an_outcome_that_is_none: reply(&spoiled(32, &[6])) => Broken("unknown kind 6 of outcome");
    a12_frame_with_a_tag_that_is_none: reply(&patch(cell(23, NAME, 0, 0))) => Broken("unknown tag 23 of a value");
    a12_frame_whose_text_lies_beyond_it: reply(&patch_with_heap(cell(TEXT, NAME, 2, 0), b"a"))
        => Broken("reference beyond the heap");
    a12_frame_whose_text_wraps_around: reply(&patch_with_heap(cell(TEXT, NAME, 8, u64::MAX - 3), b"a"))
        => Broken("reference beyond the heap");
    a12_frame_whose_text_is_not_utf8: reply(&patch_with_heap(cell(TEXT, NAME, 2, 0), &[0xFF, 0xFE]))
        => Broken("text that is not utf-8");
    a12_frame_whose_cells_are_used_twice: reply(&Reply {
        first: [PATCH, 0, 2], cells: vec![cell(INT, KEY, 0, 1)], ..Reply::default() }.frame())
        => Broken("cells are not used in order");
    a12_frame_with_cells_left_over: reply(&Reply {
        cells: vec![cell(INT, KEY, 0, 1)], ..Reply::default() }.frame()) => Broken("cells are not used in order");
    a12_frame_whose_references_blow_it_up: reply(&Reply {
        first: [PATCH, 0, 1_000],
        cells: vec![cell(TEXT, NAME, 1_000, 0); 1_000],
        heap: vec![b'x'; 1_000],
        ..Reply::default() }.frame()) => Broken("more references than the heap has bytes");

    a13_one_outcome_too_few: misbehaving("too few outcomes") => Broken("4 outcomes for 5 events");
    a13_one_outcome_too_many: misbehaving("too many outcomes") => Broken("6 outcomes for 5 events");
    a13_no_outcomes: misbehaving("no outcomes") => Broken("0 outcomes for 5 events");
    a13_a_hundred_thousand_outcomes: reply(&Reply::default().frame_of(100_000))
        => Broken("100000 outcomes for 5 events");
    a13_one_outcome_too_many_in_the_typed_form: outcomes(&[0; 24 * 6], 6)
        => Broken("6 outcomes for 5 events");

    a14_patch_of_a_column_that_is_not_there: reply(&patch(cell(INT, 9, 0, 1))) => Fails("host.column");
    a14_patch_of_the_last_column_there_can_be: reply(&patch(cell(INT, u16::MAX, 0, 1))) => Fails("host.column");
    a14_patch_of_the_key: reply(&patch(cell(INT, KEY, 0, 4_711))) => Fails("host.key");
    a14_patch_that_takes_the_key_away: reply(&patch(cell(0, KEY, 0, 0))) => Fails("host.key");
    a14_patch_of_another_type: reply(&patch(cell(INT, NAME, 0, 1))) => Fails("host.type");
    a14_patch_with_what_is_not_there: reply(&patch(cell(1, NAME, 0, 0))) => Fails("host.unavailable");
    a15_route_to_a_target_that_is_not_there: reply(&route(&[2])) => Fails("host.route-unknown");
    a15_route_to_a_target_twice: reply(&route(&[1, 1])) => Fails("host.route-twice");
    a15_route_to_sixty_thousand_targets: reply(&route(&[1; 60_000])) => Fails("host.route-twice");
    a16_one_event_becomes_sixty_five: reply(&Reply {
        first: [EMIT, 0, 65], emissions: vec![[NONE, 0, NONE, 0, 2, 0, 0, 0, 0]; 65], ..Reply::default()
        }.frame()) => Fails("host.emissions");
    a16_one_event_becomes_a_hundred_thousand: reply(&Reply {
        first: [EMIT, 0, 100_000], emissions: vec![[NONE, 0, NONE, 0, 2, 0, 0, 0, 0]; 100_000],
        ..Reply::default() }.frame()).memory_pages(100) => Fails("host.emissions");
    a17_emitted_row_of_another_key: reply(&emit([NONE, 0, NONE, 0, 0, 0, 8, 0, 0], row_of_another_key()))
        => Fails("host.key");
    a17_emitted_row_of_another_width: reply(&emit([NONE, 0, NONE, 0, 0, 0, 2, 0, 0], vec![[0; 16]; 2]))
        => Fails("host.emit-columns");
}
