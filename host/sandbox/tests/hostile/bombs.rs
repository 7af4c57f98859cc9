//! Attacks on whoever compiles: little that stands for much. Written byte by byte, because a text of them would be large.
//!
//! What is within the limits that can be counted compiles here, in this process; that it is compiled in another one, which
//! may be killed, is tested where there is a program to be that one.

use crate::attacks;
use crate::verdict::Verdict::Refused;

const BLOCK: [u8; 2] = [0x02, 0x40];
const END: u8 = 0x0B;
const I32: u8 = 0x7F;

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

/// The section's items, all alike.
fn items(id: u8, count: usize, item: &[u8]) -> Vec<u8> {
    section(id, &[leb(count), item.repeat(count)].concat())
}

/// A component with one module of these sections.
fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    let module = [b"\0asm\x01\0\0\0".as_slice(), &sections.concat()].concat();
    [b"\0asm\x0d\0\x01\0".as_slice(), &section(1, &module)].concat()
}

/// So many functions without parameters, each with this body.
fn functions(count: usize, body: &[u8]) -> Vec<u8> {
    let body = [leb(body.len()), body.to_owned()].concat();
    component(&[items(1, 1, &[0x60, 0, 0]), items(3, count, &[0]), items(10, count, &body)])
}

/// A function that jumps by this many targets.
fn branch_table(targets: usize) -> Vec<u8> {
    let table = [leb(targets), vec![0; targets + 1]].concat();
    functions(1, &[vec![0, 0x41, 0, 0x0E], table, vec![END]].concat())
}

fn nested_blocks(depth: usize) -> Vec<u8> {
    functions(1, &[vec![0], BLOCK.repeat(depth), vec![END; depth + 1]].concat())
}

fn nested_components(depth: usize) -> Vec<u8> {
    (0..depth).fold(Vec::new(), |inner, _| {
        let inner = if inner.is_empty() { inner } else { section(4, &inner) };
        [b"\0asm\x0d\0\x01\0".as_slice(), &inner].concat()
    })
}

/// Each component instantiates the one before it twice.
fn doubling(levels: usize) -> Vec<u8> {
    let level = |level: usize| {
        let inner = format!("(instance (instantiate $c{}))", level - 1);
        format!("(component $c{level} {inner} {inner})")
    };
    let components: String = (1..=levels).map(level).collect();
    let top = format!("(instance (instantiate $c{levels}))");
    text(&format!("(component (component $c0) {components} {top})"))
}

/// Each type is twice the one before it.
fn doubling_types(levels: usize) -> Vec<u8> {
    let level = |level: usize| format!("(type $t{level} (tuple $t{0} $t{0}))", level - 1);
    let types: String = (1..=levels).map(level).collect();
    text(&format!(
        "(component (type $t0 (tuple u8 u8)) {types} (type (func (param \"p\" $t{levels}))))"
    ))
}

fn text(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the suite's own text")
}

attacks! {
    a05_instances_that_double: doubling(60) => Refused("instances, of which at most 1000 are taken");
    a05_instances_of_what_was_given: text(
        r#"(component
          (component $a (import "x" (component $x)) (instance (instantiate $x)))
          (component $b)
          (instance (instantiate $a (with "x" (component $b)))))"#)
        => Refused("instantiates a component that it was given");
    a05_components_in_components: nested_components(1_000) => Refused("levels of components, of which at most 50 are taken");
    a33_a_million_functions: functions(1_000_000, &[0, END])
        => Refused("has 1000000 functions, of which at most 100000 are taken");
    a33_branch_table_of_seven_megabytes: branch_table(7_000_000) => Refused("bytes of one function, of which");
    a33_branch_table_beyond_what_the_compiler_takes: branch_table(2_000_000) => Refused("exceeds the implementation limit");
    a33_branch_table_as_large_as_is_taken: branch_table(65_000) => Refused("exports neither");
    a33_ten_thousand_locals_in_ten_thousand_functions:
        functions(10_000, &[&[1][..], &leb(10_000), &[I32, END]].concat())
        => Refused("local variables, of which at most");
    a33_fifty_thousand_locals: functions(1, &[&[1][..], &leb(50_000), &[I32, END]].concat())
        => Refused("exports neither");
    a33_more_locals_than_a_function_can_have: functions(1, &[&[1][..], &leb(900_000), &[I32, END]].concat())
        => Refused("not a valid component");
    a33_blocks_in_blocks: nested_blocks(600_000) => Refused("exports neither");
    a33_a_hundred_thousand_segments: component(&[items(5, 1, &[0, 1]), items(11, 100_000, &[0, 0x41, 0, END, 0])])
        => Refused("segments of data and elements, of which at most");
    a33_data_at_both_ends_of_four_gigabytes: text(
        r#"(component (core module (memory 65536) (data (i32.const 0) "a") (data (i32.const 0xffff0000) "b")))"#)
        => Refused("exports neither");
    a33_custom_section_of_sixty_megabytes: [
        b"\0asm\x0d\0\x01\0".to_vec(), section(0, &[leb(4), b"bomb".to_vec(), vec![0; 60 << 20]].concat())].concat()
        => Refused("exports neither");
    a33_file_of_sixty_five_megabytes: [b"\0asm\x0d\0\x01\0".to_vec(), vec![0; 65 << 20]].concat()
        => Refused("of which at most 67108864 are taken: strip it");
    a33_types_that_double: doubling_types(60) => Refused("not a valid component");
}
