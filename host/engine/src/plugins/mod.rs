//! Plugins of a pipeline: loaded once, one chain for each lane.

mod chain;
mod inspect;
mod load;

pub use chain::{Chain, Halt};
pub use inspect::Report;
pub use load::{LoadError, Plugins};
