//! Values of MySQL and MariaDB, read without doing any I/O.
//!
//! A row reaches the pipeline in two ways, and both end in the same value: [`image()`] reads the row images of the log,
//! [`from_result`] what a client got in a scan. Definitions come in two ways too, [from the
//! log](ColumnDefinition::from_log) and [from the catalog](ColumnDefinition::from_catalog), and give the same type
//! names, on which the version of a table rests. Deny by default: a type, a character set or a form that is not known
//! is an error with the column's name.
//!
//! | module | holds |
//! |---|---|
//! | [`definition`], [`log_column`], [`catalog`] | what a column is, from a table map or from the catalog |
//! | [`layout`] | how row images spell a type |
//! | [`mod@cell`], [`mod@image`] | values from the log |
//! | [`result`] | values from a scan |
//! | [`charset`] | text of every character set |
//! | [`json`] | binary JSON, and differences between documents |

pub mod catalog;
pub mod cell;
pub mod charset;
pub mod definition;
pub mod image;
pub mod json;
pub mod labels;
pub mod layout;
pub mod log_column;
pub mod result;

mod compressed;
mod decimal;
mod inet;
mod temporal;

#[cfg(test)]
mod tests;

pub use cell::{InvalidCell, Reason, cell};
pub use definition::{ColumnDefinition, DataType, Misfit, Server};
pub use image::{Bitmap, InvalidImage, image, partial_images};
pub use log_column::{LogColumn, Undefined};
pub use result::{Cell, from_result};
