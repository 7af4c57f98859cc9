//! The plugins of one lane, in their order.
//!
//! A chain is called for one part of a batch after the other and retries inside the call, so that no later change of a
//! key overtakes an earlier one. When a call fails (trap, deadline, broken contract) the instance is thrown away, the
//! same events are handed to a fresh one, byte for byte, and when that fails too they are halved until the guilty event
//! stands alone. Its neighbours pass; for itself the plugin's policy decides.
//!
//! Every failed call may have taken the plugin's whole time, so there are few: two for the events as a whole, one for each
//! half, and two again for an event that stands alone, because what is decided then is not taken back. A guilty event
//! among 512 costs twelve.
//!
//! What is not the fault of one event is not blamed on one: a plugin that does not start, that says that an operator must act,
//! or that still asks to be called again after its time, halts the pipeline whatever its policy. Skipping would leave out every event that is
//! to come.
//!
//! An emission goes straight to the outlets: the plugins behind see only events of the source.

use std::thread;
use std::time::Duration;

use dovetail_core::change::Event;
use dovetail_core::outcome::{Body, FailureClass, Outcome, Record};
use dovetail_core::position::Position;
use dovetail_sandbox::{CallError, Instance, Level, Log, Trap};
use tracing::{debug, error, info, trace, warn};

use super::load::Loaded;
use crate::config::OnFailure;
use crate::lanes::Processed;

/// How often a call that asks to be retried is repeated before it counts as failed. With the longest delay between them
/// this is about a minute, after which an operator should know.
const RETRIES_MAX: u32 = 12;

/// The pause for a plugin that names none.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Of a plugin's own words. An author is told that they reach logs and screens, and that values do not belong there.
const REASON_CHARACTERS: usize = 300;

/// A plugin may ask for a pause, but not put a lane to sleep.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// A plugin stopped the pipeline before an event: by its own word or by its policy.
#[derive(Debug, thiserror::Error)]
#[error(
    "plugin {plugin} could not handle the change at {position} ({reason}); repair the plugin or its configuration and \
     start again{policy}"
)]
pub struct Halt {
    pub plugin: String,
    pub position: Position,
    pub reason: String,
    /// Advice, where another policy would have gone on.
    policy: &'static str,
}

/// The chain of one lane. Has its own instance of every plugin.
pub struct Chain {
    stages: Vec<Stage>,
}

impl Chain {
    pub(super) fn new(stages: Vec<Stage>) -> Self {
        Self { stages }
    }

    /// What the chain makes of each event, in their order.
    ///
    /// # Errors
    /// When a plugin's policy halts the pipeline; nothing of the part may then be delivered.
    pub fn process(&mut self, events: Vec<Event>) -> Result<Vec<Processed>, Halt> {
        let whole = |event| Processed::One(Record { body: Body::Event(event), route: None });
        let mut slots: Vec<Processed> = events.into_iter().map(whole).collect();
        for stage in &mut self.stages {
            stage.pass(&mut slots)?;
        }
        Ok(slots)
    }
}

/// One plugin in one lane.
pub(super) struct Stage {
    plugin: Loaded,
    lane: u16,
    lanes: u16,
    /// Counts the calls that succeeded; what is called again keeps its number.
    sequence: u64,
    /// None before the first call, after a failed one, and when it was worn.
    instance: Option<Instance>,
}

impl Stage {
    pub(super) fn new(plugin: Loaded, lane: u16, lanes: u16) -> Self {
        Self { plugin, lane, lanes, sequence: 0, instance: None }
    }

    fn pass(&mut self, slots: &mut [Processed]) -> Result<(), Halt> {
        let mut wanted = Vec::with_capacity(slots.len());
        let mut events = Vec::with_capacity(slots.len());
        for (index, slot) in slots.iter().enumerate() {
            if let Processed::One(Record { body: Body::Event(event), .. }) = slot {
                wanted.push(index);
                events.push(event);
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let outcomes = self.judge(&events)?;
        self.sequence += 1;
        for (index, outcome) in wanted.into_iter().zip(outcomes) {
            if let Some(slot) = slots.get_mut(index) {
                let event = std::mem::replace(slot, Processed::Dropped);
                *slot = self.apply(event, outcome)?;
            }
        }
        Ok(())
    }

    /// One outcome for each event, whatever it takes.
    fn judge(&mut self, events: &[&Event]) -> Result<Vec<Outcome>, Halt> {
        match self.attempt(events)? {
            Ok(outcomes) => Ok(outcomes),
            // What only the instance's past caused is gone on a fresh one.
            Err(CallError::Trap(_) | CallError::Contract(_)) => self.isolate(events),
            Err(_) => self.halve(events),
        }
    }

    /// The events are called once; where that fails, and they are more than one, each half for itself.
    fn isolate(&mut self, events: &[&Event]) -> Result<Vec<Outcome>, Halt> {
        match (self.attempt(events)?, events) {
            (Ok(outcomes), _) => Ok(outcomes),
            (Err(_), [event]) => match self.attempt(events)? {
                Ok(outcomes) => Ok(outcomes),
                Err(error) => self.give_up(event, error.to_string()).map(|outcome| vec![outcome]),
            },
            (Err(_), many) => self.halve(many),
        }
    }

    fn halve(&mut self, events: &[&Event]) -> Result<Vec<Outcome>, Halt> {
        let (left, right) = events.split_at(events.len() / 2);
        let mut outcomes = Vec::with_capacity(events.len());
        for half in [left, right].into_iter().filter(|half| !half.is_empty()) {
            outcomes.extend(self.isolate(half)?);
        }
        Ok(outcomes)
    }

    /// A call, whose failure may be that of an event.
    fn attempt(&mut self, events: &[&Event]) -> Result<Result<Vec<Outcome>, CallError>, Halt> {
        let reason = match self.call(events) {
            Err(CallError::Fatal(words)) => words,
            Err(CallError::Trap(trap)) if trap.function == Trap::INIT => {
                CallError::Trap(trap).to_string()
            }
            Err(CallError::Retry(_)) => {
                format!("still asks to be called again after {RETRIES_MAX} times")
            }
            called => return Ok(called),
        };
        let position = events.first().map(|event| event.position).unwrap_or_default();
        let reason: String = reason.chars().take(REASON_CHARACTERS).collect();
        let reason = reason.replace(char::is_control, " ");
        Err(Halt { plugin: self.plugin.name().to_owned(), position, reason, policy: "" })
    }

    fn call(&mut self, events: &[&Event]) -> Result<Vec<Outcome>, CallError> {
        for _ in 0..RETRIES_MAX {
            let mut instance = match self.instance.take() {
                Some(instance) => instance,
                None => self.instantiate()?,
            };
            let result = instance.process(self.sequence, events);
            self.write_log(instance.take_log());
            match result {
                Ok(outcomes) => {
                    self.instance = Some(instance).filter(|instance| !instance.is_worn());
                    return Ok(outcomes);
                }
                Err(CallError::Retry(delay_ms)) => {
                    self.instance = Some(instance);
                    let delay = delay_ms.map(|ms| Duration::from_millis(ms.into()));
                    thread::sleep(delay.unwrap_or(RETRY_DELAY).min(RETRY_DELAY_MAX));
                }
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Retry(None))
    }

    /// Once more where it fails: a machine that is busy enough lets a plugin miss its deadline.
    fn instantiate(&self) -> Result<Instance, CallError> {
        let instantiate = || self.plugin.instantiate(self.lane, self.lanes);
        instantiate().or_else(|_| instantiate())
    }

    fn write_log(&self, log: Log) {
        let (plugin, lane) = (self.plugin.name(), self.lane);
        for (level, line) in log.lines {
            match level {
                Level::Trace => trace!(plugin, lane, line, "plugin says"),
                Level::Debug => debug!(plugin, lane, line, "plugin says"),
                Level::Info => info!(plugin, lane, line, "plugin says"),
                Level::Warn => warn!(plugin, lane, line, "plugin says"),
                Level::Error => error!(plugin, lane, line, "plugin says"),
            }
        }
        if log.dropped > 0 {
            warn!(plugin, lane, lines = log.dropped, "plugin logged more than it may in one call");
        }
    }

    fn apply(&self, slot: Processed, outcome: Outcome) -> Result<Processed, Halt> {
        let Processed::One(Record { body: Body::Event(mut event), route }) = slot else {
            return Ok(slot);
        };
        Ok(match outcome {
            Outcome::Pass => Processed::One(Record { body: Body::Event(event), route }),
            Outcome::Drop => Processed::Dropped,
            Outcome::Patch(cells) => {
                if let Some(row) = event.change.after_mut() {
                    for cell in cells {
                        if let Some(value) = row.get_mut(cell.column) {
                            *value = cell.value;
                        }
                    }
                }
                Processed::One(Record { body: Body::Event(event), route })
            }
            Outcome::Route(route) => {
                Processed::One(Record { body: Body::Event(event), route: Some(route) })
            }
            Outcome::Emit(emissions) => {
                let records = emissions.into_iter().map(|emission| Record {
                    body: Body::Emission {
                        position: event.position,
                        redelivery: event.redelivery,
                        relation: event.change.relation().cloned(),
                        input: event.change.keyed_row().cloned(),
                        emission,
                    },
                    route: route.clone(),
                });
                Processed::Many(records.collect())
            }
            Outcome::Fail(failure) => {
                let class = match failure.class {
                    FailureClass::InvalidData => "invalid data",
                    FailureClass::Unsupported => "unsupported",
                    FailureClass::Internal => "internal error",
                };
                self.give_up(&event, format!("{class}, code {:.40}", failure.code))?;
                Processed::Dropped
            }
        })
    }

    /// What the operator wants done with an event that this plugin cannot handle.
    fn give_up(&self, event: &Event, reason: String) -> Result<Outcome, Halt> {
        let plugin = self.plugin.name().to_owned();
        match self.plugin.on_failure() {
            OnFailure::Halt => {
                let policy = ", or set `on_failure: skip` to leave such changes out";
                Err(Halt { plugin, position: event.position, reason, policy })
            }
            OnFailure::Skip => {
                warn!(plugin, position = %event.position, reason, "left a change out");
                Ok(Outcome::Drop)
            }
        }
    }
}
