//! The packed form of a batch: what crosses the plugin boundary as one list of bytes each way.
//!
//! The cost of a call into a guest is per heap value, not per byte: every string of a typed list is an allocation
//! inside the guest, a frame is one. So cells have a fixed size, and text and bytes lie in a heap behind them, at
//! offsets. The layout is fixed in `wit/README.md` and by the vectors beside the interface; a change of it is a new
//! frame version.
//!
//! What a guest sends back is untrusted. [`decode_reply`] guarantees, whatever the bytes are, that it does not panic,
//! that what it allocates is bounded by the length of the reply, and that it returns one outcome per event or an error.
//! The bound holds because entries are read strictly in order (no entry serves two outcomes) and because all
//! references into the heap together may not be longer than the heap; without that, a reply of a megabyte could name
//! the same text a hundred thousand times.

mod encode;
mod reply;
mod tag;

pub use encode::{Call, Encoder, Entry, Projection, TooLarge};
pub use reply::{InvalidFrame, decode_reply};

/// Version of both layouts.
pub const VERSION: u16 = 1;

const REQUEST_MAGIC: [u8; 4] = *b"DOVE";
const REPLY_MAGIC: [u8; 4] = *b"DOVR";

/// Stands for "no index" and "no text".
const NONE: u32 = u32::MAX;

const HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 56;
const CELL_BYTES: usize = 16;
const OUTCOME_BYTES: usize = 12;
const EMISSION_BYTES: usize = 36;
const PAIR_BYTES: usize = 16;

const FLAG_REDELIVERY: u8 = 1;
const FLAG_MOVED: u8 = 2;
const FLAG_TRANSACTIONAL: u8 = 4;
const FLAG_HAS_TRANSACTION: u8 = 8;
const FLAG_HAS_RELATION: u8 = 16;
