//! The checker: one pure function over the recorded history of one run.
//!
//! It knows nothing of fences, checkpoint stores or lanes; it knows what the database committed, what came out of the
//! engine in which order, and what the engine claimed. The explorer of the small world and the runs on live servers are
//! judged by the same lines.
//!
//! | | judged by |
//! |---|---|
//! | I1 | at rest: every committed change was delivered, or a scan explains why not |
//! | I2 | per key: in one life strictly forward, never back behind a scanned row; a repetition is flagged, and lies behind the checkpoint that the life resumed from |
//! | I3 | every delivered change is a change of its transaction, of that operation, image and position; every scanned row existed |
//! | I4 | at rest: the outlet's rows are the source's |
//! | I5 | what lies behind a saved checkpoint is complete; what a transactional outlet shows is complete |
//! | I6 | saved only what was delivered, acknowledged only what the spool holds, or where there is none what was saved; neither ever falls |
//! | I7 | nothing is delivered after a refusal, nor in a life that starts when the log is lost |
//!
//! What it cannot tell: without the scan's fence it has to guess whether a key that came in no scanned row was left out
//! by the scan or by mistake. It takes the kinder guess only where the outlet holds nothing older of the key and the
//! stream had not reached it; where that guess is wrong, I4 shows the row that is missing or left over.

pub mod history;
mod ledger;
#[cfg(test)]
mod tests;
mod violation;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use history::{AtRest, History, Observation, Rows};
use ledger::Ledger;
pub use violation::{Fact, Invariant, Subject, Violation};
use walk::Walk;

/// Everything in this history that breaks an invariant, in the order of the walk.
pub fn judge(history: &History) -> Vec<Violation> {
    let ledger = Ledger::of(&history.transactions, &delivered_positions(history));
    let mut walk = Walk::new(history, &ledger);
    for (number, life) in history.lives.iter().enumerate() {
        walk.life(number, life);
    }
    if let Some(at_rest) = &history.at_rest {
        walk.nothing_is_missing();
        let converged = converged(at_rest, &walk.folded);
        walk.violations.extend(converged);
    }
    walk.violations
}

/// Commit positions that nobody but the stream knows.
fn delivered_positions(history: &History) -> BTreeMap<u64, dovetail_core::position::Lsn> {
    let observations = history.lives.iter().flat_map(|life| &life.observations);
    let streamed = observations.filter_map(|observation| match observation {
        Observation::Delivered(delivered) => {
            Some((delivered.transaction?, delivered.position.commit))
        }
        _ => None,
    });
    streamed.collect()
}

/// I4.
fn converged(at_rest: &AtRest, folded: &Rows) -> Vec<Violation> {
    let Some(source) = &at_rest.source else { return Vec::new() };
    let outlet = at_rest.outlet.as_ref().unwrap_or(folded);
    let rows: BTreeSet<_> = source.keys().chain(outlet.keys()).collect();
    let differing = rows.into_iter().filter(|row| source.get(*row) != outlet.get(*row));
    differing
        .map(|row| Violation {
            invariant: Invariant::Convergence,
            subject: Subject::Row(row.clone()),
            expected: Fact::SourceHolds(source.get(row).copied()),
            found: Fact::OutletHolds(outlet.get(row).copied()),
        })
        .collect()
}
