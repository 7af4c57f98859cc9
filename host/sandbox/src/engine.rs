//! The wasm engine, narrowed, and the clock that interrupts guests.
//!
//! - Components only, compiled by Cranelift. Memory64, threads, shared memory, garbage collection, several memories,
//!   relaxed SIMD and component-model async are off: nothing here needs them, and each has been, or enlarges, a way out
//!   of the sandbox. Without support for concurrency a call also costs a third.
//! - Time is limited by epochs, not fuel: fuel costs two to three times on a hot loop, epoch checks nothing that could be
//!   measured. A thread of its own advances the epoch, so that a guest is interrupted also when every lane is busy in
//!   one. Epochs do not interrupt a host function or one large `memory.copy`; no host function here blocks, and the
//!   memory limit bounds the copy.
//! - Instances are allocated on demand. The pooling allocator was measured against it (`examples/allocation`, one process, by
//!   turns): to instantiate and to let go takes 12 us instead of 23, the first call 6 us instead of 8. An instance lives for
//!   thousands of batches, so a pool would save 13 us a lane and a trap; for that it reserves address space for the worst
//!   case of every plugin before the first is known (265 GB for 64 of 256 MiB; on demand it is 4 GB for each that lives), and
//!   what is larger or more than it was made for is refused. Who instantiates per batch should take the pool.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::{Config, Engine, OptLevel, Strategy};

use crate::cache::Cache;
use crate::compile::Compiler;
use crate::error::SetupError;
use crate::limits::ComponentLimits;

/// Granularity of deadlines. Half of it would wake the machine twice as often for nothing; ten times of it would let a
/// guest that loops hold its lane noticeably longer than its limit.
const TICK: Duration = Duration::from_millis(10);

/// What the engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Private directory of compiled components; made if missing. `None` compiles at every load.
    pub cache_dir: Option<PathBuf>,
    pub component: ComponentLimits,
    pub compiler: Compiler,
}

/// Loads and runs plugins. One per process is enough; plugins keep what they need of it.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) engine: Engine,
    pub(crate) cache: Option<Cache>,
    pub(crate) limits: ComponentLimits,
    pub(crate) compiler: Compiler,
    pub(crate) ticker: std::sync::Arc<Ticker>,
}

impl Sandbox {
    /// # Errors
    /// When the cache's directory is not private, or the machine gives no thread.
    pub fn new(options: EngineOptions) -> Result<Self, SetupError> {
        let config = configuration();
        let engine =
            Engine::new(&config).map_err(|error| SetupError::Engine(format!("{error:#}")))?;
        let cache = match options.cache_dir {
            Some(path) => {
                let opened = Cache::open(&path, &engine);
                Some(opened.map_err(|source| SetupError::Cache { path, source })?)
            }
            None => None,
        };
        let ticker = Ticker::start(engine.clone()).map_err(SetupError::Ticker)?;
        Ok(Self {
            engine,
            cache,
            limits: options.component,
            compiler: options.compiler,
            ticker: std::sync::Arc::new(ticker),
        })
    }
}

/// Whoever compiles and whoever runs have to agree on it.
pub(crate) fn configuration() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_component_model(true)
        .concurrency_support(false)
        .shared_memory(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .max_wasm_stack(512 << 10)
        // A guest's backtrace is in its own trap's text; addresses beyond that are of no use to an operator.
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(8));
    config
}

/// The thread that advances the epoch. It ends when the last sandbox, plugin or instance is gone.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: Engine) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("plugin-epochs".into()).spawn(move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                engine.increment_epoch();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// How many ticks a guest may see: never less than the time, up to two ticks more.
    pub(crate) fn ticks(timeout: Duration) -> u64 {
        let ticks = timeout.as_millis().div_ceil(TICK.as_millis());
        u64::try_from(ticks).unwrap_or(u64::MAX / 2).saturating_add(1)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
