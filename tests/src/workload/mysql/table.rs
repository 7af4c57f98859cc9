//! The tables that a workload writes.

use anyhow::{Context, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::workload::table::BALANCE;
use crate::workload::{Change, Options, Outcome, Transaction, What};

/// Names as a configuration lists them.
pub const TABLES: [&str; 5] =
    ["trial.account", "trial.item", "trial.note", "trial.bulk", "trial.scratch"];

/// Added to the id of a row that moves away, taken from the id of one that comes back.
pub(super) const AWAY: i64 = 1_000_000_000;

const CREATE: [&str; 9] = [
    "CREATE DATABASE trial",
    // MySQL wants one for the rows that it makes up below.
    "USE trial",
    "CREATE TABLE trial.account (id bigint PRIMARY KEY, version bigint NOT NULL, balance bigint NOT NULL)",
    "CREATE TABLE trial.item (id bigint PRIMARY KEY, version bigint NOT NULL, label text, body longtext)",
    // No key, but an index, so that no writer has to lock the lines of another.
    "CREATE TABLE trial.note (line varchar(100) NOT NULL, version bigint NOT NULL, KEY (line))",
    "CREATE TABLE trial.bulk (id bigint PRIMARY KEY, version bigint NOT NULL, payload text)",
    "CREATE TABLE trial.scratch (id bigint PRIMARY KEY, version bigint NOT NULL)",
    // Not captured: say which transactions were committed, and are the busy neighbours of the captured tables.
    "CREATE TABLE trial.marker (id bigint PRIMARY KEY)",
    "CREATE TABLE trial.journal (id bigint PRIMARY KEY) ENGINE = MyISAM",
];

/// Lets a statement count far enough.
pub(super) fn deep_recursion(mariadb: bool) -> &'static str {
    if mariadb {
        "SET SESSION max_recursive_iterations = 100000000"
    } else {
        "SET SESSION cte_max_recursion_depth = 100000000"
    }
}

/// Rows with the ids from `first` on; `columns` may use `i`.
pub(super) fn fill(table: &str, first: i64, count: i64, columns: &str) -> String {
    let last = first + count - 1;
    format!(
        "INSERT INTO trial.{table} WITH RECURSIVE numbers AS \
         (SELECT CAST({first} AS SIGNED) AS i UNION ALL SELECT i + 1 FROM numbers WHERE i < {last}) \
         SELECT i, {columns} FROM numbers"
    )
}

/// Makes the tables and their first rows, which count as one committed transaction.
pub(in crate::workload) async fn create(
    connection: &mut Conn,
    mariadb: bool,
    options: &Options,
) -> Result<Transaction> {
    for statement in CREATE {
        connection.query_drop(statement).await.context(statement)?;
    }
    connection.query_drop(deep_recursion(mariadb)).await?;
    let rows = [
        ("account", options.accounts, format!("1, {BALANCE}")),
        (
            "item",
            options.items,
            "1, concat('label ', i), repeat(left(sha2(i, 256), 32), 1 + i % 300)".to_owned(),
        ),
        ("bulk", options.bulk, "1, repeat(left(sha2(i, 256), 32), 4)".to_owned()),
    ];
    connection.query_drop("BEGIN").await?;
    connection.query_drop("INSERT INTO trial.marker VALUES (0)").await?;
    let mut changes = Vec::new();
    for (table, count, columns) in rows.iter().filter(|(_, count, _)| *count > 0) {
        let statement = fill(table, 0, i64::from(*count), columns);
        connection.query_drop(&statement).await.context(statement)?;
        let name = TABLES.into_iter().find(|name| name.ends_with(table)).context("a table")?;
        changes.extend((0..*count).map(|id| Change {
            table: name,
            key: id.to_string(),
            what: What::Insert,
            version: 1,
        }));
    }
    connection.query_drop("COMMIT").await?;
    let outcome = Outcome::Committed;
    Ok(Transaction { marker: 0, xid: None, outcome, changes, undone: Vec::new() })
}
