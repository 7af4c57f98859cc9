//! A pipeline's folder: its configuration, its state and the files of its outlets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Engine, finish, program};
use crate::mysql::Server as MySqlServer;
use crate::postgres::{PASSWORD, Server};

/// What a command left behind.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Both streams, for messages and searches.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// One pipeline of one test. The configuration is written anew for every command, so that it may change between two.
#[derive(Debug)]
pub struct Setup {
    directory: TempDir,
    name: String,
    /// A YAML document that happens to be JSON.
    configuration: Value,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// Captures `tables` of `server` (database `postgres`) as its superuser and delivers to nothing yet.
    pub fn new(name: &str, server: &Server, tables: &[&str]) -> Result<Self> {
        let source = json!({ "postgres": {
            "url": format!("postgresql://postgres@127.0.0.1:{}/postgres", server.port()),
            "password": "${SOURCE_PASSWORD}",
            "tables": tables,
            "publication": name,
            "slot": name,
            "create_publication": true,
        }});
        Self::of(name, &source)
    }

    /// Captures `tables`, named with their databases, of a MySQL or MariaDB server as its superuser.
    pub fn mysql(name: &str, server: &MySqlServer, tables: &[&str]) -> Result<Self> {
        let kind = if server.version().is_mariadb() { "mariadb" } else { "mysql" };
        let source = json!({ kind: {
            "url": format!("mysql://root@127.0.0.1:{}", server.port()),
            "password": "${SOURCE_PASSWORD}",
            "tables": tables,
        }});
        Self::of(name, &source)
    }

    fn of(name: &str, source: &Value) -> Result<Self> {
        let configuration = json!({
            "name": name,
            "source": source,
            "snapshot": { "mode": "initial", "workers": 2, "chunk_rows": 1000 },
            "lanes": 2,
            "outlets": {},
            "state": "state",
        });
        let mut directory = tempfile::Builder::new().prefix("dovetail-pipeline-").tempdir()?;
        // To look at after a failure.
        directory.disable_cleanup(std::env::var_os("DOVETAIL_KEEP").is_some());
        let environment = vec![("SOURCE_PASSWORD".to_owned(), PASSWORD.to_owned())];
        Ok(Self { directory, name: name.to_owned(), configuration, environment })
    }

    /// Sets what the JSON pointer names, such as `/source/postgres/pin_timeout`, making the maps on the way.
    pub fn set(mut self, pointer: &str, value: Value) -> Self {
        self.change(pointer, value);
        self
    }

    /// [`Setup::set`] between two commands.
    pub fn change(&mut self, pointer: &str, value: Value) {
        let mut place = &mut self.configuration;
        for step in pointer.split('/').skip(1) {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[step];
        }
        *place = value;
    }

    pub fn without(mut self, pointer: &str) -> Self {
        if let Some((parent, last)) = pointer.rsplit_once('/')
            && let Some(Value::Object(map)) = self.configuration.pointer_mut(parent)
        {
            map.remove(last);
        }
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Captures as another user than the superuser; its password is the same.
    pub fn as_user(self, user: &str, server: &Server) -> Self {
        let url = format!("postgresql://{user}@127.0.0.1:{}/postgres", server.port());
        self.set("/source/postgres/url", json!(url))
    }

    /// Delivers JSON lines to [`Setup::lines_file`].
    pub fn to_file(self) -> Self {
        self.set("/outlets/lines", json!({ "file": { "path": "lines.jsonl" } }))
    }

    /// Delivers to the SQLite replica at [`Setup::replica_file`].
    pub fn to_sqlite(self) -> Self {
        self.set("/outlets/replica", json!({ "sqlite": { "path": "replica.db" } }))
    }

    /// Delivers to the database `replica` of `server`, which must exist.
    pub fn to_postgres(self, server: &Server) -> Self {
        let url = format!("postgresql://postgres@127.0.0.1:{}/replica", server.port());
        self.set(
            "/outlets/copy",
            json!({ "postgres": { "url": url, "password": "${SOURCE_PASSWORD}" } }),
        )
    }

    /// Sends every change through a plugin.
    pub fn plugin(mut self, name: &str, file: &Path, config: Value) -> Self {
        let rows = json!([{ "tables": ["*"], "columns": "all", "operations": "all" }]);
        let grants = json!({ "rows": rows });
        let plugin = json!({ "name": name, "file": file, "config": config, "grants": grants });
        match self.configuration.get_mut("plugins") {
            Some(Value::Array(plugins)) => plugins.push(plugin),
            _ => self.change("/plugins", json!([plugin])),
        }
        self
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn lines_file(&self) -> PathBuf {
        self.directory().join("lines.jsonl")
    }

    pub fn replica_file(&self) -> PathBuf {
        self.directory().join("replica.db")
    }

    pub fn state(&self) -> PathBuf {
        self.directory().join("state")
    }

    /// Standard error of all lives, one after the other.
    pub fn log_file(&self) -> PathBuf {
        self.directory().join("engine.log")
    }

    /// Name of the pipeline, of its slot and of its publication.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the configuration; its path.
    pub fn write(&self) -> Result<PathBuf> {
        let path = self.directory().join("pipeline.yaml");
        let mut configuration = self.configuration.clone();
        let outlets: Vec<_> = configuration["outlets"]
            .as_object()
            .map(|outlets| outlets.keys().cloned().collect())
            .unwrap_or_default();
        if configuration.get("deliver").is_none() {
            configuration["deliver"] = json!(outlets);
        }
        // At once: an engine that was just started may be reading it while `status` is asked.
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(&configuration)?)?;
        fs::rename(&new, &path)?;
        Ok(path)
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(program()?);
        command.arg(name).arg("--config").arg(self.write()?);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.directory()).stdin(Stdio::null());
        Ok(command)
    }

    /// Starts `dovetail run`.
    pub fn run(&self) -> Result<Engine> {
        self.run_with(&[])
    }

    /// [`Setup::run`] with more arguments, such as `--until-caught-up`.
    pub fn run_with(&self, arguments: &[&str]) -> Result<Engine> {
        let output =
            fs::File::options().create(true).append(true).open(self.directory().join("stdout"))?;
        let mut command = self.command("run")?;
        command.args(["--log-format", "json"]).args(arguments).stdout(output);
        Engine::start(command, &self.log_file())
    }

    /// Runs a command to its end: `check`, `status`, or a `run` that is expected to end by itself.
    pub fn finished(&self, name: &str, arguments: &[&str]) -> Result<Finished> {
        let file = |name: &str| fs::File::create(self.directory().join(name));
        let process = self
            .command(name)?
            .args(arguments)
            .stdout(file("command.out")?)
            .stderr(file("command.err")?)
            .spawn()
            .context("start dovetail")?;
        let status = finish(process, &format!("dovetail {name}"), Duration::from_secs(120))?;
        let read = |name: &str| fs::read_to_string(self.directory().join(name));
        let (stdout, stderr) = (read("command.out")?, read("command.err")?);
        let Some(code) = status.code() else { bail!("dovetail {name} {status}: {stderr}") };
        Ok(Finished { code, stdout, stderr })
    }

    /// What `dovetail status --format json` says.
    pub fn status(&self) -> Result<Value> {
        let finished = self.finished("status", &["--format", "json"])?;
        serde_json::from_str(&finished.stdout).with_context(|| finished.text())
    }
}
