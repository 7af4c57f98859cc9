//! Addresses as MariaDB prints them.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::value::Text;

pub(super) fn inet4(bytes: [u8; 4]) -> Text {
    Ipv4Addr::from(bytes).to_string().into()
}

/// Unlike RFC 5952, the server shortens a single group of zeros as well, and prints a dotted tail behind six groups of
/// zeros too.
pub(super) fn inet6(bytes: [u8; 16]) -> Text {
    let (pairs, _) = bytes.as_chunks::<2>();
    let groups: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let (start, length) = longest_zeros(&groups);
    let mut text = String::new();
    for (index, group) in groups.iter().enumerate() {
        let is_in_gap = index >= start && index < start + length;
        if is_in_gap {
            // What follows the gap brings the second colon, or the end does.
            if index == start {
                text.push(':');
            }
            continue;
        }
        if index > 0 {
            text.push(':');
        }
        if index == 6
            && start == 0
            && (length == 6 || (length == 5 && groups.get(5) == Some(&0xffff)))
        {
            let [.., a, b, c, d] = bytes;
            write!(text, "{a}.{b}.{c}.{d}").expect("a String takes any text");
            return text.into();
        }
        write!(text, "{group:x}").expect("a String takes any text");
    }
    if length > 0 && start + length == groups.len() {
        text.push(':');
    }
    text.into()
}

/// Where the longest run of zeros begins, the first of equals, and its length.
fn longest_zeros(groups: &[u16]) -> (usize, usize) {
    let (mut longest, mut current) = ((0, 0), (0, 0));
    for (index, group) in groups.iter().enumerate() {
        if *group != 0 {
            current = (index + 1, 0);
            continue;
        }
        current.1 += 1;
        if current.1 > longest.1 {
            longest = current;
        }
    }
    longest
}
