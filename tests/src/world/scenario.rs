//! The small worlds: what the database does, which engine faces it, and what may go wrong.

mod spooled;

use std::collections::BTreeSet;
use std::fmt;

use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::seam::Mode;

use crate::checker::history::RowKey;

/// A table of the small world; one chunk is one key.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: TableName,
    pub id: RelationId,
    pub keys: Vec<RowKey>,
}

/// What a transaction does. What finds no row does nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Statement {
    Insert(RowKey),
    Update(RowKey),
    Delete(RowKey),
    Move(RowKey, RowKey),
    Truncate(TableName),
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(row) => write!(f, "insert {row}"),
            Self::Update(row) => write!(f, "update {row}"),
            Self::Delete(row) => write!(f, "delete {row}"),
            Self::Move(from, to) => write!(f, "move {from} to {to}"),
            Self::Truncate(table) => write!(f, "truncate {table}"),
        }
    }
}

/// One transaction of a session.
#[derive(Clone, Debug)]
pub struct Script {
    pub statements: Vec<Statement>,
    /// It takes its id some time before its commit record is written; otherwise at the same time.
    pub early: bool,
    /// It becomes visible some time after its commit record is written (as when a synchronous standby does not
    /// answer); otherwise at the same time.
    pub hangs: bool,
}

/// What the database can say of its log and its views.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Server {
    /// Keeps its log for a slot, whose creation exports a view. Describes a view by the ids in it.
    Postgres,
    /// Keeps files for a while. A pin is the set of GTIDs that are visible, without a view; so is a fence.
    MySql,
}

impl Server {
    pub const ALL: [Self; 2] = [Self::Postgres, Self::MySql];
}

/// What happens to a pipeline behind its back, while the engine is down where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hazard {
    SlotRemade,
    SlotDropped,
    /// The oldest file ends at the log's end.
    LogPurged,
    /// While the log is read: the oldest file begins where the spool ends that is durable.
    LogPurgedBehindTheReader,
    LogReset,
    /// The outlet comes back from a copy that was taken before anything was written.
    OutletRestored,
    /// The state directory comes back empty.
    StateLost,
    /// The spool comes back empty, and nothing else.
    SpoolLost,
}

/// One world to explore.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub server: Server,
    pub tables: Vec<Table>,
    pub initial: Vec<RowKey>,
    /// Each session runs its transactions one after the other, beside the other sessions.
    pub sessions: Vec<Vec<Script>>,
    pub mode: Mode,
    /// Tables that the operator adds to the configuration after the first life.
    pub added: BTreeSet<TableName>,
    /// The outlet keeps the checkpoint in the transaction of the rows.
    pub transactional: bool,
    /// The log is read into a spool, beside the scan.
    pub spool: bool,
    pub crashes: u8,
    /// How often the outlet fails, while the log is read on.
    pub outlet_losses: u8,
    pub view_losses: u8,
    pub hazard: Option<Hazard>,
}

fn name(table: &str) -> TableName {
    TableName { namespace: "public".into(), name: table.into() }
}

fn row(table: &str, key: &str) -> RowKey {
    RowKey::new(table, key)
}

fn table(id: u32, label: &str, keys: &[&str]) -> Table {
    let keys = keys.iter().map(|key| row(label, key)).collect();
    Table { name: name(label), id: RelationId(id), keys }
}

fn script(statements: Vec<Statement>) -> Script {
    Script { statements, early: false, hangs: false }
}

impl Script {
    fn early(self) -> Self {
        Self { early: true, ..self }
    }

    fn hanging(self) -> Self {
        Self { hangs: true, ..self }
    }
}

impl Scenario {
    fn new(name: &'static str, sessions: Vec<Vec<Script>>) -> Self {
        Self {
            name,
            server: Server::Postgres,
            tables: vec![table(1, "a", &["1", "2"]), table(2, "b", &["1"])],
            initial: vec![row("a", "1"), row("b", "1")],
            sessions,
            mode: Mode::Initial,
            added: BTreeSet::new(),
            transactional: false,
            spool: false,
            crashes: 1,
            outlet_losses: 0,
            view_losses: 0,
            hazard: None,
        }
    }

    fn transactional(self, name: &'static str) -> Self {
        Self { name, transactional: true, ..self }
    }

    /// Every world of the exploration.
    pub fn all() -> Vec<Self> {
        use Statement::{Delete, Insert, Move, Truncate, Update};
        let (a1, a2, b1) = (|| row("a", "1"), || row("a", "2"), || row("b", "1"));
        let updates = || {
            Self::new(
                "a row moves between tables, and a delete",
                vec![vec![
                    script(vec![Update(a1()), Delete(b1())]),
                    script(vec![Delete(a1()), Insert(a2())]),
                ]],
            )
        };
        let moves = Self::new(
            "a key moves and comes back",
            vec![vec![script(vec![Move(a1(), a2())]), script(vec![Move(a2(), a1())])]],
        );
        let truncate = Self::new(
            "a truncate and an insert after it",
            vec![vec![script(vec![Update(a1()), Truncate(name("a"))]), script(vec![Insert(a2())])]],
        );
        let overlapping = Self::new(
            "transactions overlap, and one hangs between its log and its rows",
            vec![
                vec![script(vec![Update(a1())]).early()],
                vec![script(vec![Update(b1())]).hanging()],
            ],
        )
        .with_one_key_each();
        let loss =
            Self { crashes: 0, view_losses: 1, ..updates().named("the view's connection is lost") };
        let loss_and_crash = Self {
            view_losses: 1,
            ..Self::new(
                "the view's connection is lost, and a crash",
                vec![vec![script(vec![Update(a1()), Delete(b1())])]],
            )
            .with_one_key_each()
        };
        let twice = Self {
            crashes: 2,
            ..Self::new("two crashes", vec![vec![script(vec![Update(a1()), Delete(b1())])]])
                .with_one_key_each()
        };
        let always = Self {
            mode: Mode::Always,
            ..Self::new(
                "every start scans again, and a commit hangs",
                vec![vec![script(vec![Update(a1())]).hanging()], vec![script(vec![Delete(b1())])]],
            )
            .with_one_key_each()
        };
        let never = Self { mode: Mode::Never, ..updates().named("nothing is scanned") };
        let added = Self {
            added: [name("b")].into(),
            ..Self::new(
                "a table is added, and a commit hangs",
                vec![vec![script(vec![Update(b1())]).hanging()], vec![script(vec![Update(a1())])]],
            )
            .with_one_key_each()
        };
        let transactional_always =
            always.clone().transactional("every start scans again, transactional");
        let hazards = [
            ("the slot is made again while down", Hazard::SlotRemade, false),
            ("the slot is dropped while down", Hazard::SlotDropped, false),
            ("the outlet is restored from an older copy", Hazard::OutletRestored, true),
            ("the state is lost", Hazard::StateLost, true),
        ];
        let hazards = hazards.map(|(name, hazard, transactional)| Self {
            hazard: Some(hazard),
            transactional,
            ..updates().named(name)
        });
        let mut all = vec![
            updates(),
            updates().transactional("a row moves between tables, transactional"),
            moves,
            truncate.clone(),
            truncate.transactional("a truncate, transactional"),
            overlapping,
            loss,
            loss_and_crash,
            twice,
            always,
            transactional_always,
            never,
            added,
        ];
        all.extend(hazards);
        all.extend(Self::all_mysql());
        all.extend(Self::all_spooled());
        all
    }

    /// A pin without a view, and transactions that are in the log before they are visible.
    fn all_mysql() -> Vec<Self> {
        use Statement::{Delete, Insert, Update};
        let (a1, b1) = (|| row("a", "1"), || row("b", "1"));
        let mysql = |name, sessions| {
            let server = Server::MySql;
            Self { server, ..Self::new(name, sessions).with_one_key_each() }
        };
        let one = || vec![vec![script(vec![Update(a1()), Delete(b1())]).hanging()]];
        // The second is logged later, and may be visible first.
        let two =
            || vec![vec![script(vec![Update(a1())]).hanging()], vec![script(vec![Update(b1())])]];
        let hazards = [
            ("mysql: the log is purged while down", Hazard::LogPurged),
            ("mysql: the log is reset while down", Hazard::LogReset),
        ];
        let hazards = hazards.map(|(name, hazard)| Self {
            hazard: Some(hazard),
            ..mysql(name, vec![vec![script(vec![Update(a1()), Delete(b1())])]])
        });
        let mut all = vec![
            mysql("mysql: a commit hangs between its log and its rows", one()),
            Self {
                tables: vec![table(1, "a", &["1", "2"])],
                initial: vec![row("a", "1")],
                ..mysql(
                    "mysql: commits become visible in another order",
                    vec![
                        vec![script(vec![Update(a1())]).hanging()],
                        vec![script(vec![Insert(row("a", "2"))])],
                    ],
                )
            },
            mysql("", one()).transactional("mysql: a commit hangs, transactional"),
            Self {
                view_losses: 1,
                crashes: 0,
                ..mysql("mysql: the view's connection is lost, and a commit hangs", one())
            },
            Self { mode: Mode::Always, ..mysql("mysql: every start scans again", one()) },
            Self { added: [name("b")].into(), ..mysql("mysql: a table is added", two()) },
        ];
        all.extend(hazards);
        all
    }

    fn with_one_key_each(self) -> Self {
        Self { tables: vec![table(1, "a", &["1"]), table(2, "b", &["1"])], ..self }
    }

    fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}
