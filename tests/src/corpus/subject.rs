//! One series of the corpus as tables whose rows go through everything that can happen to a row.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use dovetail_core::value::Value;
use rusqlite::types::ValueRef;

use super::{Case, Dialect, Series};
use crate::content::quoted;
use crate::lines::Line;

/// What a table's rows are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// By a number; the full row is logged as the old image.
    Row,
    /// By nothing but the whole row.
    Whole,
    /// By the value, beside a number that tells equal ones apart.
    Key,
}

/// What happens to a row. Its number is that of its fate and its value.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// There before the pin, and left alone.
    Stays,
    /// Comes after the pin.
    Comes,
    /// Has another value before the pin and is given this one after it.
    Changes,
    /// There before the pin, deleted after it.
    Goes,
    /// There before the pin; another column changes after it.
    IsTouched,
}

const FATES: [Fate; 5] = [Fate::Stays, Fate::Comes, Fate::Changes, Fate::Goes, Fate::IsTouched];

/// More than any series has.
const FATE_NUMBERS: usize = 1_000;

/// What a line must say of a row: operation, old value (where it must be known), new value.
pub type Said<'a> = (&'static str, Option<&'a Case>, Option<&'a Case>);

/// The table of one series in one shape.
pub struct Subject<'a> {
    dialect: Dialect,
    pub series: &'a Series,
    pub cases: Vec<&'a Case>,
    pub shape: Shape,
    /// With its schema or database.
    pub name: String,
}

impl<'a> Subject<'a> {
    pub fn all(dialect: Dialect, series: &[&'a Series]) -> Vec<Self> {
        let schema = match dialect {
            Dialect::Postgres => "public",
            Dialect::MySql => "corpus",
        };
        let numbered = series.iter().enumerate();
        let subjects = numbered.flat_map(|(number, series)| {
            [(Shape::Row, "row"), (Shape::Whole, "whole"), (Shape::Key, "key")]
                .into_iter()
                .filter(|(shape, _)| *shape != Shape::Key || series.key)
                .map(move |(shape, name)| Self {
                    dialect,
                    series,
                    cases: (series.cases.iter())
                        .filter(|case| shape != Shape::Key || case.text.is_some())
                        .collect(),
                    shape,
                    name: format!("{schema}.{name}_{number}"),
                })
        });
        subjects.collect()
    }

    /// The name of the column with the values, as SQL writes it.
    pub fn column(&self) -> String {
        match self.dialect {
            Dialect::Postgres => quoted(&self.series.column),
            Dialect::MySql => format!("`{}`", self.series.column.replace('`', "``")),
        }
    }

    pub fn create(&self) -> String {
        let (name, column, sql_type) = (&self.name, self.column(), &self.series.sql_type);
        let table = |key: &str| {
            format!("CREATE TABLE {name} (id int, {column} {sql_type}, note text{key});\n")
        };
        let full = match self.dialect {
            Dialect::Postgres => format!("ALTER TABLE {name} REPLICA IDENTITY FULL;\n"),
            Dialect::MySql => String::new(),
        };
        match self.shape {
            Shape::Row => table(", PRIMARY KEY (id)") + &full,
            Shape::Whole => table("") + &full,
            Shape::Key => table(&format!(", PRIMARY KEY ({column}, id)")),
        }
    }

    /// Every row: its number, its fate, the value under test, and the value before the pin where there is one.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Fate, &'a Case, Option<&'a Case>)> {
        FATES.into_iter().enumerate().flat_map(move |(fate_number, fate)| {
            let cases = self.cases.iter().enumerate();
            cases.map(move |(number, case)| {
                let next = self.cases.get((number + 1) % self.cases.len()).copied();
                let before = match (fate, self.shape) {
                    (Fate::Comes, _) | (Fate::Changes, Shape::Row | Shape::Whole) => None,
                    (Fate::Changes, Shape::Key) => next,
                    _ => Some(*case),
                };
                (fate_number * FATE_NUMBERS + number, fate, *case, before)
            })
        })
    }

    fn insert(&self, id: usize, sql: &str) -> String {
        let (name, column) = (&self.name, self.column());
        format!("INSERT INTO {name} (id, {column}, note) VALUES ({id}, {sql}, 'as it came');\n")
    }

    pub fn before_the_pin(&self) -> String {
        let there = self.rows().filter(|(_, fate, ..)| !matches!(fate, Fate::Comes));
        there
            .map(|(id, _, _, before)| self.insert(id, before.map_or("NULL", |case| &case.sql)))
            .collect()
    }

    pub fn after_the_pin(&self) -> String {
        let (name, column) = (&self.name, self.column());
        let change = |(id, fate, case, _): (usize, Fate, &Case, _)| match fate {
            Fate::Stays => String::new(),
            Fate::Comes => self.insert(id, &case.sql),
            Fate::Changes => {
                format!("UPDATE {name} SET {column} = {} WHERE id = {id};\n", case.sql)
            }
            Fate::Goes => format!("DELETE FROM {name} WHERE id = {id};\n"),
            Fate::IsTouched => format!("UPDATE {name} SET note = 'touched' WHERE id = {id};\n"),
        };
        self.rows().map(change).collect()
    }

    /// What the lines must say of one row.
    fn said(&self, fate: Fate, case: &'a Case, before: Option<&'a Case>) -> Vec<Said<'a>> {
        // The tables with the value in the key have PostgreSQL's default identity.
        let is_mysql = self.dialect == Dialect::MySql;
        let old = Some(case).filter(|_| is_mysql || self.shape != Shape::Key);
        match fate {
            Fate::Stays => vec![("read", None, Some(case))],
            Fate::Comes => vec![("insert", None, Some(case))],
            // A server of MySQL's kind logs no change from a value to itself.
            Fate::Changes
                if is_mysql
                    && before.map(|it| &it.value) == case.text.is_some().then_some(&case.value) =>
            {
                vec![("read", None, before)]
            }
            Fate::Changes => match before {
                Some(before) if !is_same_key(before, case) => vec![
                    ("read", None, Some(before)),
                    ("delete", Some(before), None),
                    ("insert", None, Some(case)),
                ],
                before => {
                    vec![("read", None, before), ("update", None, Some(case))]
                }
            },
            Fate::Goes => vec![("read", None, Some(case)), ("delete", Some(case), None)],
            Fate::IsTouched => vec![("read", None, Some(case)), ("update", old, Some(case))],
        }
    }

    /// Compares all lines of the table; how many there are.
    pub fn check_lines(&self, lines: &[&Line]) -> Result<usize> {
        let mut by_id: BTreeMap<usize, Vec<&Line>> = BTreeMap::new();
        for line in lines {
            let row = line.after.as_ref().or(line.before.as_ref()).context("a row")?;
            let id = row.get("id").and_then(serde_json::Value::as_u64).context("its number")?;
            by_id.entry(usize::try_from(id)?).or_default().push(line);
        }
        let mut compared = 0;
        for (id, fate, case, before) in self.rows() {
            let said = self.said(fate, case, before);
            let lines = by_id.remove(&id).unwrap_or_default();
            let operations: Vec<_> = lines.iter().map(|line| line.op.as_str()).collect();
            let expected: Vec<_> = said.iter().map(|(operation, ..)| *operation).collect();
            ensure!(operations == expected, "row {id}: {operations:?} instead of {expected:?}");
            for (line, (operation, old, new)) in lines.into_iter().zip(said) {
                self.check_line(line, old, new)
                    .with_context(|| format!("{operation} of row {id}, {}", case.sql))?;
                compared += 1;
            }
        }
        ensure!(by_id.is_empty(), "rows that were never written: {:?}", by_id.keys());
        Ok(compared)
    }

    fn check_line(&self, line: &Line, old: Option<&Case>, new: Option<&Case>) -> Result<()> {
        let column = &self.series.column;
        ensure!(line.unavailable.is_empty(), "columns are missing");
        if let Some(old) = old {
            let there = line.before.as_ref().and_then(|row| row.get(column));
            ensure!(is_as_written(there, old), "the old value is {there:?}");
        }
        if line.op != "delete"
            && !matches!((new, line.after(column)), (None, Some(it)) if it.is_null())
        {
            let (there, new) = (line.after(column), new.context("null was expected")?);
            ensure!(is_as_written(there, new), "the new value is {there:?}");
        }
        let mut key = match self.shape {
            Shape::Row => vec!["id"],
            Shape::Whole => vec![],
            Shape::Key => vec!["id", column.as_str()],
        };
        // The harness reads an object's names in their order as text.
        key.sort_unstable();
        let row = if line.op == "delete" { &line.before } else { &line.after };
        let there: Vec<_> = line.key.iter().flat_map(|key| key.keys()).collect();
        ensure!(there == key, "the key is {there:?}");
        for name in key {
            let (key, row) = (line.key.as_ref(), row.as_ref());
            ensure!(key.and_then(|it| it.get(name)) == row.and_then(|it| it.get(name)), "the key");
        }
        Ok(())
    }

    /// What a table must hold at the end.
    pub fn at_rest(&self) -> BTreeMap<usize, &'a Case> {
        let rows = self.rows().filter(|(_, fate, ..)| !matches!(fate, Fate::Goes));
        rows.map(|(id, _, case, _)| (id, case)).collect()
    }

    /// The replica's table of that name.
    pub fn check_sqlite(&self, connection: &rusqlite::Connection, name: &str) -> Result<()> {
        let (column, name) = (quoted(&self.series.column), quoted(name));
        let mut statement = connection.prepare(&format!("SELECT id, {column} FROM {name}"))?;
        let mut rows = statement.query([])?;
        let mut expected = self.at_rest();
        while let Some(row) = rows.next()? {
            let id = usize::try_from(row.get::<_, i64>(0)?)?;
            let case = expected.remove(&id).with_context(|| format!("row {id} is one too many"))?;
            let value = row.get_ref(1)?;
            ensure!(is_as_stored(value, case), "row {id}, {}: {value:?}", case.sql);
        }
        ensure!(expected.is_empty(), "rows are missing: {:?}", expected.keys());
        Ok(())
    }
}

/// Equal as the server's index has it: zero and minus zero are one key, and so are 1.0 and 1.00.
fn is_same_key(left: &Case, right: &Case) -> bool {
    let shortest = |decimal: &str| match decimal.contains('.') {
        true => decimal.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => decimal.to_owned(),
    };
    match (&left.value, &right.value) {
        (Value::Decimal(left), Value::Decimal(right)) => shortest(left) == shortest(right),
        (left_value, right_value) => left_value == right_value || left.text == right.text,
    }
}

/// The mapping that the outlets of lines document.
fn is_as_written(there: Option<&serde_json::Value>, case: &Case) -> bool {
    let Some(there) = there else { return false };
    let text = case.written.as_deref().unwrap_or_default();
    match &case.value {
        Value::Null => there.is_null(),
        Value::Boolean(value) => there.as_bool() == Some(*value),
        Value::Int(value) => there.as_i64() == Some(*value),
        Value::Uint(value) => there.as_u64() == Some(*value),
        Value::Float32(value) if there.is_number() => {
            let there = there.to_string().parse::<f32>();
            there.is_ok_and(|there| there.to_bits() == value.to_bits())
        }
        Value::Float64(value) if there.is_number() => {
            there.as_f64().is_some_and(|there| there.to_bits() == value.to_bits())
        }
        _ => there.as_str() == Some(text),
    }
}

/// The mapping that the SQLite outlet documents.
fn is_as_stored(there: ValueRef<'_>, case: &Case) -> bool {
    let text = ValueRef::Text(case.written.as_deref().unwrap_or_default().as_bytes());
    let real = |value: f64| matches!(there, ValueRef::Real(it) if it.to_bits() == value.to_bits());
    match &case.value {
        Value::Null => there == ValueRef::Null,
        Value::Boolean(value) => there == ValueRef::Integer(i64::from(*value)),
        Value::Int(value) => there == ValueRef::Integer(*value),
        Value::Uint(value) => there == i64::try_from(*value).map_or(text, ValueRef::Integer),
        Value::Float32(value) if !value.is_nan() => real(f64::from(*value)),
        Value::Float64(value) if !value.is_nan() => real(*value),
        Value::Bytes(value) => there == ValueRef::Blob(value),
        _ => there == text,
    }
}
