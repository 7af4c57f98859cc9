//! The seam in small worlds, explored exhaustively; and wrong drivers, each of which has to be found out.

use std::collections::BTreeMap;

use dovetail_tests::world::{Bug, Scenario, Server, Situation, explore};

#[test]
fn no_order_of_steps_breaks_an_invariant() {
    let mut reached: BTreeMap<Situation, usize> = BTreeMap::new();
    let mut states = 0;
    for scenario in Scenario::all() {
        let exploration = explore(&scenario, None);
        println!(
            "{:>8} states, {:>3} steps deep: {}",
            exploration.states, exploration.depth, scenario.name
        );
        if let Some(finding) = exploration.finding {
            panic!("{}: {finding}", scenario.name);
        }
        states += exploration.states;
        for (situation, count) in exploration.situations {
            *reached.entry(situation).or_default() += count;
        }
    }
    println!("{states:>8} states in all");
    for situation in Situation::ALL {
        let count = reached.get(&situation).copied().unwrap_or(0);
        println!("{count:>8} x {situation:?}");
    }
    let missed: Vec<_> =
        Situation::ALL.into_iter().filter(|it| !reached.contains_key(it)).collect();
    assert!(missed.is_empty(), "the exploration never went through {missed:?}");
    assert!(states > 3_000_000, "only {states} states: the worlds have shrunk");
}

#[test]
fn every_wrong_driver_is_found_out() {
    let scenarios = Scenario::all();
    for server in Server::ALL {
        for bug in Bug::ALL.into_iter().filter(|bug| bug.is_of(server)) {
            let name = bug.shown_by(server);
            let scenario =
                scenarios.iter().find(|it| it.name == name).expect("a world of this name");
            match explore(scenario, Some(bug)).finding {
                Some(finding) => println!("{bug:?}, in \"{name}\": {finding}\n"),
                None => panic!("{bug:?} was not found out in \"{name}\""),
            }
        }
    }
}
