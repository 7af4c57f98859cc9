//! Things that stand in an engine's way, put there by a test and taken away again.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::wait::{PATIENCE, until};

/// Holds the write lock of an SQLite replica: the outlet can be read, but refuses every write until this is dropped.
#[derive(Debug)]
pub struct Held {
    _connection: Connection,
}

/// Waits for the replica to exist, and takes its write lock between two of the engine's transactions.
pub async fn hold(replica: &Path) -> Result<Held> {
    until("the write lock of the replica", PATIENCE, async || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let Ok(connection) = Connection::open_with_flags(replica, flags) else { return Ok(None) };
        connection.busy_timeout(Duration::from_secs(5))?;
        let held = connection.execute_batch("BEGIN IMMEDIATE").ok();
        Ok(held.map(|()| Held { _connection: connection }))
    })
    .await
}

/// A number that a query of an SQLite replica gives; `None` while there is no such table.
pub fn number(replica: &Path, query: &str) -> Result<Option<i64>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(connection) = Connection::open_with_flags(replica, flags) else { return Ok(None) };
    connection.busy_timeout(Duration::from_secs(5))?;
    let Ok(mut statement) = connection.prepare(query) else { return Ok(None) };
    statement.query_row([], |row| row.get(0)).context("ask the replica")
}

/// A small disk of its own, in memory. Only root may mount one.
#[derive(Debug)]
pub struct Disk {
    directory: TempDir,
}

impl Disk {
    /// `None`, with a word of it, where the user may not mount.
    pub fn mount(kibibytes: u32) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT SHOWN: only root can mount a disk that is full or read-only");
            return Ok(None);
        }
        let disk = Self { directory: tempfile::tempdir()? };
        let size = format!("size={kibibytes}k,mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(disk.path()))?;
        Ok(Some(disk))
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Until not a byte more goes in.
    pub fn fill(&self) -> Result<()> {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        for size in [4096, 1] {
            let part = vec![0; size];
            loop {
                match filler.write_all(&part) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => bail!(error),
                }
            }
        }
        Ok(())
    }

    /// Takes back what [`fill`](Self::fill) put there.
    pub fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }

    /// Nobody may have a file of it open for writing.
    pub fn writable(&self, writable: bool) -> Result<()> {
        let options = if writable { "remount,rw" } else { "remount,ro" };
        run(Command::new("mount").args(["-o", options]).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(self.path())) {
            eprintln!("unmount a disk: {error:#}");
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
