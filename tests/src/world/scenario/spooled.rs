//! The small worlds in which the log is read into a spool while tables are scanned.

use dovetail_core::seam::Mode;

use super::{Hazard, Scenario, Script, Server, Statement, name, row, script, table};

impl Scenario {
    pub(super) fn all_spooled() -> Vec<Self> {
        let mut all = Self::all_spooled_postgres();
        all.extend(Self::all_spooled_mysql());
        all
    }

    fn all_spooled_postgres() -> Vec<Self> {
        let twice = |name| Self { crashes: 2, ..spooled(name, one()) };
        let always = |name| Self { mode: Mode::Always, ..spooled(name, one_hangs()) };
        let outlet_fails = |name| Self { crashes: 0, outlet_losses: 1, ..one_table(name, two()) };
        let outlet_fails_and_crash =
            |name| Self { outlet_losses: 1, ..one_table(name, vec![vec![update()]]) };
        vec![
            one_table("spool: an update, and a delete", two()),
            one_table("", two()).transactional("spool: an update, and a delete, transactional"),
            spooled("spool: a commit hangs between its log and its rows", one_hangs()),
            twice("spool: two crashes"),
            twice("").transactional("spool: two crashes, transactional"),
            Self {
                view_losses: 1,
                ..spooled("spool: the view's connection is lost, and a crash", one())
            },
            always("spool: every start scans again, and a commit hangs"),
            always("").transactional("spool: every start scans again, transactional"),
            Self { mode: Mode::Never, ..spooled("spool: nothing is scanned", two_tables()) },
            added(spooled(
                "spool: a table is added, and a commit hangs",
                one_hangs_before_another(),
            )),
            Self {
                mode: Mode::Never,
                ..added(spooled("spool: a table is added, and nothing is scanned", two_tables()))
            },
            outlet_fails("spool: the outlet fails"),
            outlet_fails("").transactional("spool: the outlet fails, transactional"),
            outlet_fails_and_crash("spool: the outlet fails, and a crash"),
            outlet_fails_and_crash("")
                .transactional("spool: the outlet fails, and a crash, transactional"),
            Self {
                hazard: Some(Hazard::SpoolLost),
                ..spooled("spool: it is lost while down", one())
            },
            Self {
                hazard: Some(Hazard::SlotRemade),
                ..spooled("spool: the slot is made again while down", one())
            },
        ]
    }

    fn all_spooled_mysql() -> Vec<Self> {
        let mysql = |name, sessions| Self { server: Server::MySql, ..spooled(name, sessions) };
        let hazard = |name, hazard| Self { hazard: Some(hazard), ..mysql(name, one()) };
        vec![
            mysql("mysql, spool: a commit hangs between its log and its rows", one_hangs()),
            Self { server: Server::MySql, ..one_table("", two()) }
                .transactional("mysql, spool: an update, and a delete, transactional"),
            Self {
                crashes: 0,
                view_losses: 1,
                ..mysql(
                    "mysql, spool: the view's connection is lost, and a commit hangs",
                    one_hangs(),
                )
            },
            Self {
                mode: Mode::Always,
                ..mysql("mysql, spool: every start scans again", one_hangs())
            },
            added(mysql("mysql, spool: a table is added", one_hangs())),
            Self {
                crashes: 0,
                outlet_losses: 1,
                ..mysql("mysql, spool: the outlet fails", one_hangs())
            },
            Self {
                hazard: Some(Hazard::LogPurgedBehindTheReader),
                ..mysql("mysql, spool: the log is purged behind the reader", one_hangs())
            },
            hazard("mysql, spool: the log is purged while down", Hazard::LogPurged),
            hazard("mysql, spool: it is lost while down", Hazard::SpoolLost),
        ]
    }
}

fn spooled(name: &'static str, sessions: Vec<Vec<Script>>) -> Scenario {
    let scenario = Scenario::new(name, sessions).with_one_key_each();
    Scenario { spool: true, ..scenario }
}

fn one_table(name: &'static str, sessions: Vec<Vec<Script>>) -> Scenario {
    let tables = vec![table(1, "a", &["1"])];
    Scenario { tables, initial: vec![row("a", "1")], ..spooled(name, sessions) }
}

fn added(scenario: Scenario) -> Scenario {
    Scenario { added: [name("b")].into(), ..scenario }
}

/// One transaction in two tables.
fn one() -> Vec<Vec<Script>> {
    let (a, b) = (row("a", "1"), row("b", "1"));
    vec![vec![script(vec![Statement::Update(a), Statement::Delete(b)])]]
}

fn one_hangs() -> Vec<Vec<Script>> {
    one().into_iter().map(|session| session.into_iter().map(Script::hanging).collect()).collect()
}

/// Two transactions in one table.
fn two() -> Vec<Vec<Script>> {
    vec![vec![update(), script(vec![Statement::Delete(row("a", "1"))])]]
}

fn update() -> Script {
    script(vec![Statement::Update(row("a", "1"))])
}

/// The second of two transactions is in one table alone.
fn two_tables() -> Vec<Vec<Script>> {
    let (a, b) = (row("a", "1"), row("b", "1"));
    vec![vec![
        script(vec![Statement::Update(a), Statement::Update(b.clone())]),
        script(vec![Statement::Delete(b)]),
    ]]
}

/// In the table that is there from the beginning, and in the one that may be added.
fn one_hangs_before_another() -> Vec<Vec<Script>> {
    let (a, b) = (row("a", "1"), row("b", "1"));
    let (hanging, other) = (script(vec![Statement::Update(b)]), script(vec![Statement::Update(a)]));
    vec![vec![hanging.hanging(), other]]
}
