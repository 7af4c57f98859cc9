//! What a component may be made of and take to compile, and what one instance of it may use. There is no default: who runs
//! untrusted code says how much of it.

use std::time::Duration;

/// The limits of what is loaded. What is beyond one of them is refused by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComponentLimits {
    /// Of the file, before anything looks into it.
    pub bytes: usize,
    /// Of all its modules together; so are those that follow.
    pub functions: u64,
    pub function_bytes: u64,
    /// Variables of functions, which are written in four bytes whatever their number.
    pub locals: u64,
    /// Of data and elements.
    pub segments: u64,
    /// Modules and components that it instantiates, counted as often as they are.
    pub instances: u64,
    /// Of components in components.
    pub levels: u64,
    pub compile: CompileLimits,
}

/// The limits of a process that compiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompileLimits {
    /// That passes, on whatever number of processors.
    pub time: Duration,
    /// Of address space, the program itself included.
    pub memory_bytes: u64,
}

impl ComponentLimits {
    /// The limits that suit plugins in any language.
    pub const fn usual() -> Self {
        Self {
            // Interpreters compiled to Wasm have up to 20 MB; what is larger is a mistake or an attack.
            bytes: 64 << 20,
            // The same interpreters have 13,500.
            functions: 100_000,
            // The loop of Python's interpreter takes 427 kB, of JavaScript's 172 kB. Compiling one function is not spread over
            // threads, and the time for it does not always grow in proportion.
            function_bytes: 2 << 20,
            // The interpreters have 52,000; a compiler that does not optimize leaves ten times as many.
            locals: 1_000_000,
            // A component that was set up before it was stored has 10,000.
            segments: 60_000,
            // Python's component makes 111.
            instances: 1_000,
            // Two are usual. Whoever reads components does it by recursion.
            levels: 50,
            compile: CompileLimits {
                // Python's takes ten to eighty seconds of one processor.
                time: Duration::from_secs(120),
                // The same takes less than 2 GiB.
                memory_bytes: 4 << 30,
            },
        }
    }
}

/// The limits of one plugin's instances. What happens at a limit stands at each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of all linear memories of an instance together, the initial ones included. Growing beyond it fails inside the
    /// guest (`memory.grow` gives -1); what cannot start within it is refused.
    pub memory_bytes: usize,
    /// Of all tables together; as with memory.
    pub table_elements: usize,
    /// Core instances, memories and tables, each; a component that needs more does not start.
    pub instances: usize,
    /// For one call of `process`, with the announcements before it; then the guest is interrupted.
    pub batch_timeout: Duration,
    /// For `describe` and for `init`, each with the instantiation before it.
    pub start_timeout: Duration,
    /// What a call may hand back, counted as it lies in the guest; more is a trap.
    pub output_bytes: usize,
    /// A plugin that emits more for one event fails that event.
    pub emissions_per_event: usize,
    /// Targets of routes that the operator configured; an index beyond them fails the event.
    pub targets: u16,
    /// Of log messages a call; what is beyond is cut off and counted.
    pub log_bytes: usize,
    /// Calls to the host's functions within one call; more is a trap.
    pub host_calls: u32,
    /// After so many calls an instance is worn: see [`Instance::is_worn`](crate::Instance::is_worn).
    pub calls: u64,
    /// Handles of the host (streams, pollables) held at a time; more is a trap.
    pub handles: u32,
}

impl Limits {
    /// The limits that suit a pipeline, around the ones that its operator chooses.
    pub fn around(memory_bytes: usize, batch_timeout: Duration, targets: u16) -> Self {
        Self {
            memory_bytes,
            // Interpreters compiled to Wasm have some 13,000 functions, each an element of a table.
            table_elements: 100_000,
            // The same components consist of 65 core instances.
            instances: 200,
            batch_timeout,
            // An interpreter sets itself up in less than a second, on a busy machine in a few.
            start_timeout: batch_timeout.saturating_mul(10),
            // Batches are 1 MiB or less; a reply that rewrites each of its values and adds as much again fits.
            output_bytes: 4 << 20,
            emissions_per_event: 64,
            targets,
            log_bytes: 64 << 10,
            // Each of 512 events may be logged a hundred times over. Every call is time on the lane's account anyway; this
            // is for those that are cheap for the guest and not for the host.
            host_calls: 100_000,
            // An instance is made in some ten microseconds; every ten thousand calls that is nothing, and what a guest leaks
            // does not add up.
            calls: 10_000,
            // A standard library holds three. Each costs the host memory that is no part of the guest's.
            handles: 1_000,
        }
    }
}
