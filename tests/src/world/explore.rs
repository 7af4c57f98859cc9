//! Breadth-first search through every reachable state.
//!
//! A state is kept only while its level is being expanded; of those behind only a 64-bit digest and the step that led to
//! it. Among a million states two have the same digest with a chance below one in ten million, and then one of them
//! would go unexplored.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::World;
use super::bug::Bug;
use super::path::describe;
use super::scenario::Scenario;
use super::situation::Situation;
use super::step::{Step, Stepping};
use crate::checker::{Violation, judge};

/// More states than this are a mistake in the scenario, not a better proof: a level of the search would not fit in a
/// gigabyte.
const STATES_MAX: usize = 1_000_000;

/// What the exploration of one world came to.
#[derive(Debug)]
pub struct Exploration {
    pub states: usize,
    /// Steps on the longest of the shortest paths.
    pub depth: usize,
    /// How many steps led into each.
    pub situations: BTreeMap<Situation, usize>,
    /// The first; the search ends with it.
    pub finding: Option<Finding>,
}

/// Something wrong, and the shortest path to it.
#[derive(Debug)]
pub struct Finding {
    /// What each step did.
    pub path: Vec<String>,
    pub wrong: Wrong,
}

#[derive(Debug)]
pub enum Wrong {
    Violations(Vec<Violation>),
    Defect(&'static str),
    /// Nothing can happen any more, and the outlet has not everything.
    Stuck,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrong {
            Wrong::Violations(violations) => {
                for violation in violations {
                    writeln!(f, "{violation}")?;
                }
            }
            Wrong::Defect(defect) => writeln!(f, "{defect}")?,
            Wrong::Stuck => writeln!(f, "nothing can happen any more, and the work is not done")?,
        }
        write!(f, "after {} steps:", self.path.len())?;
        for step in &self.path {
            write!(f, "\n    {step}")?;
        }
        Ok(())
    }
}

/// Visits every state that this scenario can reach, with the right driver or a wrong one.
pub fn explore(scenario: &Scenario, bug: Option<Bug>) -> Exploration {
    let mut search = Search::default();
    let first = World::new(scenario);
    search.seen.insert(digest(&first));
    search.origins.push((0, Step::Start));
    let mut level = vec![(0, first)];
    let mut exploration =
        Exploration { states: 1, depth: 0, situations: BTreeMap::new(), finding: None };
    while !level.is_empty() {
        let mut next = Vec::new();
        for (origin, world) in level {
            let enabled = world.enabled(scenario);
            if !world.can_go_on(scenario, &enabled) {
                let path = describe(scenario, bug, &search.path(origin));
                exploration.finding = Some(Finding { path, wrong: Wrong::Stuck });
                return exploration;
            }
            for step in enabled {
                let mut stepping =
                    Stepping { world: world.clone(), scenario, bug, situations: Vec::new() };
                stepping.take(step);
                for situation in stepping.situations {
                    *exploration.situations.entry(situation).or_default() += 1;
                }
                if !search.seen.insert(digest(&stepping.world)) {
                    continue;
                }
                let index = search.add(origin, step);
                if let Some(wrong) = stepping.world.wrong(scenario) {
                    let path = describe(scenario, bug, &search.path(index));
                    exploration.finding = Some(Finding { path, wrong });
                    exploration.states = search.origins.len();
                    return exploration;
                }
                next.push((index, stepping.world));
            }
        }
        exploration.states = search.origins.len();
        assert!(exploration.states < STATES_MAX, "{}: the world is too large", scenario.name);
        exploration.depth += usize::from(!next.is_empty());
        level = next;
    }
    exploration
}

impl World {
    /// A state in which only accidents could happen has to be the end of all work.
    fn can_go_on(&self, scenario: &Scenario, enabled: &[Step]) -> bool {
        let accident = |step: &Step| {
            matches!(step, Step::Crash(_) | Step::LoseView(_) | Step::LoseOutlet | Step::Hazard)
        };
        self.refused || !enabled.iter().all(accident) || self.is_done(scenario)
    }

    /// At rest, where not all tables are wanted in this life: everything of those that are.
    fn is_done(&self, scenario: &Scenario) -> bool {
        self.is_at_rest(scenario) || self.wanted(scenario).len() < scenario.tables.len()
    }

    fn wrong(&self, scenario: &Scenario) -> Option<Wrong> {
        if let Some(defect) = self.defect {
            return Some(Wrong::Defect(defect));
        }
        let violations = judge(&self.history(scenario));
        (!violations.is_empty()).then_some(Wrong::Violations(violations))
    }
}

#[derive(Default)]
struct Search {
    seen: HashSet<u64>,
    /// By index of the state: the state before it, and the step between.
    origins: Vec<(usize, Step)>,
}

impl Search {
    fn add(&mut self, origin: usize, step: Step) -> usize {
        self.origins.push((origin, step));
        self.origins.len() - 1
    }

    fn path(&self, mut index: usize) -> Vec<Step> {
        let mut path = Vec::new();
        while index != 0 {
            let (origin, step) = self.origins[index];
            path.push(step);
            index = origin;
        }
        path.reverse();
        path
    }
}

/// The same in every run: the keys of this hasher are fixed.
fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
