//! The SQL of one table under one definition.

use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::schema::{Column, Relation};
use dovetail_core::value::{Row, Value};
use mysql_async::Value as Bound;

use super::form::Form;
use crate::outlet::Error;
use crate::outlet::fold::Equality;
use crate::source::mysql::connection::Version;
use crate::source::mysql::identifier::quote;

/// Parameters of a statement.
const PARAMETERS_MAX: usize = 65_535;
/// One statement's rows: below a hundred the round trip shows, above a thousand only memory grows.
const ROWS_MAX: usize = 512;

/// Compares text as bytes, and a blank at its end counts. No other collation tells apart all keys that a source may.
pub(super) fn collation(version: Version) -> &'static str {
    if version.maria_db { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" }
}

pub(super) fn create(
    relation: &Relation,
    name: &str,
    types: &[String],
    version: Version,
) -> String {
    let all = relation.columns.iter().zip(types).enumerate();
    let mut parts: Vec<_> = all
        .map(|(index, (column, kind))| {
            let null = match relation.key.contains(&index) {
                false => "NULL",
                // Or an older server would set it to the current time at every update.
                true if kind.starts_with("timestamp") => "NOT NULL DEFAULT '1970-01-01 00:00:01'",
                true => "NOT NULL",
            };
            format!("{} {kind} {null}", quote(&column.name))
        })
        .collect();
    if relation.has_key() {
        let key = relation.key.iter().filter_map(|&column| relation.columns.get(column));
        let key: Vec<_> = key.map(|column| quote(&column.name)).collect();
        parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    format!(
        "CREATE TABLE {} ({}) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {}",
        quote(name),
        parts.join(", "),
        collation(version)
    )
}

/// With what older rows hold, in the same statement: rows that were written before under the old definition may come
/// again, and need it too, so it stays the column's default. Rows under the new definition name every column.
pub(super) fn add(name: &str, column: &Column, kind: &str, held: Option<&Bound>) -> String {
    let add = format!("ALTER TABLE {} ADD COLUMN {} {kind} NULL", quote(name), quote(&column.name));
    match held {
        None => add,
        Some(held) => format!("{add} DEFAULT ({})", literal(held)),
    }
}

/// A value where none can be bound. Text as hexadecimal digits, which nothing can end.
fn literal(value: &Bound) -> String {
    match value {
        Bound::NULL => "NULL".to_owned(),
        Bound::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            match std::str::from_utf8(bytes) {
                Ok(_) => format!("_utf8mb4 x'{digits}'"),
                Err(_) => format!("x'{digits}'"),
            }
        }
        Bound::Int(number) => number.to_string(),
        Bound::UInt(number) => number.to_string(),
        Bound::Float(number) => format!("{number:e}"),
        Bound::Double(number) => format!("{number:e}"),
        other => other.as_sql(true),
    }
}

/// A column as it is at the outlet.
#[derive(Debug, Clone)]
pub(super) struct There {
    /// As the server prints the type.
    pub(super) kind: String,
    pub(super) form: Form,
    pub(super) collation: Option<String>,
}

#[derive(Debug)]
struct Target {
    name: String,
    quoted: String,
    there: There,
}

impl Target {
    /// A parameter that is stored. What is sent as text would be read as text: a vector as a list of numbers.
    fn place(&self) -> &'static str {
        if self.there.form == Form::Opaque { "CAST(? AS BINARY)" } else { "?" }
    }
}

/// A table with the statements that its rows take.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) relation: Arc<Relation>,
    pub(super) equality: Equality,
    quoted: String,
    columns: Vec<Target>,
    version: Version,
}

impl Table {
    /// `there`: the columns that the table has, by name.
    ///
    /// # Errors
    /// The name of a column that is not there.
    pub(super) fn new(
        relation: &Arc<Relation>,
        name: &str,
        there: &HashMap<String, There>,
        version: Version,
    ) -> Result<Self, String> {
        let target = |column: &Column| match there.get(&column.name) {
            Some(there) => Ok(Target {
                name: column.name.clone(),
                quoted: quote(&column.name),
                there: there.clone(),
            }),
            None => Err(column.name.clone()),
        };
        let columns = relation.columns.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let is_spelled = |&column: &usize| {
            columns.get(column).is_some_and(|it: &Target| it.there.form.is_text())
        };
        let equality = if relation.key.iter().any(is_spelled) {
            Equality::BySpelling
        } else {
            Equality::ByValue
        };
        let relation = Arc::clone(relation);
        Ok(Self { relation, equality, quoted: quote(name), columns, version })
    }

    /// By which rows are found: the key, or all columns.
    pub(super) fn identity(&self) -> Vec<usize> {
        if self.relation.has_key() { self.relation.key.clone() } else { self.all() }
    }

    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.columns.len()).collect()
    }

    /// The first text column that rows are found by and whose collation takes different texts for one.
    pub(super) fn unsafe_collation(&self) -> Option<(&str, &str)> {
        let identity = self.identity();
        let unsafe_one = |target: &'_ Target| {
            let collation = target.there.collation.as_deref()?;
            let is_exact = collation.ends_with("_nopad_bin") || collation.ends_with("_0900_bin");
            (target.there.form.is_text() && !is_exact).then_some(())
        };
        let found = self.of(&identity).find(|target| unsafe_one(target).is_some())?;
        Some((&found.name, found.there.collation.as_deref().unwrap_or_default()))
    }

    fn of(&self, columns: &[usize]) -> impl Iterator<Item = &Target> {
        columns.iter().filter_map(|&column| self.columns.get(column))
    }

    /// How many rows a statement with so many parameters a row takes: a power of two, so that few statements serve.
    pub(super) fn rows_max(parameters: usize) -> usize {
        let most = (PARAMETERS_MAX / parameters.max(1)).clamp(1, ROWS_MAX);
        1 << most.ilog2()
    }

    /// Writes rows, whatever was under their keys. Parameters: every column of each.
    pub(super) fn put(&self, rows: usize) -> String {
        let names: Vec<_> = self.columns.iter().map(|target| target.quoted.as_str()).collect();
        let places: Vec<_> = self.columns.iter().map(Target::place).collect();
        let places = format!("({})", places.join(", "));
        let insert = format!(
            "INSERT INTO {} ({}) VALUES {}",
            self.quoted,
            names.join(", "),
            vec![places.as_str(); rows].join(", ")
        );
        if !self.relation.has_key() {
            return insert;
        }
        // MySQL gives up the function that MariaDB needs.
        let has_alias = !self.version.maria_db && self.version.number >= (8, 0, 19);
        // The key too: equal keys can be spelled differently (0 and -0).
        let assigned = names.iter().map(|name| {
            if has_alias {
                format!("{name} = _new.{name}")
            } else {
                format!("{name} = VALUES({name})")
            }
        });
        let assigned: Vec<_> = assigned.collect();
        let alias = if has_alias { " AS _new" } else { "" };
        format!("{insert}{alias} ON DUPLICATE KEY UPDATE {}", assigned.join(", "))
    }

    /// Parameters: the key of each row.
    pub(super) fn remove(&self, rows: usize) -> String {
        let key = &self.relation.key;
        if let [column] = key.as_slice()
            && let Some(target) = self.columns.get(*column)
        {
            let places = vec![self.place(target); rows].join(", ");
            return format!("DELETE FROM {} WHERE {} IN ({places})", self.quoted, target.quoted);
        }
        let one = format!("({})", self.equal(key, "="));
        format!("DELETE FROM {} WHERE {}", self.quoted, vec![one.as_str(); rows].join(" OR "))
    }

    /// Parameters: every column of the one row that equals it.
    pub(super) fn remove_whole(&self) -> String {
        format!("DELETE FROM {} WHERE {} LIMIT 1", self.quoted, self.equal(&self.all(), "<=>"))
    }

    /// Writes some columns of the row of a key, or of one row that equals another. Parameters: those columns, then the
    /// key, or every column.
    pub(super) fn change(&self, columns: &[usize]) -> String {
        let assigned: Vec<_> =
            self.of(columns).map(|it| format!("{} = {}", it.quoted, it.place())).collect();
        let (found, limit) = if self.relation.has_key() {
            (self.equal(&self.relation.key, "="), "")
        } else {
            (self.equal(&self.all(), "<=>"), " LIMIT 1")
        };
        format!("UPDATE {} SET {} WHERE {found}{limit}", self.quoted, assigned.join(", "))
    }

    pub(super) fn empty(&self) -> String {
        format!("DELETE FROM {}", self.quoted)
    }

    fn equal(&self, columns: &[usize], operator: &str) -> String {
        let term = |target: &Target| match target.there.form {
            Form::Opaque => {
                format!("CAST({} AS BINARY) {operator} {}", target.quoted, target.place())
            }
            _ => format!("{} {operator} {}", target.quoted, self.place(target)),
        };
        self.of(columns).map(term).collect::<Vec<_>>().join(" AND ")
    }

    /// A parameter that is compared. Load-bearing for decimals: against a text the server compares both as floats, and
    /// takes neighbours for equal.
    fn place(&self, target: &Target) -> String {
        match target.there.form {
            Form::Decimal { digits, scale } => format!("CAST(? AS DECIMAL({digits},{scale}))"),
            Form::Json if !self.version.maria_db => "CAST(? AS JSON)".to_owned(),
            _ => target.place().to_owned(),
        }
    }

    /// Parameters for some columns of a row.
    pub(super) fn bind(
        &self,
        row: &Row,
        columns: &[usize],
        values: &mut Vec<Bound>,
    ) -> Result<(), Error> {
        for &column in columns {
            let Some(target) = self.columns.get(column) else { continue };
            let value = row.get(column).unwrap_or(&Value::Null);
            let bound = target.there.form.bind(value).map_err(|reason| {
                let Target { name, there: There { kind, .. }, .. } = target;
                Error::definite_because(
                    format!(
                        "a value of column {name} of {} does not fit the type {kind} of the outlet's column",
                        self.relation.table
                    ),
                    "give that column another type at the outlet (longtext, or varchar(255) in a key, takes the \
                     source's text of every value) and start again, or let a plugin change the value",
                    reason,
                )
            })?;
            values.push(bound);
        }
        Ok(())
    }
}
