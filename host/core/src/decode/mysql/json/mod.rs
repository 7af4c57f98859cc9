//! MySQL's binary JSON.
//!
//! The log holds documents in the form of the table: values with their types, offsets instead of nesting, and what JSON
//! has no word for (decimals, dates, bytes) as *opaque* values of a column type. A scan gets the server's text, so
//! [`Document::to_text`] has to print that text byte for byte: key order as stored, `", "` and `": "`, the server's own
//! forms of numbers. ([The format](https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html).)
//!
//! Offsets can be made to point anywhere, also at each other. Depth is limited as in the server, and every byte of a
//! document pays for one visit only, so that a document costs memory in proportion to its length.

mod diff;
mod print;
mod read;

pub use diff::apply;

use std::borrow::Cow;

use crate::value::Text;

/// Nesting that the server allows (`JSON_DOCUMENT_MAX_DEPTH`).
const DEPTH_MAX: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    #[error("a document that no server writes")]
    Malformed,
    #[error("a document nested deeper than a server allows")]
    TooDeep,
    #[error("an opaque value of type {0} that is not known")]
    Opaque(u8),
    #[error("a difference that does not fit the document before it")]
    Difference,
}

/// A parsed document; texts are those of the bytes that it was read from.
#[derive(Clone, PartialEq, Debug)]
pub enum Document<'a> {
    Null,
    Boolean(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(&'a str),
    /// A value of a column type, in that type's own form.
    Opaque {
        code: u8,
        bytes: &'a [u8],
    },
    Array(Vec<Document<'a>>),
    /// Members in the order in which they are stored: shorter keys first, then by their bytes.
    Object(Vec<(Cow<'a, str>, Document<'a>)>),
}

impl<'a> Document<'a> {
    /// # Errors
    /// When the bytes are not a document.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        read::document(bytes)
    }

    /// The server's text of the document.
    ///
    /// # Errors
    /// When it holds an opaque value that is not understood.
    pub fn to_text(&self) -> Result<Text, Invalid> {
        let mut text = String::new();
        print::document(self, &mut text)?;
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests;
