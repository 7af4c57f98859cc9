//! A small world around the real seam, to be explored exhaustively.
//!
//! Two tables with two keys and one, a handful of transactions, one slot or a binlog, one outlet, one durable record, and
//! an engine that may crash between any two steps. A step is the smallest thing after which a crash makes a difference: a session
//! goes on, one action is performed, one chunk or transaction is read, one batch reaches the outlet. A crash between a
//! durable effect and the news of it leaves the same world as a crash right after the news, so both are one step.
//!
//! [`explore`] visits every reachable state, breadth first, and has the [checker](crate::checker) judge every history;
//! so the first violation that it finds has the shortest path.

mod bug;
mod database;
mod engine;
mod explore;
mod path;
mod pinning;
mod scenario;
mod situation;
mod step;

pub use bug::Bug;
pub use explore::{Exploration, Finding, explore};
pub use scenario::{Scenario, Server};
pub use situation::Situation;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_core::position::Lsn;
use dovetail_core::seam::{Mode, Pin, Record, Recorded};

use crate::checker::history::{AtRest, History, Life, Observation};
use database::{Database, View};
use engine::Engine;
use scenario::Table;

/// One state of the small world, with the history that led to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    database: Database,
    outlet: Outlet,
    store: Record,
    /// Saved with the pin: what is not streamed from there on, though it may lie behind it.
    note: Option<View>,
    /// `None` while it is down.
    engine: Option<Engine>,
    lives: Vec<Life>,
    crashes_left: u8,
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

impl World {
    fn new(scenario: &Scenario) -> Self {
        let recorded = if scenario.transactional { Recorded::Empty } else { Recorded::Unkept };
        Self {
            database: Database::new(scenario),
            outlet: Outlet { recorded, open: Vec::new() },
            store: Record::default(),
            note: None,
            engine: None,
            lives: Vec::new(),
            crashes_left: scenario.crashes,
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

    /// The tables of the configuration of this life.
    fn wanted<'a>(&self, scenario: &'a Scenario) -> Vec<&'a Table> {
        let first = self.lives.len() < 2;
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
            let streamed = |stream: &engine::Stream| stream.next == self.database.log.len();
            engine.todo.is_empty()
                && engine.pipe.is_empty()
                && engine.stream.as_ref().is_some_and(streamed)
        };
        let wanted: BTreeSet<_> = self.wanted(scenario).iter().map(|it| &it.name).collect();
        self.database.is_at_rest(scenario)
            && wanted.len() == scenario.tables.len()
            && self.engine.as_ref().is_some_and(caught_up)
    }

    fn history(&self, scenario: &Scenario) -> History {
        let source = (scenario.mode != Mode::Never).then(|| self.database.source());
        let added = scenario.added.iter().map(|it| it.name.as_str().into());
        let added_at = self.added_at.unwrap_or(Lsn::binlog(u32::MAX, u32::MAX, u64::MAX));
        History {
            transactions: self.database.transactions(),
            rolled_back: Vec::new(),
            pin: self.pin(),
            added: added.map(|table| (table, added_at)).collect::<BTreeMap<_, _>>(),
            lives: self.lives.clone(),
            at_rest: self.is_at_rest(scenario).then_some(AtRest { source, outlet: None }),
        }
    }
}
