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
pub(super) const KEYLESS: &str = "public.note";

pub(super) fn row_key(table: &str, key: &str) -> RowKey {
    RowKey::new(table, key)
}

pub(super) fn image(version: i64) -> Result<Image> {
    Ok(Image::of_version(u64::try_from(version)?))
}

pub(super) fn of(
    record: &Record,
    commits: &[(u64, String)],
    lives: &[(Option<Lsn>, Vec<Line>)],
    source: Rows,
) -> Result<History> {
    let transactions = transactions(record, commits)?;
    let reads = lives.iter().flat_map(|(_, lines)| lines).find(|line| line.op == "read");
    let pin = reads.map(|line| line.position()).transpose()?.map(|position| position.commit);
    let lives = lives.iter().map(|(acknowledged, lines)| life(*acknowledged, lines));
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
fn transactions(record: &Record, commits: &[(u64, String)]) -> Result<Vec<Transaction>> {
    let mut by_xid: BTreeMap<_, _> = record.committed().map(|tx| (tx.xid, tx)).collect();
    let mut transactions = Vec::new();
    for (xid, _) in commits {
        if let Some(transaction) = by_xid.remove(xid) {
            let changes = transaction.changes.iter().filter(|change| change.table != KEYLESS);
            let writes = changes.map(write).collect::<Result<_>>()?;
            transactions.push(Transaction { id: *xid, commit: None, writes });
        }
    }
    if let Some(xid) = by_xid.keys().next() {
        bail!("transaction {xid} is committed, but the server's log does not have it");
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
    for change in undone.filter(|change| change.table != KEYLESS) {
        let (row, image) = (row_key(change.table, &change.key), image(change.version)?);
        if !committed.contains(&(&row, image)) {
            images.push((row, image));
        }
    }
    Ok(images)
}

fn life(acknowledged: Option<Lsn>, lines: &[Line]) -> Result<Life> {
    let judged = lines.iter().filter(|line| line.op != "message" && line.table != KEYLESS);
    let observations = judged.map(observation).collect::<Result<_>>()?;
    Ok(Life { resumed_from: acknowledged, observations })
}

fn observation(line: &Line) -> Result<Observation> {
    let operation = match line.op.as_str() {
        "read" => Operation::Read,
        "insert" => Operation::Insert,
        "update" => Operation::Update,
        "delete" => Operation::Delete,
        "truncate" => {
            let (table, transaction) = (line.table.as_str().into(), line.transaction_number());
            return Ok(Observation::Truncated { table, transaction, redelivery: line.redelivery });
        }
        other => bail!("an unexpected operation: {other}"),
    };
    let key = line.key_text().context("a line without a key")?;
    let version = line.after("version").and_then(serde_json::Value::as_u64);
    Ok(Observation::Delivered(Delivered {
        position: line.position()?,
        transaction: line.transaction_number(),
        row: row_key(&line.table, &key),
        operation,
        image: version.map(Image::of_version),
        redelivery: line.redelivery,
    }))
}
