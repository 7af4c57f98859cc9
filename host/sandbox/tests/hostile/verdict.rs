//! What becomes of a hostile guest, as data; and the judge.

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dovetail_core::change::Event;
use dovetail_core::outcome::Outcome;
use dovetail_sandbox::{CallError, Grants, Instance, Limits, Plugin, Refusal, Sandbox, TrapKind};

use crate::guest::{GUILTY, Guest};
use crate::support::{inserts, refs, users};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// Not loaded. The sentence for its author holds this text.
    Refused(&'static str),
    /// Stopped in this function, for this reason.
    Stopped(TrapKind, &'static str),
    /// Its reply breaks the contract; the error holds this text.
    Broken(&'static str),
    /// The guilty event fails with this code, its neighbours pass.
    Fails(&'static str),
    /// No fault of the guest: what it tried gave it nothing.
    Harmless,
    /// The plugin gives up by its own word, which holds this text.
    GivesUp(&'static str),
    /// The log was cut off at its limit, and what is missing was counted.
    LogCut,
}

/// A component, and the configuration that it is given.
pub(crate) struct Subject {
    component: Vec<u8>,
    config: String,
    grants: Grants,
}

impl From<Guest> for Subject {
    fn from(guest: Guest) -> Self {
        Self { component: guest.build(), config: String::new(), grants: guest.grants() }
    }
}

impl From<Vec<u8>> for Subject {
    fn from(component: Vec<u8>) -> Self {
        Self { component, config: String::new(), grants: Grants::all_rows() }
    }
}

/// The Rust guest that does what its configuration says.
pub(crate) fn misbehaving(behaviour: &str) -> Subject {
    let component = crate::support::guest("misbehaving");
    Subject { component, config: behaviour.into(), grants: Grants::all_rows() }
}

/// More than the host itself may ever have held, whatever the guests did: some of their memories at a time, and what
/// compiling small components takes.
const RESIDENT_BYTES_MAX: u64 = 1 << 30;
/// More than any of them takes, on a busy machine; some were made to take for ever.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) fn judge(subject: Subject, limits: Limits, verdict: Verdict) {
    let begun = Instant::now();
    judge_within(subject, limits, verdict);
    assert!(begun.elapsed() < TIME_MAX, "took {:?}", begun.elapsed());
}

fn judge_within(subject: Subject, limits: Limits, verdict: Verdict) {
    let loaded = sandbox().load(&subject.component, limits, &subject.grants, &subject.config);
    let plugin = match (loaded, verdict) {
        (Err(refusal), Verdict::Refused(text)) => return check_sentence(&refusal, text),
        (Ok(_), Verdict::Refused(text)) => panic!("loaded, where `{text}` was expected"),
        (Err(refusal), _) => panic!("refused: {}", chain(&refusal)),
        (Ok(plugin), _) => plugin,
    };
    let mut instance = match (plugin.instantiate(0, 1), verdict) {
        (Err(error), Verdict::Stopped(kind, "init")) => return check_trap(error, kind, "init"),
        (Err(error), Verdict::GivesUp(text)) => return check_words(error, text),
        (Err(error), _) => panic!("does not start: {error}"),
        (Ok(_), Verdict::Stopped(_, "init")) => panic!("started"),
        (Ok(instance), _) => instance,
    };
    let events = inserts(&users(), 5);
    let called = instance.process(GUILTY, &refs(&events));
    match (called, verdict) {
        (Err(error), Verdict::Stopped(kind, function)) => {
            check_trap(error, kind, function);
            is_called_no_more(&mut instance, &events);
        }
        (Err(CallError::Contract(violation)), Verdict::Broken(text)) => {
            assert!(violation.to_string().contains(text), "{violation}");
            is_called_no_more(&mut instance, &events);
        }
        (Err(error), Verdict::GivesUp(text)) => check_words(error, text),
        (Ok(outcomes), Verdict::Fails(code)) => check_failure(&outcomes, code),
        (Ok(outcomes), Verdict::Harmless) => check_passed(&outcomes),
        (Ok(outcomes), Verdict::LogCut) => {
            check_passed(&outcomes);
            check_log(&mut instance, limits);
        }
        (called, verdict) => panic!("{called:?}, where {verdict:?} was expected"),
    }
    drop(instance);
    if !matches!(verdict, Verdict::Stopped(_, "on-relation") | Verdict::GivesUp(_)) {
        lane_goes_on(&plugin, &events);
    }
    host_is_well();
}

/// Compiled components are kept between runs, so that a run measures the attacks and not the compiler.
fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let kept = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile-compiled");
        crate::support::sandbox_with(Some(kept))
    })
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// One line, not endless, and about the matter.
fn check_sentence(refusal: &Refusal, text: &str) {
    let sentence = chain(refusal);
    assert!(sentence.contains(text), "{sentence}");
    assert!(!sentence.contains(char::is_control), "{sentence:?}");
    assert!(sentence.chars().count() < 900, "{sentence}");
    host_is_well();
}

fn check_trap(error: CallError, kind: TrapKind, function: &str) {
    let CallError::Trap(trap) = error else { panic!("not a trap: {error:?}") };
    assert_eq!((trap.kind, trap.function), (kind, function), "{}", trap.detail);
    assert!(trap.detail.chars().count() <= 600 && !trap.detail.contains(char::is_control));
    assert!(trap.output.len() <= 3 * (4 << 10), "what it prints is kept in part");
}

fn check_words(error: CallError, text: &str) {
    let CallError::Fatal(words) = error else { panic!("did not give up: {error:?}") };
    assert!(words.contains(text), "{words}");
}

fn check_failure(outcomes: &[Outcome], code: &str) {
    let [Outcome::Fail(failure), neighbours @ ..] = outcomes else { panic!("{outcomes:?}") };
    assert_eq!(failure.code, code, "{}", failure.message);
    assert!(failure.message.len() < 200, "{}", failure.message);
    check_passed(neighbours);
}

fn check_passed(outcomes: &[Outcome]) {
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Pass), "{outcomes:?}");
}

fn check_log(instance: &mut Instance, limits: Limits) {
    let log = instance.take_log();
    let kept: usize = log.lines.iter().map(|(_, line)| line.len()).sum();
    assert!(kept <= limits.log_bytes, "{kept}");
    assert!(log.lines.len() <= limits.log_bytes / 32, "{}", log.lines.len());
    assert!(log.dropped > 0, "nothing was cut off");
    assert_eq!(instance.take_log().lines.len(), 0);
}

fn is_called_no_more(instance: &mut Instance, events: &[Event]) {
    let again = instance.process(GUILTY + 1, &refs(events));
    let Err(CallError::Trap(trap)) = again else { panic!("called again: {again:?}") };
    assert_eq!(trap.kind, TrapKind::Discarded);
}

/// The next event of the same key is handled, by a fresh instance.
fn lane_goes_on(plugin: &Plugin, events: &[Event]) {
    let mut fresh = plugin.instantiate(0, 1).expect("a fresh instance starts");
    let next = events.get(..1).expect("there are five");
    let outcomes = fresh.process(GUILTY + 1, &refs(next)).expect("the next call is honest");
    assert_eq!(outcomes, [Outcome::Pass]);
}

fn host_is_well() {
    let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("is there");
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes << 10 <= RESIDENT_BYTES_MAX, "the host held {kilobytes} kB");
}
