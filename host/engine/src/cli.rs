//! The command line: what was asked for, and with what code the process ends.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dovetail_sandbox::{Compiled, Compiler, serve_compilation};
use tokio::runtime::{Builder, Runtime};
use tracing::error;

use crate::config::{Environment, Outlet, Pipeline};
use crate::error::Error;
use crate::exit::{Code, Failure};
use crate::pipeline::{self, Until};
use crate::plugins::{LoadError, Report};
use crate::progress::{Display, Progress};
use crate::shutdown::{Shutdown, Signal, Signals};
use crate::state::Content;
use crate::status::Status;
use crate::telemetry::{self, Format, field};
use crate::{config, gaps, shutdown, spool, state};

/// What is looked for where the command line names no file.
const FILE: &str = "dovetail.yaml";

/// The command that this program gives itself.
const COMPILE_PLUGIN: &str = "compile-plugin";

/// Change data capture whose snapshot and log stream join without a gap.
#[derive(Debug, Parser)]
#[command(name = "dovetail", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How log lines on standard error look.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// A level (error, warn, info, debug, trace) or a filter such as `warn,dovetail=debug`; without it, RUST_LOG.
    #[arg(long, global = true, value_name = "FILTER")]
    log_level: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the configuration, the source and the plugins, without changing anything.
    Check {
        #[command(flatten)]
        file: File,
    },
    /// Scan what was not scanned yet, then stream, until stopped.
    Run {
        #[command(flatten)]
        file: File,
        /// End when everything is delivered that was committed before streaming began.
        #[arg(long)]
        until_caught_up: bool,
        /// After a first SIGINT or SIGTERM, how long to finish what is under way.
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        grace: u64,
        /// Give up what a gap lacks, whose number `dovetail gaps` shows: all tables are copied again from a new pin.
        #[arg(long, value_name = "ID")]
        accept_gap: Option<i64>,
    },
    /// Say which changes the pipeline could not have, and what became of it, from its state directory alone.
    Gaps {
        #[command(flatten)]
        file: File,
        #[arg(long, value_enum, default_value_t = StatusFormat::Text)]
        format: StatusFormat,
    },
    /// Say how far the pipeline is, from its state directory alone.
    Status {
        #[command(flatten)]
        file: File,
        #[arg(long, value_enum, default_value_t = StatusFormat::Text)]
        format: StatusFormat,
    },
    /// Work on plugins as files, before they are part of a pipeline.
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// Compile the component on standard input, within these limits.
    #[command(name = COMPILE_PLUGIN, hide = true)]
    CompilePlugin { memory_bytes: u64, seconds: u64 },
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Say what a component is, what it imports and declares, and what it would need to be granted.
    Inspect {
        /// A WebAssembly component.
        file: PathBuf,
        /// The configuration under which it is asked, as JSON: what it wants to see may depend on it.
        #[arg(long, value_name = "JSON", default_value = "{}")]
        config: String,
    },
}

#[derive(Debug, Args)]
struct File {
    /// The pipeline's configuration [default: dovetail.yaml].
    #[arg(value_name = "FILE", conflicts_with = "config")]
    positional: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl File {
    fn path(&self) -> &Path {
        self.positional.as_deref().or(self.config.as_deref()).unwrap_or(Path::new(FILE))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    Text,
    Json,
}

/// Runs one command. `arguments` begin with the program's name; `environment` is the only one that is read.
pub fn run(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> Code {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(usage) => return print_usage(&usage),
    };
    let format = cli.log_format;
    let mut log = Log { format, filter: cli.log_level, environment, display: Display::Lines };
    match cli.command.perform(&mut log) {
        Ok(code) => code,
        Err(failure) => {
            log.failed(&failure);
            failure.code
        }
    }
}

/// Help and version are what was asked for; anything else is wrong usage.
fn print_usage(usage: &clap::Error) -> Code {
    let code = if usage.use_stderr() { Code::Usage } else { Code::Done };
    match usage.print() {
        Ok(()) => code,
        Err(_) => Code::Usage,
    }
}

/// Where a command's lines go.
struct Log<'e> {
    format: Format,
    filter: Option<String>,
    environment: &'e Environment,
    display: Display,
}

impl Log<'_> {
    /// Bars need standard error to be a terminal that nothing else writes to.
    fn start(&mut self, pipeline: &Pipeline) -> Result<Display, Failure> {
        let prints =
            pipeline.deliver.iter().any(|name| matches!(pipeline.outlet(name), Outlet::Stdout));
        let shared = prints && io::stdout().is_terminal();
        if io::stderr().is_terminal() && self.format == Format::Text && !shared {
            self.display = Display::bars();
        }
        let variable = self.environment.get("RUST_LOG").and_then(|filter| filter.to_str());
        let filter = self.filter.as_deref().or(variable).filter(|filter| !filter.is_empty());
        telemetry::install(self.format, filter.unwrap_or("info"), &self.display)
            .map_err(Failure::usage)?;
        Ok(self.display.clone())
    }

    /// The one place where a failure is printed: a paragraph for people, a line of the log for programs.
    fn failed(&self, failure: &Failure) {
        let exit_code = failure.code.number();
        match self.format {
            Format::Json => {
                // Refused when the log runs already, which is as good; else nothing was logged before.
                telemetry::install(self.format, "error", &self.display).ok();
                error!({ field::ERROR } = %failure, { field::EXIT_CODE } = exit_code, "stopped");
            }
            Format::Text => self.display.between(|| {
                // Nobody is left to tell when standard error is gone.
                drop(writeln!(io::stderr(), "dovetail: {failure}"));
            }),
        }
    }
}

fn load(file: &File, environment: &Environment) -> Result<Pipeline, Failure> {
    let loaded = config::Pipeline::load(file.path(), environment);
    let mut pipeline = loaded.map_err(Failure::configuration)?;
    pipeline.compiler = compiler();
    Ok(pipeline)
}

/// This program again, whatever lies at its path by now.
fn compiler() -> Compiler {
    let program = PathBuf::from("/proc/self/exe");
    Compiler::Child { program, arguments: vec![COMPILE_PLUGIN.into()] }
}

impl Command {
    fn perform(self, log: &mut Log<'_>) -> Result<Code, Failure> {
        match self {
            Self::Check { file } => check(&load(&file, log.environment)?, log),
            Self::Run { file, until_caught_up, grace, accept_gap } => {
                let pipeline = load(&file, log.environment)?;
                let until = if until_caught_up { Until::CaughtUp } else { Until::Stopped };
                stream(pipeline, (until, accept_gap), Duration::from_secs(grace), log)
            }
            Self::Gaps { file, format } => gaps(&load(&file, log.environment)?, format, log),
            Self::Plugin { command: PluginCommand::Inspect { file, config } } => {
                inspect(&file, &config)
            }
            Self::CompilePlugin { memory_bytes, seconds } => compile_plugin(memory_bytes, seconds),
            Self::Status { file, format } => status(&load(&file, log.environment)?, format, log),
        }
    }
}

fn check(pipeline: &Pipeline, log: &mut Log<'_>) -> Result<Code, Failure> {
    log.start(pipeline)?;
    let report = runtime()?.block_on(pipeline::check(pipeline)).map_err(failure)?;
    print(&report.to_string())?;
    Ok(if report.is_ready() { Code::Done } else { Code::Definite })
}

fn stream(
    pipeline: Pipeline,
    (until, accepted): (Until, Option<i64>),
    grace: Duration,
    log: &mut Log<'_>,
) -> Result<Code, Failure> {
    let progress = Progress::new(log.start(&pipeline)?);
    supervise(grace, async move |shutdown| {
        tokio::select! {
            ended = pipeline::run(&pipeline, until, accepted, shutdown.token(), &progress) => {
                progress.scan_ended();
                ended.map_err(failure)
            }
            never = progress.show() => match never {},
        }
    })
}

fn failure(error: Error) -> Failure {
    if error.is_transient() { Failure::transient(error) } else { Failure::definite(error) }
}

fn status(pipeline: &Pipeline, format: StatusFormat, log: &mut Log<'_>) -> Result<Code, Failure> {
    let content = content(pipeline, log)?;
    let look = runtime()?.block_on(spool::look(&pipeline.state, content.as_ref()));
    let look = look.map_err(|error| failure(Error::Spool(error)))?;
    let status = Status::new(pipeline, content.as_ref(), look.as_ref());
    print(&match format {
        StatusFormat::Text => status.to_string(),
        StatusFormat::Json => status.to_json(),
    })?;
    Ok(Code::Done)
}

fn gaps(pipeline: &Pipeline, format: StatusFormat, log: &mut Log<'_>) -> Result<Code, Failure> {
    let gaps = content(pipeline, log)?.map(|content| content.gaps).unwrap_or_default();
    let list = gaps::List(&gaps);
    print(&match format {
        StatusFormat::Text => list.to_string(),
        StatusFormat::Json => list.to_json(),
    })?;
    Ok(Code::Done)
}

/// Of the pipeline's own state.
fn content(pipeline: &Pipeline, log: &mut Log<'_>) -> Result<Option<Content>, Failure> {
    log.start(pipeline)?;
    let content = runtime()?.block_on(state::read(&pipeline.state));
    let content = content.map_err(|error| failure(Error::State(error)))?;
    if let Some(content) = &content
        && content.origin.pipeline != pipeline.name
    {
        let (directory, owner) = (pipeline.state.display(), &content.origin.pipeline);
        let error = anyhow!("the state in {directory} belongs to pipeline {owner}");
        let advice = "Give each pipeline a state directory of its own";
        return Err(Failure::definite(error).advise(advice));
    }
    Ok(content)
}

/// What can be said is printed also about a file that is refused.
fn inspect(file: &Path, config: &str) -> Result<Code, Failure> {
    let report = Report::on(file, config, compiler()).map_err(Failure::configuration)?;
    print(&report.to_string())?;
    match report.refusal() {
        None => Ok(Code::Done),
        Some(source) => {
            let error = LoadError::File { file: file.to_owned(), source };
            Err(Failure::configuration(error))
        }
    }
}

/// Nobody reads what this prints; the code tells the parent.
fn compile_plugin(memory_bytes: u64, seconds: u64) -> Result<Code, Failure> {
    match serve_compilation(memory_bytes, seconds) {
        Ok(Compiled::Code) => Ok(Code::Done),
        Ok(Compiled::Invalid) => Ok(Code::Configuration),
        Err(error) => Err(Failure::definite(error)),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let printed = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    let context = |error| anyhow::Error::new(error).context("write to standard output");
    printed.map_err(|error| Failure::definite(context(error)))
}

fn system(error: io::Error) -> Failure {
    Failure::definite(anyhow::Error::new(error).context("set up the process"))
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().enable_all().build().map_err(system)
}

/// Does the work until it ends, or until a shutdown does not wait for it any longer. What a signal ended has the signal's
/// code, gentle or not, unless it failed.
fn supervise(
    grace: Duration,
    work: impl AsyncFnOnce(Shutdown) -> Result<(), Failure>,
) -> Result<Code, Failure> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(system)?;
        let shutdown = Shutdown::default();
        tokio::select! {
            biased;
            ended = work(shutdown.clone()) => {
                ended?;
                Ok(shutdown.signal().map_or(Code::Done, Signal::code))
            }
            signal = shutdown::watch(async || signals.next().await, &shutdown, grace) => Ok(signal.code()),
        }
    });
    // Whatever still runs was given up; waiting for it is what the second signal forbids.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::process::Command as Process;

    const GRACE: Duration = Duration::from_secs(600);

    async fn terminate_ourselves() {
        let pid = std::process::id().to_string();
        let sent = Process::new("kill").args(["-TERM", &pid]).status().await;
        assert!(sent.expect("kill is there").success());
    }

    /// One test, because signals reach every listener of a process.
    #[test]
    fn a_signal_stops_gently_and_a_second_one_at_once() {
        let drained = AtomicBool::new(false);
        let gentle = supervise(GRACE, async |shutdown| {
            terminate_ourselves().await;
            shutdown.token().cancelled().await;
            drained.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(gentle.expect("no failure"), Code::Terminated);
        assert!(drained.load(Ordering::Relaxed));

        let forced = supervise(GRACE, async |shutdown| {
            terminate_ourselves().await;
            shutdown.token().cancelled().await;
            terminate_ourselves().await;
            std::future::pending().await
        });
        assert_eq!(forced.expect("no failure"), Code::Terminated);
    }

    #[test]
    fn work_that_ends_by_itself_decides_the_code() {
        assert_eq!(supervise(GRACE, async |_| Ok(())).expect("no failure"), Code::Done);
        let failure = || Failure::transient(anyhow::anyhow!("the server is down"));
        let failed = supervise(GRACE, async |_| Err(failure())).expect_err("a failure");
        assert_eq!(failed.code, Code::Transient);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
