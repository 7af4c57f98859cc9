//! The JSON lines that the `file` outlet leaves, read as a consumer would.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
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
    /// PostgreSQL's.
    pub xid: Option<u64>,
    /// The GTID of a binlog transaction, or its place.
    pub transaction: Option<String>,
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
    Ok(placed(file)?.into_iter().map(|(_, line)| line).collect())
}

/// All whole lines, each with the offset where it begins.
fn placed(file: &Path) -> Result<Vec<(u64, Line)>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("read the lines"),
    };
    let mut start = 0;
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

/// One file of lines, and where in it each life of the engine begins.
#[derive(Debug)]
pub struct Lives {
    file: PathBuf,
    starts: Vec<u64>,
}

impl Lives {
    pub fn of(file: PathBuf) -> Self {
        Self { file, starts: Vec::new() }
    }

    /// Call it before a life starts. What a crash tore of the last line is cut off by the next life.
    pub fn begin(&mut self) -> Result<()> {
        let bytes = fs::read(&self.file).unwrap_or_default();
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.starts.push(u64::try_from(end)?);
        Ok(())
    }

    /// The lines of each life, by the process that wrote them. A process that loses its connection in the middle of a
    /// transaction may go back to its beginning: that begins a life too, and what comes again must be flagged as well.
    pub fn lines(&self) -> Result<Vec<(usize, Vec<Line>)>> {
        let mut lives: Vec<(usize, Vec<Line>)> =
            (0..self.starts.len()).map(|process| (process, Vec::new())).collect();
        for (offset, line) in placed(&self.file)? {
            let process = self.starts.iter().rposition(|start| *start <= offset);
            let process = process.context("a line of no life")?;
            let at = lives.iter().rposition(|(other, _)| *other == process).unwrap_or(process);
            let goes_back = match lives.get(at).and_then(|(_, lines)| lines.last()) {
                Some(last) => line.redelivery && line.position()? < last.position()?,
                None => false,
            };
            let at = if goes_back { at + 1 } else { at };
            if goes_back {
                lives.insert(at, (process, Vec::new()));
            }
            lives.get_mut(at).context("a life")?.1.push(line);
        }
        Ok(lives)
    }

    /// Checks what a restart may repeat: each life delivers streamed changes in the one order of the log, without a hole,
    /// from somewhere in what was delivered before; what comes again is flagged and has the same id and content. How
    /// many came again.
    pub fn repeat_suffixes_only(&self) -> Result<usize> {
        let lives = self.lines()?;
        let streamed = |line: &&Line| line.pos.ordinal > 0;
        let mut first: BTreeMap<Position, &Line> = BTreeMap::new();
        for line in lives.iter().flat_map(|(_, lines)| lines).filter(streamed) {
            first.entry(line.position()?).or_insert(line);
        }
        let order: Vec<_> = first.keys().copied().collect();
        let mut seen = BTreeSet::new();
        let (mut next, mut repeated) = (0, 0);
        for (life, lines) in &lives {
            let mut expected = None;
            for line in lines.iter().filter(streamed) {
                let position = line.position()?;
                let at = order.partition_point(|other| *other < position);
                match expected {
                    None => ensure!(at <= next, "life {life} begins at {position}, behind a hole"),
                    Some(expected) => {
                        ensure!(at == expected, "life {life}: {position} is out of order");
                    }
                }
                expected = Some(at + 1);
                if seen.insert(position) {
                    continue;
                }
                repeated += 1;
                let before = first.get(&position).context("seen before")?;
                ensure!(line.redelivery, "life {life} repeats {position} without the flag");
                ensure!(line.id == before.id, "life {life} gives {position} another id");
                ensure!(
                    (&line.op, &line.after, &line.before)
                        == (&before.op, &before.after, &before.before),
                    "life {life} gives {position} another content"
                );
            }
            next = next.max(expected.unwrap_or(next));
        }
        Ok(repeated)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        serde_json::from_str(text).expect("a line")
    }

    fn insert(ordinal: u32, redelivery: bool) -> String {
        format!(
            r#"{{"op":"insert","table":"public.t","pos":{{"commit":"0/10","ordinal":{ordinal}}},"id":"{ordinal}",
             "redelivery":{redelivery},"key":{{"id":{ordinal}}},"after":{{"id":{ordinal}}}}}"#
        )
        .replace('\n', "")
    }

    fn lives(lives: &[&[String]]) -> Result<usize> {
        let directory = tempfile::tempdir()?;
        let mut all = Lives::of(directory.path().join("lines"));
        let mut text = String::new();
        for life in lives {
            all.begin()?;
            for line in *life {
                text.push_str(line);
                text.push('\n');
            }
            fs::write(&all.file, &text)?;
        }
        all.repeat_suffixes_only()
    }

    #[test]
    fn a_restart_may_repeat_a_flagged_suffix_and_nothing_else() {
        let new = |ordinal| insert(ordinal, false);
        let first = [new(1), new(2)];
        assert_eq!(lives(&[&first, &[insert(2, true), new(3)]]).expect("a suffix"), 1);
        assert_eq!(lives(&[&first, &[new(3)]]).expect("nothing again"), 0);
        let wrong: [&[&[String]]; 4] = [
            &[&first, &[new(2), new(3)]],
            &[&first, &[insert(1, true), new(3)]],
            &[&[new(1)], &[new(3)], &[new(2)]],
            &[&first, &[insert(2, true).replace(r#""id":"2""#, r#""id":"x""#)]],
        ];
        for wrong in wrong {
            lives(wrong).expect_err("must be seen");
        }
    }

    #[test]
    fn folding_keeps_what_was_not_sent_and_takes_an_id_once() {
        let lines = [
            line(
                r#"{"op":"read","table":"t","pos":{"commit":"0/1","ordinal":0},"key":{"id":1},"after":{"id":1,"a":"x","b":null}}"#,
            ),
            line(
                r#"{"op":"update","table":"t","pos":{"commit":"0/2","ordinal":1},"id":"u","key":{"id":1},"after":{"id":1,"b":2},"unavailable":["a"]}"#,
            ),
            line(
                r#"{"op":"insert","table":"n","pos":{"commit":"0/3","ordinal":1},"id":"i","after":{"x":1}}"#,
            ),
            line(
                r#"{"op":"insert","table":"n","pos":{"commit":"0/3","ordinal":1},"id":"i","redelivery":true,"after":{"x":1}}"#,
            ),
        ];
        let tables = fold(&lines).expect("these fold");
        let row = |cells: &[(&str, Option<&str>)]| -> Content {
            let cells = cells.iter();
            let row = cells.map(|(name, text)| ((*name).to_owned(), text.map(str::to_owned)));
            [row.collect::<Row>()].into_iter().collect()
        };
        let keyed = row(&[("id", Some("1")), ("a", Some("x")), ("b", Some("2"))]);
        assert_eq!(tables.get("t"), Some(&keyed));
        assert_eq!(tables.get("n"), Some(&row(&[("x", Some("1"))])));
        fold(&lines[1..2]).expect_err("column a was never sent");
        let unknown = line(
            r#"{"op":"delete","table":"n","pos":{"commit":"0/4","ordinal":1},"before":{"x":9}}"#,
        );
        fold(&[unknown]).expect_err("no such row");
    }
}
