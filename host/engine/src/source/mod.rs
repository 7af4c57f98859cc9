//! Where changes come from: one module per kind of database, and the one way in which the driver asks any of them.

pub mod backoff;
mod batcher;
mod dispatch;
pub mod failure;
pub mod finding;
mod line;
pub mod mysql;
mod piece;
pub mod postgres;
mod socket;

pub use self::dispatch::{Pin, Plan, Scan, Source, Stream, View};
pub use self::piece::{Item, Options, Piece, Wanted};
