//! Shows that a table which is moved from MySQL to PostgreSQL arrives whole, while it is written to, over a kill in the
//! scan and another one in the stream.
//!
//! The comparison at the end lets each server print its own rows. `--corrupt` changes one row of the copy first; then it
//! has to fail.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dovetail_tests::content::{Content, of_mysql, of_postgres};
use dovetail_tests::example::{self, PATIENCE, Pipeline};
use dovetail_tests::mysql::{self, execute};
use dovetail_tests::postgres::{self, PASSWORD, cache};
use dovetail_tests::wait::until;
use dovetail_tests::writers::{Going, Writers};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use serde::Deserialize;
use tokio_postgres::Client;

const WRITERS: u32 = 2;
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mysql-to-postgres");

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut corrupt = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--corrupt" => corrupt = true,
            other => bail!("{other}: there is --corrupt"),
        }
    }
    let installed = mysql::Version::installed()?;
    let wanted = mysql::Version::MySql9_7;
    let version = if installed.contains(&wanted) { wanted } else { mysql::Version::MariaDb10_11 };
    let source = mysql::Server::start(version)?;
    let target = postgres::Server::start(postgres::Version::V15)?;
    let cities = load(&source).await?;
    println!("mysql-to-postgres: {version} on port {}, {cities} cities", source.port());

    let pipeline = Moving::lay_out(&source, &target)?;
    let writers = Writers::start(WRITERS, |number, going| {
        let options = source.options_for("root", PASSWORD);
        async move { write(Conn::new(options).await?, number, cities, &going).await }
    });
    let client = target.connect().await?;
    let killed = pipeline.kill_and_resume(&client, cities, &writers).await?;
    let changes = writers.stop().await?;
    pipeline.catch_up(&source).await?;

    if corrupt {
        let query = "UPDATE world.cities SET name = name || '!' WHERE id = (SELECT max(id) FROM world.cities)";
        ensure!(client.execute(query, &[]).await? == 1, "no row to change");
        println!(
            "mysql-to-postgres: one row of the copy was changed by hand; the comparison must fail now"
        );
    }
    made_as_said(&client).await?;
    let there = of_mysql(&mut source.connect().await?, "world.cities").await?;
    let copy = of_postgres(&client, "world.cities").await?;
    let differences = as_postgres_prints(&there).differences(&copy);
    if !differences.is_empty() {
        println!("{differences}mysql-to-postgres: source and copy differ");
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "mysql-to-postgres: {} rows and {changes} changes from {version}, killed and resumed {killed} time(s), \
         MySQL == PostgreSQL",
        copy.len()
    );
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct City {
    name: String,
    lat: String,
    lng: String,
    country: String,
}

/// Creates and fills `world.cities`, and makes the account of the pipeline; the number of rows.
async fn load(source: &mysql::Server) -> Result<u64> {
    let file = cache()?.join("cities/cities.json");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("read {} (tests/install cities brings it)", file.display()))?;
    let cities: Vec<City> = serde_json::from_str(&text).context("cities")?;
    let mut connection = source.connect().await?;
    let create = "CREATE TABLE world.cities (id bigint PRIMARY KEY, name varchar(200) NOT NULL, latitude decimal(9,5), \
                      longitude decimal(9,5), country char(2), size enum('hamlet','town','it''s huge') NOT NULL DEFAULT 'town', \
                      visited tinyint(1), edits int unsigned NOT NULL DEFAULT 0, edited_at datetime(6))";
    execute(&mut connection, &["CREATE DATABASE world", create]).await?;
    let mut id = 0_u64;
    for some in cities.chunks(2_000) {
        let places = vec!["(?, ?, ?, ?, ?)"; some.len()].join(", ");
        let mut values: Vec<Value> = Vec::with_capacity(some.len() * 5);
        for city in some {
            id += 1;
            values.push(id.into());
            values.extend([&city.name, &city.lat, &city.lng, &city.country].map(Value::from));
        }
        let insert = format!(
            "INSERT INTO world.cities (id, name, latitude, longitude, country) VALUES {places}"
        );
        connection.exec_drop(insert, values).await?;
    }
    let account = fs::read_to_string(Path::new(FOLDER).join("account.sql"))?;
    for statement in account.replace("PASSWORD", PASSWORD).split(";\n") {
        if !statement.trim().is_empty() {
            connection.query_drop(statement).await.context("make the account")?;
        }
    }
    Ok(id)
}

/// Changes cities until it is stopped, and counts the rows that it changed.
async fn write(mut connection: Conn, number: u32, cities: u64, going: &Going) -> Result<()> {
    // Without locks on gaps, so that the writers do not wait for each other.
    connection.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    let cities = i64::try_from(cities)?;
    while going.is_on() {
        pace.tick().await;
        connection.query_drop("BEGIN").await?;
        let mut changed = 0;
        for _ in 0..random.u8(1..8) {
            // Each writer has ids of its own.
            let writers = i64::from(WRITERS);
            let id = random.i64(0..cities / writers) * writers + i64::from(number);
            let statement = match random.u8(..20) {
                0 => "DELETE FROM world.cities WHERE id = ?",
                1 => "INSERT IGNORE INTO world.cities (id, name) VALUES (?, 'Newtown')",
                2 => "UPDATE IGNORE world.cities SET id = -id WHERE id = ?",
                _ => {
                    "UPDATE world.cities SET edits = edits + 1, edited_at = now(6), size = 1 + edits % 3, \
                         visited = NOT coalesce(visited, FALSE) WHERE id = ?"
                }
            };
            connection.exec_drop(statement, (id,)).await?;
            changed += connection.affected_rows();
        }
        connection.query_drop("COMMIT").await?;
        going.count(changed);
    }
    Ok(())
}

struct Moving(Pipeline);

impl Moving {
    fn lay_out(source: &mysql::Server, target: &postgres::Server) -> Result<Self> {
        let mut configuration = example::configuration("mysql-to-postgres")?;
        if source.version().is_mariadb() {
            configuration = configuration.replace("  mysql:", "  mariadb:");
        }
        let environment = vec![
            ("MOVING_MYSQL_PORT", source.port().to_string()),
            ("MOVING_POSTGRES_PORT", target.port().to_string()),
            ("MOVING_PASSWORD", PASSWORD.to_owned()),
        ];
        Ok(Self(Pipeline::lay_out("mysql-to-postgres", &configuration, environment)?))
    }

    /// Kills the engine in the middle of the scan and once more in the stream; how often.
    async fn kill_and_resume(&self, copy: &Client, cities: u64, writers: &Writers) -> Result<u32> {
        let mut engine = self.0.start()?;
        let half = until("half of the scan", PATIENCE, async || {
            engine.must_run()?;
            let rows = rows(copy).await?;
            Ok((rows >= cities / 2).then_some(rows))
        });
        let half = half.await.with_context(|| engine.log())?;
        engine.kill()?;
        ensure!(half < cities * 9 / 10, "the scan was over before the engine could be killed");
        println!("mysql-to-postgres: kill -9 with {half} of {cities} rows in the copy");

        let mut engine = self.0.start()?;
        println!(
            "mysql-to-postgres: resumed; the table is scanned again, with the pin where it was"
        );
        self.0.scanned(&mut engine).await?;
        writers.advance(2_000).await?;
        engine.must_run()?;
        engine.kill()?;
        println!("mysql-to-postgres: kill -9 while changes are streamed");
        writers.advance(2_000).await?;
        Ok(2)
    }

    /// Starts the engine once more, until it has delivered everything.
    async fn catch_up(&self, source: &mysql::Server) -> Result<()> {
        let mut engine = self.0.start()?;
        println!("mysql-to-postgres: resumed");
        let end = source.log_end().await?;
        let reached = until(format!("the checkpoint to be at {end}"), PATIENCE, async || {
            engine.must_run()?;
            let status = self.0.status()?;
            let checkpoint = status["checkpoint"].as_str().context("a checkpoint")?;
            let checkpoint: dovetail_core::position::Lsn = checkpoint.parse()?;
            let checkpoint = (checkpoint.number(), checkpoint.offset());
            Ok((checkpoint >= (end.file, end.offset)).then_some(()))
        });
        reached.await.with_context(|| engine.log())?;
        let log = engine.log();
        let code = engine.terminate().await?;
        ensure!(code == 0 || code == 143, "exit code {code} after SIGTERM: {log}");
        Ok(())
    }
}

/// The table that the engine made has the types that the README tells.
async fn made_as_said(copy: &Client) -> Result<()> {
    let query = "SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attnum) \
                 FROM pg_attribute WHERE attrelid = 'world.cities'::regclass AND attnum > 0";
    let made: String = copy.query_one(query, &[]).await?.get(0);
    let said = "id bigint, name text, latitude numeric, longitude numeric, country text, size text, \
                visited smallint, edits bigint, edited_at timestamp without time zone";
    ensure!(made == said, "the copy was made with other types: {made}");
    Ok(())
}

/// Rows of the copy that are visible now; 0 while there is no table yet.
async fn rows(copy: &Client) -> Result<u64> {
    let there = copy.query_one("SELECT to_regclass('world.cities') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(0);
    }
    let rows: i64 = copy.query_one("SELECT count(*) FROM world.cities", &[]).await?.get(0);
    Ok(u64::try_from(rows)?)
}

/// MySQL prints all six digits of a fraction.
fn as_postgres_prints(source: &Content) -> Content {
    let mut content = Content::default();
    for (row, count) in source.rows() {
        let mut row = row.clone();
        if let Some(Some(text)) = row.get_mut("edited_at") {
            *text = text.trim_end_matches('0').trim_end_matches('.').to_owned();
        }
        (0..count).for_each(|_| content.insert(row.clone()));
    }
    content
}
