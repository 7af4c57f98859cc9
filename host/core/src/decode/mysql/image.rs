//! Row images: which columns are there, which are null, and the values of the others.
//!
//! A column that the image leaves out (`binlog_row_image=MINIMAL`, `NOBLOB`) is [`Value::Unavailable`], never null, and
//! shifts nothing: the bits of the nulls count the columns that are there, the definitions count all.

use std::ops::Range;

use bytes::Bytes;

use super::cell::{InvalidCell, Reason, content, read};
use super::definition::{ColumnDefinition, DataType};
use super::json::{self, Document};
use crate::value::{Row, Value};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidImage {
    #[error("a row image that ends within its head")]
    Head,
    #[error("a row image with options {0:#x} that are not known")]
    Options(u64),
    #[error(transparent)]
    Cell(#[from] InvalidCell),
}

/// One bit a column, the first in the lowest place of the first byte.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a>(pub &'a [u8]);

impl Bitmap<'_> {
    pub fn is_set(self, index: usize) -> bool {
        self.0.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }
}

/// The row whose image begins at a place of the buffer, and the place behind it. `present` says which columns it holds.
///
/// # Errors
/// When the bytes are not such an image.
pub fn image(
    columns: &[ColumnDefinition],
    present: Bitmap<'_>,
    buffer: &Bytes,
    at: usize,
) -> Result<(Row, usize), InvalidImage> {
    let mut cursor = Cursor::new(columns, present, buffer, at)?;
    let mut values = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        values.push(if !present.is_set(index) {
            Value::Unavailable
        } else if cursor.next_is_null() {
            Value::Null
        } else {
            cursor.value(column)?
        });
    }
    Ok((Row::new(values), cursor.at))
}

/// Both images of a row of a PARTIAL_UPDATE_ROWS event, in which the second may hold differences between JSON documents
/// instead of the documents.
///
/// # Errors
/// When the bytes are not such images, or a difference does not fit the document of the first image (it may not be
/// there).
pub fn partial_images(
    columns: &[ColumnDefinition],
    before: Bitmap<'_>,
    after: Bitmap<'_>,
    buffer: &Bytes,
    at: usize,
) -> Result<(Row, Row, usize), InvalidImage> {
    let (old, places, at) = before_image(columns, before, buffer, at)?;
    let (differs, at) = differing(columns, buffer, at)?;
    let mut cursor = Cursor::new(columns, after, buffer, at)?;
    let mut values = Vec::with_capacity(columns.len());
    let mut documents = 0;
    for (index, column) in columns.iter().enumerate() {
        let mut is_partial = false;
        if column.data_type == DataType::Json {
            is_partial = Bitmap(differs).is_set(documents);
            documents += 1;
        }
        values.push(if !after.is_set(index) {
            Value::Unavailable
        } else if cursor.next_is_null() {
            Value::Null
        } else if is_partial {
            cursor.difference(column, places.get(index).cloned().flatten())?
        } else {
            cursor.value(column)?
        });
    }
    Ok((old, Row::new(values), cursor.at))
}

type Place = Option<Range<usize>>;

/// A row, and where the JSON documents among its values stand.
fn before_image(
    columns: &[ColumnDefinition],
    present: Bitmap<'_>,
    buffer: &Bytes,
    at: usize,
) -> Result<(Row, Vec<Place>, usize), InvalidImage> {
    let mut cursor = Cursor::new(columns, present, buffer, at)?;
    let mut values = Vec::with_capacity(columns.len());
    let mut places = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        let mut place = None;
        values.push(if !present.is_set(index) {
            Value::Unavailable
        } else if cursor.next_is_null() {
            Value::Null
        } else {
            let start = cursor.at;
            let value = cursor.value(column)?;
            place = (column.data_type == DataType::Json).then_some(start..cursor.at);
            value
        });
        places.push(place);
    }
    Ok((Row::new(values), places, cursor.at))
}

/// The option that says that bits follow, one for each JSON column of the table.
const PARTIAL_JSON: u64 = 1;

fn differing<'a>(
    columns: &[ColumnDefinition],
    buffer: &'a Bytes,
    at: usize,
) -> Result<(&'a [u8], usize), InvalidImage> {
    // A number in the protocol's variable form, of which there is one bit so far.
    let options = u64::from(*buffer.get(at).ok_or(InvalidImage::Head)?);
    let at = at + 1;
    match options {
        0 => Ok((&[], at)),
        PARTIAL_JSON => {
            let documents = columns.iter().filter(|it| it.data_type == DataType::Json).count();
            let end = at + documents.div_ceil(8);
            Ok((buffer.get(at..end).ok_or(InvalidImage::Head)?, end))
        }
        other => Err(InvalidImage::Options(other)),
    }
}

struct Cursor<'a> {
    buffer: &'a Bytes,
    nulls: &'a [u8],
    /// Columns of the image that were asked about.
    asked: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(
        columns: &[ColumnDefinition],
        present: Bitmap<'_>,
        buffer: &'a Bytes,
        at: usize,
    ) -> Result<Self, InvalidImage> {
        let count = (0..columns.len()).filter(|index| present.is_set(*index)).count();
        let end = at.checked_add(count.div_ceil(8)).ok_or(InvalidImage::Head)?;
        let nulls = buffer.get(at..end).ok_or(InvalidImage::Head)?;
        Ok(Self { buffer, nulls, asked: 0, at: end })
    }

    fn next_is_null(&mut self) -> bool {
        let is_null = Bitmap(self.nulls).is_set(self.asked);
        self.asked += 1;
        is_null
    }

    fn value(&mut self, column: &ColumnDefinition) -> Result<Value, InvalidCell> {
        match read(column, self.buffer, self.at) {
            Ok((value, end)) => {
                self.at = end;
                Ok(value)
            }
            Err(reason) => Err(InvalidCell::new(column, reason)),
        }
    }

    fn difference(
        &mut self,
        column: &ColumnDefinition,
        before: Place,
    ) -> Result<Value, InvalidCell> {
        self.apply(before).map_err(|reason| InvalidCell::new(column, reason))
    }

    fn apply(&mut self, before: Place) -> Result<Value, Reason> {
        const COUNT_BYTES: u8 = 4;
        let rest = self.buffer.get(self.at..).ok_or(Reason::Short)?;
        let (start, end) = content(rest, COUNT_BYTES)?;
        let differences = rest.get(start..end).ok_or(Reason::Short)?;
        let before = before.ok_or(Reason::Json(json::Invalid::Difference))?;
        let counted = self.buffer.get(before).ok_or(Reason::Short)?;
        let old = Document::parse(counted.get(start..).ok_or(Reason::Short)?)?;
        let document = json::apply(old, differences)?;
        self.at += end;
        Ok(Value::Json(document.to_text()?))
    }
}
