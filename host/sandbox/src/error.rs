//! What can go wrong, by whose it is.

use std::path::PathBuf;

use crate::limits::CompileLimits;
use dovetail_core::frame::{InvalidFrame, TooLarge};

/// The engine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("configure the wasm engine: {0}")]
    Engine(String),
    #[error("start the thread that interrupts plugins")]
    Ticker(#[source] std::io::Error),
    #[error(
        "{} cannot hold compiled plugins: it must be a directory of this user, closed to others",
        path.display()
    )]
    Cache { path: PathBuf, source: std::io::Error },
    /// In the process that compiles.
    #[error("set up the process that compiles plugins")]
    Confine(#[source] std::io::Error),
}

/// A component was refused. `Display` is one sentence that its author can act on.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a file", path.display())]
    NoFile { path: PathBuf },
    #[error(
        "component of {found} bytes, of which at most {limit} are taken: strip it, or raise the limit"
    )]
    TooBig { found: usize, limit: usize },
    #[error(
        "has {found} {what}, of which at most {limit} are taken: build it from less code, or raise the limit"
    )]
    Excessive { what: &'static str, found: u64, limit: u64 },
    #[error(
        "instantiates a component that it was given, and how much that makes is not known: build it from one that it \
         contains"
    )]
    UnknownInstance,
    #[error(
        "could not be compiled within {} s and {} MiB, and {how}: build it from less code, or raise the limits",
        limits.time.as_secs(),
        limits.memory_bytes >> 20
    )]
    Compile { how: String, limits: CompileLimits },
    #[error("run the process that compiles plugins")]
    Compiler(#[source] std::io::Error),
    #[error("not WebAssembly: the file does not begin with its magic number{hint}")]
    NotWasm { hint: &'static str },
    #[error(
        "a core module, not a component: build for `wasm32-wasip2`, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    #[error("not a valid component (cut off, perhaps, or in need of a feature that is off): {0}")]
    Invalid(String),
    #[error(
        "exports neither `dovetail:plugin/typed@0.1.0` nor `dovetail:plugin/packed@0.1.0`: build it against the \
         world `transform` or `transform-packed`"
    )]
    World,
    #[error(
        "does not export `dovetail:plugin/lifecycle@0.1.0` as the interface defines it: build it against the world \
         `transform` or `transform-packed`"
    )]
    Lifecycle,
    #[error(
        "built against `{found}`; this host serves `dovetail:plugin@0.1.0`: rebuild it with that version's interface"
    )]
    Version { found: String },
    #[error(
        "imports `{name}`, which plugins are not given; they have `dovetail:plugin/logging@0.1.0` and an empty WASI"
    )]
    Import { name: String },
    #[error("its interface is not that of `dovetail:plugin@0.1.0`: {0}")]
    Interface(String),
    #[error("its `describe` failed")]
    Describe(#[source] CallError),
    #[error("its `describe` refuses the configuration: {0}")]
    Configuration(String),
    #[error("its `describe` gave {0}")]
    Descriptor(&'static str),
    #[error(
        "has the digest sha256:{found}, and what is granted is granted to another: look at what changed, then grant it to \
         this one"
    )]
    Digest { found: String },
    #[error(
        "asks for what it is not granted ({lacking}): grant it, or take a plugin that asks for less"
    )]
    Ungranted { lacking: String },
}

/// Why a guest was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapKind {
    /// It ran longer than it may.
    Deadline,
    /// It wanted more memory or table elements than it may have.
    Memory,
    /// Its stack is exhausted.
    Stack,
    /// It gave up: a panic, an assertion, `unreachable`.
    Unreachable,
    /// It called `exit`.
    Exit,
    /// What it handed back breaks the rules of the interface's types (text that is not UTF-8, an unknown case, a
    /// pointer beyond its memory), or is more than it may hand back.
    Abi,
    /// It called the host more often than it may, or held more of its handles.
    HostCalls,
    /// It called a part of WASI that plugins are not given.
    Denied,
    /// Another trap of its code: a division by zero, an access out of bounds.
    Other,
    /// The instance was stopped before and must not be called again.
    Discarded,
}

impl TrapKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Unreachable => "unreachable",
            Self::Exit => "exit",
            Self::Abi => "abi",
            Self::HostCalls => "host-calls",
            Self::Denied => "denied",
            Self::Other => "other",
            Self::Discarded => "discarded",
        }
    }
}

/// A guest that was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    pub kind: TrapKind,
    /// The exported function that was called.
    pub function: &'static str,
    /// The runtime's own words. They hold no row values.
    pub detail: String,
    /// The end of what the guest wrote to its standard output and error, such as a panic's message. It may quote row
    /// values: kept with a dead letter, never logged.
    pub output: String,
}

impl Trap {
    /// The function of an instance that did not start: no event had to do with it.
    pub const INIT: &'static str = "init";
}

/// What a reply breaks in the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("{found} outcomes for {expected} events")]
    OutcomeCount { expected: usize, found: usize },
    #[error(transparent)]
    Frame(#[from] InvalidFrame),
}

/// A call as a whole failed; none of its outcomes count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The instance is of no further use: instantiate anew.
    #[error("plugin stopped in `{}`: {} ({})", .0.function, .0.kind.name(), .0.detail)]
    Trap(Box<Trap>),
    /// As after a trap: an instance that breaks the contract is not called again.
    #[error("plugin broke the contract: {0}")]
    Contract(#[from] Violation),
    /// The plugin asks for the same batch again, after so many milliseconds if it knows.
    #[error("plugin asks to be called again")]
    Retry(Option<u32>),
    /// An operator must act. The plugin's own words; they may quote row values.
    #[error("plugin gave up")]
    Fatal(String),
    /// The caller's batch does not fit a frame: halve it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}
