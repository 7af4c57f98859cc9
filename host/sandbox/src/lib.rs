//! Runs plugins: wasmtime, narrowed until the wrong choices are gone.
//!
//! A plugin can neither break the stream nor see what it was not given. It gets the events that it asked for, in the
//! columns that it asked for, and an import for logging; memory, tables, time, output and log have limits that whoever
//! loads it states; whatever it does ends in an outcome per event or in an error that says whose fault it is. What it
//! hands back is checked here, so that no caller needs to know that it came from untrusted code.
//!
//! 1. [`Sandbox::load`] checks a component, compiles it and asks it what it wants: a [`Plugin`], or a [`Refusal`].
//! 2. [`Plugin::instantiate`] makes an [`Instance`] for one lane.
//! 3. [`Instance::process`] hands over batches. After a trap the instance is dropped and a new one takes the same batch.
//!
//! Calls are synchronous: a lane is a thread.

mod bindings;
mod cache;
mod compile;
mod engine;
mod error;
mod grants;
mod host;
mod inspection;
mod instance;
mod interest;
mod limits;
mod plugin;
mod relations;
mod survey;
mod trap;
mod typed;
mod verdict;
mod wasi;

pub use compile::{Compiled, Compiler, serve as serve_compilation};
pub use engine::{EngineOptions, Sandbox};
pub use error::{CallError, Refusal, SetupError, Trap, TrapKind, Violation};
pub use grants::{Grant, Grants};
pub use host::{Level, Log};
pub use inspection::{Import, Inspection};
pub use instance::Instance;
pub use interest::{Descriptor, Interest, Operations, View};
pub use limits::{CompileLimits, ComponentLimits, Limits};
pub use plugin::{Form, Plugin};
