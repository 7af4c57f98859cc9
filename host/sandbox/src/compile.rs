//! From a component to machine code, in a process that may fail.
//!
//! A component can be made to compile for hours, or in all the memory there is, and be within every limit that can be counted
//! beforehand; to the compiler that is no defect. So who runs untrusted code compiles it in a child process: the same
//! program again, in a mode that reads a component from standard input and writes what it compiled to standard output.
//! It has nothing of its parent (no environment, no other file, no state), takes its limits on itself before it reads, and is
//! killed when its time is over. Only the parent writes to the cache.
//!
//! What a child wrote is run as the host's own code. It is as good as the compiler in this process would have made it:
//! the child is this program, and what it compiles cannot change what it is. The digest before the code tells a reply
//! that is whole from one that a full disk or a kill cut off.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use wasmtime::Engine;

use crate::cache::{checked_content, digest};
use crate::engine::configuration;
use crate::error::{Refusal, SetupError};
use crate::limits::CompileLimits;
use crate::plugin::one_line;

/// Where components are compiled.
#[derive(Clone, Debug, Default)]
pub enum Compiler {
    /// In this process, without limits. For components that are trusted: tests, benchmarks.
    #[default]
    InProcess,
    /// In a child process. The program with these arguments calls [`serve`].
    Child { program: PathBuf, arguments: Vec<OsString> },
}

/// What a child has written to standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiled {
    /// The digest of the code, and the code; the program then ends with code 0.
    Code,
    /// Why the component is not valid; the program then ends with code 65.
    Invalid,
}

const INVALID: u8 = 65;
/// Threads of a compilation. It competes with the lanes, so it gets few, at a lower priority; and each reserves address
/// space, which the limit on memory counts.
const THREADS: u64 = 4;
/// Compiled code is two to four times the component.
const CODE_BYTES_MAX: u64 = 1 << 30;
/// What a child writes about an invalid component.
const REASON_BYTES_MAX: usize = 1_000;

impl Compiler {
    /// Gives the code, to be deserialized by an engine of the same settings.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        component: &[u8],
        limits: CompileLimits,
    ) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::InProcess => engine
                .precompile_component(component)
                .map_err(|error| Refusal::Invalid(one_line(&error))),
            Self::Child { program, arguments } => {
                let mut command = Command::new(program);
                command
                    .args(arguments)
                    .arg(limits.memory_bytes.to_string())
                    .arg(limits.time.as_secs().max(1).to_string())
                    .env_clear()
                    .env("RAYON_NUM_THREADS", THREADS.to_string())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null());
                let child = command.spawn().map_err(Refusal::Compiler)?;
                let (status, output) = converse(child, component, limits.time)?;
                reply(status, output, limits)
            }
        }
    }
}

/// Hands the component over and waits for what comes back; the child is gone afterwards. The output is `None` where the
/// child was killed.
fn converse(
    mut child: Child,
    component: &[u8],
    time: Duration,
) -> Result<(ExitStatus, Option<Vec<u8>>), Refusal> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ended before it had read everything says so itself.
            drop(stdin.map(|mut stdin| stdin.write_all(component)));
        });
        scope.spawn(move || {
            let mut output = Vec::new();
            let read =
                stdout.map(|stdout| stdout.take(CODE_BYTES_MAX + 1).read_to_end(&mut output));
            // Nobody waits any longer when the time is over.
            drop(sender.send(matches!(read, Some(Ok(_))).then_some(output)));
        });
        let output = receiver.recv_timeout(time).ok().flatten();
        let output =
            output.filter(|output| u64::try_from(output.len()).is_ok_and(|n| n <= CODE_BYTES_MAX));
        if output.is_none() {
            // Fails where it has ended already.
            drop(child.kill());
        }
        let status = child.wait().map_err(Refusal::Compiler)?;
        Ok((status, output))
    })
}

fn reply(
    status: ExitStatus,
    output: Option<Vec<u8>>,
    limits: CompileLimits,
) -> Result<Vec<u8>, Refusal> {
    let failed = |how: String| Refusal::Compile { how, limits };
    let Some(output) = output else {
        return Err(failed("it was stopped when its time was over".into()));
    };
    if let Some(signal) = status.signal() {
        return Err(failed(format!("it was ended by signal {signal}")));
    }
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => match checked_content(&output) {
            Some(content) => Ok(content.to_owned()),
            None => Err(failed("what it wrote is not whole".into())),
        },
        Some(INVALID) => {
            Err(Refusal::Invalid(crate::plugin::printable(&String::from_utf8_lossy(&output))))
        }
        code => Err(failed(format!("it ended with code {}", code.unwrap_or(u8::MAX)))),
    }
}

/// The child's side: compiles what standard input holds, and ends with what it wrote. `memory_bytes` and
/// `seconds` are what the parent appended to the arguments.
///
/// # Errors
/// When the limits cannot be set, or nobody listens any longer.
pub fn serve(memory_bytes: u64, seconds: u64) -> Result<Compiled, SetupError> {
    confine(memory_bytes, seconds).map_err(|error| SetupError::Confine(error.into()))?;
    let mut component = Vec::new();
    io::stdin().lock().read_to_end(&mut component).map_err(SetupError::Confine)?;
    let engine = Engine::new(&configuration());
    let engine = engine.map_err(|error| SetupError::Engine(format!("{error:#}")))?;
    let mut output = io::stdout().lock();
    let (compiled, parts) = match engine.precompile_component(&component) {
        Ok(content) => (Compiled::Code, [digest(&content).to_vec(), content]),
        Err(error) => {
            let mut reason = one_line(&error).into_bytes();
            reason.truncate(REASON_BYTES_MAX);
            (Compiled::Invalid, [reason, Vec::new()])
        }
    };
    let written = parts.iter().try_for_each(|part| output.write_all(part));
    written.and_then(|()| output.flush()).map_err(SetupError::Confine)?;
    Ok(compiled)
}

/// The limits of a child, which it cannot raise again. Load-bearing: before the component is read.
fn confine(memory_bytes: u64, seconds: u64) -> rustix::io::Result<()> {
    let limit = |limit| Rlimit { current: Some(limit), maximum: Some(limit) };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    setrlimit(Resource::As, limit(memory_bytes))?;
    // The parent counts the time that passes; this ends a child whose parent is gone, and whose kill did not arrive.
    setrlimit(Resource::Cpu, limit(seconds.saturating_mul(THREADS)))?;
    setrlimit(Resource::Core, limit(0))?;
    setrlimit(Resource::Fsize, limit(0))?;
    nice(10)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn compile_by(program: &str, arguments: &[&str]) -> Refusal {
        let arguments = arguments.iter().map(OsString::from).collect();
        let compiler = Compiler::Child { program: program.into(), arguments };
        let limits = CompileLimits { time: Duration::from_secs(2), memory_bytes: 1 << 30 };
        compiler.compile(&Engine::default(), &[0; 1 << 20], limits).expect_err("is no compiler")
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let begun = Instant::now();
        let refusal = compile_by("sh", &["-c", "exec sleep 600"]);
        assert!(refusal.to_string().contains("stopped when its time was over"), "{refusal}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_child_that_writes_for_ever_is_killed() {
        let refusal = compile_by("sh", &["-c", "exec cat /dev/zero"]);
        assert!(refusal.to_string().contains("stopped when its time was over"), "{refusal}");
    }

    #[test]
    fn a_child_that_fails_is_told_by_how_it_ended() {
        let refusal = compile_by("sh", &["-c", "exit 3"]);
        assert!(refusal.to_string().contains("ended with code 3"), "{refusal}");
        let refusal = compile_by("sh", &["-c", "kill -ABRT $$"]);
        assert!(refusal.to_string().contains("ended by signal 6"), "{refusal}");
        let refusal = compile_by("/nowhere/dovetail", &[]);
        assert!(matches!(refusal, Refusal::Compiler(_)), "{refusal}");
    }

    #[test]
    fn code_without_its_digest_is_not_loaded() {
        let refusal = compile_by("sh", &["-c", "exec head -c 100 /dev/zero"]);
        assert!(refusal.to_string().contains("not whole"), "{refusal}");
    }
}
