//! The transaction in which rows and checkpoint land together.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, RelationId};
use dovetail_core::value::{Row, Value};
use tokio_postgres::types::ToSql;

use super::array::{Text, arrays, texts};
use super::ledger;
use super::server::Server;
use super::statements::Table;
use crate::config;
use crate::origin::{self, Origin};
use crate::outlet::fold::{Equality, Fate, Fold};
use crate::outlet::table::{
    self, Action, Before, Due, Known, Move, Write, available, incomplete, is_behind, missing_row,
};
use crate::outlet::{Delivery, Error, Landed, landed, last_end};

/// One statement's rows: below a thousand the round trip shows, above ten thousand only memory grows.
const STATEMENT_ROWS_MAX: usize = 4_096;
/// One statement's text, about. A message of the protocol has at most 1 GiB; one huge row still goes alone.
const STATEMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

type Folds<'a> = HashMap<RelationId, Fold<'a>>;

#[derive(Debug)]
pub struct Replica {
    pub(super) server: Server,
    pub(super) pipeline: String,
    pub(super) schema: Option<String>,
    pub(super) source: origin::Kind,
    target: u16,
    recorded: Option<Lsn>,
    pub(super) tables: HashMap<RelationId, Arc<Table>>,
    held: Move,
    /// A transaction of the server's is open.
    open: bool,
    /// It holds half of a source transaction, so it may not end here.
    half: bool,
}

impl Replica {
    pub(in crate::outlet) async fn open(
        server: &config::Server,
        schema: Option<&str>,
        origin: &Origin,
        target: u16,
    ) -> Result<Self, Error> {
        let mut replica = Self {
            server: Server::open(server, &origin.pipeline).await?,
            pipeline: origin.pipeline.clone(),
            schema: schema.map(str::to_owned),
            source: origin.source.kind,
            target,
            recorded: None,
            tables: HashMap::new(),
            held: Move::default(),
            open: false,
            half: false,
        };
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
        self.begin().await?;
        self.make_ready(relation, Before::scan(fresh)).await?;
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
            if self.open && !self.half && self.redefines(delivery) {
                self.land(checkpoint, &mut folds).await?;
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
        table::redefines(delivery, self.target, |relation| {
            let table = self.tables.get(&relation.id);
            table.is_some_and(|table| table.relation.version == relation.version)
        })
    }

    async fn land(&mut self, checkpoint: Option<Lsn>, folds: &mut Folds<'_>) -> Result<(), Error> {
        if let Some((relation, row)) = self.held.overdue(None) {
            self.remove(&relation, Cow::Owned(row), folds).await?;
        }
        self.flush_all(folds).await?;
        self.commit(checkpoint).await
    }

    async fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            let what = "begin a transaction at the outlet";
            self.server.run(what, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
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
        Ok(())
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
                    // What was written before it goes with the rest.
                    folds.remove(&relation.id);
                    if relation.columns.is_empty() {
                        return self.empty_as_it_stands(relation).await;
                    }
                    let table = self.table(relation).await?;
                    self.execute::<Text<'_>>(&table, &table.empty, &[]).await.map(drop)
                }
            },
        }
    }

    async fn empty_as_it_stands(&mut self, relation: &Relation) -> Result<(), Error> {
        let place = self.place(&relation.table);
        let known =
            ledger::definition(&mut self.server, &self.pipeline, &place, &relation.table).await?;
        if matches!(known, Known::Nothing) || !self.exists(&place).await? {
            return Ok(());
        }
        let sql = format!("DELETE FROM {}", place.quoted());
        self.server.write(&relation.table.to_string(), &sql, &[]).await.map(drop)
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
        match self.execute(&table, &table.remove, &texts(row.values())).await? {
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
        let columns = available(to);
        if !relation.has_key() {
            let values = texts(of(to, &columns).chain(from.values()));
            return match self.execute(&table, &table.change_whole(&columns), &values).await? {
                0 => Err(missing_row(relation)),
                _ => Ok(()),
            };
        }
        // In place, so that columns that were not in the log keep their values. Whatever stands under the new key
        // gives way, as it would to a put.
        let (from, to) = (&[from][..], &[to][..]);
        self.execute(&table, &table.remove, &arrays(to, &relation.key)).await?;
        let mut parameters = arrays(to, &columns);
        parameters.extend(arrays(from, &relation.key));
        match self.execute(&table, &table.change(&columns), &parameters).await? {
            0 => Err(incomplete(relation)),
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
        Ok(folds.entry(relation.id).or_insert_with(|| Fold::new(relation, Equality::ByValue)))
    }

    async fn flush_full(
        &mut self,
        relation: &Arc<Relation>,
        folds: &mut Folds<'_>,
    ) -> Result<(), Error> {
        let is_full = |fold: &Fold<'_>| {
            fold.rows() >= STATEMENT_ROWS_MAX || fold.bytes() >= STATEMENT_BYTES_MAX
        };
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
        let mut changes: HashMap<Vec<usize>, Vec<&Row>> = HashMap::new();
        for fate in &fates {
            match fate {
                Fate::Put(row) => puts.push(row),
                Fate::Gone(row) => gone.push(row),
                Fate::Change(row) => changes.entry(available(row)).or_default().push(row),
            }
        }
        if !gone.is_empty() {
            self.execute(&table, &table.remove, &arrays(&gone, &relation.key)).await?;
        }
        for (columns, rows) in &changes {
            let mut parameters = arrays(rows, columns);
            parameters.extend(arrays(rows, &relation.key));
            let changed = self.execute(&table, &table.change(columns), &parameters).await?;
            if changed < rows.len() as u64 {
                return Err(incomplete(&relation));
            }
        }
        if !puts.is_empty() {
            let all: Vec<usize> = (0..relation.columns.len()).collect();
            self.execute(&table, &table.put, &arrays(&puts, &all)).await?;
        }
        Ok(())
    }

    pub(super) async fn execute<P: ToSql + Sync>(
        &mut self,
        table: &Table,
        sql: &str,
        parameters: &[P],
    ) -> Result<u64, Error> {
        let parameters: Vec<&(dyn ToSql + Sync)> =
            parameters.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
        self.server.write(&table.relation.table.to_string(), sql, &parameters).await
    }
}

fn of<'a>(row: &'a Row, columns: &[usize]) -> impl Iterator<Item = &'a Value> {
    columns.iter().map(|&column| row.get(column).unwrap_or(&Value::Unavailable))
}
