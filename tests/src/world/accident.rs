//! What befalls a pipeline: the loss of a connection, a crash, and what happens behind its back.

use dovetail_core::position::Lsn;
use dovetail_core::seam::{Action, Input, Record, Recorded};

use super::World;
use super::engine::Engine;
use super::scenario::{Hazard, Scenario, Server};
use super::situation::Situation;
use super::spool::Spool;
use super::step::{Step, Stepping};
use crate::checker::history::Observation;

impl World {
    pub(super) fn accidents(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.hazard_left && self.can_happen(scenario) {
            steps.push(Step::Hazard);
        }
        let running = self.engine.is_some() || self.reader.is_some();
        if self.crashes_left > 0 && running {
            match &self.spool {
                Some(spool) => steps.extend(spool.remains().into_iter().map(Some).map(Step::Crash)),
                None => steps.push(Step::Crash(None)),
            }
        }
        let Some(engine) = &self.engine else { return steps };
        if self.outlet_losses_left > 0 && self.reader.is_some() {
            steps.push(Step::LoseOutlet);
        }
        if self.view_losses_left > 0 && engine.stream.is_none() {
            let creating = engine.todo.contains(&Action::TakePin);
            let held =
                engine.exported.is_some() || engine.view.is_some() || engine.settling.is_some();
            if creating || held {
                steps.push(Step::LoseView(false));
            }
            let leaves_a_slot = scenario.server == Server::Postgres;
            if creating && leaves_a_slot && self.database.can_take_pin() {
                steps.push(Step::LoseView(true));
            }
        }
        steps
    }

    /// Whether the hazard finds what it does harm to: most of them a pipeline that is down.
    fn can_happen(&self, scenario: &Scenario) -> bool {
        match (scenario.hazard, &self.spool) {
            (Some(Hazard::LogPurgedBehindTheReader), Some(spool)) => {
                self.reader.is_some() && spool.synced() > self.database.first
            }
            (Some(Hazard::LogPurgedBehindTheReader), None) => false,
            _ => self.engine.is_none() && self.reader.is_none() && self.pin().is_some(),
        }
    }

    /// Something that the pipeline still needs is gone.
    pub(super) fn has_lost(&self) -> bool {
        let mut observations = self.lives.iter().flat_map(|life| &life.observations);
        observations.any(|it| *it == Observation::LogLost)
    }
}

impl Stepping<'_> {
    pub(super) fn lose_view(&mut self, created: bool) {
        self.world.view_losses_left -= 1;
        self.situations.push(Situation::ViewLost);
        if created {
            self.world.database.create_slot();
        }
        let engine = self.engine();
        if engine.view.is_some() {
            self.situations.push(Situation::ViewReopened);
        }
        let engine = self.engine();
        engine.todo.retain(|action| !action.needs_view());
        engine.settling = None;
        engine.exported = None;
        engine.noted = None;
        engine.view = None;
        engine.scans.clear();
        self.apply(Input::ViewLost);
    }

    pub(super) fn lose_outlet(&mut self) {
        self.world.outlet_losses_left -= 1;
        self.world.engine = None;
        self.world.outlet.open.clear();
    }

    pub(super) fn crash(&mut self, spooled: Option<Lsn>) {
        self.world.crashes_left -= 1;
        let scanning = |engine: &Engine| engine.view.is_some();
        let situation = match &self.world.engine {
            _ if !self.world.outlet.open.is_empty() => Situation::CrashInsideATransaction,
            Some(engine) if engine.stream.is_some() => Situation::CrashInTheStream,
            Some(engine) if scanning(engine) => Situation::CrashInTheScan,
            _ if self.world.pin().is_none() => Situation::CrashBeforeThePin,
            _ => Situation::CrashBetween,
        };
        self.situations.push(situation);
        self.world.engine = None;
        self.world.shown = None;
        self.world.outlet.open.clear();
        if let Some(end) = spooled {
            self.cut_spool(end);
        }
    }

    pub(super) fn hazard(&mut self) {
        self.world.hazard_left = false;
        let world = &mut self.world;
        let needed = world.needed();
        let lost = match self.scenario.hazard {
            None => false,
            Some(Hazard::SlotRemade) => {
                let (confirmed, _) = world.database.create_slot();
                Some(confirmed) > needed
            }
            Some(Hazard::SlotDropped) => {
                world.database.slot = None;
                true
            }
            Some(Hazard::LogPurged) => {
                world.database.first = world.database.log_end();
                Some(world.database.first) > needed
            }
            Some(Hazard::LogPurgedBehindTheReader) => {
                let synced = world.spool.as_ref().map(Spool::synced);
                world.database.first = synced.unwrap_or_default().max(world.database.first);
                if world.engine.as_ref().is_some_and(|engine| !engine.scans.is_empty()) {
                    self.situations.push(Situation::PurgedBehindTheReader);
                }
                Some(world.database.first) > needed
            }
            Some(Hazard::SpoolLost) => {
                world.spool = None;
                let first = match &world.database.slot {
                    Some(slot) => slot.confirmed,
                    None => world.database.first,
                };
                Some(first) > world.resume()
            }
            Some(Hazard::LogReset) => {
                world.database.is_reset = true;
                true
            }
            Some(Hazard::OutletRestored) => {
                let filled = world.store.checkpoint.is_some();
                if filled {
                    world.outlet.recorded = Recorded::Empty;
                }
                filled
            }
            Some(Hazard::StateLost) => {
                world.store = Record::default();
                true
            }
        };
        if lost {
            world.observe(Observation::LogLost);
        }
    }
}
