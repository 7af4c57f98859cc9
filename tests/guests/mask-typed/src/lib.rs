//! The twin of the ready-made plugin `mask`, by the typed form: the same configuration, the same outcomes.
//!
//! The configuration is read by the plugin's own code. The rules are written anew, because the plugin's are of the
//! SDK's values, and the SDK is the packed form.

#[path = "../../../../plugins/mask/src/config.rs"]
mod config;
mod rule;

use std::cell::RefCell;

wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "transform" });

use config::{Config, Target};
use dovetail::plugin::types::{
    CallError, Cell, Event, Failure, FailureClass, Operation, Outcome, Relation, RelationRef,
};
use exports::dovetail::plugin::lifecycle::{self, Descriptor, Interest};
use exports::dovetail::plugin::typed;
use rule::Rule;

struct Mask;

struct State {
    config: Config,
    plans: Vec<Plan>,
}

/// Which columns of one relation are masked, and how.
struct Plan {
    relation: RelationRef,
    columns: Vec<(u16, Rule)>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

fn with_state<R>(call: impl FnOnce(&mut State) -> Result<R, CallError>) -> Result<R, CallError> {
    STATE.with_borrow_mut(|state| match state {
        Some(state) => call(state),
        None => Err(CallError::Fatal("called before init".to_owned())),
    })
}

impl lifecycle::Guest for Mask {
    fn describe(config: String) -> Result<Descriptor, String> {
        let interest = |target: &Target| Interest {
            tables: vec![target.tables.clone()],
            operations: vec![Operation::Read, Operation::Insert, Operation::Update],
            columns: Some(vec![target.column.clone()]),
            before: false,
        };
        Ok(Descriptor {
            name: "mask".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interests: Config::parse(&config)?.targets.iter().map(interest).collect(),
        })
    }

    fn init(config: String, _lane: u32, _lanes: u32) -> Result<(), String> {
        let config = Config::parse(&config)?;
        STATE.set(Some(State { config, plans: Vec::new() }));
        Ok(())
    }

    fn on_relation(relation: Relation) -> Result<(), CallError> {
        with_state(|state| {
            let table = format!("{}.{}", relation.namespace, relation.name);
            let mut columns = Vec::new();
            for (index, column) in (0..).zip(&relation.columns) {
                let Some(rule) = state.config.rule(&table, &column.name) else { continue };
                rule.check(column).map_err(|reason| {
                    CallError::Fatal(format!("mask: column {table}.{}: {reason}", column.name))
                })?;
                columns.push((index, rule.clone()));
            }
            state.plans.retain(|plan| !is_same(plan.relation, relation.id));
            state.plans.push(Plan { relation: relation.id, columns });
            Ok(())
        })
    }
}

fn is_same(one: RelationRef, other: RelationRef) -> bool {
    (one.id, one.version) == (other.id, other.version)
}

impl typed::Guest for Mask {
    fn process(_sequence: u64, batch: Vec<Event>) -> Result<Vec<Outcome>, CallError> {
        with_state(|state| Ok(batch.into_iter().map(|event| state.outcome(event)).collect()))
    }
}

impl State {
    fn outcome(&self, event: Event) -> Outcome {
        let (Some(relation), Some(row)) = (event.relation, event.after) else {
            return Outcome::Pass;
        };
        let Some(plan) = self.plans.iter().find(|plan| is_same(plan.relation, relation)) else {
            return invalid("mask.relation", "event of a relation that was not announced");
        };
        let mut patch = Vec::new();
        for (column, rule) in &plan.columns {
            let Some(value) = row.get(usize::from(*column)) else {
                return invalid("mask.value", "value that cannot be read");
            };
            match rule.apply(value) {
                Ok(Some(value)) => patch.push(Cell { column: *column, value }),
                Ok(None) => {}
                Err(reason) => return invalid("mask.value", reason),
            }
        }
        if patch.is_empty() { Outcome::Pass } else { Outcome::Patch(patch) }
    }
}

fn invalid(code: &str, message: &str) -> Outcome {
    Outcome::Fail(Failure {
        class: FailureClass::InvalidData,
        code: code.to_owned(),
        message: message.to_owned(),
    })
}

export!(Mask);
