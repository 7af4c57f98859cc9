//! The few pieces of JSON that a line is made of.

use std::fmt::{Debug, Display};
use std::io::Write;

/// `,"name":`; the name is one of ours.
pub(super) fn member(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

pub(super) fn int(value: i64, out: &mut Vec<u8>) {
    number(value, out);
}

pub(super) fn uint(value: u64, out: &mut Vec<u8>) {
    number(value, out);
}

/// The shortest digits that read back as the same number of the same width, always with a point or an exponent, so
/// that -0 stays what it is. Finite only.
pub(super) fn float(value: impl Debug, out: &mut Vec<u8>) {
    write!(out, "{value:?}").expect("a vector takes every byte");
}

fn number(value: impl Display, out: &mut Vec<u8>) {
    write!(out, "{value}").expect("a vector takes every byte");
}

pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape(text, out);
    out.push(b'"');
}

/// What stands between the quotes: runs that need no escape are copied whole.
pub(super) fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)) {
        let (plain, from) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, after)) = from.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => write!(out, "\\u{byte:04x}").expect("a vector takes every byte"),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

pub(super) fn list<T>(
    open: u8,
    close: u8,
    items: &[T],
    out: &mut Vec<u8>,
    mut write: impl FnMut(&T, &mut Vec<u8>),
) {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(close);
}
