//! Why the state is refused.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::offload::Abandoned;
use crate::origin::Origin;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the state in {} is in use by another engine{}; stop that one, or give this pipeline a state directory of its \
         own",
        .lock.display(), .process.map_or_else(String::new, |id| format!(" (process {id})"))
    )]
    InUse { lock: PathBuf, process: Option<u32> },
    #[error(
        "the state directory {} cannot be used; let this user create, read and write it, or name another one",
        .path.display()
    )]
    Directory { path: PathBuf, source: io::Error },
    #[error("the state {} cannot be written; let this user write the file and its directory", .path.display())]
    ReadOnly { path: PathBuf, source: rusqlite::Error },
    #[error("the disk of the state {} is full; make room and start again: nothing is lost", .path.display())]
    DiskFull { path: PathBuf, source: rusqlite::Error },
    #[error(
        "the state {} is damaged ({what}); restore it, or remove the directory and the replication slot and copy the \
         tables again",
        .path.display()
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the state {} has version {found}, and this engine knows up to {known}; run the newer engine that wrote it",
        .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is not a state of dovetail; name another directory", .path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the state {} belongs to pipeline {} of {}, and this is pipeline {} of {}; name another directory, or point \
         the pipeline at its own source",
        .path.display(), .saved.pipeline, .saved.source, .now.pipeline, .now.source
    )]
    OtherOrigin { path: PathBuf, saved: Box<Origin>, now: Box<Origin> },
    #[error(
        "a checkpoint that no outlet proved was to be saved: this is a defect of dovetail, please report it"
    )]
    Unproven,
    #[error(
        "outlet {name} ({kind}) is not one of those that the tables were copied to, and would get only what follows; \
         give it a pipeline of its own, or remove the state directory and the replication slot and start anew"
    )]
    NewOutlet { name: String, kind: String },
    #[error(
        "the state {} was changed by another engine while this one started; another attempt reads it anew",
        .path.display()
    )]
    Changed { path: PathBuf },
    #[error("the state {} is locked by another program that reads or copies it", .path.display())]
    Busy { path: PathBuf, source: rusqlite::Error },
    #[error(
        "gap {id} is not open in the state {}; `dovetail gaps` lists those that are. One that was accepted needs no more than \
         `dovetail run`",
        .path.display()
    )]
    NotOpen { id: i64, path: PathBuf },
    #[error("the state {} belongs to pipeline {owner}; give each pipeline a state directory of its own", .path.display())]
    OtherPipeline { path: PathBuf, owner: String },
    #[error("access to the state")]
    Abandoned(#[from] Abandoned),
    #[error("the state {} cannot be accessed; see to the disk, then start again", .path.display())]
    Access { path: PathBuf, source: rusqlite::Error },
}

impl Error {
    /// Whether another attempt may do better without anybody's help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Changed { .. } | Self::Abandoned(_))
    }

    pub(super) fn directory(path: &Path, source: io::Error) -> Self {
        Self::Directory { path: path.to_owned(), source }
    }

    pub(super) fn database(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, what: source.to_string() }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::ReadOnly { path, source }
            }
            Some(ErrorCode::DiskFull) => Self::DiskFull { path, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { path, source }
            }
            _ => Self::Access { path, source },
        }
    }
}
