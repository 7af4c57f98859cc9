//! How a dump is asked for, and that it is of the log that was read.
//!
//! On the same server a stream goes on from its position, from the event before it where that is known, which has to come first;
//! at a pin that is a lower bound, behind the pin's set; on another server, behind what had been committed. What does not
//! fit ends here, before anything is delivered.

use dovetail_core::decode::binlog::transaction::{self, Builder};
use dovetail_core::fence::Fence;
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam::Continuity;
use tokio::time::timeout;

use crate::config::{self, Rung};

use super::continuity::{Footprint, Gtids, Known, Log};
use super::dump::{Dump, Origin};
use super::event;
use super::failure::Failure;
use super::identity::Replica;
use super::note::Note;
use super::prepared::Asked;
use super::reader;
use super::stream::{Start, StreamError};
use super::tail::Tails;
use super::wire::Wire;

/// Rows of prepared XA transactions that are held at most. What holds more has been forgotten by its coordinator.
const PREPARED_BYTES_MAX: usize = 64 << 20;

pub(super) fn known(at: Lsn, note: Option<&Note>) -> Known {
    let server = note.and_then(|note| note.server.clone());
    Known { at, server, gtids: note.map_or(Gtids::None, Note::committed) }
}

/// A dump that stands at the position.
pub(super) struct Begun {
    pub dump: Dump,
    pub builder: Builder,
    pub from: Lsn,
    pub tails: Tails,
}

pub(super) async fn begin(
    source: &config::MySql,
    mut wire: Wire,
    log: &Log,
    start: Start<'_>,
) -> Result<Begun, StreamError> {
    let plan = plan(log, start)?;
    compare_with_pin(source, log, start).await?;
    let folds_names = folds_names(&mut wire).await?;
    let replica = Replica::choose(&mut wire, source.server_id).await?;
    let mut dump = Dump::begin(wire, source.kind, &replica, &plan.origin).await?;
    let mut builder = Builder::new(transaction::Start {
        from: plan.from,
        captured: source.tables.iter().map(|table| fold(table, folds_names)).collect(),
        folds_names,
        prepared_bytes_max: PREPARED_BYTES_MAX,
        view: plan.view,
    });
    if let Some(passed) = plan.passed {
        pass(&mut dump, &mut builder, plan.from, passed).await?;
    }
    Ok(Begun { dump, builder, from: plan.from, tails: Tails::of(source, log) })
}

/// Whether the events are still there that the stream itself does not pass: the one that is known instead of a footprint (at
/// a pin, the second of its file), and the one before a pin that the stream begins before. On another server, or without the
/// file, there is nothing to compare.
async fn compare_with_pin(
    source: &config::MySql,
    log: &Log,
    start: Start<'_>,
) -> Result<(), StreamError> {
    let Some(note) = start.note.filter(|_| start.epoch == start.from.epoch()) else {
        return Ok(());
    };
    let before = note.footprint.filter(|_| note.asked.is_some());
    for (known, reason) in [
        (
            note.head,
            "its log is not the one that was read; it was reset, or put back from a backup",
        ),
        (before, "its log there is not the one of the pin; it was reset, or is damaged"),
    ] {
        let Some(known) = known.filter(|known| known.start.epoch() == start.epoch) else {
            continue;
        };
        let Some(place) = log.place(known.start).filter(event::is_in_reach) else { continue };
        match event::event_at(source, place).await? {
            Some(event) if known.is_of(&event) => {}
            _ => return Err(StreamError::Lost { from: start.from, reason }),
        }
    }
    Ok(())
}

/// How a stream is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    origin: Origin,
    from: Lsn,
    /// Events before the position come first.
    passed: Option<Passed>,
    /// The set of a pin that is a lower bound: what is in it is in every view.
    view: Option<Fence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// One, which has to be this one.
    Known(Footprint),
    /// All of the file, whatever they are.
    Any,
}

fn plan(log: &Log, start: Start<'_>) -> Result<Plan, StreamError> {
    let Start { from, note, epoch } = start;
    let lost = |reason| StreamError::Lost { from, reason };
    let known = known(from, note);
    let gtids = &known.gtids;
    match log.judge(&known) {
        Continuity::Same => {}
        Continuity::Elsewhere if epoch > from.epoch() => {
            let origin =
                behind(gtids).ok_or_else(|| lost("nothing is known beside its position"))?;
            return Ok(Plan { origin, from: Lsn::binlog(epoch, 0, 0), passed: None, view: None });
        }
        // It was another one when the pipeline looked; the next attempt looks again.
        Continuity::Elsewhere => {
            return Err(Failure::transient(
                "open the log: the connection leads to another server than a moment ago",
                "it is tried again",
            )
            .into());
        }
        Continuity::Purged => return Err(lost("it has removed the log of some of them")),
        Continuity::Behind => return Err(lost("it lacks transactions that have been read")),
        Continuity::Diverged => {
            return Err(lost("it has other transactions than those that have been read"));
        }
        Continuity::Reset => return Err(lost("its log was reset, or put back from a backup")),
    }
    let footprint = note.and_then(|note| note.footprint);
    let is_lower_bound = note.is_some_and(|note| note.rung == Rung::Gtid) && footprint.is_none();
    // Even where the server would find the set: the position says from where on the log was promised to be there.
    let place = log.place(from).ok_or_else(|| lost("it has removed the log of some of them"))?;
    let asked = note.and_then(|note| note.asked.as_ref());
    if let (Gtids::Set(set), true) = (gtids, is_lower_bound) {
        let view = Some(Fence::Gtids(set.clone()));
        let asked = match asked {
            Some(Asked::Behind(asked)) => asked,
            _ => set,
        };
        return Ok(Plan { origin: Origin::Gtids(asked.clone()), from, passed: None, view });
    }
    if let Some(&Asked::At(before)) = asked
        && before < from
        && let Some(place) = log.place(before)
    {
        let is_beyond = u32::try_from(place.offset).is_err();
        let (origin, passed) = (Origin::Place(place), is_beyond.then_some(Passed::Any));
        return Ok(Plan { origin, from: before, passed, view: None });
    }
    let known = footprint.and_then(|known| Some((log.place(known.start)?, known)));
    let (place, passed) = match known {
        Some((place, known)) => (place, Some(Passed::Known(known))),
        None => {
            let is_beyond = u32::try_from(place.offset).is_err();
            (place, is_beyond.then_some(Passed::Any))
        }
    };
    Ok(Plan { origin: Origin::Place(place), from, passed, view: None })
}

/// Everything but these.
fn behind(gtids: &Gtids) -> Option<Origin> {
    match gtids {
        Gtids::None => None,
        Gtids::Set(set) => Some(Origin::Gtids(set.clone())),
        Gtids::State(state) => Some(Origin::State(state.clone())),
    }
}

/// Reads up to the position, and looks at the event before it.
async fn pass(
    dump: &mut Dump,
    builder: &mut Builder,
    from: Lsn,
    passed: Passed,
) -> Result<(), StreamError> {
    let other = || StreamError::Lost {
        from,
        reason: "its log there is not the one that was read; it was reset, or is damaged",
    };
    loop {
        let event = match timeout(reader::SILENCE, dump.event()).await {
            Ok(Ok(event)) => event,
            // There is such a place, but no event begins there.
            Ok(Err(Failure::Definite { source, .. })) if reader::is_fatal(source.as_ref()) => {
                return Err(other());
            }
            Ok(Err(failure)) => return Err(failure.into()),
            Err(_) => return Err(reader::silent().into()),
        };
        let start = builder.at();
        builder.pass_over(&event).map_err(|_| other())?;
        if !reader::is_in_the_log(&event) || builder.at() < from {
            continue;
        }
        let is_it = match passed {
            Passed::Known(known) => known.start == start && known.is_of(&event),
            Passed::Any => true,
        };
        return if is_it && builder.at() == from { Ok(()) } else { Err(other()) };
    }
}

/// Whether names of tables are kept in lower case.
async fn folds_names(wire: &mut Wire) -> Result<bool, Failure> {
    let query = "SELECT @@GLOBAL.lower_case_table_names";
    let rows = wire.query("read lower_case_table_names", query).await?;
    let setting = rows.into_iter().flatten().next().flatten();
    Ok(setting.is_some_and(|setting| setting != "0"))
}

fn fold(table: &TableName, folds_names: bool) -> TableName {
    let mut table = table.clone();
    if folds_names {
        table.namespace = table.namespace.to_lowercase();
        table.name = table.name.to_lowercase();
    }
    table
}
