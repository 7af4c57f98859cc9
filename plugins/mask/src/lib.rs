//! Hashes, redacts or truncates columns, before anything leaves the pipeline.
//!
//! The guarantee: no event of a masked table passes with a masked column as it was. It holds because the plugin asks for
//! every operation that carries a row after the change and patches every column that a rule names; a column that no rule
//! can be applied to stops the pipeline when the relation is announced, before its first event.
//!
//! What it does not do: the row *before* a change, where the source sends whole old rows (`REPLICA IDENTITY FULL`), is
//! not rewritten, and a key column cannot be masked.

mod config;
mod rule;

use dovetail_sdk::{
    CallError, Descriptor, Event, Interest, Lane, Operation, Outcome, Patch, Relation, Transform,
    export,
};

use config::{Config, Target};
use rule::Rule;

struct Mask {
    config: Config,
    /// Of the relations met so far.
    plans: Vec<Plan>,
    /// Of the last event: neighbours mostly share their relation.
    last: usize,
}

/// Which columns of one relation are masked, and how.
struct Plan {
    relation: (u32, u32),
    columns: Vec<(usize, Rule)>,
}

impl Transform for Mask {
    fn describe(config: &str) -> Result<Descriptor, String> {
        let config = Config::parse(config)?;
        let interest = |target: &Target| Interest {
            tables: vec![target.tables.clone()],
            operations: Operation::ROWS.to_vec(),
            columns: Some(vec![target.column.clone()]),
            before: false,
        };
        Ok(Descriptor {
            name: "mask".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interests: config.targets.iter().map(interest).collect(),
        })
    }

    fn new(config: &str, _lane: Lane) -> Result<Self, String> {
        Ok(Self { config: Config::parse(config)?, plans: Vec::new(), last: 0 })
    }

    fn relation(&mut self, relation: &Relation) -> Result<(), CallError> {
        let table = format!("{}.{}", relation.namespace, relation.name);
        let mut columns = Vec::new();
        for (index, column) in relation.columns.iter().enumerate() {
            let Some(rule) = self.config.rule(&table, &column.name) else { continue };
            rule.check(column).map_err(|reason| {
                CallError::Fatal(format!("mask: column {table}.{}: {reason}", column.name))
            })?;
            columns.push((index, rule.clone()));
        }
        let relation = (relation.id, relation.version);
        self.plans.retain(|plan| plan.relation != relation);
        self.plans.push(Plan { relation, columns });
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) -> Outcome {
        let (Some(relation), Some(row)) = (event.relation(), event.after()) else {
            return Outcome::Pass;
        };
        let Some(plan) = self.plan((relation.id, relation.version)) else {
            return Outcome::invalid("mask.relation", "event of a relation that was not announced");
        };
        let mut patch = Patch::new();
        for (column, rule) in &plan.columns {
            let Some(value) = row.at(*column) else {
                return Outcome::invalid("mask.value", "value that cannot be read");
            };
            match rule.apply(&value) {
                Ok(Some(masked)) => patch = patch.set_at(*column, masked),
                Ok(None) => {}
                Err(reason) => return Outcome::invalid("mask.value", reason),
            }
        }
        if patch.is_empty() { Outcome::Pass } else { Outcome::Patch(patch) }
    }
}

impl Mask {
    fn plan(&mut self, relation: (u32, u32)) -> Option<&Plan> {
        let is = |plan: &Plan| plan.relation == relation;
        if !self.plans.get(self.last).is_some_and(is) {
            self.last = self.plans.iter().position(is)?;
        }
        self.plans.get(self.last)
    }
}

export!(Mask);
