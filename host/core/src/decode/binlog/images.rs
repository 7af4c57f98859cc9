//! Rows of a row event, read one by one under the definition of their table.

use std::sync::Arc;

use bytes::Bytes;

use super::rows::{Operation, Rows};
use super::tables::Known;
use crate::decode::mysql::{Bitmap, InvalidImage, image, partial_images};
use crate::value::Row;

/// Definite.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRow {
    #[error("rows of {table} with {found} columns, where its description has {expected}")]
    Width { table: String, expected: usize, found: usize },
    #[error("row of {table} that cannot be read")]
    Image { table: String, source: InvalidImage },
    #[error(
        "rows of {table} that hold none of its columns, so that they cannot be counted; set binlog_row_image to FULL"
    )]
    Empty { table: String },
    #[error("rows of {table} that cannot be unpacked")]
    Compressed { table: String },
}

/// The rows of one event that have not been taken yet. They keep the event's bytes alive, and nothing else.
#[derive(Debug)]
pub(super) struct Images {
    known: Arc<Known>,
    operation: Operation,
    is_partial: bool,
    before: Bytes,
    after: Bytes,
    bytes: Bytes,
    at: usize,
}

/// One row of an event, with `Value::Unavailable` for columns that are not in it.
#[derive(Debug)]
pub(super) enum Image {
    Insert(Row),
    Update { before: Row, after: Row },
    Delete(Row),
}

impl Images {
    /// `rows` is of `event`.
    pub(super) fn new(
        event: &Bytes,
        rows: &Rows<'_>,
        known: Arc<Known>,
    ) -> Result<Self, InvalidRow> {
        let (expected, found) = (known.columns().len(), rows.width);
        if expected != found {
            return Err(InvalidRow::Width { table: known.table(), expected, found });
        }
        let bytes = if rows.is_compressed {
            let unpacked = super::compressed::decompress(rows.images);
            Bytes::from(unpacked.ok_or_else(|| InvalidRow::Compressed { table: known.table() })?)
        } else {
            part(event, rows.images)
        };
        Ok(Self {
            known,
            operation: rows.operation,
            is_partial: rows.is_partial,
            before: part(event, rows.before),
            after: part(event, rows.after),
            bytes,
            at: 0,
        })
    }

    pub(super) fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// What the images keep in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    pub(super) fn next(&mut self) -> Result<Option<Image>, InvalidRow> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let table = || self.known.table();
        let (image, end) =
            self.read().map_err(|source| InvalidRow::Image { table: table(), source })?;
        if end <= self.at {
            return Err(InvalidRow::Empty { table: table() });
        }
        self.at = end;
        let visible = |row| self.known.visible(row);
        Ok(Some(match image {
            Image::Insert(after) => Image::Insert(visible(after)),
            Image::Delete(before) => Image::Delete(visible(before)),
            Image::Update { before, after } => {
                Image::Update { before: visible(before), after: visible(after) }
            }
        }))
    }

    fn read(&self) -> Result<(Image, usize), InvalidImage> {
        let columns = self.known.columns();
        let (old, new) = (Bitmap(&self.before), Bitmap(&self.after));
        match self.operation {
            Operation::Insert => {
                let (after, end) = image(columns, new, &self.bytes, self.at)?;
                Ok((Image::Insert(after), end))
            }
            Operation::Delete => {
                let (before, end) = image(columns, old, &self.bytes, self.at)?;
                Ok((Image::Delete(before), end))
            }
            Operation::Update if self.is_partial => {
                let (before, after, end) = partial_images(columns, old, new, &self.bytes, self.at)?;
                Ok((Image::Update { before, after }, end))
            }
            Operation::Update => {
                let (before, middle) = image(columns, old, &self.bytes, self.at)?;
                let (after, end) = image(columns, new, &self.bytes, middle)?;
                Ok((Image::Update { before, after }, end))
            }
        }
    }
}

/// Shares the event's memory.
fn part(event: &Bytes, bytes: &[u8]) -> Bytes {
    if bytes.is_empty() { Bytes::new() } else { event.slice_ref(bytes) }
}
