//! A replica in an SQLite file.
//!
//! Rows, table definitions and the checkpoint are written in one transaction (`WAL`, `synchronous = FULL`), so a crash
//! leaves either all of a source transaction with its checkpoint, or nothing of it. SQLite spills what a large
//! transaction changes into its log, so memory does not grow with it.
//!
//! Table `public.t` is table `t`, `sales.t` is `sales__t`; columns keep their names. SQLite compares names without
//! case: two that differ in nothing else are refused. A table with a key is `WITHOUT ROWID` with that primary key. The
//! tables `_dovetail` (pipeline, source, checkpoint) and `_dovetail_tables` are the engine's own.
//!
//! | kind | column | stored as |
//! |---|---|---|
//! | bool | `INTEGER` | 0, 1 |
//! | int | `INTEGER` | integer |
//! | uint | no type | integer; beyond 2^63-1 decimal text |
//! | float4, float8 | no type | the same number in 64 bits, also -0; not a number as text `NaN`, which SQLite would make null |
//! | bytea | `BLOB` | blob |
//! | everything else | `TEXT` | what PostgreSQL prints under `DateStyle` ISO, `TimeZone` UTC and `IntervalStyle` postgres: numeric `1.00`, timestamptz `2024-01-31 12:00:00.5+00`, bits `0101`, json its own text |

mod cell;
mod failure;
mod ledger;
mod replica;
mod statements;

use std::path::Path;
use std::sync::Arc;

use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;

use self::replica::Replica;
use super::{Delivery, Error, Landed};
use crate::offload::{Offload, detached};
use crate::origin::Origin;

/// The replica, worked on off the reactor.
#[derive(Debug)]
pub struct Sqlite {
    replica: Offload<Replica>,
    recorded: Option<Lsn>,
}

impl Sqlite {
    pub(in crate::outlet) async fn open(
        path: &Path,
        origin: &Origin,
        target: u16,
    ) -> Result<Self, Error> {
        let (path, origin) = (path.to_owned(), origin.clone());
        let replica = detached(move || Replica::open(&path, origin, target)).await??;
        Ok(Self { recorded: replica.recorded(), replica: Offload::new(replica) })
    }

    pub(in crate::outlet) fn recorded(&self) -> Option<Lsn> {
        self.recorded
    }

    pub(in crate::outlet) async fn forget(&mut self) -> Result<(), Error> {
        self.replica.run(Replica::forget).await??;
        self.recorded = None;
        Ok(())
    }

    pub(in crate::outlet) async fn prepare(
        &mut self,
        relation: &Arc<Relation>,
        fresh: bool,
    ) -> Result<(), Error> {
        let relation = Arc::clone(relation);
        self.replica.run(move |replica| replica.prepare(&relation, fresh)).await?
    }

    pub(in crate::outlet) async fn write(
        &mut self,
        group: &Arc<[Delivery]>,
    ) -> Result<Vec<Landed>, Error> {
        let group = Arc::clone(group);
        let work = move |replica: &mut Replica| (replica.write(&group), replica.recorded());
        let (result, recorded) = self.replica.run(work).await?;
        self.recorded = recorded;
        result
    }
}
