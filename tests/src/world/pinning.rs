//! The pin and the log: what differs between servers.

use dovetail_core::change::Xid;
use dovetail_core::fence::Mark;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use dovetail_core::seam::{Continuity, Input, Log, Slot};

use super::bug::Bug;
use super::engine::Settling;
use super::scenario::Server;
use super::situation::Situation;
use super::step::Stepping;

impl Stepping<'_> {
    /// What the server holds of the log.
    pub(super) fn log(&self) -> Log {
        let unexamined = match self.bug {
            Some(Bug::LogNotExamined) => true,
            Some(Bug::ReadAnewWhereTheServerStands) => self.world.needed() == self.world.resume(),
            _ => false,
        };
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
}
