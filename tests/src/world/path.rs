//! A path through the small world, in words.

use super::World;
use super::bug::Bug;
use super::scenario::Scenario;
use super::step::{Step, Stepping};

/// What each step of the path did: takes it once more.
pub(super) fn describe(scenario: &Scenario, bug: Option<Bug>, path: &[Step]) -> Vec<String> {
    let world = World::new(scenario);
    let mut stepping = Stepping { world, scenario, bug, situations: Vec::new() };
    let take = |step: &Step| {
        let text = stepping.describe(*step);
        stepping.take(*step);
        text
    };
    path.iter().map(take).collect()
}

impl Stepping<'_> {
    fn describe(&self, step: Step) -> String {
        let engine = self.world.engine.as_ref();
        match (step, engine) {
            (Step::Session(session), _) => {
                format!(
                    "session {session}: {}",
                    self.world.database.describe(self.scenario, session)
                )
            }
            (Step::Perform, Some(engine)) => match engine.todo.front() {
                Some(action) => format!("perform {action:?}"),
                None => "perform nothing".to_owned(),
            },
            (Step::ReadChunk(table), Some(_)) => {
                format!("read a chunk of {}", self.scenario.tables[table].name)
            }
            (Step::Deliver, Some(engine)) => match engine.pipe.front() {
                Some(batch) => format!("the outlet takes {batch}"),
                None => "the outlet takes nothing".to_owned(),
            },
            (step, _) => format!("{step:?}"),
        }
    }
}
