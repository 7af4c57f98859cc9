//! Compiled components, kept.
//!
//! Compiling an interpreter's component takes a minute, loading what was compiled a tenth of a second. What is loaded
//! runs as the host's own code, so it must be what this engine wrote: entries lie in a directory that only this user
//! may enter, never beside the plugins, and each begins with the digest of its content. An entry that does not agree
//! with its digest (a full disk, a crash) is compiled anew. Who can write a consistent entry into that directory is this
//! user and could as well replace the program.
//!
//! An entry's name is the digest of the component, and a hash of wasmtime's version and of every setting that reaches
//! the compiler. Other versions' entries are simply never asked for.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    settings: u64,
}

pub(crate) type ComponentDigest = [u8; 32];

pub(crate) fn digest(bytes: &[u8]) -> ComponentDigest {
    Sha256::digest(bytes).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Cache {
    pub(crate) fn open(path: &Path, engine: &Engine) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        // Fails where the directory is another user's.
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { directory: path.to_owned(), settings: hasher.finish() })
    }

    fn entry(&self, component: &ComponentDigest) -> PathBuf {
        self.directory.join(format!("{}-{:016x}", hex(component), self.settings))
    }

    /// What was compiled earlier; `None` also for an entry that cannot be trusted.
    pub(crate) fn load(&self, engine: &Engine, component: &ComponentDigest) -> Option<Component> {
        let path = self.entry(component);
        let entry = fs::read(&path).ok()?;
        let content = checked_content(&entry);
        let loaded = content.and_then(|content| deserialize(engine, content).ok());
        if loaded.is_none() {
            tracing::warn!(entry = %path.display(), "compiled plugin is damaged, compiling it again");
        }
        loaded
    }

    /// Keeps what was compiled. Failing to is no failure of the load: the next one compiles again.
    pub(crate) fn store(&self, content: &[u8], digest: &ComponentDigest) {
        if let Err(error) = self.write(content, digest) {
            tracing::warn!(error = %error, "compiled plugin could not be kept");
        }
    }

    fn write(&self, content: &[u8], component_digest: &ComponentDigest) -> io::Result<()> {
        let path = self.entry(component_digest);
        // Two processes may compile the same component; each renames a whole file.
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        let mut file = File::create(&partial)?;
        file.write_all(&digest(content))?;
        file.write_all(content)?;
        drop(file);
        fs::rename(&partial, &path)
    }
}

/// The content behind its digest, if they agree.
pub(crate) fn checked_content(entry: &[u8]) -> Option<&[u8]> {
    let (kept, content) = entry.split_first_chunk::<32>()?;
    (digest(content) == *kept).then_some(content)
}

/// Takes only what this program compiled: the content of an entry, or what [`crate::compile`] gave.
#[expect(unsafe_code, reason = "wasmtime cannot know that the bytes are its own")]
pub(crate) fn deserialize(engine: &Engine, content: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes come from this version of wasmtime, in this process or in a child that is the same program; or
    // they agree with the digest that `Cache::write` put before them, in a directory that only this user can write to.
    unsafe { Component::deserialize(engine, content) }
}
