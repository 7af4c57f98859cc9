//! The two places that lines go to.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::held::{self, Held};
use crate::outlet::Error;

#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    File {
        path: PathBuf,
        file: File,
        /// Behind the last whole line; what a failed write leaves after it is cut off.
        length: u64,
        /// Something was written that is not yet on disk.
        dirty: bool,
        /// Load-bearing: behind `file`, and so dropped after it.
        _held: Held,
    },
}

impl Sink {
    pub(super) fn stdout() -> Self {
        Self::Stdout
    }

    pub(super) fn file(path: &Path) -> Result<Self, Error> {
        let name = path.display();
        let unusable = |error: io::Error| match error.kind() {
            ErrorKind::StorageFull => Error::transient(format!("open {name}: disk full"), error),
            _ => Error::definite_because(
                format!("cannot open {name} for writing"),
                "make its directory and let this user write there, or name another path",
                error,
            ),
        };
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).map_err(unusable)?;
        let is_ours = held::is_held(&file).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(error @ TryLockError::WouldBlock) if is_ours => {
                return Err(Error::transient(
                    format!("an earlier write of this process still holds {name}"),
                    error,
                ));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::definite(
                    format!("{name} is being written by another process"),
                    "stop that one, or name another path",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let held = Held::new(&file).map_err(unusable)?;
        let length = whole_lines(&mut file).map_err(unusable)?;
        file.set_len(length).and_then(|()| file.sync_all()).map_err(unusable)?;
        sync_directory(path).map_err(unusable)?;
        Ok(Self::File { path: path.to_owned(), file, length, dirty: false, _held: held })
    }

    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        match self {
            Self::Stdout => io::stdout().lock().write_all(lines).map_err(stdout_failed),
            Self::File { path, file, length, dirty, .. } => {
                *dirty = true;
                if let Err(error) = file.write_all(lines) {
                    // Half a line must not stay in front of the next one. If the cut fails too, opening cuts.
                    let _ = file.set_len(*length);
                    return Err(file_failed(path, "write", error));
                }
                *length += lines.len() as u64;
                Ok(())
            }
        }
    }

    /// # Errors
    /// After a failed fsync the system may have dropped the pages: what is on disk is unknown.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        match self {
            Self::Stdout => io::stdout().lock().flush().map_err(stdout_failed),
            Self::File { path, file, dirty, .. } => {
                if *dirty {
                    file.sync_data().map_err(|error| {
                        Error::unknown(format!("fsync of {}", path.display()), error)
                    })?;
                    *dirty = false;
                }
                Ok(())
            }
        }
    }
}

fn stdout_failed(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Error::definite_because(
            "the reader of standard output is gone",
            "start it again together with the engine",
            error,
        ),
        _ => Error::transient("write to standard output", error),
    }
}

fn file_failed(path: &Path, what: &str, error: io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::transient(format!("{what} {name}: disk full, waiting for space"), error)
        }
        _ => Error::transient(format!("{what} {name}"), error),
    }
}

/// Length of the file up to its last line break.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(file).take(end - start).read_to_end(&mut block)?;
        if let Some(at) = memchr::memrchr(b'\n', &block) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The name of a new file is durable only with its directory.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
