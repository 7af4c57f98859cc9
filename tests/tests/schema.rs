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
        Self::with(
            "CREATE TABLE t (id bigint PRIMARY KEY, a text, b int);
             INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)",
        )
        .await
    }

    /// With a table `t` of its own.
    async fn with(sql: &str) -> Result<Self> {
        let server = Server::start(Version::under_test())?;
        let client = server.connect().await?;
        client.batch_execute("CREATE DATABASE replica").await?;
        client.batch_execute(sql).await?;
        let setup = Setup::new("schema", &server, &["public.t"])?;
        let setup = setup.to_file().to_sqlite().to_postgres(&server);
        Ok(Self { server, client, setup })
    }

    async fn replica(&self) -> Result<Client> {
        self.server.connect_to(&self.server.url("replica")).await
    }

    async fn run(&self, sql: &[&str]) -> Result<()> {
        for statement in sql {
            self.client.batch_execute(statement).await.with_context(|| (*statement).to_owned())?;
        }
        Ok(())
    }

    async fn equal(&self, engine: &mut Engine) -> Result<()> {
        self.setup.scanned(engine).await?;
        self.setup.caught_up(engine, &self.client).await?;
        let source = of_postgres(&self.client, "public.t").await?;
        let sqlite = source.differences(&of_sqlite(&self.setup.replica_file(), "t")?);
        ensure!(sqlite.is_empty(), "SQLite: {sqlite}");
        let replica = self.replica().await?;
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

/// A change of definition that no outlet can follow by itself, and what the operator does at each replica.
struct Unfollowable {
    change: &'static str,
    /// A row under the new definition.
    insert: &'static str,
    /// What the message must name.
    said: &'static str,
    in_sqlite: &'static str,
    in_postgres: &'static str,
}

const TABLE: &str = "
    CREATE SEQUENCE s;
    CREATE TABLE t (id bigint PRIMARY KEY, a text, b int, p numeric(10, 2));
    INSERT INTO t VALUES (1, 'one', 1, 1.5), (2, 'two', 2, 2.25)";

const RENAME: Unfollowable = Unfollowable {
    change: "ALTER TABLE t RENAME COLUMN a TO renamed",
    insert: "INSERT INTO t (id, renamed, b, p) VALUES (11, 'eleven', 11, 11)",
    said: "renamed",
    in_sqlite: "ALTER TABLE t RENAME COLUMN a TO renamed",
    in_postgres: "ALTER TABLE t RENAME COLUMN a TO renamed",
};

const RENAME_KEY: Unfollowable = Unfollowable {
    change: "ALTER TABLE t RENAME COLUMN id TO number",
    insert: "INSERT INTO t (number, a, b, p) VALUES (11, 'eleven', 11, 11)",
    said: "number",
    in_sqlite: "ALTER TABLE t RENAME COLUMN id TO number",
    in_postgres: "ALTER TABLE t RENAME COLUMN id TO number",
};

const RETYPE: Unfollowable = Unfollowable {
    change: "ALTER TABLE t ALTER COLUMN b TYPE text USING b || ' pieces'",
    insert: "INSERT INTO t VALUES (11, 'eleven', '11', 11)",
    said: "column b was of type int4, is text",
    in_sqlite: "
        ALTER TABLE t ADD COLUMN new TEXT; UPDATE t SET new = b || ' pieces';
        ALTER TABLE t DROP COLUMN b; ALTER TABLE t RENAME COLUMN new TO b;
        UPDATE _dovetail_tables SET definition = '' WHERE name = 't'",
    in_postgres: "
        ALTER TABLE t ALTER COLUMN b TYPE text USING b || ' pieces';
        UPDATE _dovetail.tables SET definition = '' WHERE name = 't'",
};

/// The source rewrites its rows, and the log says nothing of it: 1.50 is 1.5000 now.
const RESCALE: Unfollowable = Unfollowable {
    change: "ALTER TABLE t ALTER COLUMN p TYPE numeric(10, 4)",
    insert: "INSERT INTO t VALUES (11, 'eleven', 11, 11.0625)",
    said: "column p was of type numeric",
    in_sqlite: "UPDATE t SET p = p || '00'; UPDATE _dovetail_tables SET definition = '' WHERE name = 't'",
    in_postgres: "
        UPDATE t SET p = p::numeric(10, 4); UPDATE _dovetail.tables SET definition = '' WHERE name = 't'",
};

/// Each row has a value of its own.
const VOLATILE_DEFAULT: Unfollowable = Unfollowable {
    change: "ALTER TABLE t ADD COLUMN v bigint DEFAULT nextval('s')",
    insert: "INSERT INTO t VALUES (11, 'eleven', 11, 11)",
    said: "column v",
    in_sqlite: "
        ALTER TABLE t ADD COLUMN v INTEGER;
        UPDATE t SET v = CASE id WHEN 1 THEN 1 WHEN 2 THEN 2 ELSE 3 END",
    in_postgres: "
        ALTER TABLE t ADD COLUMN v bigint;
        UPDATE t SET v = CASE id WHEN 1 THEN 1 WHEN 2 THEN 2 ELSE 3 END",
};

impl Scene {
    /// The engine stops once for each replica; the operator does there what the message says, and starts it again.
    async fn act_as_told(&self, change: &Unfollowable, mut engine: Engine) -> Result<Engine> {
        let mut places = vec!["outlet replica", "outlet copy"];
        while !places.is_empty() {
            let code = engine.ended().await?;
            let log = std::fs::read_to_string(self.setup.log_file())?;
            let said = log.lines().last().unwrap_or_default();
            ensure!(code == 70 && said.contains(change.said), "{code}: {said}");
            ensure!(said.contains("table at the outlet") && said.contains("public.t"), "{said}");
            let place = places.iter().position(|place| said.contains(place));
            match places.remove(place.with_context(|| said.to_owned())?) {
                "outlet replica" => rusqlite::Connection::open(self.setup.replica_file())?
                    .execute_batch(change.in_sqlite)?,
                _ => self.replica().await?.batch_execute(change.in_postgres).await?,
            }
            engine = self.setup.run()?;
        }
        Ok(engine)
    }
}

/// The change comes between two transactions; those before it must have landed, or they would not fit any more.
async fn stops_and_goes_on_once_told(change: &Unfollowable, is_down: bool) -> Result<()> {
    let scene = Scene::with(TABLE).await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    let sql = [
        "INSERT INTO t VALUES (10, 'ten', 10, 10); UPDATE t SET b = 3 WHERE id = 1",
        change.change,
        change.insert,
        "UPDATE t SET p = p + 1; INSERT INTO t VALUES (12, 'twelve', 12, 12)",
        "DELETE FROM t WHERE b::text = '12'",
    ];
    if is_down {
        engine.terminate().await?;
        scene.run(&sql).await?;
        engine = scene.setup.run()?;
    } else {
        scene.run(&sql).await?;
    }

    let mut engine = scene.act_as_told(change, engine).await?;

    scene.equal(&mut engine).await.with_context(|| change.change)?;
    let columns = scene.columns()?;
    let old = columns.iter().filter(|(key, _)| key == "10");
    ensure!(old.clone().count() > 0, "{columns:?}");
    ensure!(old.clone().all(|(_, columns)| *columns == ["a", "b", "id", "p"]), "{columns:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_renamed_stops_the_replicas_until_it_is_renamed_there() -> Result<()> {
    stops_and_goes_on_once_told(&RENAME, false).await?;
    stops_and_goes_on_once_told(&RENAME, true).await?;
    stops_and_goes_on_once_told(&RENAME_KEY, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_type_stops_the_replicas_until_their_rows_are_changed() -> Result<()> {
    stops_and_goes_on_once_told(&RETYPE, false).await?;
    stops_and_goes_on_once_told(&RETYPE, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_scale_stops_the_replicas_until_their_rows_are_changed() -> Result<()> {
    stops_and_goes_on_once_told(&RESCALE, false).await?;
    stops_and_goes_on_once_told(&RESCALE, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volatile_default_stops_the_replicas_until_its_values_are_there() -> Result<()> {
    stops_and_goes_on_once_told(&VOLATILE_DEFAULT, false).await?;
    stops_and_goes_on_once_told(&VOLATILE_DEFAULT, true).await
}

/// A modifier that leaves the rows as they are is nobody's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_widened_is_followed() -> Result<()> {
    let scene = Scene::with(
        "CREATE TABLE t (id bigint PRIMARY KEY, a varchar(3), p numeric(5, 2), at timestamp(3));
         INSERT INTO t VALUES (1, 'one', 1.5, '2024-01-01 00:00:00.123')",
    )
    .await?;
    let mut engine = scene.setup.run()?;
    scene.equal(&mut engine).await?;
    scene
        .run(&[
            "ALTER TABLE t ALTER a TYPE varchar(30), ALTER p TYPE numeric(50, 2), ALTER at TYPE timestamp",
            "INSERT INTO t VALUES (2, 'seventeen', 1e40, '2024-01-01 00:00:00.123456')",
            "ALTER TABLE t ALTER a TYPE varchar, ALTER p TYPE numeric",
            "INSERT INTO t VALUES (3, 'thirty-one', 1.00001, NULL)",
        ])
        .await?;
    scene.equal(&mut engine).await
}
