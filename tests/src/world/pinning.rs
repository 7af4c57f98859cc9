//! The pin and the log: what differs between servers, and what happens to them behind the pipeline's back.

use dovetail_core::change::Xid;
use dovetail_core::fence::Mark;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use dovetail_core::seam::{Continuity, Input, Log, Record, Recorded, Slot};

use super::bug::Bug;
use super::engine::Settling;
use super::scenario::{Hazard, Server};
use super::situation::Situation;
use super::step::Stepping;
use crate::checker::history::Observation;

impl Stepping<'_> {
    /// What the server holds of the log.
    pub(super) fn log(&self) -> Log {
        let unexamined = self.bug == Some(Bug::LogNotExamined);
        let database = &self.world.database;
        match (self.scenario.server, &database.slot) {
            (Server::MySql, _) if unexamined => {
                Log::Files { first: Lsn::ZERO, continuity: Continuity::Same }
            }
            (Server::MySql, _) => {
                let reset = database.is_reset;
                let continuity = if reset { Continuity::Reset } else { Continuity::Same };
                Log::Files { first: database.first, continuity }
            }
            (Server::Postgres, None) => Log::Slot(Slot::Absent),
            (Server::Postgres, Some(slot)) => {
                let confirmed = if unexamined { Lsn::ZERO } else { slot.confirmed };
                Log::Slot(Slot::Present { confirmed, streamed: false })
            }
        }
    }

    /// Up to where everything has settled.
    pub(super) fn mark(&self, settling: &Settling) -> Mark {
        match settling {
            Settling::Below(xid) => Mark::Xid(Xid(*xid)),
            Settling::All(view) => Mark::Gtids(self.world.database.gtids(view)),
        }
    }

    pub(super) fn settle(&mut self, before: Lsn) {
        let settling = match self.scenario.server {
            Server::Postgres => Settling::Below(self.world.database.burn_xid()),
            Server::MySql => {
                let before = self.world.database.before(before);
                Settling::All(match &self.world.note {
                    Some(note) => before.union(note),
                    None => before,
                })
            }
        };
        if self.bug != Some(Bug::NoSettling) {
            self.engine().settling = Some(settling);
            return;
        }
        let mark = match settling {
            Settling::Below(_) => Mark::Xid(Xid(0)),
            Settling::All(_) => Mark::Gtids(GtidSet::default()),
        };
        self.apply(Input::Settled { mark });
    }

    pub(super) fn take_pin(&mut self) {
        if self.world.pin().is_some() {
            self.world.defect = Some("a pin is taken though one is saved");
        }
        let database = &mut self.world.database;
        let wrong = matches!(self.bug, Some(Bug::ViewThenPin | Bug::PositionThenView));
        match self.scenario.server {
            Server::Postgres => {
                let (at, view) = database.create_slot();
                self.engine().exported.get_or_insert(view);
                self.apply(Input::Pinned { at, view: true });
            }
            Server::MySql if wrong => {
                let (at, view) = (database.log_end(), database.open_view());
                self.engine().exported.get_or_insert(view);
                self.apply(Input::Pinned { at, view: true });
            }
            Server::MySql => {
                let (at, visible) = database.gtid_pin();
                self.situations.push(Situation::PinnedWithoutAView);
                self.engine().noted = Some(visible);
                self.apply(Input::Pinned { at, view: false });
            }
        }
    }

    pub(super) fn hazard(&mut self) {
        self.world.hazard_left = false;
        let world = &mut self.world;
        let needed = world.pin().max(world.store.checkpoint);
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
