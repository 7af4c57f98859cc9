//! A change's path, from the database to the outlets.
//!
//! ```text
//! source -> spool: source acknowledged -> SEAM (driver) -> lanes: plugins -> delivery: outlets -> driver: state -> spool released
//! ```
//!
//! A pipeline is a series of attempts. An attempt goes on from what is durable, and ends by a signal, by having caught
//! up, or by a failure. A transient failure (a connection is gone) is answered by a pause and another attempt: the way
//! back from a lost connection is the way back from a crash, so that there is one recovery to get right, and every
//! kill tests it. Nothing is repaired in place. One thing outlives attempts, so that the source does not notice an outlet that
//! is down: the task that reads the log into the spool.

use std::collections::BTreeMap;
use std::fmt;

use dovetail_core::lane;
use dovetail_core::position::Lsn;
use dovetail_core::seam::{Pin, Recorded, Seam, Spool as Held, Start};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{self, Pipeline, SnapshotMode};
use crate::delivery::{self, Targets};
use crate::driver::{Driver, Parts};
use crate::error::Error;
use crate::gaps;
use crate::lanes::Lanes;
use crate::origin::Origin;
use crate::outlet::{Durable, Outlet};
use crate::plugins::Plugins;
use crate::progress::Progress;
use crate::source::Source;
use crate::source::backoff::Backoff;
use crate::source::finding::{self, Finding, Severity};
use crate::spool::{self, Spooling};
use crate::state::{self, Content, Notes, Store};
use crate::telemetry::field;

/// How a run is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Stopped,
    /// What the log held when the stream began is durable at every outlet.
    CaughtUp,
}

/// Runs a pipeline until it is told to stop, has caught up, or fails. `accepted` is the number of a gap that an operator
/// accepts.
///
/// # Errors
/// Definite ones at once; transient ones only before the pipeline has ever streamed, so that a wrong address shows at
/// the start. After that the pipeline waits for its servers.
pub async fn run(
    config: &Pipeline,
    until: Until,
    accepted: Option<i64>,
    stop: &CancellationToken,
    progress: &Progress,
) -> Result<(), Error> {
    let plugins = load(config)?;
    if let Some(gap) = accepted {
        state::accept_gap(&config.state, &config.name, gap).await?;
        info!(gap, "the gap is accepted, all tables are scanned again");
    }
    let mut backoff = Backoff::default();
    let mode = config.snapshot.mode;
    let (began, spooling) = (false, None);
    let mut attempt =
        Attempt { config, plugins: &plugins, mode, until, stop, progress, began, spooling };
    let ended = attempt.repeat(&mut backoff).await;
    if let Some(Spooling { intake: Some(intake), .. }) = attempt.spooling {
        intake.close().await;
    }
    ended
}

impl Attempt<'_> {
    async fn repeat(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        loop {
            let ended = self.run(backoff).await;
            self.progress.scan_ended();
            let error = match ended {
                Ok(()) | Err(Error::Stopped) => return Ok(()),
                // To give up the wait for running transactions is what `pin_timeout` asks for.
                Err(error @ Error::Pin(_)) => return Err(error),
                Err(error) if !self.is_under_way() || !error.is_transient() => {
                    return Err(self.gap_behind(error).await);
                }
                Err(error) => error,
            };
            let pause = backoff.next(spread());
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            warn!(
                { field::ERROR } = error.chain(),
                pause_ms, "the attempt failed, another one follows"
            );
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return Ok(()),
                error = Spooling::failed(&mut self.spooling) => {
                    if !error.is_transient() {
                        return Err(self.gap_behind(error).await);
                    }
                    warn!({ field::ERROR } = error.chain(), "the log is not read any more");
                }
            }
        }
    }
}

struct Attempt<'a> {
    config: &'a Pipeline,
    plugins: &'a Plugins,
    mode: SnapshotMode,
    until: Until,
    stop: &'a CancellationToken,
    progress: &'a Progress,
    /// An attempt has reached the source and every outlet.
    began: bool,
    spooling: Option<Spooling>,
}

impl Attempt<'_> {
    /// From what is durable on.
    async fn run(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        let config = self.config;
        let Begun { source, mut store, targets, start, proof } = tokio::select! {
            begun = Box::pin(Begun::of(config, self.mode, &mut self.spooling, &mut self.began)) => begun?,
            () = self.stop.cancelled() => return Err(Error::Stopped),
        };
        let router = lane::Lanes::new(config.lanes);
        let (lanes, work) = Lanes::start(router, self.plugins.chains(config.lanes));
        let (landed_sender, landed) = mpsc::unbounded_channel();
        let delivering = tokio::spawn(delivery::run(work, targets, landed_sender));

        backoff.reset();
        info!({ field::PIPELINE } = config.name, tables = config.source.tables().len(), "started");
        let mut moved = false;
        let (store, spooling, moved_in) = (&mut store, &mut self.spooling, &mut moved);
        let parts = Parts { source, store, spooling, moved: moved_in, lanes, landed, delivering };
        let driver = Driver::new(config, self.progress, self.stop, parts);
        let ended = Box::pin(driver.run(start, proof, self.until)).await;
        if moved && self.mode == SnapshotMode::Always {
            // `always` is once for each start by somebody, not for each lost connection: a scan that is longer than a
            // connection lives would never end.
            self.mode = SnapshotMode::Initial;
        }
        ended
    }

    /// Whether to wait for servers. One that reads does, though it has never reached its outlets, unless somebody waits for
    /// its end.
    fn is_under_way(&self) -> bool {
        let reads = self.spooling.as_ref().is_some_and(|it| it.intake.is_some());
        self.began || (reads && self.until == Until::Stopped)
    }

    /// A log that cannot be streamed any more may be gone, and then it is written down before the process ends.
    async fn gap_behind(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Stream(_)) {
            return error;
        }
        if let Some(Spooling { intake: Some(intake), .. }) = self.spooling.take() {
            intake.close().await;
        }
        let begun = Begun::of(self.config, self.mode, &mut self.spooling, &mut self.began);
        match Box::pin(begun).await {
            Err(gap @ Error::Gap { .. }) => gap,
            _ => error,
        }
    }
}

/// The ends of the path, reached: source, state and outlets.
struct Begun {
    source: Source,
    store: Store,
    targets: Targets,
    start: Start,
    /// Of the position that the outlets recorded.
    proof: Option<Durable<Lsn>>,
}

impl Begun {
    /// Cancel-safe: what was opened is closed again.
    async fn of(
        config: &Pipeline,
        mode: SnapshotMode,
        spooling: &mut Option<Spooling>,
        reached: &mut bool,
    ) -> Result<Self, Error> {
        let content = state::read(&config.state).await?;
        if let Some(spooled) = left_behind(config, content.as_ref()).await? {
            return Err(Error::SpoolLeft { spooled });
        }
        let notes = notes(content.as_ref());
        // The directory is made with the state.
        let settings = content.as_ref().and(config.spool);
        Spooling::go_on(spooling, &config.state, settings, content.as_ref()).await?;
        let read = spooling.as_ref().and_then(Spooling::note);
        let mut source = Source::connect(&config.source, &notes, read.as_deref()).await?;
        let origin = source.origin(&config.name);
        let mut store = Store::open(&config.state, &origin).await?;
        if *store.notes() != notes {
            return Err(state::Error::Changed { path: config.state.clone() }.into());
        }
        let ready = match preflight(mode, &source, &store).await {
            Err(Error::NotReady(errors)) if matches!(store.record().pin, Pin::At(_)) => {
                Err(Error::NotReady(errors))
            }
            ready => Ok(ready?),
        };
        store.keep_outlets(kinds(config)).await?;
        if spooling.is_none() {
            Spooling::go_on(spooling, &config.state, config.spool, content.as_ref()).await?;
        }
        if ready.is_ok() {
            read_on(mode, spooling, &mut source, &store).await?;
        }
        let targets = open_targets(config, &origin, store.record().is_given_up()).await?;
        *reached = true;
        let (recorded, proof) = targets.recorded(store.record().checkpoint);
        let held = spooling.as_ref().map_or(Held::Off, Spooling::held);
        let reading = spooling.as_ref().is_some_and(|it| it.intake.is_some());
        let start = source.start(mode, recorded, held, reading).await;
        let start = gaps::look(config, &source, &mut store, start, ready).await?;
        Ok(Self { source, store, targets, start, proof })
    }
}

/// Reads the log before the outlets are asked for anything, so that the source does not notice that they are down.
async fn read_on(
    mode: SnapshotMode,
    spooling: &mut Option<Spooling>,
    source: &mut Source,
    store: &Store,
) -> Result<(), Error> {
    let Some(spooling) = spooling.as_mut().filter(|it| it.intake.is_none()) else { return Ok(()) };
    let held = spooling.held();
    if !matches!(held, Held::Holds { .. }) {
        return Ok(());
    }
    // Whatever is wrong for good is found again, and written down, by the start that asks the outlets as well.
    let Ok(start) = source.start(mode, Recorded::Unkept, held, false).await else { return Ok(()) };
    let Some(from) = Seam::may_read_on(store.record(), &start) else { return Ok(()) };
    match spooling.read(source, store.record(), from).await {
        Err(error) if !error.is_transient() => Ok(()),
        read => read,
    }
}

/// What a spool of an earlier configuration has, and this one would leave behind.
async fn left_behind(config: &Pipeline, content: Option<&Content>) -> Result<Option<Lsn>, Error> {
    if config.spool.is_some() {
        return Ok(None);
    }
    let checkpoint = content.and_then(|content| content.record.checkpoint);
    let spooled = spool::look(&config.state, content).await?.map(|look| look.mark.position);
    Ok(spooled.filter(|spooled| checkpoint < Some(*spooled)))
}

/// What `dovetail check` found.
pub struct Report {
    pipeline: String,
    findings: Vec<Finding>,
}

/// Looks at everything that a run would need, and changes nothing.
///
/// # Errors
/// When something cannot be asked: a server that cannot be reached, a plugin that is refused.
pub async fn check(config: &Pipeline) -> Result<Report, Error> {
    load(config)?;
    let content = state::read(&config.state).await?;
    let left = left_behind(config, content.as_ref()).await?;
    let read = match config.spool {
        Some(_) => spool::look(&config.state, content.as_ref()).await?.and_then(|it| it.mark.note),
        None => None,
    };
    let notes = notes(content.as_ref());
    let source = Source::connect(&config.source, &notes, read.as_deref()).await?;
    let (record, gaps) = content.map(|it| (it.record, it.gaps)).unwrap_or_default();
    let mut findings = source.findings(&record, config.snapshot.mode).await?;
    findings.extend(gaps::findings(&gaps));
    let advice = "it holds what may be nowhere else";
    let finding = |spooled| Finding::error(Error::SpoolLeft { spooled }.to_string(), advice);
    findings.extend(left.map(finding));
    Ok(Report { pipeline: config.name.clone(), findings })
}

impl Report {
    pub fn is_ready(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Error)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let verdict = if self.is_ready() { "ready to run" } else { "not ready to run" };
        writeln!(f, "{}: {verdict}", self.pipeline)
    }
}

fn load(config: &Pipeline) -> Result<Plugins, Error> {
    let targets = u16::try_from(config.deliver.len()).unwrap_or(u16::MAX);
    let compiled = config.state.join("compiled");
    Ok(Plugins::load(&config.plugins, &config.compiler, &compiled, targets)?)
}

async fn preflight(mode: SnapshotMode, source: &Source, store: &Store) -> Result<(), Error> {
    let findings = source.findings(store.record(), mode).await?;
    let errors = finding::sort(findings);
    if !errors.is_empty() {
        return Err(Error::NotReady(errors));
    }
    Ok(source.prepare(store.record(), mode).await?)
}

/// They are read before the state is opened for writing: whose state it is, a source may know from them only.
fn notes(content: Option<&Content>) -> Notes {
    content.map(|content| content.notes.clone()).unwrap_or_default()
}

/// The outlets by name, with the key that the configuration has for each kind.
fn kinds(config: &Pipeline) -> BTreeMap<String, String> {
    let kind = |name| match config.outlet(name) {
        config::Outlet::Stdout => "stdout",
        config::Outlet::File { .. } => "file",
        config::Outlet::Sqlite { .. } => "sqlite",
        config::Outlet::Postgres { .. } => "postgres",
        config::Outlet::MySql { .. } => "mysql",
        config::Outlet::Discard => "discard",
    };
    config.deliver.iter().map(|name| (name.clone(), kind(name).to_owned())).collect()
}

/// `anew`: what they recorded is of a log that was given up.
async fn open_targets(config: &Pipeline, origin: &Origin, anew: bool) -> Result<Targets, Error> {
    let mut outlets = Vec::with_capacity(config.deliver.len());
    for (target, name) in (0..).zip(&config.deliver) {
        let failed = |source| Error::Outlet { name: name.clone(), source };
        let opened = Outlet::open(config.outlet(name), origin, target).await;
        let mut outlet = opened.map_err(failed)?;
        if anew {
            outlet.forget().await.map_err(failed)?;
        }
        outlets.push((name.clone(), outlet));
    }
    Ok(Targets::new(outlets))
}

/// A number that differs between engines and attempts; it spreads their pauses and decides nothing else.
fn spread() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.subsec_nanos().wrapping_mul(0x9E37_79B9))
}
