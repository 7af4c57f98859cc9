//! The programs of one MySQL or MariaDB version, and a fresh data directory of it to copy.
//!
//! Initialising takes seconds and its result never changes, so it is done once per version and machine; a test copies
//! the result. The directory to copy knows one user that may come by network, `root` with [`PASSWORD`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::postgres::{PASSWORD, cache, is_root, shared_folder};

/// Server versions that the tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Debian's.
    MariaDb10_11,
    /// From a newer suite of Debian, in a folder of its own.
    MariaDb11_8,
    /// The same.
    MySql9_7,
}

impl Version {
    pub const ALL: [Self; 3] = [Self::MariaDb10_11, Self::MariaDb11_8, Self::MySql9_7];

    /// The version that `DOVETAIL_TEST_SERVER` names (`mysql-9.7`), else MariaDB 10.11.
    pub fn under_test() -> Self {
        let named = std::env::var("DOVETAIL_TEST_SERVER").ok();
        named.map_or(Self::MariaDb10_11, |name| name.parse().expect("DOVETAIL_TEST_SERVER is one"))
    }

    /// Those that are installed; MariaDB 10.11 is required. The others come from suites that move, so a machine may
    /// lack them, which `tests/install` has said.
    pub fn installed() -> Result<Vec<Self>> {
        let folder = cache()?;
        let there = |version: &Self| {
            *version == Self::MariaDb10_11 || folder.join(version.name()).join(".version").exists()
        };
        Ok(Self::ALL.into_iter().filter(there).collect())
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::MariaDb10_11 => "mariadb-10.11",
            Self::MariaDb11_8 => "mariadb-11.8",
            Self::MySql9_7 => "mysql-9.7",
        }
    }

    pub const fn is_mariadb(self) -> bool {
        matches!(self, Self::MariaDb10_11 | Self::MariaDb11_8)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|version| text == version.name()).with_context(|| {
            format!("no server {text}: there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Programs, and an initialised data directory.
#[derive(Debug, Clone)]
pub struct Installation {
    version: Version,
    /// The folder whose `bin/` has the programs, where they are not Debian's own.
    unpacked: Option<PathBuf>,
    template: PathBuf,
}

impl Installation {
    /// Finds the programs of `version`, and makes the data directory to copy where there is none yet.
    pub fn of(version: Version) -> Result<Self> {
        let shared = shared_folder()?;
        let lock = fs::File::create(shared.join(format!("lock-{version}")))?;
        lock.lock().context("lock the template")?;
        let (unpacked, exact) = find(version)?;
        // Another patch level may lay out its data in another way.
        let template = shared.join(format!("template-{version}-{exact}"));
        let installation = Self { version, unpacked, template };
        if !installation.template.exists() {
            installation.initialise()?;
        }
        Ok(installation)
    }

    pub fn template(&self) -> &Path {
        &self.template
    }

    /// The server, with what it needs to find its own files.
    pub fn server(&self) -> Command {
        let share = self.share();
        let mut command = if self.version.is_mariadb() {
            let mut command = match &self.unpacked {
                Some(folder) => Command::new(folder.join("bin/mariadbd")),
                None => Command::new("/usr/sbin/mariadbd"),
            };
            command.arg("--no-defaults");
            command
        } else {
            let mut command = Command::new(self.program("mysqld"));
            command.args(["--no-defaults", "--mysqlx=OFF"]);
            command
        };
        command.arg(format!("--lc-messages-dir={}", share.display()));
        command.arg(format!("--character-sets-dir={}", share.join("charsets").display()));
        if let Some(folder) = &self.unpacked {
            command.arg(format!("--basedir={}", folder.join("usr").display()));
            let plugins = folder.join("usr/lib/mysql/plugin");
            if plugins.exists() {
                command.arg(format!("--plugin-dir={}", plugins.display()));
            }
        }
        if is_root() {
            command.arg("--user=root");
        }
        command.current_dir("/");
        command
    }

    /// A client program: `mysqlbinlog`, `mariadb-binlog`.
    pub fn program(&self, name: &str) -> PathBuf {
        match &self.unpacked {
            Some(folder) => folder.join("bin").join(name),
            None => PathBuf::from("/usr/bin").join(name),
        }
    }

    /// Messages, character sets, and what MariaDB's system tables are made from.
    fn share(&self) -> PathBuf {
        let folder = self.unpacked.as_deref().map_or(PathBuf::from("/usr"), |it| it.join("usr"));
        folder.join(if self.version == Version::MariaDb11_8 {
            "share/mariadb"
        } else {
            "share/mysql"
        })
    }

    fn initialise(&self) -> Result<()> {
        let unfinished = self.template.with_extension("new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).context("remove what was left half made")?;
        }
        if self.version.is_mariadb() {
            self.initialise_mariadb(&unfinished)?;
        } else {
            self.initialise_mysql(&unfinished)?;
        }
        fs::rename(&unfinished, &self.template)?;
        Ok(())
    }

    fn initialise_mysql(&self, data: &Path) -> Result<()> {
        let users = data.with_extension("sql");
        let grant = format!(
            "CREATE USER root@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
        );
        fs::write(&users, grant)?;
        let output = self
            .server()
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--init-file={}", users.display()))
            .args([
                "--initialize-insecure",
                "--innodb-redo-log-capacity=8M",
                "--secure-file-priv=NULL",
            ])
            .output()
            .context("start mysqld")?;
        fs::remove_file(&users)?;
        ensure!(output.status.success(), "mysqld: {}", String::from_utf8_lossy(&output.stderr));
        // Every server makes an identity of its own.
        fs::remove_file(data.join("auto.cnf"))?;
        Ok(())
    }

    /// What `mariadb-install-db` does, which does not find programs in an unpacked folder.
    fn initialise_mariadb(&self, data: &Path) -> Result<()> {
        fs::create_dir(data)?;
        let prefix = if self.version == Version::MariaDb11_8 { "mariadb" } else { "mysql" };
        let mut script =
            "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
        for name in ["system_tables", "performance_tables", "system_tables_data", "sys_schema"] {
            let file = self.share().join(format!("{prefix}_{name}.sql"));
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            // Names of this machine; without them the server resolves none.
            let lines = text.lines().filter(|line| !line.contains("@current_hostname"));
            script.extend(lines.flat_map(|line| [line, "\n"]));
        }
        script += &format!(
            "DELETE FROM mysql.global_priv WHERE Host <> 'localhost';\n\
             INSERT INTO mysql.global_priv SELECT '%', 'root', JSON_SET(Priv, '$.plugin', 'mysql_native_password', \
             '$.authentication_string', PASSWORD('{PASSWORD}')) FROM mysql.global_priv \
             WHERE Host = 'localhost' AND User = 'root';\n"
        );
        let mut bootstrap = self
            .server()
            .arg(format!("--datadir={}", data.display()))
            .args(["--bootstrap", "--innodb-log-file-size=16M"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start mariadbd")?;
        let mut input = bootstrap.stdin.take().context("standard input")?;
        // What it says fits into a pipe; where it ends early, its own words tell more than the broken pipe.
        let written = input.write_all(script.as_bytes());
        drop(input);
        let output = bootstrap.wait_with_output()?;
        ensure!(
            output.status.success() && written.is_ok(),
            "mariadbd --bootstrap: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// Where the programs are, and their exact version.
fn find(version: Version) -> Result<(Option<PathBuf>, String)> {
    if version == Version::MariaDb10_11 {
        let output = Command::new("/usr/sbin/mariadbd").arg("--version").output();
        let output = output.context("no MariaDB 10.11: run tests/install mariadb-10.11")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let exact = text.split_whitespace().skip_while(|word| *word != "Ver").nth(1);
        let exact = exact.with_context(|| format!("what version is {text}"))?;
        ensure!(exact.starts_with("10.11."), "this machine's MariaDB is {exact}, not 10.11");
        return Ok((None, exact.to_owned()));
    }
    let folder = cache()?.join(version.name());
    let Ok(exact) = fs::read_to_string(folder.join(".version")) else {
        bail!("no {version} in the cache: run tests/install {version}");
    };
    Ok((Some(folder), exact.replace([':', '/'], "-")))
}
