//! The log: lines on standard error, for people or for programs.
//!
//! Standard output belongs to what a command prints and to the `stdout` outlet. Every line goes through the [`Display`],
//! so that a progress bar is never torn by it.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::progress::Display;

/// Names of fields, so that one thing has one name in every line. Used as `info!({ field::TABLE } = %table, ...)`.
///
/// A field holds a name, a type, a count, a length or a position: never a row's value, a credential or a plugin's payload.
pub mod field {
    /// The chain of an error and its causes.
    pub const ERROR: &str = "error";
    pub const PIPELINE: &str = "pipeline";
    pub const TABLE: &str = "table";
    pub const TABLES: &str = "tables";
    /// A place in the source's log, as `16/B374D848`.
    pub const POSITION: &str = "position";
    pub const PIN: &str = "pin";
    pub const CHECKPOINT: &str = "checkpoint";
    pub const SLOT: &str = "slot";
    pub const PLUGIN: &str = "plugin";
    pub const OUTLET: &str = "outlet";
    pub const LANE: &str = "lane";
    pub const ROWS: &str = "rows";
    pub const ROWS_PER_SECOND: &str = "rows_per_second";
    pub const BYTES: &str = "bytes";
    pub const CHUNKS: &str = "chunks";
    pub const PERCENT: &str = "percent";
    pub const ATTEMPT: &str = "attempt";
    pub const DELAY_MS: &str = "delay_ms";
    pub const SIGNAL: &str = "signal";
    pub const GRACE_S: &str = "grace_s";
    pub const EXIT_CODE: &str = "exit_code";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line for people.
    Text,
    /// One JSON object a line: `timestamp`, `level`, `target`, `message` and the fields.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the log filter is not understood, expected a level such as `info`, or `warn,dovetail=debug`"
    )]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    #[error("the log was set up before")]
    Installed(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts the log of this process.
///
/// # Errors
/// At a finer level the driver logs the parameters of statements, and those of an outlet are row values.
const QUIET: &str = "tokio_postgres=info";

/// The filter is not understood.
pub fn install(format: Format, filter: &str, display: &Display) -> Result<(), Error> {
    let quiet = QUIET.parse().expect("a directive of our own");
    let filter = EnvFilter::try_new(filter).map_err(Error::Filter)?.add_directive(quiet);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(display.is_terminal())
        .with_writer(Lines(display.clone()));
    match format {
        Format::Text => builder.with_target(false).finish().try_init(),
        Format::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .map_err(Error::Installed)
}

/// Writes whole lines: the subscriber formats an event in a buffer and hands it over in one call.
#[derive(Debug, Clone)]
struct Lines(Display);

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.between(|| io::stderr().lock().write_all(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
