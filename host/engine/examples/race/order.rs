//! The orders in which a position and a view can be taken.
//!
//! The engine's own are its rungs, and only its library can go through them. Those that it does not have, because they
//! lose rows, are written here in SQL.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use dovetail::config::Rung;
use dovetail::source::mysql::pin::{self, Pin};
use dovetail::source::mysql::view::View;
use dovetail_core::fence::Fence;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use dovetail_tests::mysql::log::Place;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::bed::{Bed, IDS, WRITERS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Rung(Rung),
    Forbidden(Forbidden),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forbidden {
    ViewsThenPosition,
    /// MySQL: the log moves before the engine makes the row visible.
    StatusThenView,
    /// MariaDB: the same, by GTID.
    GtidsThenView,
}

const NAMES: [(&str, Order); 8] = [
    ("snapshot", Order::Rung(Rung::Snapshot)),
    ("gtid", Order::Rung(Rung::Gtid)),
    ("log_status", Order::Rung(Rung::LogStatus)),
    ("lock", Order::Rung(Rung::Lock)),
    ("own_row", Order::Rung(Rung::OwnRow)),
    ("views-then-position", Order::Forbidden(Forbidden::ViewsThenPosition)),
    ("binlog-status-then-view", Order::Forbidden(Forbidden::StatusThenView)),
    ("gtid-binlog-pos-then-view", Order::Forbidden(Forbidden::GtidsThenView)),
];

impl Order {
    pub(crate) fn is_forbidden(self) -> bool {
        matches!(self, Self::Forbidden(_))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, order)| order == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        let names = NAMES.map(|(name, _)| name).join(", ");
        named.map(|(_, order)| *order).with_context(|| format!("{text}: there are {names}"))
    }
}

/// One pin.
pub(crate) struct Sample {
    /// What the stream brings.
    pub(crate) stream: Stream,
    /// What of the stream the views show, as the engine would tell; `None`: nothing.
    pub(crate) fence: Option<Fence>,
    /// Whether the fence claims to be all that the views show.
    pub(crate) exact: bool,
    /// Whatever the views show starts before it.
    pub(crate) horizon: Option<Lsn>,
    /// Per writer: what was committed for certain before anything was read.
    pub(crate) floor: [i64; WRITERS],
    /// Per connection: the ids that it shows, from a little below the floor on.
    pub(crate) shown: Vec<BTreeSet<i64>>,
}

/// Which transactions are streamed.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Those that start here or later.
    From(Lsn),
    /// Of those, the ones that are not in the set.
    Except(Lsn, GtidSet),
    /// MariaDB, one domain: those with a larger number.
    After(u64),
}

/// How far below the floor rows are looked at: these must be there.
pub(crate) const BELOW: i64 = 3;

/// Takes a pin in this order. `number` varies how many connections are asked for.
pub(crate) async fn sample(order: Order, bed: &Bed, number: u32) -> Result<Sample> {
    let floor = bed.floor();
    match order {
        Order::Rung(rung) => by_rung(rung, bed, floor, number).await,
        Order::Forbidden(forbidden) => against_the_rule(forbidden, bed, floor).await,
    }
}

async fn by_rung(rung: Rung, bed: &Bed, floor: [i64; WRITERS], number: u32) -> Result<Sample> {
    let connections = NonZeroU16::MIN.saturating_add(u16::try_from(number % 3)?);
    let (config, tables) = (&bed.config, &bed.config.tables);
    let pin = Pin::take(config, rung, connections).await?;
    let (at, note) = (pin.position(), pin.note().clone());
    let mut view = if pin.has_view() {
        View::pinned(pin, tables).await?
    } else {
        later(rung, bed, at, &note, connections).await?
    };
    let mut shown = Vec::new();
    for session in view.sessions() {
        let ids: Vec<i64> = session.rows("read the view", &query(floor)).await?;
        shown.push(ids.into_iter().collect());
    }
    let stream = match (rung, note.gtids) {
        (Rung::Gtid, Some(gtids)) => Stream::Except(at, gtids),
        (Rung::Gtid, None) => bail!("the pin has no set"),
        _ => Stream::From(at),
    };
    let fence = view.fence().cloned();
    let (exact, horizon) = (view.is_exact(), Some(view.horizon()));
    Ok(Sample { stream, fence, exact, horizon, floor, shown })
}

/// A view of which it is known that everything before the pin is in it.
async fn later(
    rung: Rung,
    bed: &Bed,
    at: Lsn,
    note: &dovetail::source::mysql::note::Note,
    connections: NonZeroU16,
) -> Result<View> {
    let mark = pin::settle(&bed.config, rung, at, Some(note)).await?;
    for _ in 0..100 {
        let view = View::later(&bed.config, rung, 0, &bed.config.tables, connections).await?;
        if view.fence().context("the fence of a later view")?.covers(&mark)? {
            return Ok(view);
        }
    }
    bail!("no view of a hundred was behind {mark:?}")
}

async fn against_the_rule(
    forbidden: Forbidden,
    bed: &Bed,
    floor: [i64; WRITERS],
) -> Result<Sample> {
    let mut connection = bed.server.connect().await?;
    let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    connection.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
    let stream = match forbidden {
        Forbidden::ViewsThenPosition => {
            connection.query_drop(begin).await?;
            Stream::From(log_end(&mut connection, bed).await?)
        }
        Forbidden::StatusThenView => {
            let end = log_end(&mut connection, bed).await?;
            connection.query_drop(begin).await?;
            Stream::From(end)
        }
        Forbidden::GtidsThenView => {
            // In one round trip: the window is narrow.
            let both = format!("SELECT @@global.gtid_binlog_pos; {begin}");
            let mut results = connection.query_iter(both).await?;
            let last: Option<String> = results.collect().await?.into_iter().next();
            results.drop_result().await?;
            let last = last.context("a GTID")?;
            let sequence = last.rsplit('-').next().and_then(|number| number.parse().ok());
            Stream::After(sequence.with_context(|| format!("a GTID: {last}"))?)
        }
    };
    let ids: Vec<i64> = connection.query(query(floor)).await?;
    let shown = vec![ids.into_iter().collect()];
    Ok(Sample { stream, fence: None, exact: true, horizon: None, floor, shown })
}

async fn log_end(connection: &mut Conn, bed: &Bed) -> Result<Lsn> {
    let mariadb = bed.server.version().is_mariadb();
    let query = if mariadb { "SHOW MASTER STATUS" } else { "SHOW BINARY LOG STATUS" };
    let mut row: mysql_async::Row =
        connection.query_first(query).await?.context("the log's end")?;
    let file: String = row.take(0).context("a file")?;
    Ok(lsn(Place::new(&file, row.take(1).context("an offset")?)?))
}

pub(crate) fn lsn(place: Place) -> Lsn {
    Lsn::binlog(0, place.file, place.offset)
}

/// Ids from a little below the floor on: all others are long visible.
fn query(floor: [i64; WRITERS]) -> String {
    let ranges = (0_i64..).zip(floor).map(|(number, count)| {
        let base = number * IDS;
        format!("id BETWEEN {} AND {}", base + count - BELOW, base + IDS - 1)
    });
    format!("SELECT id FROM race.t WHERE {}", ranges.collect::<Vec<_>>().join(" OR "))
}
