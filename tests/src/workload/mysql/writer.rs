//! One session that writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use fastrand::Rng;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params};

use super::table::{AWAY, deep_recursion, fill};
use super::{DATABASE, truncate};
use crate::wait::{PATIENCE, until};
use crate::workload::{Change, Outcome, Record, Shared, Transaction, What};

/// How often a writer that is back asks for a prepared transaction: its old session may still be ending.
const TRIES: u32 = 50;

pub(in crate::workload) struct Writer {
    number: i64,
    shared: Arc<Shared>,
    login: Opts,
    random: Rng,
    /// Lines ever written to `note`; names the next one.
    lines: u64,
    record: Record,
    /// Prepared when the connection broke; the id, and how often it was looked for.
    prepared: Vec<(String, u32)>,
}

/// A connection, and what the transaction that is under way did.
struct Open {
    connection: Conn,
    changes: Vec<Change>,
    undone: Vec<Change>,
}

type Statement<T = ()> = Result<T, mysql_async::Error>;

/// How a transaction ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Manner {
    Plain,
    /// In two phases, under this id.
    Xa(String),
}

impl Open {
    fn log(&mut self, table: &'static str, key: impl ToString, what: What, version: i64) {
        self.changes.push(Change { table, key: key.to_string(), what, version });
    }

    async fn run(&mut self, statement: &str) -> Statement {
        self.connection.query_drop(statement).await
    }

    /// Rows that the statement changed.
    async fn execute(
        &mut self,
        statement: &str,
        values: impl Into<Params> + Send,
    ) -> Statement<u64> {
        self.connection.exec_drop(statement, values.into()).await?;
        Ok(self.connection.affected_rows())
    }
}

impl Writer {
    pub(in crate::workload) fn new(
        number: u16,
        shared: Arc<Shared>,
        login: &Opts,
        mariadb: bool,
    ) -> Self {
        let seed = shared.options.seed.wrapping_mul(31).wrapping_add(u64::from(number));
        let settings = [
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            // A truncate waits while the table is scanned, and everybody waits behind it.
            "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 2",
            deep_recursion(mariadb),
        ];
        let login = OptsBuilder::from_opts(login.clone())
            .db_name(Some(DATABASE))
            .init(settings.map(str::to_owned).to_vec())
            .into();
        Self {
            number: i64::from(number),
            shared,
            login,
            random: Rng::with_seed(seed),
            lines: 0,
            record: Record::default(),
            prepared: Vec::new(),
        }
    }

    pub(in crate::workload) async fn run(mut self) -> Result<Record> {
        let mut open = self.connect().await?;
        let mut pace = tokio::time::interval(self.shared.options.pace);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.shared.stop.load(Ordering::Relaxed) {
            pace.tick().await;
            let mut result = self.finish_prepared(&mut open).await;
            if result.is_ok() {
                result = self.next(&mut open).await;
            }
            match result {
                // A lock that was not to be had; what is known about it is recorded.
                Ok(()) | Err(mysql_async::Error::Server(_)) => {}
                Err(_) => open = self.connect().await?,
            }
        }
        // So that its session has ended when the outcomes are asked for.
        open.connection.disconnect().await?;
        Ok(self.record)
    }

    async fn connect(&self) -> Result<Open> {
        let connection = until("the server to take a writer", PATIENCE, async || {
            Ok(Conn::new(self.login.clone()).await.ok())
        });
        Ok(Open { connection: connection.await?, changes: Vec::new(), undone: Vec::new() })
    }

    /// Commits what a broken connection left over.
    async fn finish_prepared(&mut self, open: &mut Open) -> Statement {
        for (id, tries) in std::mem::take(&mut self.prepared) {
            match open.run(&format!("XA COMMIT {id}")).await {
                Err(mysql_async::Error::Server(_)) if tries < TRIES => {
                    self.prepared.push((id, tries + 1));
                }
                Err(mysql_async::Error::Server(_)) | Ok(()) => {}
                Err(error) => {
                    self.prepared.push((id, tries));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn next(&mut self, open: &mut Open) -> Statement {
        match self.random.u8(..100) {
            0 if self.shared.options.truncates && self.number == 0 => self.truncate(open).await,
            1..4 => {
                let id = self.shared.version();
                open.execute("INSERT INTO journal VALUES (?)", (id,)).await.map(drop)
            }
            _ => self.transaction(open).await,
        }
    }

    async fn truncate(&mut self, open: &mut Open) -> Statement {
        let marker = self.shared.version();
        let result = open.run(&truncate(marker)).await;
        let outcome = match &result {
            Ok(()) => Outcome::Committed,
            Err(mysql_async::Error::Server(_)) => Outcome::RolledBack,
            Err(_) => Outcome::Unknown,
        };
        open.log("trial.scratch", "", What::Truncate, marker);
        self.keep(open, marker, outcome);
        result
    }

    async fn transaction(&mut self, open: &mut Open) -> Statement {
        let marker = self.shared.version();
        let manner = match self.random.u8(..12) {
            0 => Manner::Xa(format!("'writer {} {marker}'", self.number)),
            _ => Manner::Plain,
        };
        let begin = match &manner {
            Manner::Plain => "BEGIN".to_owned(),
            Manner::Xa(id) => format!("XA START {id}"),
        };
        open.run(&begin).await?;
        let mut result = open.execute("INSERT INTO marker VALUES (?)", (marker,)).await.map(drop);
        if result.is_ok() {
            result = self.write(open).await;
        }
        let kept = result.is_ok() && self.random.u8(..20) > 0;
        let mut outcome = Outcome::RolledBack;
        if result.is_ok() {
            result = self.end(open, &manner, kept).await;
            // Whatever went wrong, only the server knows how the transaction ended.
            outcome = match (kept, &result) {
                (false, _) => Outcome::RolledBack,
                (true, Ok(())) => Outcome::Committed,
                (true, Err(_)) => Outcome::Unknown,
            };
        }
        if matches!(result, Err(mysql_async::Error::Server(_))) {
            give_up(open, &manner).await;
        }
        self.keep(open, marker, outcome);
        result
    }

    async fn end(&mut self, open: &mut Open, manner: &Manner, kept: bool) -> Statement {
        let Manner::Xa(id) = manner else {
            return open.run(if kept { "COMMIT" } else { "ROLLBACK" }).await;
        };
        open.run(&format!("XA END {id}")).await?;
        let end = format!("{} {id}", if kept { "XA COMMIT" } else { "XA ROLLBACK" });
        let mut result = open.run(&format!("XA PREPARE {id}")).await;
        if result.is_ok() {
            result = open.run(&end).await;
        }
        if kept && matches!(&result, Err(error) if !matches!(error, mysql_async::Error::Server(_)))
        {
            self.prepared.push((id.clone(), 0));
        }
        result
    }

    fn keep(&mut self, open: &mut Open, marker: i64, outcome: Outcome) {
        if outcome == Outcome::Committed {
            self.shared.committed.fetch_add(1, Ordering::Relaxed);
        }
        let changes = std::mem::take(&mut open.changes);
        let undone = std::mem::take(&mut open.undone);
        let transaction = Transaction { marker, xid: None, outcome, changes, undone };
        self.record.transactions.push(transaction);
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
            _ => self.replace(open).await,
        }
    }

    fn own_item(&mut self) -> i64 {
        let writers = i64::from(self.shared.options.writers);
        let slots = (i64::from(self.shared.options.items) / writers).max(1);
        self.random.i64(0..slots) * writers + self.number
    }

    /// From one account to another, locked in the order of their ids so that no two transfers wait for each other.
    async fn transfer(&mut self, open: &mut Open) -> Statement {
        let accounts = i64::from(self.shared.options.accounts);
        let first = self.random.i64(0..accounts - 1);
        let second = self.random.i64(first + 1..accounts);
        let amount = self.random.i64(-50..50);
        for (id, change) in [(first, -amount), (second, amount)] {
            let query =
                "UPDATE account SET version = version + 1, balance = balance + ? WHERE id = ?";
            open.execute(query, (change, id)).await?;
            let query = "SELECT version FROM account WHERE id = ?";
            let version: Option<i64> = open.connection.exec_first(query, (id,)).await?;
            open.log("trial.account", id, What::Update, version.expect("accounts stay"));
        }
        Ok(())
    }

    /// Changes a small column beside a large one.
    async fn relabel(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let label = format!("label {}", self.random.u32(..));
        let query = "UPDATE item SET version = ?, label = ? WHERE id = ?";
        if open.execute(query, (version, label, id)).await? == 1 {
            open.log("trial.item", id, What::Update, version);
        }
        Ok(())
    }

    async fn rewrite(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let body = self.body();
        let query = "UPDATE item SET version = ?, body = ? WHERE id = ?";
        if open.execute(query, (version, body, id)).await? == 1 {
            open.log("trial.item", id, What::Update, version);
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
        if open.execute("DELETE FROM item WHERE id = ?", (id,)).await? == 1 {
            open.log("trial.item", id, What::Delete, version);
            return Ok(());
        }
        let body = self.body();
        open.execute("INSERT INTO item VALUES (?, ?, 'back', ?)", (id, version, body)).await?;
        open.log("trial.item", id, What::Insert, version);
        Ok(())
    }

    /// Deletes a row and inserts another under the same key, in one transaction.
    async fn replace(&mut self, open: &mut Open) -> Statement {
        let id = self.own_item();
        let (gone, version) = (self.shared.version(), self.shared.version());
        if open.execute("DELETE FROM item WHERE id = ?", (id,)).await? == 1 {
            open.log("trial.item", id, What::Delete, gone);
        }
        open.execute("INSERT INTO item VALUES (?, ?, 'replaced', NULL)", (id, version)).await?;
        open.log("trial.item", id, What::Insert, version);
        Ok(())
    }

    /// Gives a row a key far away, or brings it back. Nobody else writes these keys.
    async fn travel(&mut self, open: &mut Open) -> Statement {
        let (id, version) = (self.own_item(), self.shared.version());
        let steps = if self.random.bool() {
            [(id, id + AWAY), (id + AWAY, id)]
        } else {
            [(id + AWAY, id), (id, id + AWAY)]
        };
        for (from, to) in steps {
            let query = "SELECT count(*) FROM item WHERE id = ?";
            let taken: Option<i64> = open.connection.exec_first(query, (to,)).await?;
            if taken != Some(0) {
                continue;
            }
            let query = "UPDATE item SET id = ?, version = ? WHERE id = ?";
            if open.execute(query, (to, version, from)).await? == 1 {
                let what = What::Move { from: from.to_string() };
                open.log("trial.item", to, what, version);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Work of which a part is taken back while the rest is committed.
    async fn savepoints(&mut self, open: &mut Open) -> Statement {
        self.relabel(open).await?;
        open.run("SAVEPOINT a").await?;
        let kept = open.changes.len();
        self.toggle(open).await?;
        self.travel(open).await?;
        if self.random.bool() {
            open.run("ROLLBACK TO SAVEPOINT a").await?;
            open.undone.extend(open.changes.drain(kept..));
        } else {
            open.run("RELEASE SAVEPOINT a").await?;
        }
        self.relabel(open).await
    }

    /// Rows without a key, also twice the same.
    async fn note(&mut self, open: &mut Open) -> Statement {
        let version = self.shared.version();
        let old = format!("writer {} line {}", self.number, self.random.u64(..self.lines + 1));
        match self.random.u8(..4) {
            0 => {
                let query = "DELETE FROM note WHERE line = ? LIMIT 1";
                if open.execute(query, (&old,)).await? == 1 {
                    open.log("trial.note", old, What::Delete, version);
                }
            }
            1 => {
                let query = "UPDATE note SET version = ? WHERE line = ?";
                for _ in 0..open.execute(query, (version, &old)).await? {
                    open.log("trial.note", &old, What::Update, version);
                }
            }
            copies => {
                self.lines += 1;
                let line = format!("writer {} line {}", self.number, self.lines);
                for _ in 1..copies {
                    open.execute("INSERT INTO note VALUES (?, ?)", (&line, version)).await?;
                    open.log("trial.note", &line, What::Insert, version);
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
        if open.execute("DELETE FROM item WHERE id = ?", (id,)).await? == 0 {
            return Ok(());
        }
        open.log("trial.item", id, What::Delete, version);
        let query = "INSERT INTO scratch VALUES (?, ?) ON DUPLICATE KEY UPDATE version = ?";
        // One for a new row, two for a changed one.
        let new = open.execute(query, (id, version, version)).await? == 1;
        open.log("trial.scratch", id, if new { What::Insert } else { What::Update }, version);
        Ok(())
    }

    /// Many rows in one statement: a block that is this writer's own is filled, changed or emptied, always whole.
    async fn big(&mut self, open: &mut Open) -> Statement {
        let (rows, version) = (i64::from(self.shared.options.big_rows), self.shared.version());
        let start = AWAY * (2 + self.number);
        let bounds = (start, start + rows - 1);
        let mut what = if self.random.bool() { What::Update } else { What::Delete };
        let changed = if what == What::Update {
            let query = "UPDATE bulk SET version = ? WHERE id BETWEEN ? AND ?";
            open.execute(query, (version, bounds.0, bounds.1)).await?
        } else {
            open.execute("DELETE FROM bulk WHERE id BETWEEN ? AND ?", bounds).await?
        };
        if changed == 0 {
            open.run(&fill("bulk", start, rows, &format!("{version}, left(sha2(i, 256), 32)")))
                .await?;
            what = What::Insert;
        }
        for id in bounds.0..=bounds.1 {
            open.log("trial.bulk", id, what.clone(), version);
        }
        Ok(())
    }
}

/// After an error of the server. What it has rolled back by itself it refuses to roll back again.
async fn give_up(open: &mut Open, manner: &Manner) {
    let statements = match manner {
        Manner::Plain => vec!["ROLLBACK".to_owned()],
        Manner::Xa(id) => vec![format!("XA END {id}"), format!("XA ROLLBACK {id}")],
    };
    for statement in statements {
        open.run(&statement).await.unwrap_or_default();
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("number", &self.number).finish_non_exhaustive()
    }
}
