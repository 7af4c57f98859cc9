//! Why the spool is refused, or cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use crate::offload::Abandoned;
use crate::state;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the disk of the spool {} is full; make room and start again: nothing is lost", .path.display())]
    DiskFull { path: PathBuf, source: io::Error },
    #[error("the spool {} cannot be used; let this user create, read and write it", .path.display())]
    Access { path: PathBuf, source: io::Error },
    #[error(transparent)]
    InUse(#[from] state::Error),
    #[error(
        "the spool {} is damaged ({what}): what the server need not keep any more may be lost with it. See to the disk; \
         then remove the state directory (and the replication slot), empty the outlet and start anew",
        .path.display()
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the spool has reached its limit of {limit} bytes, and `at_limit: stop` is asked for; see why the outlets do not \
         keep up, or raise `spool.limit`"
    )]
    Full { limit: u64 },
    #[error("one change of {bytes} bytes is more than the spool can hold")]
    EntryTooLarge { bytes: usize },
    #[error("access to the spool")]
    Abandoned(#[from] Abandoned),
}

impl Error {
    /// Whether another attempt may do better without anybody's help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Abandoned(_))
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path, source }
            }
            _ => Self::Access { path, source },
        }
    }
}
