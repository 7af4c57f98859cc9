//! The transaction in which rows and checkpoint land together.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, RelationId};
use dovetail_core::value::Row;

use super::definitions::Definitions;
use super::ledger;
use super::server::Server;
use super::statements::Table;
use crate::config::MySqlServer;
use crate::origin::{self, Origin};
use crate::outlet::fold::{Fate, Fold};
use crate::outlet::table::{
    self, Action, Before, Due, Move, Write, available, incomplete, is_behind, missing_row,
};
use crate::outlet::{Delivery, Error, Landed, landed, last_end};

/// What is folded before it goes out.
const FOLD_ROWS_MAX: usize = 4_096;
/// One statement's values, about; less where the server takes less.
const STATEMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

type Folds<'a> = HashMap<RelationId, Fold<'a>>;

#[derive(Debug)]
pub struct Replica {
    pub(super) server: Server,
    pub(super) pipeline: String,
    /// Whose type names the relations have.
    pub(super) source: origin::Kind,
    pub(super) definitions: Definitions,
    target: u16,
    recorded: Option<Lsn>,
    held: Move,
    /// A transaction of the server's is open.
    pub(super) open: bool,
    /// It holds half of a source transaction, so it may not end here.
    pub(super) half: bool,
}

impl Replica {
    pub(in crate::outlet) async fn open(
        server: &MySqlServer,
        database: &str,
        origin: &Origin,
        target: u16,
    ) -> Result<Self, Error> {
        let mut replica = Self {
            server: Server::open(server, database, &origin.pipeline).await?,
            pipeline: origin.pipeline.clone(),
            source: origin.source.kind,
            definitions: Definitions::default(),
            target,
            recorded: None,
            held: Move::default(),
            open: false,
            half: false,
        };
        ledger::create(&mut replica.server).await?;
        replica.begin().await?;
        replica.recorded = ledger::enter(&mut replica.server, origin).await?;
        replica.commit(None).await?;
        Ok(replica)
    }

    pub(in crate::outlet) async fn forget(&mut self) -> Result<(), Error> {
        self.begin().await?;
        ledger::forget(&mut self.server, &self.pipeline).await?;
        self.commit(None).await?;
        self.recorded = None;
        Ok(())
    }

    pub(in crate::outlet) fn recorded(&self) -> Option<Lsn> {
        self.recorded
    }

    pub(in crate::outlet) async fn prepare(
        &mut self,
        relation: &Arc<Relation>,
        fresh: bool,
    ) -> Result<(), Error> {
        self.meet(&[relation], Before::scan(fresh)).await?;
        if !self.half {
            self.commit(None).await?;
        }
        Ok(())
    }

    pub(in crate::outlet) async fn write(
        &mut self,
        group: &[Delivery],
    ) -> Result<Vec<Landed>, Error> {
        let end = last_end(self.half, group);
        let mut results = Vec::new();
        let mut checkpoint = None;
        let mut folds = Folds::new();
        for (index, delivery) in group.iter().enumerate() {
            if self.redefines(delivery) {
                if self.open && !self.half {
                    self.land(checkpoint, &mut folds).await?;
                }
                let unmet = self.unmet(delivery);
                self.meet(&unmet, Before::Change).await?;
            }
            self.begin().await?;
            for record in delivery.records_for(self.target) {
                if !is_behind(record, self.recorded)
                    && let Some(write) = table::asked(record)?
                {
                    self.take(write, &mut folds).await?;
                }
            }
            match delivery.closing {
                Closing::Open => self.half = true,
                Closing::Commit(lsn) => {
                    self.half = false;
                    checkpoint = checkpoint.max(Some(lsn));
                }
                Closing::Rows | Closing::Chunk(_) => {}
            }
            if Some(index) == end {
                self.land(checkpoint, &mut folds).await?;
                results = group.iter().take(index + 1).filter_map(|d| landed(d.closing)).collect();
            }
        }
        self.flush_all(&mut folds).await?;
        Ok(results)
    }

    fn redefines(&self, delivery: &Delivery) -> bool {
        table::redefines(delivery, self.target, |relation| self.definitions.is_met(relation))
    }

    /// The definitions in a batch that were not met yet, in their order; of rows that are passed over, none.
    fn unmet<'a>(&self, delivery: &'a Delivery) -> Vec<&'a Arc<Relation>> {
        let mut unmet: Vec<&Arc<Relation>> = Vec::new();
        let ahead = |record: &&_| !is_behind(record, self.recorded);
        let records = delivery.records_for(self.target).filter(ahead);
        for relation in records.filter_map(table::relation) {
            let is_same = |other: &&Arc<Relation>| {
                other.id == relation.id && other.version == relation.version
            };
            if !self.definitions.is_met(relation) && !unmet.iter().any(is_same) {
                unmet.push(relation);
            }
        }
        unmet
    }

    async fn land(&mut self, checkpoint: Option<Lsn>, folds: &mut Folds<'_>) -> Result<(), Error> {
        if let Some((relation, row)) = self.held.overdue(None) {
            self.remove(&relation, Cow::Owned(row), folds).await?;
        }
        self.flush_all(folds).await?;
        self.commit(checkpoint).await
    }

    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            let what = "begin a transaction at the outlet";
            self.server.run(what, "START TRANSACTION READ WRITE").await?;
            self.open = true;
        }
        Ok(())
    }

    async fn commit(&mut self, checkpoint: Option<Lsn>) -> Result<(), Error> {
        let ahead = checkpoint.filter(|lsn| self.recorded.is_none_or(|recorded| *lsn > recorded));
        if let Some(lsn) = ahead {
            ledger::advance(&mut self.server, &self.pipeline, self.recorded, lsn).await?;
        }
        self.server.commit().await?;
        self.open = false;
        self.recorded = ahead.or(self.recorded);
        self.let_go().await
    }

    async fn take<'a>(&mut self, write: Write<'a>, folds: &mut Folds<'a>) -> Result<(), Error> {
        if let Some((relation, row)) = self.held.overdue(Some(&write)) {
            self.remove(&relation, Cow::Owned(row), folds).await?;
        }
        match self.held.next(write) {
            Due::Nothing => Ok(()),
            Due::Move { relation, from, to } => self.replace(relation, &from, to, folds).await,
            Due::Write(Write { relation, action }) => match action {
                Action::Put(row) => {
                    self.fold(relation, folds).await?.put(row)?;
                    self.flush_full(relation, folds).await
                }
                Action::Remove(row) | Action::Leave(row) => {
                    self.remove(relation, Cow::Borrowed(row), folds).await
                }
                Action::Replace { from, to } | Action::Arrive { from, to } => {
                    self.replace(relation, from, to, folds).await
                }
                Action::Empty => {
                    // What was written before it goes with the rest. Not by TRUNCATE, which would end the transaction.
                    folds.remove(&relation.id);
                    if relation.columns.is_empty() {
                        return self.empty_as_it_stands(relation).await;
                    }
                    let table = self.table(relation).await?;
                    self.execute(&table, &table.empty(), &[]).await.map(drop)
                }
            },
        }
    }

    async fn remove<'a>(
        &mut self,
        relation: &Arc<Relation>,
        row: Cow<'a, Row>,
        folds: &mut Folds<'a>,
    ) -> Result<(), Error> {
        if relation.has_key() {
            self.fold(relation, folds).await?.remove(row)?;
            return self.flush_full(relation, folds).await;
        }
        let table = self.flushed(relation, folds).await?;
        match self.execute(&table, &table.remove_whole(), &[(&*row, &table.all())]).await? {
            0 => Err(missing_row(relation)),
            _ => Ok(()),
        }
    }

    async fn replace<'a>(
        &mut self,
        relation: &Arc<Relation>,
        from: &Row,
        to: &'a Row,
        folds: &mut Folds<'a>,
    ) -> Result<(), Error> {
        if relation.has_key() && self.fold(relation, folds).await?.replace(from, to)? {
            return self.flush_full(relation, folds).await;
        }
        let table = self.flushed(relation, folds).await?;
        if relation.has_key() {
            // In place, so that columns that were not in the log keep their values. Whatever stands under the new key
            // gives way, as it would to a put.
            self.execute(&table, &table.remove(1), &[(to, &relation.key)]).await?;
        }
        let columns = available(to);
        let identity = table.identity();
        let parts = [(to, columns.as_slice()), (from, identity.as_slice())];
        match self.execute(&table, &table.change(&columns), &parts).await? {
            0 if relation.has_key() => Err(incomplete(relation)),
            0 => Err(missing_row(relation)),
            _ => Ok(()),
        }
    }

    /// The fold of a table under this definition. Under another one, what was folded goes out first.
    async fn fold<'a, 'b>(
        &mut self,
        relation: &Arc<Relation>,
        folds: &'b mut Folds<'a>,
    ) -> Result<&'b mut Fold<'a>, Error> {
        let is_other = |fold: &Fold<'_>| fold.relation.version != relation.version;
        if folds.get(&relation.id).is_some_and(is_other) {
            self.flushed(relation, folds).await?;
        }
        let equality = self.table(relation).await?.equality;
        Ok(folds.entry(relation.id).or_insert_with(|| Fold::new(relation, equality)))
    }

    async fn flush_full(
        &mut self,
        relation: &Arc<Relation>,
        folds: &mut Folds<'_>,
    ) -> Result<(), Error> {
        let is_full =
            |fold: &Fold<'_>| fold.rows() >= FOLD_ROWS_MAX || fold.bytes() >= STATEMENT_BYTES_MAX;
        if folds.get(&relation.id).is_some_and(is_full) {
            self.flushed(relation, folds).await?;
        }
        Ok(())
    }

    /// Sends what was folded of this table; then the table is ready for a write of its own.
    async fn flushed(
        &mut self,
        relation: &Arc<Relation>,
        folds: &mut Folds<'_>,
    ) -> Result<Arc<Table>, Error> {
        if let Some(fold) = folds.remove(&relation.id) {
            self.flush(fold).await?;
        }
        self.table(relation).await
    }

    async fn flush_all(&mut self, folds: &mut Folds<'_>) -> Result<(), Error> {
        for (_, fold) in folds.drain() {
            self.flush(fold).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, fold: Fold<'_>) -> Result<(), Error> {
        if fold.is_empty() {
            return Ok(());
        }
        let relation = Arc::clone(&fold.relation);
        let table = self.table(&relation).await?;
        let (fates, mut puts) = fold.into_parts();
        let mut gone: Vec<&Row> = Vec::new();
        let mut changes: Vec<&Row> = Vec::new();
        for fate in &fates {
            match fate {
                Fate::Put(row) => puts.push(row),
                Fate::Gone(row) => gone.push(row),
                Fate::Change(row) => changes.push(row),
            }
        }
        self.send(&table, &gone, &relation.key, |rows| table.remove(rows)).await?;
        // One by one: a statement over many rows would not say which of them is not there.
        for row in changes {
            let columns = available(row);
            let parts = [(row, columns.as_slice()), (row, relation.key.as_slice())];
            if self.execute(&table, &table.change(&columns), &parts).await? == 0 {
                return Err(incomplete(&relation));
            }
        }
        self.send(&table, &puts, &table.all(), |rows| table.put(rows)).await
    }

    /// Writes many rows by statements of as many as fit.
    async fn send(
        &mut self,
        table: &Table,
        rows: &[&Row],
        columns: &[usize],
        sql: impl Fn(usize) -> String,
    ) -> Result<(), Error> {
        let bytes_max = STATEMENT_BYTES_MAX.min(self.server.packet_bytes_max() / 2);
        let mut rest = rows;
        while !rest.is_empty() {
            let mut count = 1 << rest.len().min(Table::rows_max(columns.len())).ilog2();
            while count > 1 && memory_bytes(rest, count) > bytes_max {
                count /= 2;
            }
            let (some, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let parts: Vec<_> = some.iter().map(|row| (*row, columns)).collect();
            self.execute(table, &sql(count), &parts).await?;
            rest = others;
        }
        Ok(())
    }

    /// Binds some columns of rows, one after another. Returns how many rows were found.
    async fn execute(
        &mut self,
        table: &Table,
        sql: &str,
        parts: &[(&Row, &[usize])],
    ) -> Result<u64, Error> {
        let mut values = Vec::new();
        for (row, columns) in parts {
            table.bind(row, columns, &mut values)?;
        }
        let bytes: u64 = values.iter().map(mysql_async::Value::bin_len).sum();
        if usize::try_from(bytes).unwrap_or(usize::MAX) >= self.server.packet_bytes_max() {
            return Err(Error::definite(
                format!(
                    "a row of {} has {bytes} bytes, more than the outlet's server takes",
                    table.relation.table
                ),
                "raise max_allowed_packet at the outlet beyond the largest row, and start again",
            ));
        }
        self.server.write(&table.relation.table.to_string(), sql, values).await
    }
}

fn memory_bytes(rows: &[&Row], count: usize) -> usize {
    rows.iter().take(count).map(|row| row.memory_bytes()).sum()
}
