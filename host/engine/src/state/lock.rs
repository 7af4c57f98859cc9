//! One writer per directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use super::Error;

pub(super) const FILE: &str = "state.lock";

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let unusable = |error| Error::directory(directory, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let process = io::read_to_string(&file).ok();
                let process = process.and_then(|text| text.trim().parse().ok());
                return Err(Error::InUse { lock: path, process });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        // For whoever is refused. What a full disk keeps from being written is not needed.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
