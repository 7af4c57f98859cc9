//! The `spool` section: a map, or `off`.

use std::ops::RangeInclusive;

use super::field::{Field, Reader, Section};
use super::tree::Content;
use super::{AtLimit, Spool, quantity};

/// Hours of a busy log, and seldom a disk.
const LIMIT: u64 = 16 << 30;
/// Room is made in files of 64 MiB; below a few of them reading would stop and go.
const LIMIT_BOUNDS: RangeInclusive<u64> = 256 << 20..=1 << 50;

pub(in crate::config) fn check(
    root: &mut Section<'_>,
    reader: &mut Reader<'_>,
) -> Option<Option<Spool>> {
    let Some(field) = root.optional("spool") else {
        return Some(Some(Spool { limit: LIMIT, at_limit: AtLimit::Wait }));
    };
    match field.content() {
        Content::Scalar(_) => field.choice(reader, &[("off", None)]),
        _ => section(&field, reader).map(Some),
    }
}

fn section(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Spool> {
    let mut section = field.section(reader, "`off`, or {limit: 16GiB, at_limit: wait}")?;
    let limit = match section.optional("limit") {
        Some(field) => field.parsed(reader, "a size of 256MiB or more", |text| {
            quantity::size(text).filter(|size| LIMIT_BOUNDS.contains(size))
        }),
        None => Some(LIMIT),
    };
    let at_limit = match section.optional("at_limit") {
        Some(field) => field.choice(reader, &[("wait", AtLimit::Wait), ("stop", AtLimit::Stop)]),
        None => Some(AtLimit::Wait),
    };
    section.finish(reader);
    Some(Spool { limit: limit?, at_limit: at_limit? })
}
