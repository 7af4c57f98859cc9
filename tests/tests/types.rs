//! Every value of the corpus through the engine: by the scan and by each kind of change, into every outlet that keeps
//! values. What the file says and what the replicas hold is compared with the corpus, not with each other.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dovetail_core::value::Value;
use dovetail_tests::content::quoted;
use dovetail_tests::corpus::{Case, Corpus, Series};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line};
use dovetail_tests::postgres::{Server, Version};
use rusqlite::types::ValueRef;
use tokio_postgres::{Client, SimpleQueryMessage};

/// What a table's rows are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// By a number; the full row is logged as the old image.
    Row,
    /// By nothing but the whole row.
    Whole,
    /// By the value, beside a number that tells equal ones apart.
    Key,
}

/// What happens to a row. Its number is that of its fate and its value.
#[derive(Debug, Clone, Copy)]
enum Fate {
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
type Said<'a> = (&'static str, Option<&'a Case>, Option<&'a Case>);

/// The table of one series in one shape.
struct Subject<'a> {
    series: &'a Series,
    cases: Vec<&'a Case>,
    shape: Shape,
    name: String,
}

impl<'a> Subject<'a> {
    fn all(series: &[&'a Series]) -> Vec<Self> {
        let numbered = series.iter().enumerate();
        let subjects = numbered.flat_map(|(number, series)| {
            [(Shape::Row, "row"), (Shape::Whole, "whole"), (Shape::Key, "key")]
                .into_iter()
                .filter(|(shape, _)| *shape != Shape::Key || series.key)
                .map(move |(shape, name)| Self {
                    series,
                    cases: (series.cases.iter())
                        .filter(|case| shape != Shape::Key || case.text.is_some())
                        .collect(),
                    shape,
                    name: format!("{name}_{number}"),
                })
        });
        subjects.collect()
    }

    fn column(&self) -> String {
        quoted(&self.series.column)
    }

    fn create(&self) -> String {
        let (name, column, sql_type) = (&self.name, self.column(), &self.series.sql_type);
        let table = |key: &str| {
            format!("CREATE TABLE {name} (id int4, {column} {sql_type}, note text{key});")
        };
        let full = format!("ALTER TABLE {name} REPLICA IDENTITY FULL;");
        match self.shape {
            Shape::Row => table(", PRIMARY KEY (id)") + &full,
            Shape::Whole => table("") + &full,
            Shape::Key => table(&format!(", PRIMARY KEY ({column}, id)")),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, Fate, &'a Case, Option<&'a Case>)> {
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
        format!("INSERT INTO {} VALUES ({id}, {sql}, 'as it came');\n", self.name)
    }

    fn before_the_pin(&self) -> String {
        let there = self.rows().filter(|(_, fate, ..)| !matches!(fate, Fate::Comes));
        there
            .map(|(id, _, _, before)| self.insert(id, before.map_or("NULL", |case| &case.sql)))
            .collect()
    }

    fn after_the_pin(&self) -> String {
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
        let old = Some(case).filter(|_| self.shape != Shape::Key);
        match fate {
            Fate::Stays => vec![("read", None, Some(case))],
            Fate::Comes => vec![("insert", None, Some(case))],
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

    fn check_lines(&self, lines: &[&Line]) -> Result<usize> {
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
    fn at_rest(&self) -> BTreeMap<usize, &'a Case> {
        let rows = self.rows().filter(|(_, fate, ..)| !matches!(fate, Fate::Goes));
        rows.map(|(id, _, case, _)| (id, case)).collect()
    }

    /// The table of a server, which prints its values as the corpus has them.
    async fn check_server(&self, client: &Client) -> Result<()> {
        let query = format!("SELECT id, {} FROM {}", self.column(), self.name);
        let mut expected = self.at_rest();
        for message in client.simple_query(&query).await? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let id = row.get(0).context("the number")?.parse()?;
            let case = expected.remove(&id).with_context(|| format!("row {id} is one too many"))?;
            ensure!(row.get(1) == case.text.as_deref(), "row {id}, {}: {:?}", case.sql, row.get(1));
        }
        ensure!(expected.is_empty(), "rows are missing: {:?}", expected.keys());
        Ok(())
    }

    fn check_sqlite(&self, connection: &rusqlite::Connection) -> Result<()> {
        let (column, name) = (self.column(), &self.name);
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
    let text = case.text.as_deref().unwrap_or_default();
    match &case.value {
        Value::Null => there.is_null(),
        Value::Boolean(value) => there.as_bool() == Some(*value),
        Value::Int(value) => there.as_i64() == Some(*value),
        Value::Uint(value) => there.as_u64() == Some(*value),
        // Both are read by the same parser, which takes some numbers for their neighbour.
        Value::Float32(_) | Value::Float64(_) if there.is_number() => {
            let read = serde_json::from_str::<serde_json::Value>(text).ok();
            let bits = |it: &serde_json::Value| it.as_f64().map(f64::to_bits);
            bits(there) == read.as_ref().and_then(bits)
        }
        _ => there.as_str() == Some(text),
    }
}

/// The mapping that the SQLite outlet documents.
fn is_as_stored(there: ValueRef<'_>, case: &Case) -> bool {
    let text = ValueRef::Text(case.text.as_deref().unwrap_or_default().as_bytes());
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

/// Defaults of a session that would change how values are read or printed, if anybody relied on them.
const ODD_SETTINGS: [(&str, &str); 13] = [
    ("TimeZone", "America/St_Johns"),
    ("DateStyle", "SQL, DMY"),
    ("IntervalStyle", "sql_standard"),
    ("lc_monetary", "de_DE.UTF-8"),
    ("extra_float_digits", "-15"),
    ("bytea_output", "escape"),
    ("client_encoding", "LATIN1"),
    ("xmloption", "document"),
    ("array_nulls", "off"),
    ("quote_all_identifiers", "on"),
    ("standard_conforming_strings", "off"),
    ("statement_timeout", "20s"),
    ("search_path", "\"Odd schema\", public"),
];

/// Where the writers of the changes say that they are. Two have daylight saving time, one is off by 45 minutes.
const ZONES: [&str; 4] = ["Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "UTC"];

/// As the corpus was written.
const PLAIN_SETTINGS: &str = "
    SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';
    SET lc_monetary = 'C'; SET extra_float_digits = 3; SET bytea_output = 'hex'; SET xmloption = 'content';
    SET array_nulls = on; SET quote_all_identifiers = off; SET standard_conforming_strings = on;
    SET statement_timeout = 0; SET search_path = public";

/// Half of the settings on the databases, half on the role.
async fn set_odd_defaults(client: &Client) -> Result<()> {
    for (number, (name, value)) in ODD_SETTINGS.into_iter().enumerate() {
        let value = if name == "search_path" { value.to_owned() } else { format!("'{value}'") };
        let places = ["DATABASE postgres", "DATABASE replica", "ROLE postgres"];
        let places = if number % 2 == 0 { &places[..2] } else { &places[2..] };
        for place in places {
            client.batch_execute(&format!("ALTER {place} SET {name} = {value}")).await?;
        }
    }
    Ok(())
}

async fn plain_session(server: &Server, database: &str) -> Result<Client> {
    let client = server.connect_to(&server.url(database)).await?;
    client.batch_execute(PLAIN_SETTINGS).await?;
    Ok(client)
}

/// The series that this server can have. Version 15, which is Debian's, can have all.
async fn possible<'a>(
    client: &Client,
    version: Version,
    corpus: &'a Corpus,
) -> Result<Vec<&'a Series>> {
    let query = "SELECT name::text FROM pg_available_extensions";
    let rows = client.query(query, &[]).await?;
    let available: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let mut possible = Vec::new();
    for series in corpus.series() {
        if series.since > u32::from(version.major()) {
            continue;
        }
        match &series.extension {
            Some(extension) if !available.contains(extension) => {
                ensure!(version != Version::V15, "extension {extension} is not installed");
                println!("left out: {}, this server lacks {extension}", series.sql_type);
                continue;
            }
            Some(extension) => {
                let create = format!("CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public");
                client.batch_execute(&create).await?;
            }
            None => {}
        }
        possible.push(series);
    }
    Ok(possible)
}

/// T1, T3 to T7, T9, with the sessions' defaults set against us.
#[tokio::test(flavor = "multi_thread")]
async fn scan_and_stream_and_replicas_give_every_value_of_the_corpus() -> Result<()> {
    let version = Version::under_test();
    let server = Server::start(version)?;
    let client = server.connect().await?;
    let corpus = Corpus::load()?;
    client.batch_execute("CREATE DATABASE replica").await?;
    client.batch_execute(&corpus.setup).await?;
    let series = possible(&client, version, &corpus).await?;
    let subjects = Subject::all(&series);
    let create: String = subjects.iter().map(Subject::create).collect();
    client.batch_execute(&create).await?;
    let there: String = subjects.iter().map(Subject::before_the_pin).collect();
    client.batch_execute(&there).await?;
    set_odd_defaults(&client).await?;
    drop(client);
    let client = plain_session(&server, "postgres").await?;
    let names: Vec<_> = subjects.iter().map(|it| format!("public.{}", it.name)).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let setup = Setup::new("types", &server, &names)?.to_file().to_sqlite().to_postgres(&server);

    let mut engine = setup.run()?;
    setup.scanned(&mut engine).await?;
    for (number, subject) in subjects.iter().enumerate() {
        let zone = ZONES[number % ZONES.len()];
        client.batch_execute(&format!("SET TimeZone = '{zone}'")).await?;
        client.batch_execute(&subject.after_the_pin()).await?;
    }
    client.batch_execute("SET TimeZone = 'UTC'").await?;
    setup.caught_up(&mut engine, &client).await?;
    engine.terminate().await?;

    let lines = lines::read(&setup.lines_file())?;
    let mut by_table: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    lines.iter().for_each(|line| by_table.entry(&line.table).or_default().push(line));
    let sqlite = rusqlite::Connection::open(setup.replica_file())?;
    let replica = plain_session(&server, "replica").await?;
    let mut compared = 0;
    for (subject, table) in subjects.iter().zip(names) {
        let what = || format!("{table}, of type {}", subject.series.sql_type);
        let lines = by_table.remove(table).unwrap_or_default();
        subject.check_server(&client).await.context("the source").with_context(what)?;
        compared += subject.check_lines(&lines).context("the lines").with_context(what)?;
        subject.check_sqlite(&sqlite).context("the SQLite replica").with_context(what)?;
        subject.check_server(&replica).await.context("the replica").with_context(what)?;
    }
    ensure!(by_table.is_empty(), "lines of other tables: {:?}", by_table.keys());
    let values: usize = series.iter().map(|series| series.cases.len()).sum();
    println!("{values} values in {} tables, {compared} lines compared", subjects.len());
    ensure!(values >= 220, "only {values} values");
    Ok(())
}
