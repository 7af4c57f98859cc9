//! Every value of the corpus through the engine: by the scan and by each kind of change, into every outlet that keeps
//! values. What the file says and what the replicas hold is compared with the corpus, not with each other.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dovetail_tests::corpus::{Corpus, Dialect, Series, Subject};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line};
use dovetail_tests::postgres::{Server, Version};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The table of a server, which prints its values as the corpus has them.
async fn check_server(subject: &Subject<'_>, client: &Client) -> Result<()> {
    let query = format!("SELECT id, {} FROM {}", subject.column(), subject.name);
    let mut expected = subject.at_rest();
    for message in client.simple_query(&query).await? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let id = row.get(0).context("the number")?.parse()?;
        let case = expected.remove(&id).with_context(|| format!("row {id} is one too many"))?;
        ensure!(row.get(1) == case.text.as_deref(), "row {id}, {}: {:?}", case.sql, row.get(1));
    }
    ensure!(expected.is_empty(), "rows are missing: {:?}", expected.keys());
    Ok(())
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
    let corpus = Corpus::load(Dialect::Postgres)?;
    client.batch_execute("CREATE DATABASE replica").await?;
    client.batch_execute(&corpus.setup).await?;
    let series = possible(&client, version, &corpus).await?;
    let subjects = Subject::all(Dialect::Postgres, &series);
    let create: String = subjects.iter().map(Subject::create).collect();
    client.batch_execute(&create).await?;
    let there: String = subjects.iter().map(Subject::before_the_pin).collect();
    client.batch_execute(&there).await?;
    set_odd_defaults(&client).await?;
    drop(client);
    let client = plain_session(&server, "postgres").await?;
    let names: Vec<_> = subjects.iter().map(|it| it.name.as_str()).collect();
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
        check_server(subject, &client).await.context("the source").with_context(what)?;
        compared += subject.check_lines(&lines).context("the lines").with_context(what)?;
        subject
            .check_sqlite(&sqlite, subject.name.trim_start_matches("public."))
            .context("the SQLite replica")
            .with_context(what)?;
        check_server(subject, &replica).await.context("the replica").with_context(what)?;
    }
    ensure!(by_table.is_empty(), "lines of other tables: {:?}", by_table.keys());
    let values: usize = series.iter().map(|series| series.cases.len()).sum();
    println!("{values} values in {} tables, {compared} lines compared", subjects.len());
    ensure!(values >= 220, "only {values} values");
    Ok(())
}
