//! The corpus of values through the whole engine: what the scan gives equals what the stream gives equals what is expected,
//! and both kinds of replica hold it.
//!
//! Every value is written before the pin (read by the scan), inserted, put in place of a null, deleted, and, where its
//! type allows, used as a key. The server's defaults for the formats of dates, intervals, bytes and floats are all
//! set to something else than what the engine asks for, so that a connection that forgot to ask would show.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dovetail_core::schema::Kind;
use dovetail_tests::content::quoted;
use dovetail_tests::corpus::{Case, Corpus, Series};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line};
use dovetail_tests::postgres::{Options, Server, Version};
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Rows that the scan finds, that are inserted, updated and deleted, in this order of thousands.
const READ: usize = 0;
const INSERTED: usize = 1_000;
const UPDATED: usize = 2_000;
const DELETED: usize = 3_000;

/// A series with its two tables.
struct Table<'a> {
    series: &'a Series,
    rows: String,
    keys: Option<String>,
}

impl Table<'_> {
    /// Cases that can be keys.
    fn key_cases(&self) -> impl Iterator<Item = &Case> {
        self.series.cases.iter().filter(|case| case.text.is_some())
    }

    fn create(&self) -> String {
        let (column, sql_type) = (quoted(&self.series.column), &self.series.sql_type);
        let rows = &self.rows;
        let mut sql = format!(
            "CREATE TABLE {rows} (n int PRIMARY KEY, {column} {sql_type});
             ALTER TABLE {rows} REPLICA IDENTITY FULL;"
        );
        for (number, case) in self.series.cases.iter().enumerate() {
            let value = &case.sql;
            sql.push_str(&format!(
                "INSERT INTO {rows} VALUES ({}, {value}), ({}, {value}), ({}, NULL);",
                READ + number,
                DELETED + number,
                UPDATED + number,
            ));
        }
        if let Some(keys) = &self.keys {
            sql.push_str(&format!("CREATE TABLE {keys} ({column} {sql_type} PRIMARY KEY, v int);"));
            for case in self.key_cases() {
                sql.push_str(&format!(
                    "INSERT INTO {keys} VALUES ({}, 0) ON CONFLICT DO NOTHING;",
                    case.sql
                ));
            }
        }
        sql
    }

    fn change(&self) -> String {
        let (column, rows) = (quoted(&self.series.column), &self.rows);
        let mut sql = String::new();
        for (number, case) in self.series.cases.iter().enumerate() {
            let value = &case.sql;
            sql.push_str(&format!(
                "INSERT INTO {rows} VALUES ({}, {value});
                 UPDATE {rows} SET {column} = {value} WHERE n = {};
                 DELETE FROM {rows} WHERE n = {};",
                INSERTED + number,
                UPDATED + number,
                DELETED + number,
            ));
        }
        if let Some(keys) = &self.keys {
            sql.push_str(&format!("DELETE FROM {keys};"));
            for case in self.key_cases() {
                let value = &case.sql;
                sql.push_str(&format!(
                    "INSERT INTO {keys} VALUES ({value}, 1);
                     UPDATE {keys} SET v = 2;
                     DELETE FROM {keys};"
                ));
            }
            // One stays, for the replicas.
            if let Some(case) = self.key_cases().next() {
                sql.push_str(&format!("INSERT INTO {keys} VALUES ({}, 3);", case.sql));
            }
        }
        sql
    }
}

/// What this server can hold of the corpus.
async fn tables<'a>(
    client: &Client,
    corpus: &'a Corpus,
    version: Version,
) -> Result<Vec<Table<'a>>> {
    let mut tables = Vec::new();
    for (number, series) in corpus.series().enumerate() {
        if series.since > u32::from(version.major()) {
            continue;
        }
        if let Some(extension) = &series.extension {
            let query = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)";
            let there: bool = client.query_one(query, &[extension]).await?.get(0);
            // Debian's server has them all; the others are packed without.
            ensure!(there || version != Version::V15, "extension {extension} is missing");
            if !there {
                continue;
            }
            client
                .batch_execute(&format!("CREATE EXTENSION IF NOT EXISTS {}", quoted(extension)))
                .await?;
        }
        tables.push(Table {
            series,
            rows: format!("public.rows_{number}"),
            keys: series.key.then(|| format!("public.keys_{number}")),
        });
    }
    Ok(tables)
}

/// Whether JSON holds the value that the server prints as this text.
fn holds(kind: Kind, json: Option<&Value>, text: Option<&str>) -> bool {
    let (json, text) = match (json, text) {
        (Some(Value::Null), None) => return true,
        (Some(json), Some(text)) => (json, text),
        _ => return false,
    };
    match (kind, json) {
        (Kind::Boolean, Value::Bool(value)) => *value == (text == "t"),
        (Kind::Int | Kind::Uint, Value::Number(number)) => number.to_string() == text,
        (Kind::Float32, Value::Number(number)) => same_bits(
            number.to_string().parse::<f32>().map(|it| u64::from(it.to_bits())),
            text.parse::<f32>().map(|it| u64::from(it.to_bits())),
        ),
        (Kind::Float64, Value::Number(number)) => same_bits(
            number.to_string().parse::<f64>().map(f64::to_bits),
            text.parse::<f64>().map(f64::to_bits),
        ),
        (Kind::Boolean | Kind::Int | Kind::Uint, _) => false,
        (_, Value::String(value)) => value == text,
        _ => false,
    }
}

fn same_bits<E>(left: Result<u64, E>, right: Result<u64, E>) -> bool {
    matches!((left, right), (Ok(left), Ok(right)) if left == right)
}

fn check_lines(table: &Table<'_>, lines: &[&Line]) -> Result<usize> {
    let (kind, column) = (table.series.kind, &table.series.column);
    let by_row = |op: &str| -> BTreeMap<u64, &Line> {
        let lines = lines.iter().filter(|line| line.op == op);
        let row =
            |line: &Line| line.key.as_ref().and_then(|key| key.get("n")).and_then(Value::as_u64);
        lines.filter_map(|line| Some((row(line)?, *line))).collect()
    };
    let (reads, inserts, updates, deletes) =
        (by_row("read"), by_row("insert"), by_row("update"), by_row("delete"));
    let mut checked = 0;
    for (number, case) in table.series.cases.iter().enumerate() {
        for (name, lines, row, before) in [
            ("scanned", &reads, READ, false),
            ("inserted", &inserts, INSERTED, false),
            ("updated", &updates, UPDATED, false),
            ("deleted", &deletes, DELETED, true),
        ] {
            let row = u64::try_from(row + number)?;
            let line = lines.get(&row).with_context(|| format!("{name} {}: no line", case.sql))?;
            let image = if before { &line.before } else { &line.after };
            let found = image.as_ref().and_then(|image| image.get(column));
            ensure!(
                holds(kind, found, case.text.as_deref()),
                "{name} {} {}: {found:?} instead of {:?}",
                table.series.sql_type,
                case.sql,
                case.text
            );
            checked += 1;
        }
    }
    Ok(checked)
}

fn check_keys(table: &Table<'_>, lines: &[&Line]) -> Result<usize> {
    let (kind, column) = (table.series.kind, &table.series.column);
    let streamed: Vec<_> = lines.iter().filter(|line| line.xid.is_some()).collect();
    // The scanned rows are deleted first, all at once.
    let scanned = lines.iter().filter(|line| line.op == "read").count();
    let mut streamed = streamed.into_iter().skip(scanned);
    let mut checked = 0;
    for case in table.key_cases() {
        for op in ["insert", "update", "delete"] {
            let line = streamed.next().with_context(|| format!("{op} {}: no line", case.sql))?;
            let found = line.key.as_ref().and_then(|key| key.get(column));
            ensure!(
                line.op == op && holds(kind, found, case.text.as_deref()),
                "key {op} {} {}: {} of {found:?} instead of {:?}",
                table.series.sql_type,
                case.sql,
                line.op,
                case.text
            );
            checked += 1;
        }
    }
    Ok(checked)
}

/// The SQLite replica, by its documented form of each kind.
fn check_sqlite(table: &Table<'_>, replica: &rusqlite::Connection) -> Result<usize> {
    let name = table.rows.trim_start_matches("public.");
    let query = format!("SELECT {} FROM {name} WHERE n = ?", quoted(&table.series.column));
    let mut statement = replica.prepare(&query)?;
    let mut checked = 0;
    for (number, case) in table.series.cases.iter().enumerate() {
        for row in [READ, INSERTED, UPDATED] {
            let mut rows = statement.query([i64::try_from(row + number)?])?;
            let found = rows.next()?.with_context(|| format!("{}: no row", case.sql))?;
            let found = found.get_ref(0)?;
            let right = in_sqlite(table.series.kind, found, case.text.as_deref());
            ensure!(right, "SQLite {} {}: {found:?}", table.series.sql_type, case.sql);
            checked += 1;
        }
        let mut rows = statement.query([i64::try_from(DELETED + number)?])?;
        ensure!(rows.next()?.is_none(), "{}: the deleted row is there", case.sql);
    }
    Ok(checked)
}

fn in_sqlite(kind: Kind, found: ValueRef<'_>, text: Option<&str>) -> bool {
    let Some(text) = text else { return found == ValueRef::Null };
    match (kind, found) {
        (Kind::Boolean, ValueRef::Integer(value)) => value == i64::from(text == "t"),
        (Kind::Int | Kind::Uint, ValueRef::Integer(value)) => value.to_string() == text,
        // SQLite does not tell -0 from 0.
        (Kind::Float32, ValueRef::Real(value)) => text.parse() == Ok(value as f32),
        (Kind::Float64, ValueRef::Real(value)) => text.parse() == Ok(value),
        (Kind::Bytes, ValueRef::Blob(value)) => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            text.strip_prefix("\\x") == Some(&digits)
        }
        (Kind::Boolean | Kind::Int | Kind::Bytes, _) => false,
        (_, ValueRef::Text(value)) => value == text.as_bytes(),
        _ => false,
    }
}

/// The PostgreSQL replica, by the text that its server prints.
async fn check_postgres(table: &Table<'_>, replica: &Client) -> Result<usize> {
    let column = quoted(&table.series.column);
    // Not by a cast: that of char(n) would drop its blanks, that of bool has other words.
    let query = format!(
        "SELECT format('%s', n), format('%s', {column}), {column} IS NULL FROM {} ORDER BY n",
        table.rows
    );
    let rows = replica.query(&query, &[]).await?;
    let found: BTreeMap<usize, Option<String>> = rows
        .iter()
        .map(|row| {
            let text = (!row.get::<_, bool>(2)).then(|| row.get::<_, String>(1));
            Ok((row.get::<_, &str>(0).parse()?, text))
        })
        .collect::<Result<_>>()?;
    let mut checked = 0;
    for (number, case) in table.series.cases.iter().enumerate() {
        for row in [READ, INSERTED, UPDATED] {
            let found = found.get(&(row + number));
            let right = found == Some(&case.text);
            ensure!(right, "PostgreSQL {} {}: {found:?}", table.series.sql_type, case.sql);
            checked += 1;
        }
    }
    ensure!(found.len() == 3 * table.series.cases.len(), "deleted rows are there");
    Ok(checked)
}

/// The formats in which the corpus has its texts.
const FORMATS: &str =
    "SET DateStyle TO 'ISO, YMD'; SET IntervalStyle TO postgres; SET TimeZone TO 'UTC';
    SET bytea_output TO hex; SET extra_float_digits TO 3; SET lc_monetary TO 'C'";

#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_the_corpus_is_the_same_in_scan_stream_and_replicas() -> Result<()> {
    let version = Version::under_test();
    let options = Options::default()
        .set("DateStyle", "SQL, DMY")
        .set("IntervalStyle", "sql_standard")
        .set("TimeZone", "America/New_York")
        .set("bytea_output", "escape")
        .set("extra_float_digits", "0");
    let server = Server::start_with(version, options)?;
    let client = server.connect().await?;
    client.batch_execute("CREATE DATABASE replica").await?;
    client.batch_execute(FORMATS).await?;
    let corpus = Corpus::load()?;
    client.batch_execute(&corpus.setup).await?;
    let tables = tables(&client, &corpus, version).await?;
    let mut names = Vec::new();
    for table in &tables {
        client.batch_execute(&table.create()).await.with_context(|| table.create())?;
        names.push(table.rows.as_str());
        names.extend(table.keys.as_deref());
    }
    let setup = Setup::new("types", &server, &names)?.to_file().to_sqlite().to_postgres(&server);
    let mut engine = setup.set("/lanes", json!(4));
    let setup = &mut engine;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    for table in &tables {
        client.batch_execute(&table.change()).await.with_context(|| table.change())?;
    }
    setup.caught_up(&mut engine, &client).await?;
    assert_eq!(engine.terminate().await?, 143);

    let lines = lines::read(&setup.lines_file())?;
    let mut by_table: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in &lines {
        by_table.entry(&line.table).or_default().push(line);
    }
    let sqlite = rusqlite::Connection::open(setup.replica_file())?;
    let postgres = server.connect_to(&server.url("replica")).await?;
    postgres.batch_execute(FORMATS).await?;
    let mut wrong = Vec::new();
    let mut checked = 0;
    for table in &tables {
        let lines_of = |name: &str| by_table.get(name).cloned().unwrap_or_default();
        let mut results = vec![
            check_lines(table, &lines_of(&table.rows)),
            check_sqlite(table, &sqlite),
            check_postgres(table, &postgres).await,
        ];
        if let Some(keys) = &table.keys {
            results.push(check_keys(table, &lines_of(keys)));
        }
        for result in results {
            match result {
                Ok(count) => checked += count,
                Err(error) => {
                    wrong.push(format!("{} ({}): {error:#}", table.rows, table.series.sql_type))
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} series:\n{}", wrong.len(), tables.len(), wrong.join("\n"));
    println!("{} series, {checked} comparisons", tables.len());
    let values: usize = tables.iter().map(|table| table.series.cases.len()).sum();
    assert!(values >= 200 && checked >= 10 * values, "{values} values, {checked} comparisons");
    Ok(())
}
