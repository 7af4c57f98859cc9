//! A live run in the checker's words.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use dovetail_core::position::Lsn;

use crate::checker::history::{
    AtRest, Delivered, History, Image, Life, Observation, Operation, RowKey, Rows, Transaction,
    Write,
};
use crate::lines::Line;
use crate::workload::{Change, Record, What};

/// Without a key there is nothing that the checker could follow; both ends are compared instead.
pub(super) fn is_keyless(table: &str) -> bool {
    table.ends_with(".note")
}

/// A transaction in the order in which the server committed it.
#[derive(Debug)]
pub(super) struct Commit {
    /// Tells it from the others, here and in what is delivered.
    pub(super) id: u64,
    pub(super) marker: i64,
    /// What a line calls it where it has no number.
    pub(super) name: Option<String>,
}

pub(super) fn row_key(table: &str, key: &str) -> RowKey {
    RowKey::new(table, key)
}

pub(super) fn image(version: i64) -> Result<Image> {
    Ok(Image::of_version(u64::try_from(version)?))
}

pub(super) fn of(
    record: &Record,
    commits: &[Commit],
    lives: &[(Option<Lsn>, Vec<Line>)],
    source: Rows,
) -> Result<History> {
    let transactions = transactions(record, commits)?;
    let reads = lives.iter().flat_map(|(_, lines)| lines).find(|line| line.op == "read");
    let pin = reads.map(|line| line.position()).transpose()?.map(|position| position.commit);
    let names = commits.iter().filter_map(|commit| Some((commit.name.as_deref()?, commit.id)));
    let names = names.collect();
    let lives = lives.iter().map(|(checkpoint, lines)| life(*checkpoint, lines, &names));
    Ok(History {
        rolled_back: rolled_back(record, &transactions)?,
        transactions,
        pin,
        added: BTreeMap::new(),
        lives: lives.collect::<Result<_>>()?,
        at_rest: Some(AtRest { source: Some(source), outlet: None }),
    })
}

/// The writers' transactions, in the witness' order.
fn transactions(record: &Record, commits: &[Commit]) -> Result<Vec<Transaction>> {
    let mut by_marker: BTreeMap<_, _> = record.committed().map(|it| (it.marker, it)).collect();
    let mut transactions = Vec::new();
    for commit in commits {
        if let Some(transaction) = by_marker.remove(&commit.marker) {
            let changes = transaction.changes.iter().filter(|change| !is_keyless(change.table));
            let writes = changes.map(write).collect::<Result<_>>()?;
            transactions.push(Transaction { id: commit.id, commit: None, writes });
        }
    }
    if let Some(marker) = by_marker.keys().next() {
        bail!("transaction {marker} is committed, but the server's log does not have it");
    }
    Ok(transactions)
}

fn write(change: &Change) -> Result<Write> {
    let row = row_key(change.table, &change.key);
    Ok(match &change.what {
        What::Insert => Write::Insert(row, image(change.version)?),
        What::Update => Write::Update(row, image(change.version)?),
        What::Delete => Write::Delete(row),
        What::Move { from } => Write::Move {
            from: row_key(change.table, from),
            to: row,
            image: image(change.version)?,
        },
        What::Truncate => Write::Truncate(change.table.into()),
    })
}

/// Images that only undone work had. An account's next version is written again by the next one to try.
fn rolled_back(record: &Record, transactions: &[Transaction]) -> Result<Vec<(RowKey, Image)>> {
    let committed: BTreeSet<_> = transactions
        .iter()
        .flat_map(|transaction| &transaction.writes)
        .filter_map(|write| match write {
            Write::Insert(row, image) | Write::Update(row, image) => Some((row, *image)),
            Write::Move { to, image, .. } => Some((to, *image)),
            Write::Delete(_) | Write::Truncate(_) => None,
        })
        .collect();
    let kept: BTreeSet<_> = record.committed().map(|transaction| transaction.marker).collect();
    let undone = record.transactions.iter().flat_map(|transaction| {
        let all = (!kept.contains(&transaction.marker)).then_some(&transaction.changes);
        all.into_iter().flatten().chain(&transaction.undone)
    });
    let undone = undone.filter(|change| !matches!(change.what, What::Delete | What::Truncate));
    let mut images = Vec::new();
    for change in undone.filter(|change| !is_keyless(change.table)) {
        let (row, image) = (row_key(change.table, &change.key), image(change.version)?);
        if !committed.contains(&(&row, image)) {
            images.push((row, image));
        }
    }
    Ok(images)
}

type Names<'a> = BTreeMap<&'a str, u64>;

fn life(checkpoint: Option<Lsn>, lines: &[Line], names: &Names<'_>) -> Result<Life> {
    let judged = lines.iter().filter(|line| line.op != "message" && !is_keyless(&line.table));
    let observations = judged.map(|line| observation(line, names)).collect::<Result<_>>()?;
    Ok(Life { resumed_from: checkpoint, observations })
}

fn observation(line: &Line, names: &Names<'_>) -> Result<Observation> {
    let transaction = match (&line.transaction, line.xid) {
        (Some(name), _) => {
            let id = names.get(name.as_str());
            Some(*id.with_context(|| format!("{name} is no transaction of the workload"))?)
        }
        (None, xid) => xid,
    };
    let operation = match line.op.as_str() {
        "read" => Operation::Read,
        "insert" => Operation::Insert,
        "update" => Operation::Update,
        "delete" => Operation::Delete,
        "truncate" => {
            let table = line.table.as_str().into();
            return Ok(Observation::Truncated { table, transaction, redelivery: line.redelivery });
        }
        other => bail!("an unexpected operation: {other}"),
    };
    let key = line.key_text().context("a line without a key")?;
    let version = line.after("version").and_then(serde_json::Value::as_u64);
    Ok(Observation::Delivered(Delivered {
        position: line.position()?,
        transaction,
        row: row_key(&line.table, &key),
        operation,
        image: version.map(Image::of_version),
        redelivery: line.redelivery,
    }))
}
