//! The JSON lines that the `file` outlet leaves, read as a consumer would.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use dovetail_core::position::{Lsn, Position};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::content::{Content, Row};

/// One line.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    pub op: String,
    #[serde(default)]
    pub table: String,
    pub pos: Place,
    pub id: Option<String>,
    pub ts_us: Option<i64>,
    pub xid: Option<u64>,
    #[serde(default)]
    pub redelivery: bool,
    #[serde(default)]
    pub moved: bool,
    pub key: Option<Map<String, Value>>,
    pub before: Option<Map<String, Value>>,
    pub after: Option<Map<String, Value>>,
    #[serde(default)]
    pub unavailable: Vec<String>,
    pub prefix: Option<String>,
    pub content: Option<String>,
    pub transactional: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Place {
    pub commit: String,
    pub ordinal: u32,
}

impl Line {
    pub fn position(&self) -> Result<Position> {
        let commit: Lsn = self.pos.commit.parse().context("the position of a line")?;
        Ok(Position { commit, ordinal: self.pos.ordinal })
    }

    /// The key as one text; of several columns joined by commas.
    pub fn key_text(&self) -> Option<String> {
        let cells = self.key.as_ref()?.values().map(|value| text(value).unwrap_or_default());
        Some(cells.collect::<Vec<_>>().join(","))
    }

    /// A column of the new row.
    pub fn after(&self, column: &str) -> Option<&Value> {
        self.after.as_ref()?.get(column)
    }
}

/// The text of a value as PostgreSQL prints it (numbers without a fraction, booleans, text); `None` for null.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// All whole lines; one that is being written is left out.
pub fn read(file: &Path) -> Result<Vec<Line>> {
    Ok(read_from(file, 0)?.into_iter().map(|(_, line)| line).collect())
}

/// Whole lines from a byte offset on, each with the offset where it begins.
pub fn read_from(file: &Path, offset: u64) -> Result<Vec<(u64, Line)>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("read the lines"),
    };
    let mut start = usize::try_from(offset)?;
    let mut lines = Vec::new();
    while let Some(rest) = bytes.get(start..)
        && let Some(length) = rest.iter().position(|byte| *byte == b'\n')
    {
        let (line, _) = rest.split_at(length);
        let parsed =
            serde_json::from_slice(line).with_context(|| format!("the line at byte {start}"))?;
        lines.push((u64::try_from(start)?, parsed));
        start += length + 1;
    }
    Ok(lines)
}

/// Where the last whole line ends: what a crash tore behind it is cut off by the next life.
pub fn whole_length(file: &Path) -> Result<u64> {
    let bytes = fs::read(file).unwrap_or_default();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(u64::try_from(end)?)
}

/// What the tables hold after all lines, for a consumer that takes every id once.
///
/// Two lines of one id must agree; a change to a row that is not there, or a row with a column that nobody ever sent, is
/// an error.
pub fn fold(lines: &[Line]) -> Result<BTreeMap<String, Content>> {
    let mut fold = Fold::default();
    for line in lines {
        fold.apply(line)
            .with_context(|| format!("{} {} at {:?}", line.op, line.table, line.pos))?;
    }
    let keyed = fold.keyed.into_iter();
    let mut tables: BTreeMap<_, _> =
        keyed.map(|(table, rows)| (table, rows.into_values().collect())).collect();
    tables.extend(fold.keyless);
    Ok(tables)
}

#[derive(Debug, Default)]
struct Fold {
    keyed: BTreeMap<String, BTreeMap<String, Row>>,
    keyless: BTreeMap<String, Content>,
    seen: HashSet<String>,
    /// The row that the first half of a key change took away; the second half may lack columns that it has.
    moving: Option<Row>,
}

impl Fold {
    fn apply(&mut self, line: &Line) -> Result<()> {
        match line.op.as_str() {
            "message" => return Ok(()),
            "truncate" => {
                self.keyed.remove(&line.table);
                self.keyless.remove(&line.table);
                return Ok(());
            }
            _ => {}
        }
        match line.key_text() {
            Some(key) => self.keyed(line, key),
            None => self.keyless(line),
        }
    }

    /// Repetitions come in the same order from a place before, so applying them again ends in the same rows.
    fn keyed(&mut self, line: &Line, key: String) -> Result<()> {
        let rows = self.keyed.entry(line.table.clone()).or_default();
        if line.op == "delete" {
            let old = rows.remove(&key);
            self.moving = old.filter(|_| line.moved);
            return Ok(());
        }
        let mut row = cells(line.after.as_ref().context("no new row")?);
        let held = rows.get(&key).cloned().or_else(|| self.moving.take());
        for column in &line.unavailable {
            let held = held.as_ref().and_then(|held| held.get(column));
            match held {
                Some(value) => drop(row.insert(column.clone(), value.clone())),
                // In a repetition a later delete may have taken the row; the insert that follows brings it whole.
                None if line.redelivery => {}
                None => bail!("column {column} was never sent"),
            }
        }
        rows.insert(key, row);
        Ok(())
    }

    fn keyless(&mut self, line: &Line) -> Result<()> {
        if let Some(id) = &line.id
            && !self.seen.insert(id.clone())
        {
            return Ok(());
        }
        let rows = self.keyless.entry(line.table.clone()).or_default();
        if let Some(before) = &line.before
            && !rows.remove(&cells(before))
        {
            bail!("the old row is not there");
        }
        if let Some(after) = &line.after {
            rows.insert(cells(after));
        }
        Ok(())
    }
}

fn cells(row: &Map<String, Value>) -> Row {
    row.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}
