//! One session that writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use fastrand::Rng;
use tokio_postgres::{Client, NoTls};

use super::table::AWAY;
use super::{Change, Outcome, Record, Shared, Transaction, What};
use crate::wait::{PATIENCE, until};

pub(super) struct Writer {
    number: i64,
    shared: Arc<Shared>,
    random: Rng,
    /// Lines ever written to `note`; names the next one.
    lines: u64,
    record: Record,
}

/// A transaction that is under way.
struct Open {
    client: Arc<Client>,
    changes: Vec<Change>,
    undone: Vec<Change>,
}

type Statement = Result<(), tokio_postgres::Error>;

impl Open {
    fn log(&mut self, table: &'static str, key: impl ToString, what: What, version: i64) {
        self.changes.push(Change { table, key: key.to_string(), what, version });
    }
}

impl Writer {
    pub(super) fn new(number: u16, shared: Arc<Shared>) -> Self {
        let seed = shared.options.seed.wrapping_mul(31).wrapping_add(u64::from(number));
        let random = Rng::with_seed(seed);
        Self { number: i64::from(number), shared, random, lines: 0, record: Record::default() }
    }

    pub(super) async fn run(mut self, url: String) -> Result<Record> {
        let mut client = self.connect(&url).await?;
        let mut pace = tokio::time::interval(self.shared.options.pace);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.shared.stop.load(Ordering::Relaxed) {
            pace.tick().await;
            if client.is_closed() {
                client = self.connect(&url).await?;
            }
            // A lost connection or a lock that was not to be had; what is known about it is recorded.
            if let Err(error) = self.transaction(client.clone()).await
                && error.code().is_some()
            {
                client.batch_execute("ROLLBACK").await.unwrap_or_default();
            }
        }
        Ok(self.record)
    }

    async fn connect(&self, url: &str) -> Result<Arc<Client>> {
        until("the server to take a writer", PATIENCE, async || {
            match tokio_postgres::connect(url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    Ok(Some(Arc::new(client)))
                }
                Err(_) => Ok(None),
            }
        })
        .await
    }

    async fn transaction(&mut self, client: Arc<Client>) -> Statement {
        client.batch_execute("BEGIN").await?;
        let marker = self.shared.version();
        let query = "INSERT INTO marker VALUES ($1) RETURNING pg_current_xact_id()::text";
        let xid = client.query_one(query, &[&marker]).await?;
        let xid = Some(xid.get::<_, &str>(0).parse().expect("a transaction id is a number"));
        let mut open = Open { client: client.clone(), changes: Vec::new(), undone: Vec::new() };
        let written = self.write(&mut open).await;
        let mut outcome = Outcome::RolledBack;
        let mut result = written;
        if result.is_ok() {
            if self.random.u8(..20) == 0 {
                result = client.batch_execute("ROLLBACK").await;
            } else {
                result = client.batch_execute("COMMIT").await;
                // Whatever went wrong, only the server knows how the transaction ended.
                outcome = if result.is_ok() { Outcome::Committed } else { Outcome::Unknown };
            }
        }
        if outcome == Outcome::Committed {
            self.shared.committed.fetch_add(1, Ordering::Relaxed);
        }
        let Open { changes, undone, .. } = open;
        self.record.transactions.push(Transaction { marker, xid, outcome, changes, undone });
        result
    }

    async fn write(&mut self, open: &mut Open) -> Statement {
        match self.random.u8(..100) {
            0..25 => self.transfer(open).await,
            25..45 => self.relabel(open).await,
            45..52 => self.rewrite(open).await,
            52..62 => self.toggle(open).await,
            62..72 => self.travel(open).await,
            72..80 => self.savepoints(open).await,
            80..90 => self.note(open).await,
            90..97 => self.everything(open).await,
            97 if self.shared.options.big_rows > 0 => self.big(open).await,
            98 if self.shared.options.truncates && self.number == 0 => self.truncate(open).await,
            _ => self.replace(open).await,
        }
    }

    /// An id below `rows` that belongs to this writer.
    fn own(&mut self, rows: u32) -> i64 {
        let writers = i64::from(self.shared.options.writers);
        let slots = (i64::from(rows) / writers).max(1);
        self.random.i64(0..slots) * writers + self.number
    }

    fn own_item(&mut self) -> i64 {
        self.own(self.shared.options.items)
    }

    /// From one account to another, locked in the order of their ids so that no two transfers wait for each other.
    async fn transfer(&mut self, open: &mut Open) -> Statement {
        let accounts = i64::from(self.shared.options.accounts);
        let first = self.random.i64(0..accounts - 1);
        let second = self.random.i64(first + 1..accounts);
        let amount = self.random.i64(-50..50);
        for (id, change) in [(first, -amount), (second, amount)] {
            let query = "UPDATE account SET version = version + 1, balance = balance + $2 \
                         WHERE id = $1 RETURNING version";
            let row = open.client.query_one(query, &[&id, &change]).await?;
            open.log("public.account", id, What::Update, row.get(0));
        }
        Ok(())
    }

    /// Changes a small column beside a large one, which stays unchanged and so is not in the log.
    async fn relabel(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let label = format!("label {}", self.random.u32(..));
        let query = "UPDATE item SET version = $2, label = $3 WHERE id = $1";
        if open.client.execute(query, &[&id, &version, &label]).await? == 1 {
            open.log("public.item", id, What::Update, version);
        }
        Ok(())
    }

    async fn rewrite(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let body = self.body();
        let query = "UPDATE item SET version = $2, body = $3 WHERE id = $1";
        if open.client.execute(query, &[&id, &version, &body]).await? == 1 {
            open.log("public.item", id, What::Update, version);
        }
        Ok(())
    }

    fn body(&mut self) -> Option<String> {
        let length = self.random.usize(..12_000);
        (length > 100)
            .then(|| std::iter::repeat_with(|| self.random.alphanumeric()).take(length).collect())
    }

    /// Deletes a row, or puts one where it is missing.
    async fn toggle(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        if open.client.execute("DELETE FROM item WHERE id = $1", &[&id]).await? == 1 {
            open.log("public.item", id, What::Delete, version);
            return Ok(());
        }
        let body = self.body();
        let query = "INSERT INTO item VALUES ($1, $2, 'back', $3)";
        open.client.execute(query, &[&id, &version, &body]).await?;
        open.log("public.item", id, What::Insert, version);
        Ok(())
    }

    /// Deletes a row and inserts another under the same key, in one transaction.
    async fn replace(&mut self, open: &mut Open) -> Statement {
        let id = self.own_item();
        let (gone, version) = (self.shared.version(), self.shared.version());
        if open.client.execute("DELETE FROM item WHERE id = $1", &[&id]).await? == 1 {
            open.log("public.item", id, What::Delete, gone);
        }
        let query = "INSERT INTO item VALUES ($1, $2, 'replaced', NULL)";
        open.client.execute(query, &[&id, &version]).await?;
        open.log("public.item", id, What::Insert, version);
        Ok(())
    }

    /// Gives a row a key far away, or brings it back. The large column stays as it is.
    async fn travel(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let steps = if self.random.bool() {
            [(id, id + AWAY), (id + AWAY, id)]
        } else {
            [(id + AWAY, id), (id, id + AWAY)]
        };
        for (from, to) in steps {
            let query = "UPDATE item SET id = $2, version = $3 WHERE id = $1 \
                         AND NOT EXISTS (SELECT FROM item WHERE id = $2)";
            if open.client.execute(query, &[&from, &to, &version]).await? == 1 {
                let what = What::Move { from: from.to_string() };
                open.log("public.item", to, what, version);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Work of which a part is taken back while the rest is committed.
    async fn savepoints(&mut self, open: &mut Open) -> Statement {
        self.relabel(open).await?;
        open.client.batch_execute("SAVEPOINT a").await?;
        let kept = open.changes.len();
        self.toggle(open).await?;
        self.travel(open).await?;
        if self.random.bool() {
            open.client.batch_execute("ROLLBACK TO SAVEPOINT a").await?;
            open.undone.extend(open.changes.drain(kept..));
        } else {
            open.client.batch_execute("RELEASE SAVEPOINT a").await?;
        }
        self.relabel(open).await
    }

    /// Rows without a key, also twice the same.
    async fn note(&mut self, open: &mut Open) -> Statement {
        let version = self.shared.version();
        let old = format!("writer {} line {}", self.number, self.random.u64(..self.lines + 1));
        match self.random.u8(..4) {
            0 => {
                let query =
                    "DELETE FROM note WHERE ctid = (SELECT ctid FROM note WHERE line = $1 LIMIT 1)";
                if open.client.execute(query, &[&old]).await? == 1 {
                    open.log("public.note", old, What::Delete, version);
                }
            }
            1 => {
                let query = "UPDATE note SET version = $2 WHERE line = $1";
                for _ in 0..open.client.execute(query, &[&old, &version]).await? {
                    open.log("public.note", &old, What::Update, version);
                }
            }
            copies => {
                self.lines += 1;
                let line = format!("writer {} line {}", self.number, self.lines);
                for _ in 1..copies {
                    let query = "INSERT INTO note VALUES ($1, $2)";
                    open.client.execute(query, &[&line, &version]).await?;
                    open.log("public.note", &line, What::Insert, version);
                }
            }
        }
        Ok(())
    }

    /// One transaction over several tables, in which a row moves from one table to another.
    async fn everything(&mut self, open: &mut Open) -> Statement {
        self.transfer(open).await?;
        self.note(open).await?;
        let (id, version) = (self.own_item(), self.shared.version());
        let query = "WITH gone AS (DELETE FROM item WHERE id = $1 RETURNING id) \
                     INSERT INTO scratch SELECT id, $2 FROM gone \
                     ON CONFLICT (id) DO UPDATE SET version = excluded.version \
                     RETURNING xmax = 0";
        if let Some(row) = open.client.query_opt(query, &[&id, &version]).await? {
            let what = if row.get(0) { What::Insert } else { What::Update };
            open.log("public.item", id, What::Delete, version);
            open.log("public.scratch", id, what, version);
        }
        Ok(())
    }

    async fn truncate(&mut self, open: &mut Open) -> Statement {
        let (gone, version) = (self.shared.version(), self.shared.version());
        open.client.batch_execute("TRUNCATE scratch").await?;
        open.log("public.scratch", "", What::Truncate, gone);
        let id = self.own_item();
        open.client.execute("INSERT INTO scratch VALUES ($1, $2)", &[&id, &version]).await?;
        open.log("public.scratch", id, What::Insert, version);
        Ok(())
    }

    /// Many rows in one statement: a block that is this writer's own is filled, changed or emptied.
    async fn big(&mut self, open: &mut Open) -> Statement {
        let (rows, version) = (i64::from(self.shared.options.big_rows), self.shared.version());
        let start = AWAY * (2 + self.number);
        let bounds: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&start, &(start + rows - 1), &version];
        let update = "UPDATE bulk SET version = $3 WHERE id BETWEEN $1 AND $2 RETURNING id";
        let delete = "DELETE FROM bulk WHERE id BETWEEN $1 AND $2 AND $3 > 0 RETURNING id";
        let insert = "INSERT INTO bulk SELECT id, $3, md5(id::text) FROM generate_series($1::bigint, $2) id RETURNING id";
        let (query, what) =
            if self.random.bool() { (update, What::Update) } else { (delete, What::Delete) };
        let mut changed = open.client.query(query, &bounds).await?;
        let mut what = what;
        if changed.is_empty() {
            changed = open.client.query(insert, &bounds).await?;
            what = What::Insert;
        }
        for row in changed {
            open.log("public.bulk", row.get::<_, i64>(0), what.clone(), version);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("number", &self.number).finish_non_exhaustive()
    }
}
