//! A table is copied while others write to it, and the server keeps less of its log than is written meanwhile. Three ways
//! to meet that, and what each of them delivered:
//!
//! 1. *naive*: the rows are read in one consistent view, then a slot is made and the changes are followed. Every step
//!    succeeds. What was written between the view and the slot is in neither.
//! 2. *guards alone*: the engine without its spool. The slot comes first, so nothing could be lost in silence; but the
//!    server gives up on it, and the engine stops, and refuses to go on.
//! 3. *spool*: the engine as it comes. The log is read while the table is copied.
//!
//! The table at the end is made by reading both sides with other code than the engine's.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail_core::position::Lsn;
use dovetail_tests::example::{self, PATIENCE, Pipeline};
use dovetail_tests::postgres::{Options, PASSWORD, Server, Version};
use dovetail_tests::wait::until;
use dovetail_tests::writers::{Going, Writers};
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::Client;

/// A scan of so many rows takes about eighteen seconds at the pace of `pipeline.yaml`.
const ROWS: i64 = 72_000;
const ROWS_PER_SECOND: u32 = 4_000;
/// Of the log, kept for a slot. The writers write more than that in those seconds, and much less between two checkpoints.
const KEPT: &str = "64MB";
/// Between two transactions of a writer.
const PAUSE: Duration = Duration::from_millis(35);
/// Rows that a writer updates in one go: next to each other, so that few pages are written in full.
const UPDATED: i64 = 200;

/// Versions of the rows, by their keys.
type Rows = BTreeMap<i64, i64>;

/// What a way came to.
struct Outcome {
    way: &'static str,
    said: &'static str,
    source: Rows,
    delivered: Rows,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    ensure!(std::env::args().len() == 1, "there are no arguments");
    let outcomes = [naive().await?, guards_alone().await?, spool().await?];
    println!(
        "\n{:<14}{:<34}{:>8}{:>8}{:>8}{:>8}",
        "way", "said", "right", "stale", "lost", "ghosts"
    );
    for outcome in &outcomes {
        println!("{outcome}");
    }
    let [naive, guards, spool] = outcomes.map(|outcome| outcome.wrong());
    ensure!(naive > 0, "the naive way lost nothing: the example shows nothing");
    ensure!(guards > 0, "the server kept its log: the example shows nothing");
    if spool > 0 {
        println!("landmine: the spool delivered {spool} rows wrong");
        return Ok(ExitCode::FAILURE);
    }
    println!("landmine: only the naive way said that it was done while {naive} rows were wrong");
    Ok(ExitCode::SUCCESS)
}

impl Outcome {
    fn stale(&self) -> usize {
        let stale = |(id, version): &(&i64, &i64)| {
            self.source.get(*id).is_some_and(|there| there != *version)
        };
        self.delivered.iter().filter(stale).count()
    }

    fn lost(&self) -> usize {
        self.source.keys().filter(|id| !self.delivered.contains_key(id)).count()
    }

    fn ghosts(&self) -> usize {
        self.delivered.keys().filter(|id| !self.source.contains_key(id)).count()
    }

    fn wrong(&self) -> usize {
        self.stale() + self.lost() + self.ghosts()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let right = self.delivered.len() - self.stale() - self.ghosts();
        let (stale, lost, ghosts) = (self.stale(), self.lost(), self.ghosts());
        write!(f, "{:<14}{:<34}{right:>8}{stale:>8}{lost:>8}{ghosts:>8}", self.way, self.said)
    }
}

/// A server with the table, and sessions that write to it.
struct Scene {
    server: Server,
    client: Client,
    writers: Writers,
}

impl Scene {
    async fn set() -> Result<Self> {
        let options = Options::default().set("max_slot_wal_keep_size", KEPT);
        let server = Server::start_with(
            Version::V15,
            options.set("max_wal_size", KEPT).set("min_wal_size", "32MB"),
        )?;
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY, version bigint NOT NULL, filler text NOT NULL)")
            .await?;
        let fill =
            "INSERT INTO orders SELECT i, 0, repeat('x', 400) FROM generate_series(1, $1::int8) i";
        client.execute(fill, &[&ROWS]).await?;
        let url = server.url("postgres");
        let writers = Writers::start(2, |number, going| {
            let url = url.clone();
            async move { write(&url, number, &going).await }
        });
        Ok(Self { server, client, writers })
    }

    /// No more is written; what the source holds.
    async fn end(self) -> Result<(Server, Client, Rows)> {
        self.writers.stop().await?;
        let rows = self.client.query("SELECT id, version FROM orders", &[]).await?;
        let rows = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok((self.server, self.client, rows))
    }
}

/// Updates, deletes and inserts; and, every second, a checkpoint, by which the server lets go of its log.
async fn write(url: &str, number: u32, going: &Going) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let mut pace = tokio::time::interval(PAUSE);
    let mut next = i64::from(number) + 1;
    while going.is_on() {
        pace.tick().await;
        let first = next * UPDATED % ROWS;
        let update = "UPDATE orders SET version = version + 1 WHERE id > $1 AND id <= $2";
        going.count(client.execute(update, &[&first, &(first + UPDATED)]).await?);
        let delete = "DELETE FROM orders WHERE id = $1";
        going.count(client.execute(delete, &[&(next * 31 % ROWS)]).await?);
        let insert = "INSERT INTO orders VALUES ($1, 0, repeat('n', 400))";
        going.count(client.execute(insert, &[&(1_000_000 + next)]).await?);
        if next % 60 == 1 {
            client.batch_execute("CHECKPOINT").await?;
        }
        next += 2;
    }
    drop(client);
    connection.await?.context("the writer's connection")
}

/// View, then position.
async fn naive() -> Result<Outcome> {
    let scene = Scene::set().await?;
    println!("landmine: naive: the rows are read, then a slot is made");
    let reader = scene.server.connect().await?;
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let mut delivered = Rows::new();
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    let mut last = i64::MIN;
    loop {
        pace.tick().await;
        let page = "SELECT id, version FROM orders WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = reader.query(page, &[&last, &i64::from(ROWS_PER_SECOND)]).await?;
        let Some(newest) = rows.last() else { break };
        last = newest.get(0);
        delivered.extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))));
    }
    reader.batch_execute("COMMIT").await?;
    let make = "SELECT pg_create_logical_replication_slot('naive', 'test_decoding')";
    reader.batch_execute(make).await?;
    scene.writers.advance(5_000).await?;
    let (_server, client, source) = scene.end().await?;
    let changes = "SELECT data FROM pg_logical_slot_get_changes('naive', NULL, NULL)";
    for change in client.query(changes, &[]).await? {
        follow(&mut delivered, change.get(0));
    }
    Ok(Outcome { way: "naive", said: "done", source, delivered })
}

/// One change as `test_decoding` prints it.
fn follow(rows: &mut Rows, change: &str) {
    let number = |column: &str| -> Option<i64> {
        let (_, rest) = change.split_once(column)?;
        rest.split(' ').next()?.parse().ok()
    };
    let Some(id) = number("id[bigint]:") else { return };
    match number("version[bigint]:") {
        Some(version) => drop(rows.insert(id, version)),
        None => drop(rows.remove(&id)),
    }
}

async fn guards_alone() -> Result<Outcome> {
    let scene = Scene::set().await?;
    println!("landmine: guards alone: the engine without its spool");
    let pipeline = lay_out(&scene.server, "spool: off\n")?;
    let mut engine = pipeline.start()?;
    let ended = until("the engine to stop", PATIENCE, async || engine.exit());
    let status = ended.await.with_context(|| engine.log())?;
    ensure!(status.code() == Some(70), "it ended with {status}: {}", engine.log());
    let again = pipeline.command(&["run"])?.output()?;
    ensure!(again.status.code() == Some(70), "a restart went on: {again:?}");
    let (_server, _client, source) = scene.end().await?;
    let delivered = delivered(&pipeline)?;
    Ok(Outcome { way: "guards alone", said: "stopped: changes are lost", source, delivered })
}

async fn spool() -> Result<Outcome> {
    let scene = Scene::set().await?;
    println!("landmine: spool: the engine as it comes");
    let pipeline = lay_out(&scene.server, "")?;
    let mut engine = pipeline.start()?;
    pipeline.scanned(&mut engine).await?;
    scene.writers.advance(5_000).await?;
    let (_server, client, source) = scene.end().await?;
    let row = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await?;
    let end: Lsn = row.get::<_, &str>(0).parse()?;
    pipeline.caught_up(&mut engine, end).await?;
    engine.terminate().await?;
    let delivered = delivered(&pipeline)?;
    Ok(Outcome { way: "spool", said: "streaming, caught up", source, delivered })
}

fn lay_out(source: &Server, more: &str) -> Result<Pipeline> {
    let configuration = format!("{}\n{more}", example::configuration("landmine")?);
    let environment = vec![
        ("LANDMINE_PORT", source.port().to_string()),
        ("LANDMINE_PASSWORD", PASSWORD.to_owned()),
    ];
    Pipeline::lay_out("landmine", &configuration, environment)
}

/// What the replica holds.
fn delivered(pipeline: &Pipeline) -> Result<Rows> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let replica = Connection::open_with_flags(pipeline.file("replica.db"), flags)?;
    let mut query = replica.prepare("SELECT id, version FROM orders")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect::<rusqlite::Result<Rows>>().context("read the replica")
}
