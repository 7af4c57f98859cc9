//! Tables that change while they are captured: every row under the columns of its own time, and an outlet that follows or
//! stops with what to do.

use anyhow::{Context, Result, ensure};
use dovetail_tests::content::{of_postgres, of_sqlite};
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::lines::{self, Line};
use dovetail_tests::postgres::{Server, Version};
use tokio_postgres::Client;

struct Scene {
    server: Server,
    client: Client,
    setup: Setup,
}

impl Scene {
    async fn new() -> Result<Self> {
        let server = Server::start(Version::under_test())?;
        let client = server.connect().await?;
        client.batch_execute("CREATE DATABASE replica").await?;
        client
            .batch_execute(
                "CREATE TABLE t (id bigint PRIMARY KEY, a text, b int);
                 INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)",
            )
            .await?;
        let setup = Setup::new("schema", &server, &["public.t"])?;
        let setup = setup.to_file().to_sqlite().to_postgres(&server);
        Ok(Self { server, client, setup })
    }

    async fn run(&self, sql: &[&str]) -> Result<()> {
        for statement in sql {
            self.client.batch_execute(statement).await.with_context(|| (*statement).to_owned())?;
        }
        Ok(())
    }

    async fn equal(&self, engine: &mut Engine) -> Result<()> {
        self.setup.caught_up(engine, &self.client).await?;
        let source = of_postgres(&self.client, "public.t").await?;
        let sqlite = source.differences(&of_sqlite(&self.setup.replica_file(), "t")?);
        ensure!(sqlite.is_empty(), "SQLite: {sqlite}");
        let replica = self.server.connect_to(&self.server.url("replica")).await?;
        let postgres = source.differences(&of_postgres(&replica, "public.t").await?);
        ensure!(postgres.is_empty(), "PostgreSQL: {postgres}");
        Ok(())
    }

    /// Columns of the inserted rows, by key.
    fn columns(&self) -> Result<Vec<(String, Vec<String>)>> {
        let lines = lines::read(&self.setup.lines_file())?;
        let inserts = lines.into_iter().filter(|line| line.op == "insert");
        let columns =
            |line: &Line| line.after.as_ref().map(|after| after.keys().cloned().collect());
        inserts
            .map(|line| Ok((line.key_text().context("a key")?, columns(&line).context("a row")?)))
            .collect()
    }
}

const ADD: &str = "ALTER TABLE t ADD COLUMN z text";
const ADD_DEFAULT: &str = "ALTER TABLE t ADD COLUMN d int NOT NULL DEFAULT 7";
const DROP: &str = "ALTER TABLE t DROP COLUMN a";

const CHANGES: [&str; 8] = [
    "INSERT INTO t VALUES (10, 'ten', 10)",
    ADD,
    "INSERT INTO t VALUES (11, 'eleven', 11, 'z')",
    DROP,
    "INSERT INTO t VALUES (12, 12, 'z'); UPDATE t SET z = 'late' WHERE id = 1",
    ADD_DEFAULT,
    "INSERT INTO t VALUES (13, 13, 'z', 8); DELETE FROM t WHERE id = 2",
    "UPDATE t SET b = b + 1",
];

fn expected() -> Vec<(String, Vec<String>)> {
    let row = |id: &str, columns: &[&str]| {
        let mut columns: Vec<_> = columns.iter().map(|column| (*column).to_owned()).collect();
        columns.sort();
        (id.to_owned(), columns)
    };
    vec![
        row("10", &["id", "a", "b"]),
        row("11", &["id", "a", "b", "z"]),
        row("12", &["id", "b", "z"]),
        row("13", &["id", "b", "z", "d"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_come_and_go_in_the_stream_are_followed() -> Result<()> {
    let scene = Scene::new().await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    scene.run(&CHANGES).await?;
    scene.equal(&mut engine).await?;
    assert_eq!(scene.columns()?, expected());
    Ok(())
}

/// S1: the catalog is already another one when the old rows are decoded.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_come_and_go_while_the_engine_is_down_are_followed() -> Result<()> {
    let scene = Scene::new().await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    assert_eq!(engine.terminate().await?, 143);
    scene.run(&CHANGES).await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    assert_eq!(scene.columns()?, expected());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_replica_cannot_follow_stops_it_and_says_what_to_do() -> Result<()> {
    let scene = Scene::new().await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    scene
        .run(&["ALTER TABLE t RENAME COLUMN a TO renamed", "INSERT INTO t VALUES (20, 'x', 20)"])
        .await?;
    let log = scene.setup.log_file();
    assert_eq!(engine.ended().await?, 70);
    let log = std::fs::read_to_string(log)?;
    assert!(log.contains("renamed") && log.contains("public.t"), "{log}");
    let source = of_sqlite(&scene.setup.replica_file(), "t")?;
    assert_eq!(source.len(), 2, "nothing under the wrong columns");
    Ok(())
}
