//! One instance of a plugin, in one lane.
//!
//! An instance owns its store: memory, meters, log, handles. It is called by its lane only, one call after the other,
//! and is gone when it is dropped. After a trap or a breach of the contract it refuses further calls, because its memory
//! may be anything: the caller instantiates anew and hands over the same events, which gives the same bytes.

use std::sync::Arc;
use std::time::Duration;

use dovetail_core::change::{Change, Event};
use dovetail_core::frame::{Call, Encoder, Entry, decode_reply};
use dovetail_core::outcome::Outcome;
use wasmtime::Store;
use wasmtime::component::TypedFunc;

use crate::bindings::dovetail::plugin::types;
use crate::bindings::exports::dovetail::plugin::{lifecycle, typed};
use crate::engine::Ticker;
use crate::error::{CallError, Refusal, Trap, TrapKind, Violation};
use crate::host::{Given, Host, Log, Random};
use crate::limits::Limits;
use crate::plugin::{Exports, FormIndices, Loaded, bounded, one_line};
use crate::relations::{Known, Relations};
use crate::trap::trap_of;
use crate::typed as typed_form;
use crate::verdict::Verdict;

type PackedProcess = TypedFunc<(&'static [u8],), (Result<Vec<u8>, types::CallError>,)>;

/// Of what a plugin says against its configuration: it may explain a format.
const REASON_CHARACTERS: usize = 1_000;

/// See the module's documentation.
pub struct Instance {
    store: Store<Host>,
    plugin: Arc<Loaded>,
    lifecycle: lifecycle::Guest,
    form: Form,
    relations: Relations,
    encoder: Encoder,
    frame: Vec<u8>,
    lane: u32,
    calls: u64,
    /// Of its memories when it was initialized.
    start_bytes: usize,
    discarded: bool,
}

enum Form {
    Typed(typed::Guest),
    Packed(PackedProcess),
}

impl Form {
    fn load(
        indices: &FormIndices,
        store: &mut Store<Host>,
        instance: &wasmtime::component::Instance,
    ) -> wasmtime::Result<Self> {
        Ok(match indices {
            FormIndices::Typed(indices) => Self::Typed(indices.load(&mut *store, instance)?),
            FormIndices::Packed(process) => Self::Packed(instance.get_typed_func(store, process)?),
        })
    }
}

fn store(exports: &Exports, limits: Limits, given: Given) -> Store<Host> {
    let mut store = Store::new(exports.pre.engine(), Host::new(limits, given));
    store.limiter(|host| host);
    store.set_hostcall_fuel(limits.output_bytes);
    store
}

fn begin_call(store: &mut Store<Host>, timeout: Duration) {
    store.data_mut().begin_call();
    store.set_epoch_deadline(Ticker::ticks(timeout));
}

impl Instance {
    /// Runs `describe` on an instance that is dropped afterwards. The types of all functions are checked here, because
    /// they show only at an instance; what a later one would stumble over is refused at once.
    pub(crate) fn describe(
        exports: &Exports,
        limits: Limits,
        config: &str,
    ) -> Result<lifecycle::Descriptor, Refusal> {
        let mut store = store(exports, limits, Given::default());
        begin_call(&mut store, limits.start_timeout);
        let stopped = |error: wasmtime::Error, store: &Store<Host>| {
            Refusal::Describe(trap_of(&error, store.data(), "describe").into())
        };
        let instance =
            exports.pre.instantiate(&mut store).map_err(|error| stopped(error, &store))?;
        let loaded = exports.lifecycle.load(&mut store, &instance).and_then(|lifecycle| {
            Form::load(&exports.form, &mut store, &instance)?;
            Ok(lifecycle)
        });
        let lifecycle = loaded.map_err(|error| Refusal::Interface(one_line(&error)))?;
        let described = lifecycle.call_describe(&mut store, config);
        described
            .map_err(|error| stopped(error, &store))?
            .map_err(|reason| Refusal::Configuration(bounded(&reason, REASON_CHARACTERS)))
    }

    pub(crate) fn start(plugin: Arc<Loaded>, lane: u32, lanes: u32) -> Result<Self, CallError> {
        let exports = &plugin.exports;
        let mut store = store(exports, plugin.limits, plugin.given());
        begin_call(&mut store, plugin.limits.start_timeout);
        let started = exports.pre.instantiate(&mut store).and_then(|instance| {
            let lifecycle = exports.lifecycle.load(&mut store, &instance)?;
            let form = Form::load(&exports.form, &mut store, &instance)?;
            let initialized = lifecycle.call_init(&mut store, &plugin.config, lane, lanes)?;
            Ok((lifecycle, form, initialized))
        });
        let (lifecycle, form, initialized) =
            started.map_err(|error| trap_of(&error, store.data(), Trap::INIT))?;
        initialized.map_err(CallError::Fatal)?;
        Ok(Self {
            start_bytes: store.data().meter.memory_bytes,
            calls: 0,
            store,
            plugin,
            lifecycle,
            form,
            relations: Relations::default(),
            encoder: Encoder::default(),
            frame: Vec::new(),
            lane,
            discarded: false,
        })
    }

    /// Hands over a batch; returns one outcome per event, in their order. Events that the plugin did not ask for are
    /// not shown to it and pass. A batch that is called again, in whole or in part, keeps its `sequence`.
    ///
    /// Columns and rows of outcomes are those of the event's whole relation. An outcome that its event does not allow
    /// (a patch of the key, a value of another type, an unknown target) comes as [`Outcome::Fail`].
    ///
    /// # Errors
    /// When the call as a whole failed: no outcome counts. After a trap or a breach of the contract the instance is of
    /// no further use.
    pub fn process(&mut self, sequence: u64, events: &[&Event]) -> Result<Vec<Outcome>, CallError> {
        if self.discarded {
            return Err(discarded().into());
        }
        self.calls += 1;
        let result = self.call(sequence, events);
        if matches!(result, Err(CallError::Trap(_) | CallError::Contract(_))) {
            self.discarded = true;
        }
        result
    }

    /// Whether a fresh instance should take its place before the next call. Linear memory never shrinks, so what a guest
    /// leaks, or needed once, it keeps until its instance is gone; at the limit it would be stopped in the middle of
    /// a batch. Worn is who has been called often, or grew beyond three quarters of its memory.
    pub fn is_worn(&self) -> bool {
        let limits = &self.plugin.limits;
        let held = self.store.data().meter.memory_bytes;
        let full = held > limits.memory_bytes / 4 * 3;
        self.calls >= limits.calls || (full && held > self.start_bytes)
    }

    /// What the plugin logged since the last time.
    pub fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.store.data_mut().log)
    }

    fn call(&mut self, sequence: u64, events: &[&Event]) -> Result<Vec<Outcome>, CallError> {
        let limits = self.plugin.limits;
        begin_call(&mut self.store, limits.batch_timeout);
        let mut wanted = Vec::with_capacity(events.len());
        for event in events {
            wanted.push(self.prepare(event)?);
        }
        let relations = &self.relations;
        let entries: Vec<Entry<'_>> = events
            .iter()
            .zip(&wanted)
            .filter_map(|(event, wanted)| {
                let projection = wanted.projection(relations)?;
                Some(Entry { event, projection })
            })
            .collect();
        let Some(first) = entries.first() else {
            return Ok(vec![Outcome::Pass; events.len()]);
        };

        let host = self.store.data_mut();
        host.clock_micros = first.event.commit_time_micros;
        let position = first.event.position;
        let place = position.commit.file().rotate_left(16) ^ position.commit.offset();
        host.random = Random(place.rotate_left(32) ^ u64::from(position.ordinal));
        let call = Call { lane: self.lane, sequence };
        let replies = match &self.form {
            Form::Typed(guest) => typed_form::process(&mut self.store, guest, call, &entries)?,
            Form::Packed(process) => {
                self.encoder.encode(call, &entries, &mut self.frame)?;
                let reply = call_packed(&mut self.store, process, &self.frame)?;
                decode_reply(&reply, entries.len()).map_err(Violation::from)?
            }
        };
        if replies.len() != entries.len() {
            let (expected, found) = (entries.len(), replies.len());
            return Err(Violation::OutcomeCount { expected, found }.into());
        }

        let verdict = Verdict { limits: &limits };
        let mut replies = replies.into_iter();
        let settled = events.iter().zip(&wanted).map(|(event, wanted)| {
            if !wanted.is_wanted() {
                return Outcome::Pass;
            }
            let reply = replies.next().unwrap_or(Outcome::Pass);
            verdict.settle(reply, event, wanted.known(relations))
        });
        Ok(settled.collect())
    }

    /// Finds out whether the plugin asked for the event, and announces its relation before the first of them.
    fn prepare(&mut self, event: &Event) -> Result<Wanted, CallError> {
        let operation = event.change.operation();
        let Some(relation) = event.change.relation() else {
            let message = matches!(event.change, Change::Message { .. });
            let wanted = message && self.plugin.sees_messages();
            return Ok(if wanted { Wanted::Message } else { Wanted::No });
        };
        let index = self.relations.index(relation, |relation| self.plugin.view(relation));
        let Some(known) = self.relations.get(index) else { return Ok(Wanted::No) };
        if !known.wants(operation) {
            return Ok(Wanted::No);
        }
        if !known.announced {
            typed_form::announce(&mut self.store, &self.lifecycle, known)?;
            self.relations.set_announced(index);
        }
        Ok(Wanted::Relation(index))
    }
}

/// Whether an event is handed over, and as what.
enum Wanted {
    No,
    Message,
    Relation(usize),
}

impl Wanted {
    fn is_wanted(&self) -> bool {
        !matches!(self, Self::No)
    }

    fn known<'a>(&self, relations: &'a Relations) -> Option<&'a Known> {
        match self {
            Self::Relation(index) => relations.get(*index),
            Self::No | Self::Message => None,
        }
    }

    #[expect(
        clippy::option_option,
        reason = "not handed over, or handed over without a projection"
    )]
    fn projection<'a>(
        &self,
        relations: &'a Relations,
    ) -> Option<Option<&'a dovetail_core::frame::Projection>> {
        match self {
            Self::No => None,
            Self::Message => Some(None),
            Self::Relation(_) => self.known(relations).map(Known::projection),
        }
    }
}

fn call_packed(
    store: &mut Store<Host>,
    process: &PackedProcess,
    frame: &[u8],
) -> Result<Vec<u8>, CallError> {
    let called = process.call(&mut *store, (frame,));
    let (reply,) = called.map_err(|error| trap_of(&error, store.data(), "process"))?;
    reply.map_err(call_error_of)
}

pub(crate) fn call_error_of(error: types::CallError) -> CallError {
    match error {
        types::CallError::Retry(after) => CallError::Retry(after),
        types::CallError::Fatal(reason) => CallError::Fatal(reason),
    }
}

fn discarded() -> Box<Trap> {
    Box::new(Trap {
        kind: TrapKind::Discarded,
        function: "process",
        detail: "instance was stopped before".into(),
        output: String::new(),
    })
}

impl From<Box<Trap>> for CallError {
    fn from(trap: Box<Trap>) -> Self {
        Self::Trap(trap)
    }
}
