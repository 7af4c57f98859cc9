//! The programs of one PostgreSQL version, and a fresh cluster of it to copy.
//!
//! The server refuses to run as root, so root runs it as the user `postgres`, who may not enter root's home: programs
//! from the cache are hard-linked to a folder below the temporary directory first. `initdb` takes seconds and its
//! result never changes, so it runs once per version and machine; a test copies the result.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Server versions that the tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The oldest that is supported; from npm.
    V14,
    /// Debian's, with all its programs and extensions.
    V15,
    /// The newest; from npm.
    V18,
}

impl Version {
    pub const ALL: [Self; 3] = [Self::V14, Self::V15, Self::V18];

    /// The version that `DOVETAIL_TEST_SERVER` names (`postgres-18`), else 15.
    pub fn under_test() -> Self {
        let named = std::env::var("DOVETAIL_TEST_SERVER").ok();
        named.map_or(Self::V15, |name| name.parse().expect("DOVETAIL_TEST_SERVER is a server"))
    }

    pub const fn major(self) -> u16 {
        match self {
            Self::V14 => 14,
            Self::V15 => 15,
            Self::V18 => 18,
        }
    }
}

impl std::str::FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|version| text == format!("postgres-{}", version.major()))
            .with_context(|| format!("no server {text}: there are postgres-14, -15 and -18"))
    }
}

/// Password of the superuser `postgres` of every private server.
pub const PASSWORD: &str = "private-test-password";

const USER: &str = "postgres";

/// Programs and an initialised cluster, both readable by the user that the server runs as.
#[derive(Debug, Clone)]
pub struct Installation {
    binaries: PathBuf,
    template: PathBuf,
}

impl Installation {
    /// Finds the programs of `version`, and makes the cluster to copy where there is none yet.
    pub fn of(version: Version) -> Result<Self> {
        let shared = shared_folder()?;
        let lock =
            fs::File::create(shared.join("lock")).context("open the lock of the template")?;
        lock.lock().context("lock the template")?;
        let binaries = binaries(version, &shared)?;
        let template = shared.join(format!("template-{}", version.major()));
        let installation = Self { binaries, template };
        if !installation.template.exists() {
            installation.initialise()?;
        }
        Ok(installation)
    }

    pub fn template(&self) -> &Path {
        &self.template
    }

    /// A program of this version, run as a user that the server accepts.
    pub fn program(&self, name: &str) -> Command {
        as_server_user(&self.binaries.join(name))
    }

    fn initialise(&self) -> Result<()> {
        let unfinished = self.template.with_extension("new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).context("remove a cluster that was left half made")?;
        }
        fs::DirBuilder::new().mode(0o700).create(&unfinished)?;
        let password = unfinished.with_extension("password");
        fs::write(&password, PASSWORD)?;
        give_to_server_user(&unfinished)?;
        let output = self
            .program("initdb")
            .args(["--username=postgres", "--auth=scram-sha-256", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C.UTF-8"])
            .arg(format!("--pwfile={}", password.display()))
            .arg(format!("--pgdata={}", unfinished.display()))
            .output()
            .context("start initdb")?;
        fs::remove_file(&password)?;
        ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&unfinished, &self.template)?;
        Ok(())
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes `path` the property of the user that the server runs as.
pub(super) fn give_to_server_user(path: &Path) -> Result<()> {
    if is_root() {
        let status = Command::new("chown").arg("-R").arg(format!("{USER}:")).arg(path).status()?;
        ensure!(status.success(), "chown {} to {USER}", path.display());
    }
    Ok(())
}

fn as_server_user(program: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
        command.args(["--init-groups", "env", "HOME=/tmp", "LC_ALL=C"]).arg(program);
        command
    } else {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        command
    };
    command.current_dir("/");
    command
}

/// Holds the templates. Ours alone, so that nobody else can put programs there.
pub(crate) fn shared_folder() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("dovetail-servers-{user}"));
    match fs::DirBuilder::new().mode(0o755).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            ensure!(
                fs::symlink_metadata(&folder)?.uid() == user,
                "{} belongs to somebody else: remove it or set TMPDIR",
                folder.display()
            );
        }
        Err(error) => return Err(error).context(folder.display().to_string()),
    }
    Ok(folder)
}

fn binaries(version: Version, shared: &Path) -> Result<PathBuf> {
    if version == Version::V15 {
        let debian = PathBuf::from("/usr/lib/postgresql/15/bin");
        ensure!(debian.join("postgres").exists(), "no PostgreSQL 15: run tests/install debian");
        return Ok(debian);
    }
    let name = format!("postgres-{}", version.major());
    let cached = cache()?.join(&name);
    if !cached.join("bin/postgres").exists() {
        bail!("no PostgreSQL {0} in the cache: run tests/install {name}", version.major());
    }
    if !is_root() {
        return Ok(cached.join("bin"));
    }
    let linked = shared.join(&name);
    if fs::read(linked.join(".version")).ok() != Some(fs::read(cached.join(".version"))?) {
        if linked.exists() {
            fs::remove_dir_all(&linked)?;
        }
        let hard_link = Command::new("cp").arg("-al").args([&cached, &linked]).output()?;
        if !hard_link.status.success() {
            // Another file system.
            let status = Command::new("cp").arg("-a").args([&cached, &linked]).status()?;
            ensure!(status.success(), "copy {} to {}", cached.display(), linked.display());
        }
    }
    Ok(linked.join("bin"))
}

/// Where `tests/install` puts what does not come from Debian.
pub fn cache() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("DOVETAIL_CACHE") {
        return Ok(cache.into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    Ok(PathBuf::from(home).join(".cache/dovetail"))
}
