//! Plugins of a pipeline: loaded once, one chain for each lane.

mod chain;
mod load;

pub use chain::{Chain, Halt};
pub use load::{LoadError, Plugins};
