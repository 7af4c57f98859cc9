//! From the configuration to chains: each plugin is read, validated and compiled once, whatever the number of lanes.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dovetail_sandbox::{
    CallError, Compiler, ComponentLimits, EngineOptions, Instance, Limits, Plugin, Sandbox,
};
use tracing::info;

use super::chain::{Chain, Stage};
use crate::config::{self, OnFailure};

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{} is refused", .file.display())]
    File {
        file: PathBuf,
        #[source]
        source: dovetail_sandbox::Refusal,
    },
    #[error("start the sandbox")]
    Sandbox(#[from] dovetail_sandbox::SetupError),
    #[error("plugin {name} ({}) is refused", .file.display())]
    Refused {
        name: String,
        file: PathBuf,
        #[source]
        source: dovetail_sandbox::Refusal,
    },
}

/// The plugins of a pipeline, compiled.
pub struct Plugins {
    loaded: Vec<Loaded>,
}

/// One plugin, ready to be instantiated in every lane.
#[derive(Clone)]
pub(super) struct Loaded {
    plugin: Plugin,
    config: Arc<config::Plugin>,
}

impl Plugins {
    /// Compiled code is kept in `cache`, which only this engine writes.
    ///
    /// # Errors
    /// When a file cannot be read or is not a plugin; the error says what its author can do.
    pub fn load(
        plugins: &[config::Plugin],
        compiler: &Compiler,
        cache: &Path,
        targets: u16,
    ) -> Result<Self, LoadError> {
        if plugins.is_empty() {
            return Ok(Self { loaded: Vec::new() });
        }
        let options = EngineOptions {
            cache_dir: Some(cache.to_owned()),
            component: ComponentLimits::usual(),
            compiler: compiler.clone(),
        };
        let sandbox = Sandbox::new(options)?;
        let loaded = plugins.iter().map(|plugin| Loaded::load(&sandbox, plugin, targets));
        Ok(Self { loaded: loaded.collect::<Result<_, _>>()? })
    }

    /// One chain for each lane. Instances are made at the first call, on the lane's own thread.
    pub fn chains(&self, lanes: NonZeroU16) -> Vec<Chain> {
        let chain = |lane| {
            let stage = |loaded: &Loaded| Stage::new(loaded.clone(), lane, lanes.get());
            Chain::new(self.loaded.iter().map(stage).collect())
        };
        (0..lanes.get()).map(chain).collect()
    }
}

impl Loaded {
    fn load(sandbox: &Sandbox, config: &config::Plugin, targets: u16) -> Result<Self, LoadError> {
        let (name, file) = (&config.name, &config.file);
        let limits = Limits::around(
            usize::try_from(config.memory_bytes_max).unwrap_or(usize::MAX),
            config.batch_timeout,
            targets,
        );
        let plugin =
            sandbox.load_file(file, limits, &config.grants, &config.config).map_err(|source| {
                LoadError::Refused { name: name.clone(), file: file.clone(), source }
            })?;
        info!(plugin = name, digest = plugin.digest(), "plugin loaded");
        Ok(Self { plugin, config: Arc::new(config.clone()) })
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn on_failure(&self) -> OnFailure {
        self.config.on_failure
    }

    pub(super) fn instantiate(&self, lane: u16, lanes: u16) -> Result<Instance, CallError> {
        self.plugin.instantiate(lane.into(), lanes.into())
    }
}
