//! The source: sessions that write, a log in commit order, views, and one slot or one file.
//!
//! As in PostgreSQL, a transaction has an id before its commit record is in the log; as in both, it is in the log, and
//! in the stream, before its rows are visible to a view, and what is logged first need not become visible first. A
//! truncate is not isolated: an older view finds the table empty.

use std::collections::BTreeSet;

use dovetail_core::change::{TransactionId, Xid};
use dovetail_core::fence::{Fence, Snapshot};
use dovetail_core::gtid::mysql::{Gtid, GtidSet, Issuer, Uuid};
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;

use super::scenario::{Scenario, Script, Server, Statement};
use crate::checker::history::{Image, RowKey, Rows, Transaction, Write};

/// The id of the transaction that wrote what the tables held in the beginning.
const FIRST_XID: u64 = 10;

/// The distance of two commit records in the log.
const STRIDE: u64 = 10;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Database {
    server: Server,
    sessions: Vec<Session>,
    next_xid: u64,
    /// Highest id of a transaction that has ended.
    ended: u64,
    pub(super) log: Vec<Logged>,
    pub(super) slot: Option<Slot>,
    /// Where the oldest binlog file begins.
    pub(super) first: Lsn,
    /// The binlog has begun anew.
    pub(super) is_reset: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Session {
    done: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Between,
    Begun(u64),
    /// Logged; by index there.
    Hanging(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Logged {
    pub(super) xid: u64,
    pub(super) writes: Vec<Write>,
    pub(super) visible: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Slot {
    pub(super) confirmed: Lsn,
}

/// What a view contains: indices into the log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct View(BTreeSet<usize>);

impl Database {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let writes = scenario.initial.iter().enumerate();
        let writes =
            writes.map(|(index, row)| Write::Insert(row.clone(), version(0, index))).collect();
        let session = Session { done: 0, stage: Stage::Between };
        Self {
            server: scenario.server,
            first: if scenario.server == Server::MySql { file_start() } else { Lsn::ZERO },
            is_reset: false,
            sessions: vec![session; scenario.sessions.len()],
            next_xid: FIRST_XID + 1,
            ended: FIRST_XID,
            log: vec![Logged { xid: FIRST_XID, writes, visible: true }],
            slot: None,
        }
    }

    fn place(&self, offset: u64) -> Lsn {
        match self.server {
            Server::Postgres => Lsn::new(offset),
            Server::MySql => Lsn::binlog(0, 1, offset),
        }
    }

    /// Start of a commit record.
    pub(super) fn commit(&self, index: usize) -> Lsn {
        self.place((index as u64 + 1) * STRIDE)
    }

    /// Past the commit record of the transaction that starts there.
    pub(super) fn end(&self, commit: Lsn) -> Lsn {
        self.place(commit.offset() + 1)
    }

    /// The end of what was written.
    pub(super) fn log_end(&self) -> Lsn {
        self.place(self.log.len() as u64 * STRIDE + STRIDE / 2)
    }

    /// The name of a transaction in the stream.
    pub(super) fn id(&self, index: usize) -> TransactionId {
        let number = self.log[index].xid;
        match self.server {
            Server::Postgres => Xid(number).into(),
            Server::MySql => TransactionId::Gtid(gtid(number)),
        }
    }

    /// The GTIDs of a view.
    pub(super) fn gtids(&self, view: &View) -> GtidSet {
        view.0.iter().map(|index| gtid(self.log[*index].xid)).collect()
    }

    /// What starts before this position.
    pub(super) fn before(&self, position: Lsn) -> View {
        View((0..self.log.len()).filter(|index| self.commit(*index) < position).collect())
    }

    pub(super) fn is_visible(&self, view: &View) -> bool {
        view.0.iter().all(|index| self.log[*index].visible)
    }

    /// The file that is written to: whatever is not visible yet lies in it. What is visible is not streamed either.
    pub(super) fn gtid_pin(&self) -> (Lsn, View) {
        (file_start(), self.open_view())
    }

    pub(super) fn take_xid(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        xid
    }

    /// Takes an id in a transaction of its own, which ends at once.
    pub(super) fn burn_xid(&mut self) -> u64 {
        let xid = self.take_xid();
        self.ended = self.ended.max(xid);
        xid
    }

    fn script<'a>(&self, scenario: &'a Scenario, session: usize) -> Option<&'a Script> {
        scenario.sessions.get(session)?.get(self.sessions.get(session)?.done)
    }

    pub(super) fn can_step(&self, scenario: &Scenario, session: usize) -> bool {
        let Some(script) = self.script(scenario, session) else { return false };
        match self.sessions[session].stage {
            Stage::Hanging(_) => true,
            Stage::Between if script.early => true,
            Stage::Between | Stage::Begun(_) => !self.is_locked(script),
        }
    }

    /// Whether a transaction that is not over yet holds what this one writes.
    fn is_locked(&self, script: &Script) -> bool {
        let mut held = self.log.iter().filter(|it| !it.visible).flat_map(|it| &it.writes);
        held.any(|write| script.statements.iter().any(|statement| conflict(write, statement)))
    }

    pub(super) fn step(&mut self, scenario: &Scenario, session: usize) {
        let Some(script) = self.script(scenario, session) else { return };
        let stage = self.sessions[session].stage;
        let xid = match stage {
            Stage::Hanging(index) => {
                self.log[index].visible = true;
                self.ended = self.ended.max(self.log[index].xid);
                self.is_over(session);
                return;
            }
            Stage::Between if script.early => {
                self.sessions[session].stage = Stage::Begun(self.take_xid());
                return;
            }
            Stage::Between => self.take_xid(),
            Stage::Begun(xid) => xid,
        };
        let index = self.log.len();
        let writes = self.execute(&script.statements, index);
        self.log.push(Logged { xid, writes, visible: !script.hangs });
        if script.hangs {
            self.sessions[session].stage = Stage::Hanging(index);
        } else {
            self.ended = self.ended.max(xid);
            self.is_over(session);
        }
    }

    /// What the session is about to do.
    pub(super) fn describe(&self, scenario: &Scenario, session: usize) -> String {
        let Some(script) = self.script(scenario, session) else { return "nothing".to_owned() };
        let what = &script.statements;
        match self.sessions[session].stage {
            Stage::Hanging(_) => format!("{what:?} becomes visible"),
            Stage::Between if script.early => format!("{what:?} takes its id"),
            Stage::Between | Stage::Begun(_) if script.hangs => format!("{what:?} is in the log"),
            Stage::Between | Stage::Begun(_) => format!("{what:?} commits"),
        }
    }

    fn is_over(&mut self, session: usize) {
        self.sessions[session] =
            Session { done: self.sessions[session].done + 1, stage: Stage::Between };
    }

    fn execute(&self, statements: &[Statement], index: usize) -> Vec<Write> {
        let mut rows = self.rows(&self.everything());
        let mut writes = Vec::new();
        for (ordinal, statement) in statements.iter().enumerate() {
            let image = version(index, ordinal);
            let write = match statement {
                Statement::Insert(row) if !rows.contains_key(row) => {
                    Some(Write::Insert(row.clone(), image))
                }
                Statement::Update(row) if rows.contains_key(row) => {
                    Some(Write::Update(row.clone(), image))
                }
                Statement::Delete(row) if rows.contains_key(row) => {
                    Some(Write::Delete(row.clone()))
                }
                Statement::Move(from, to) if rows.contains_key(from) && !rows.contains_key(to) => {
                    Some(Write::Move { from: from.clone(), to: to.clone(), image })
                }
                Statement::Truncate(table) => Some(Write::Truncate(table.name.as_str().into())),
                _ => None,
            };
            if let Some(write) = write {
                apply(&mut rows, &write);
                writes.push(write);
            }
        }
        writes
    }

    fn everything(&self) -> View {
        View((0..self.log.len()).collect())
    }

    fn is_running(&self) -> impl Iterator<Item = u64> {
        let begun = self.sessions.iter().filter_map(|session| match session.stage {
            Stage::Begun(xid) => Some(xid),
            Stage::Between | Stage::Hanging(_) => None,
        });
        let hanging = self.log.iter().filter(|it| !it.visible).map(|it| it.xid);
        begun.chain(hanging)
    }

    pub(super) fn nothing_runs(&self) -> bool {
        self.is_running().next().is_none()
    }

    /// The creation of a slot waits for those that run, and takes what hangs as committed. Nothing waits elsewhere.
    pub(super) fn can_take_pin(&self) -> bool {
        self.server == Server::MySql
            || self.sessions.iter().all(|session| !matches!(session.stage, Stage::Begun(_)))
    }

    pub(super) fn create_slot(&mut self) -> (Lsn, View) {
        let confirmed = self.log_end();
        self.slot = Some(Slot { confirmed });
        (confirmed, self.everything())
    }

    pub(super) fn has_ended_before(&self, xid: u64) -> bool {
        self.is_running().all(|running| running >= xid)
    }

    pub(super) fn open_view(&self) -> View {
        let visible = self.log.iter().enumerate().filter(|(_, it)| it.visible);
        View(visible.map(|(index, _)| index).collect())
    }

    /// What the server says of a view that is opened now.
    pub(super) fn fence(&self) -> Fence {
        if self.server == Server::MySql {
            return Fence::Gtids(self.gtids(&self.open_view()));
        }
        let xmax = self.ended + 1;
        let running: BTreeSet<u64> = self.is_running().filter(|xid| *xid < xmax).collect();
        let xmin = running.first().copied().unwrap_or(xmax);
        let snapshot = Snapshot::new(xmin, xmax, running.into_iter().collect());
        Fence::Snapshot(snapshot.expect("built as the server does"))
    }

    fn rows(&self, view: &View) -> Rows {
        let mut rows = Rows::new();
        for index in &view.0 {
            for write in &self.log[*index].writes {
                apply(&mut rows, write);
            }
        }
        rows
    }

    pub(super) fn source(&self) -> Rows {
        self.rows(&self.everything())
    }

    /// A truncate locks its table until it is visible.
    pub(super) fn can_read(&self, table: &TableName) -> bool {
        !self.log.iter().any(|it| !it.visible && truncates(&it.writes, table))
    }

    pub(super) fn read(&self, view: &View, table: &TableName, row: &RowKey) -> Option<Image> {
        let mut later = self.log.iter().enumerate().filter(|(index, _)| !view.0.contains(index));
        if later.any(|(_, it)| truncates(&it.writes, table)) {
            return None;
        }
        self.rows(view).get(row).copied()
    }

    pub(super) fn is_truncated_since(&self, view: &View, table: &TableName) -> bool {
        let mut later = self.log.iter().enumerate().filter(|(index, _)| !view.0.contains(index));
        later.any(|(_, it)| truncates(&it.writes, table))
    }

    pub(super) fn is_at_rest(&self, scenario: &Scenario) -> bool {
        (0..self.sessions.len()).all(|session| self.script(scenario, session).is_none())
    }

    pub(super) fn transactions(&self) -> Vec<Transaction> {
        let transaction = |(index, it): (usize, &Logged)| Transaction {
            id: it.xid,
            commit: Some(self.commit(index)),
            writes: it.writes.clone(),
        };
        self.log.iter().enumerate().map(transaction).collect()
    }
}

impl View {
    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn union(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }
}

/// Of the only file.
fn file_start() -> Lsn {
    Lsn::binlog(0, 1, 4)
}

fn gtid(number: u64) -> Gtid {
    Gtid { issuer: Issuer { uuid: Uuid([7; 16]), tag: None }, number }
}

/// No two writes have the same.
fn version(transaction: usize, ordinal: usize) -> Image {
    Image::of_version((transaction * 10 + ordinal + 1) as u64)
}

fn apply(rows: &mut Rows, write: &Write) {
    match write {
        Write::Insert(row, image) | Write::Update(row, image) => {
            rows.insert(row.clone(), *image);
        }
        Write::Delete(row) => {
            rows.remove(row);
        }
        Write::Move { from, to, image } => {
            rows.remove(from);
            rows.insert(to.clone(), *image);
        }
        Write::Truncate(table) => rows.retain(|row, _| row.table != *table),
    }
}

fn truncates(writes: &[Write], table: &TableName) -> bool {
    writes.iter().any(|write| matches!(write, Write::Truncate(it) if **it == *table.name))
}

fn conflict(write: &Write, statement: &Statement) -> bool {
    let (held, held_table) = match write {
        Write::Insert(row, _) | Write::Update(row, _) | Write::Delete(row) => {
            (vec![row], &*row.table)
        }
        Write::Move { from, to, .. } => (vec![from, to], &*from.table),
        Write::Truncate(table) => (Vec::new(), &**table),
    };
    let (wanted, wanted_table) = match statement {
        Statement::Insert(row) | Statement::Update(row) | Statement::Delete(row) => {
            (vec![row], &*row.table)
        }
        Statement::Move(from, to) => (vec![from, to], &*from.table),
        Statement::Truncate(table) => (Vec::new(), table.name.as_str()),
    };
    let whole_table = held.is_empty() || wanted.is_empty();
    held_table == wanted_table && (whole_table || wanted.iter().any(|row| held.contains(row)))
}
