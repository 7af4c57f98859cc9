//! What the host keeps for one instance: meters, the log, the end of its output, its clock and its randomness.

use std::time::SystemTime;

use wasmtime::{ResourceLimiter, Result};

use crate::bindings::dovetail::plugin::logging;
use crate::limits::Limits;

/// How much of what a guest prints is kept. A panic's message and location fit.
const OUTPUT_BYTES: usize = 4 << 10;
/// A line costs its bookkeeping also when it is empty.
const LINE_OVERHEAD_BYTES: usize = 32;

/// The store's data: owned by one instance, dropped with it.
pub(crate) struct Host {
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    pub(crate) log: Log,
    pub(crate) output: Vec<u8>,
    pub(crate) clock_micros: i64,
    pub(crate) random: Random,
    given: Given,
    calls: u32,
    handles: u32,
}

/// What of the world a guest was granted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given {
    pub(crate) clock: bool,
    pub(crate) randomness: bool,
}

/// A guest used more of the host than it may.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("called the host more than {0} times in one call")]
    Calls(u32),
    #[error("held more than {0} handles")]
    Handles(u32),
}

impl Host {
    pub(crate) fn new(limits: Limits, given: Given) -> Self {
        Self {
            limits,
            meter: Meter::default(),
            log: Log::default(),
            output: Vec::new(),
            clock_micros: 0,
            random: Random(0),
            given,
            calls: 0,
            handles: 0,
        }
    }

    /// Microseconds since the epoch, as far as this guest is concerned.
    pub(crate) fn now_micros(&self) -> u64 {
        if self.given.clock {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
        } else {
            self.clock_micros.max(0).unsigned_abs()
        }
    }

    pub(crate) fn random_word(&mut self) -> Result<u64> {
        if self.given.randomness { Ok(getrandom::u64()?) } else { Ok(self.random.next()) }
    }

    /// Begins the account of one call of the guest.
    pub(crate) fn begin_call(&mut self) {
        self.calls = 0;
    }

    /// Stands at the head of every function that a guest may call.
    pub(crate) fn count_call(&mut self) -> Result<(), TooMuch> {
        self.calls = self.calls.saturating_add(1);
        let limit = self.limits.host_calls;
        if self.calls > limit { Err(TooMuch::Calls(limit)) } else { Ok(()) }
    }

    pub(crate) fn count_handle(&mut self) -> Result<(), TooMuch> {
        self.handles = self.handles.saturating_add(1);
        let limit = self.limits.handles;
        if self.handles > limit { Err(TooMuch::Handles(limit)) } else { Ok(()) }
    }

    pub(crate) fn drop_handle(&mut self) {
        self.handles = self.handles.saturating_sub(1);
    }

    /// Keeps the end of what the guest prints.
    pub(crate) fn print(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(OUTPUT_BYTES);
        let tail = bytes.get(bytes.len() - kept..).unwrap_or_default();
        self.output.extend_from_slice(tail);
        let surplus = self.output.len().saturating_sub(OUTPUT_BYTES);
        self.output.drain(..surplus);
    }
}

/// Counts what the store's memories and tables hold. Nothing is ever given back: linear memory does not shrink.
#[derive(Default)]
pub(crate) struct Meter {
    pub(crate) memory_bytes: usize,
    table_elements: usize,
    /// A guest whose allocation failed gives up by `unreachable`; this tells why.
    pub(crate) refused: bool,
}

fn grow(used: &mut usize, current: usize, desired: usize, limit: usize) -> bool {
    let grown = used.saturating_add(desired.saturating_sub(current));
    let fits = grown <= limit;
    if fits {
        *used = grown;
    }
    fits
}

impl ResourceLimiter for Host {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let fits = grow(&mut self.meter.memory_bytes, current, desired, self.limits.memory_bytes);
        self.meter.refused |= !fits;
        Ok(fits)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let fits =
            grow(&mut self.meter.table_elements, current, desired, self.limits.table_elements);
        self.meter.refused |= !fits;
        Ok(fits)
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.instances
    }

    fn memories(&self) -> usize {
        self.limits.instances
    }
}

/// How urgent a plugin says a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What a plugin logged, bounded. A plugin may quote row values; where lines go is the operator's decision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    pub lines: Vec<(Level, String)>,
    /// Lines that were cut off or left out at the limit.
    pub dropped: u64,
    pub(crate) bytes: usize,
}

/// What is kept at all: lines below it would be dropped.
const LEVEL_MIN: Level = Level::Debug;

impl logging::Host for Host {
    fn log(&mut self, level: logging::Level, mut message: String) -> Result<()> {
        self.count_call()?;
        let level = match level {
            logging::Level::Trace => Level::Trace,
            logging::Level::Debug => Level::Debug,
            logging::Level::Info => Level::Info,
            logging::Level::Warn => Level::Warn,
            logging::Level::Error => Level::Error,
        };
        if level < LEVEL_MIN {
            return Ok(());
        }
        let room = self.limits.log_bytes.saturating_sub(self.log.bytes + LINE_OVERHEAD_BYTES);
        if message.len() > room {
            self.log.dropped = self.log.dropped.saturating_add(1);
            message.truncate(message.floor_char_boundary(room));
            message.shrink_to_fit();
        }
        if !message.is_empty() {
            self.log.bytes += message.len() + LINE_OVERHEAD_BYTES;
            self.log.lines.push((level, message));
        }
        Ok(())
    }

    fn max_level(&mut self) -> Result<logging::Level> {
        self.count_call()?;
        Ok(logging::Level::Debug)
    }
}

impl crate::bindings::dovetail::plugin::types::Host for Host {}

/// SplitMix64: the same seed gives the same numbers, so that a batch that is called again meets the same ones. Not for
/// secrets, which is why no plugin is told that they are random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
