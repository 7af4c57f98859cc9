//! What SQLite's errors mean for the chain, by their codes.

use rusqlite::ErrorCode;

use crate::outlet::Error;

/// What was being done, for the error's text.
pub(super) struct Doing<'a>(&'a str);

impl<'a> Doing<'a> {
    pub(super) fn new(what: &'a str) -> Self {
        Self(what)
    }

    pub(super) fn failed(&self, error: rusqlite::Error) -> Error {
        let what = self.0;
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::transient(format!("{what}: another process has the replica locked"), error)
            }
            Some(ErrorCode::DiskFull) => {
                Error::transient(format!("{what}: disk full, waiting for space"), error)
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
                Error::transient(what, error)
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::definite_because(
                format!("{what}: the file is not an intact SQLite database"),
                "name another path, or delete the file and scan again",
                error,
            ),
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                Error::definite_because(
                    format!("{what}: the file cannot be written"),
                    "make its directory, and let this user write the file and the directory",
                    error,
                )
            }
            _ => Error::definite_because(
                format!("{what}: refused by SQLite"),
                "change the table at the replica so that it takes the source's rows",
                error,
            ),
        }
    }

    /// Of a COMMIT: an I/O error leaves open whether it happened.
    pub(super) fn commit_failed(&self, error: rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure) => Error::unknown(self.0, error),
            _ => self.failed(error),
        }
    }
}

pub(super) fn corrupt(
    what: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::definite_because(
        format!("{what} cannot be read"),
        "restore the replica, or delete it and scan again",
        error,
    )
}
