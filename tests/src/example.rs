//! The pipeline of an example, in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use dovetail_core::position::Lsn;
use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{Engine, program};
use crate::wait::until;

/// Long enough for a slow disk; an example is a matter of a minute or two.
pub const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Pipeline {
    directory: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Pipeline {
    /// `configuration` is the text of its file, whose variables are in `environment`.
    pub fn lay_out(
        name: &str,
        configuration: &str,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix(&format!("dovetail-{name}-")).tempdir()?;
        std::fs::write(directory.path().join("pipeline.yaml"), configuration)?;
        Ok(Self { directory, environment })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program()?);
        command.args(arguments).arg("--config").arg(self.file("pipeline.yaml"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    pub fn start(&self) -> Result<Engine> {
        Engine::start(self.command(&["run"])?, &self.file("engine.log"))
    }

    pub fn status(&self) -> Result<Value> {
        let output = self.command(&["status", "--format", "json"])?.output()?;
        serde_json::from_slice(&output.stdout).context("what `dovetail status` prints")
    }

    /// Waits until every table is scanned.
    pub async fn scanned(&self, engine: &mut Engine) -> Result<()> {
        let scanned = until("the scan to end", PATIENCE, async || {
            engine.must_run()?;
            let status = self.status()?;
            let tables = status["tables"].as_array().context("tables")?;
            Ok(tables.iter().all(|table| table["scan"] == "done").then_some(()))
        });
        scanned.await.with_context(|| engine.log())
    }

    /// Waits until the checkpoint is at a place of PostgreSQL's log.
    pub async fn caught_up(&self, engine: &mut Engine, end: Lsn) -> Result<()> {
        let reached = until(format!("the checkpoint to be at {end}"), PATIENCE, async || {
            engine.must_run()?;
            let checkpoint = self.status()?["checkpoint"].as_str().map(str::parse).transpose()?;
            Ok((checkpoint >= Some(end)).then_some(()))
        });
        reached.await.with_context(|| engine.log())
    }
}

/// The text of an example's `pipeline.yaml`.
pub fn configuration(example: &str) -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example);
    let path = folder.join("pipeline.yaml");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}
