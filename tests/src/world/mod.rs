//! A small world around the real seam, to be explored exhaustively.
//!
//! Two tables with two keys and one, a handful of transactions, one slot or a binlog, one outlet, one durable record, in
//! some worlds a spool, and an engine that may crash between any two steps. A step is the smallest thing after which a crash makes a difference: a session
//! goes on, one action is performed, one chunk or transaction is read, one batch reaches the outlet. A crash between a
//! durable effect and the news of it leaves the same world as a crash right after the news, so both are one step.
//!
//! [`explore`] visits every reachable state, breadth first, and has the [checker](crate::checker) judge every history;
//! so the first violation that it finds has the shortest path.

mod accident;
mod bug;
mod database;
mod engine;
mod explore;
mod path;
mod pinning;
mod scenario;
mod situation;
mod spool;
mod step;

pub use bug::Bug;
pub use explore::{Exploration, Finding, explore};
pub use scenario::{Scenario, Server};
pub use situation::Situation;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_core::position::Lsn;
use dovetail_core::seam::{Log, Mode, Pin, Record, Recorded};

use crate::checker::history::{AtRest, History, Life, Observation};
use database::{Database, View};
use engine::Engine;
use scenario::Table;
use spool::{Reader, Spool};

/// One state of the small world, with the history that led to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    database: Database,
    outlet: Outlet,
    store: Record,
    /// Saved with the pin: what is not streamed from there on, though it may lie behind it.
    note: Option<View>,
    /// One attempt of the engine; `None` between two, and while it is down.
    engine: Option<Engine>,
    reader: Option<Reader>,
    spool: Option<Spool>,
    /// What the server showed at the beginning of an attempt, until the seam is told.
    shown: Option<(Log, Lsn)>,
    lives: Vec<Life>,
    /// How far the spool is durable, and what the server was told of it in this step. Kept apart, because its order among
    /// what was delivered says nothing: worlds that differ in that alone are one.
    accounts: Vec<Observation>,
    /// How many times the engine was started; an attempt that follows a failed one is no start.
    processes: usize,
    crashes_left: u8,
    outlet_losses_left: u8,
    view_losses_left: u8,
    hazard_left: bool,
    /// The pipeline refused to go on: only an operator could start it again.
    refused: bool,
    /// What committed before this is not in the stream of the tables that were added.
    added_at: Option<Lsn>,
    /// Something that no order of steps may lead to, whatever the history looks like.
    defect: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Outlet {
    recorded: Recorded,
    /// In the open transaction of a transactional outlet.
    open: Vec<Observation>,
}

impl Outlet {
    fn position(&self) -> Option<Lsn> {
        match self.recorded {
            Recorded::At(lsn) => Some(lsn),
            Recorded::Unkept | Recorded::Empty => None,
        }
    }
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let recorded = if scenario.transactional { Recorded::Empty } else { Recorded::Unkept };
        Self {
            database: Database::new(scenario),
            outlet: Outlet { recorded, open: Vec::new() },
            store: Record::default(),
            note: None,
            engine: None,
            reader: None,
            spool: None,
            shown: None,
            lives: Vec::new(),
            accounts: Vec::new(),
            processes: 0,
            crashes_left: scenario.crashes,
            outlet_losses_left: scenario.outlet_losses,
            view_losses_left: scenario.view_losses,
            hazard_left: scenario.hazard.is_some(),
            refused: false,
            added_at: None,
            defect: None,
        }
    }

    fn observe(&mut self, observation: Observation) {
        if let Some(life) = self.lives.last_mut() {
            life.observations.push(observation);
        }
    }

    /// What was told before this step was judged then. What is told in it is judged by how far the spool was durable.
    fn forget_accounts(&mut self) {
        let spooled =
            self.accounts.iter().rfind(|it| matches!(it, Observation::Spooled(_))).cloned();
        self.accounts = spooled.into_iter().collect();
    }

    /// The tables of the configuration of this process.
    fn wanted<'a>(&self, scenario: &'a Scenario) -> Vec<&'a Table> {
        let first = self.processes < 2;
        scenario.tables.iter().filter(|it| !first || !scenario.added.contains(&it.name)).collect()
    }

    fn pin(&self) -> Option<Lsn> {
        match self.store.pin {
            Pin::At(pin) => Some(pin),
            Pin::None | Pin::Intended => None,
        }
    }

    /// Writers have stopped, and what they wrote has reached the outlet.
    fn is_at_rest(&self, scenario: &Scenario) -> bool {
        let caught_up = |engine: &Engine| {
            let streamed = |stream: &engine::Stream| self.next_streamed(stream.next).is_none();
            engine.todo.is_empty()
                && engine.pipe.is_empty()
                && engine.stream.as_ref().is_some_and(streamed)
        };
        let wanted: BTreeSet<_> = self.wanted(scenario).iter().map(|it| &it.name).collect();
        self.database.is_at_rest(scenario)
            && wanted.len() == scenario.tables.len()
            && self.has_read(scenario)
            && self.engine.as_ref().is_some_and(caught_up)
    }

    fn history(&self, scenario: &Scenario) -> History {
        let source = (scenario.mode != Mode::Never).then(|| self.database.source());
        let added = scenario.added.iter().map(|it| it.name.as_str().into());
        let mut lives = self.lives.clone();
        if let Some(life) = lives.last_mut() {
            life.observations.extend(self.accounts.iter().cloned());
        }
        let added_at = self.added_at.unwrap_or(Lsn::binlog(u32::MAX, u32::MAX, u64::MAX));
        History {
            transactions: self.database.transactions(),
            rolled_back: Vec::new(),
            pin: self.pin(),
            added: added.map(|table| (table, added_at)).collect::<BTreeMap<_, _>>(),
            lives,
            at_rest: self.is_at_rest(scenario).then_some(AtRest { source, outlet: None }),
        }
    }
}
