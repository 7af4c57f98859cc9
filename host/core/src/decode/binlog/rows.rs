//! Row events: which columns are in their images, and the images as they stand.

use super::kind;
use super::reader::{Reader, Short};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows<'a> {
    /// The number of a table map before it.
    pub table: u64,
    pub operation: Operation,
    /// An update may hold differences of JSON documents in its after images.
    pub is_partial: bool,
    /// The table maps so far are done with.
    pub ends_statement: bool,
    /// Columns of the table.
    pub width: usize,
    /// One bit a column, the first in the lowest place: which are in the old rows. Empty for an insert.
    pub before: &'a [u8],
    /// The same of the new rows. Empty for a delete.
    pub after: &'a [u8],
    /// One row behind the other, for an update the old and then the new one. Compressed where
    /// [`is_compressed`](Self::is_compressed).
    pub images: &'a [u8],
    pub is_compressed: bool,
}

/// Stands in row events that only end a statement.
pub const NO_TABLE: u64 = 0xFF_FFFF;

pub(super) fn rows(kind: u8, body: &[u8]) -> Result<Rows<'_>, Short> {
    const ENDS_STATEMENT: u16 = 1;
    let (operation, version, is_compressed) = match kind {
        kind::WRITE_ROWS_V1 => (Operation::Insert, 1, false),
        kind::UPDATE_ROWS_V1 => (Operation::Update, 1, false),
        kind::DELETE_ROWS_V1 => (Operation::Delete, 1, false),
        kind::WRITE_ROWS => (Operation::Insert, 2, false),
        kind::UPDATE_ROWS | kind::PARTIAL_UPDATE_ROWS => (Operation::Update, 2, false),
        kind::DELETE_ROWS => (Operation::Delete, 2, false),
        kind::WRITE_ROWS_COMPRESSED_V1 => (Operation::Insert, 1, true),
        kind::UPDATE_ROWS_COMPRESSED_V1 => (Operation::Update, 1, true),
        kind::DELETE_ROWS_COMPRESSED_V1 => (Operation::Delete, 1, true),
        kind::WRITE_ROWS_COMPRESSED => (Operation::Insert, 2, true),
        kind::UPDATE_ROWS_COMPRESSED => (Operation::Update, 2, true),
        _ => (Operation::Delete, 2, true),
    };
    let mut reader = Reader::new(body);
    let table = reader.uint::<6>()?;
    let flags = reader.u16()?;
    if version == 2 {
        // What follows says of which partition a row is, and is not needed. Its length counts itself.
        let extra = usize::from(reader.u16()?).checked_sub(2).ok_or(Short)?;
        reader.take(extra)?;
    }
    let width = reader.packed_length()?;
    let bitmap = width.div_ceil(8);
    let first = reader.take(bitmap)?;
    let (before, after) = match operation {
        Operation::Insert => (&[][..], first),
        Operation::Delete => (first, &[][..]),
        Operation::Update => (first, reader.take(bitmap)?),
    };
    Ok(Rows {
        table,
        operation,
        is_partial: kind == kind::PARTIAL_UPDATE_ROWS,
        ends_statement: flags & ENDS_STATEMENT != 0,
        width,
        before,
        after,
        images: reader.rest(),
        is_compressed,
    })
}
