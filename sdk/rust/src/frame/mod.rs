//! The packed form of a batch, from the guest's side. Its layout is fixed in `wit/README.md`, and by the vectors that the
//! tests of this module and of the host both read.

mod read;
mod tag;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{RawRow, Request, Values};
pub(crate) use write::Writer;

const VERSION: u16 = 1;
/// "No index", "no text".
const NONE: u32 = u32::MAX;

const HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 56;
const CELL_BYTES: usize = 16;

const FLAG_REDELIVERY: u8 = 1;
const FLAG_MOVED: u8 = 2;
const FLAG_TRANSACTIONAL: u8 = 4;
const FLAG_HAS_TRANSACTION: u8 = 8;
const FLAG_HAS_RELATION: u8 = 16;
