//! The files that this process holds.
//!
//! A file's lock says that somebody writes it, and not who. An earlier outlet of this very process may: a write that
//! hangs outlives the call that was dropped, and holds the file until the disk lets it go. That passes; another process
//! has to be stopped by somebody.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// Device and inode: one file has many paths.
type Identity = (u64, u64);

/// A list and not a set: the next holder comes in between the unlocking of the former and the end of its `Held`.
static HELD: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// Stands for a file of this process's. Dropped behind the file, so that what is locked by us is always listed.
#[derive(Debug)]
pub(super) struct Held(Identity);

impl Held {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let identity = identity(file)?;
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(identity);
        Ok(Self(identity))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = held.iter().position(|identity| *identity == self.0) {
            held.swap_remove(index);
        }
    }
}

/// Ask before the lock is tried: afterwards its holder may be gone.
pub(super) fn is_held(file: &File) -> io::Result<bool> {
    let identity = identity(file)?;
    Ok(HELD.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity))
}

fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
