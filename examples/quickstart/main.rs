//! Shows that a replica stays equal to its source: over a scan under load, a kill in its middle, another one in the
//! stream, and through a plugin that masks two columns.
//!
//! The comparison at the end reads both databases with other code than the engine's, and works out for itself what the
//! mask must have done. `--corrupt` changes one row of the replica first; then it has to fail.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dovetail_core::position::Lsn;
use dovetail_tests::content::{Content, of_postgres, of_sqlite};
use dovetail_tests::example::{self, PATIENCE, Pipeline};
use dovetail_tests::postgres::{PASSWORD, Server, Version, cache};
use dovetail_tests::wait::until;
use dovetail_tests::writers::{Going, Writers};
use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};
use tokio_postgres::Client;

const WRITERS: u32 = 2;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut corrupt = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--corrupt" => corrupt = true,
            other => bail!("{other}: there is --corrupt"),
        }
    }
    let source = Server::start(Version::V15)?;
    let client = source.connect().await?;
    let cities = load(&client).await?;
    println!("quickstart: PostgreSQL 15 on port {}, {cities} cities", source.port());

    let pipeline = Quickstart::lay_out(&source)?;
    let url = source.url("postgres");
    let writers = Writers::start(WRITERS, |number, going| {
        let url = url.clone();
        async move { write(&url, number, cities, &going).await }
    });
    let killed = pipeline.kill_and_resume(cities, &writers).await?;
    let changes = writers.stop().await?;
    pipeline.catch_up(&client).await?;

    if corrupt {
        pipeline.corrupt()?;
        println!(
            "quickstart: one row of the replica was changed by hand; the comparison must fail now"
        );
    }
    client.batch_execute("SET TimeZone TO 'UTC'").await?;
    let expected = masked(&of_postgres(&client, "public.cities").await?);
    let replica = of_sqlite(&pipeline.0.file("replica.db"), "cities")?;
    let differences = expected.differences(&replica);
    if !differences.is_empty() {
        println!("{differences}quickstart: source and replica differ");
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "quickstart: {} rows and {changes} changes delivered, killed and resumed {killed} time(s), source == replica",
        replica.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Creates and fills `public.cities`; the number of rows. Who edited a city is made up.
async fn load(client: &Client) -> Result<u64> {
    let file = cache()?.join("cities/cities.json");
    let cities = fs::read_to_string(&file)
        .with_context(|| format!("read {} (tests/install cities brings it)", file.display()))?;
    client
        .batch_execute(
            "CREATE TABLE cities (id bigint PRIMARY KEY, name text NOT NULL, latitude numeric, longitude numeric,
                 country text, admin1 text, admin2 text, editor text, edits integer NOT NULL DEFAULT 0,
                 edited_at timestamptz NOT NULL DEFAULT now())",
        )
        .await?;
    let fill = "INSERT INTO cities SELECT row_number() OVER (), name, lat, lng, country, admin1, nullif(admin2, ''), \
                    'editor' || (row_number() OVER ()) % 997 || '@example.org' \
                FROM json_to_recordset($1::text::json) AS city(name text, lat numeric, lng numeric, country text, \
                    admin1 text, admin2 text)";
    Ok(client.execute(fill, &[&cities]).await?)
}

/// Changes cities until it is stopped, and counts the rows that it changed.
async fn write(url: &str, number: u32, cities: u64, going: &Going) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    let cities = i64::try_from(cities)?;
    while going.is_on() {
        pace.tick().await;
        client.batch_execute("BEGIN").await?;
        let mut changed = 0;
        for _ in 0..random.u8(1..8) {
            // Each writer has ids of its own, so that none waits for another's row.
            let writers = i64::from(WRITERS);
            let id = random.i64(0..cities / writers) * writers + i64::from(number);
            let statement = match random.u8(..20) {
                0 => "DELETE FROM cities WHERE id = $1",
                1 => "INSERT INTO cities (id, name) VALUES ($1, 'Newtown') ON CONFLICT DO NOTHING",
                2 => {
                    "UPDATE cities SET id = -id WHERE id = $1 AND NOT EXISTS (SELECT FROM cities WHERE id = -$1)"
                }
                _ => {
                    "UPDATE cities SET edits = edits + 1, edited_at = clock_timestamp(), \
                         editor = 'editor' || (edits * 7 + id) % 997 || '@example.org' WHERE id = $1"
                }
            };
            changed += client.execute(statement, &[&id]).await?;
        }
        client.batch_execute("COMMIT").await?;
        going.count(changed);
    }
    Ok(())
}

/// The pipeline, with its plugin beside it.
struct Quickstart(Pipeline);

impl Quickstart {
    fn lay_out(source: &Server) -> Result<Self> {
        let environment = vec![
            ("QUICKSTART_PORT", source.port().to_string()),
            ("QUICKSTART_PASSWORD", PASSWORD.to_owned()),
        ];
        let configuration = example::configuration("quickstart")?;
        let pipeline = Pipeline::lay_out("quickstart", &configuration, environment)?;
        let mask =
            std::env::var("QUICKSTART_MASK").context("start it by examples/quickstart/run")?;
        fs::copy(&mask, pipeline.file("mask.wasm")).with_context(|| mask.clone())?;
        Ok(Self(pipeline))
    }

    /// Kills the engine in the middle of the scan and once more in the stream; how often.
    async fn kill_and_resume(&self, cities: u64, writers: &Writers) -> Result<u32> {
        let mut engine = self.0.start()?;
        let half = until("half of the scan", PATIENCE, async || {
            engine.must_run()?;
            let rows = self.rows();
            Ok((rows >= cities / 2).then_some(rows))
        });
        let half = half.await.with_context(|| engine.log())?;
        engine.kill()?;
        ensure!(half < cities * 9 / 10, "the scan was over before the engine could be killed");
        println!("quickstart: kill -9 with {half} of {cities} rows in the replica");

        let mut engine = self.0.start()?;
        println!("quickstart: resumed; the table is scanned again, with the pin where it was");
        self.0.scanned(&mut engine).await?;
        writers.advance(2_000).await?;
        engine.must_run()?;
        engine.kill()?;
        println!("quickstart: kill -9 while changes are streamed");
        writers.advance(2_000).await?;
        Ok(2)
    }

    /// Starts the engine once more, until it has delivered everything.
    async fn catch_up(&self, source: &Client) -> Result<()> {
        let mut engine = self.0.start()?;
        println!("quickstart: resumed");
        let end = source.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await?;
        let end: Lsn = end.get::<_, &str>(0).parse()?;
        self.0.caught_up(&mut engine, end).await?;
        let log = engine.log();
        let code = engine.terminate().await?;
        ensure!(code == 0 || code == 143, "exit code {code} after SIGTERM: {log}");
        Ok(())
    }

    /// Rows of the replica that are visible now; 0 while there is no replica yet.
    fn rows(&self) -> u64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let rows =
            Connection::open_with_flags(self.0.file("replica.db"), flags).and_then(|replica| {
                replica.query_row("SELECT count(*) FROM cities", [], |row| row.get::<_, i64>(0))
            });
        rows.ok().and_then(|rows| u64::try_from(rows).ok()).unwrap_or_default()
    }

    fn corrupt(&self) -> Result<()> {
        let replica = Connection::open(self.0.file("replica.db"))?;
        let query = "UPDATE cities SET name = name || '!' WHERE id = (SELECT max(id) FROM cities)";
        ensure!(replica.execute(query, [])? == 1, "no row to change");
        Ok(())
    }
}

/// What the replica must hold, worked out from the rows of the source.
fn masked(source: &Content) -> Content {
    let mut content = Content::default();
    for (row, count) in source.rows() {
        let mut row = row.clone();
        for (name, text) in &mut row {
            let Some(text) = text else { continue };
            match name.as_str() {
                "editor" => *text = hash(text),
                "admin2" => *text = text.chars().take(2).collect(),
                _ => {}
            }
        }
        (0..count).for_each(|_| content.insert(row.clone()));
    }
    content
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(format!("quickstart-salt{text}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
