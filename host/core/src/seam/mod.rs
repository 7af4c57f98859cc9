//! The joint of the scan and the stream.

mod examination;
mod fences;
mod machine;
mod protocol;
mod record;
mod scanning;

pub use fences::{Fences, Verdict};
pub use machine::Seam;
pub use protocol::{Action, Due, Input, Mode, Recorded, Refusal, Slot, Start, View};
pub use record::{Fenced, Pin, Record, Scan, Step};
