//! Tables with odd names, with many columns, and with huge values.

use anyhow::{Result, ensure};
use dovetail_tests::content::{of_postgres, of_sqlite};
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::postgres::{Server, Version};
use tokio_postgres::Client;

/// One table that goes to every outlet.
struct Scene {
    server: Server,
    client: Client,
    setup: Setup,
    table: String,
    in_sqlite: String,
}

impl Scene {
    /// `table` as SQL writes it, and its name in SQLite; `sql` creates it.
    async fn new(table: &str, in_sqlite: &str, sql: &str) -> Result<Self> {
        let server = Server::start(Version::under_test())?;
        let client = server.connect().await?;
        client.batch_execute("CREATE DATABASE replica").await?;
        client.batch_execute(sql).await?;
        let setup = Setup::new("names", &server, &[table])?;
        let setup = setup.to_file().to_sqlite().to_postgres(&server);
        Ok(Self { server, client, setup, table: table.into(), in_sqlite: in_sqlite.into() })
    }

    async fn equal(&self, engine: &mut Engine) -> Result<()> {
        self.setup.scanned(engine).await?;
        self.setup.caught_up(engine, &self.client).await?;
        let source = of_postgres(&self.client, &self.table).await?;
        let sqlite = source.differences(&of_sqlite(&self.setup.replica_file(), &self.in_sqlite)?);
        ensure!(sqlite.is_empty(), "SQLite: {sqlite}");
        let replica = self.server.connect_to(&self.server.url("replica")).await?;
        let postgres = source.differences(&of_postgres(&replica, &self.table).await?);
        ensure!(postgres.is_empty(), "PostgreSQL: {postgres}");
        Ok(())
    }

    /// Scans, then streams `changes`; the outlets must equal the source after either.
    async fn scan_and_stream(&self, changes: &str) -> Result<Engine> {
        let mut engine = self.setup.run()?;
        self.equal(&mut engine).await?;
        self.client.batch_execute(changes).await?;
        self.equal(&mut engine).await?;
        self.setup.lines_equal(&self.client, &[&self.table]).await?;
        Ok(engine)
    }
}

/// T3.
#[tokio::test(flavor = "multi_thread")]
async fn names_with_quotes_dots_spaces_capitals_and_japanese_are_names() -> Result<()> {
    let table = r#""Odd.Schema"."It's a ""Table"", 日本語""#;
    let columns =
        r#""The ""Key"".1", "it's", "with space", "UPPER", "日本語", "select", "ctid?", "$1""#;
    let scene = Scene::new(
        table,
        r#"Odd.Schema__It's a "Table", 日本語"#,
        &format!(
            r#"CREATE SCHEMA "Odd.Schema";
            CREATE TABLE {table} ("The ""Key"".1" text, "it's" int, "with space" text, "UPPER" text, "日本語" text,
                "select" text, "ctid?" text, "$1" text, PRIMARY KEY ("The ""Key"".1", "日本語"));
            INSERT INTO {table} ({columns})
                SELECT 'key ' || n, n, 'a', 'b', '日本', 'c', NULL, 'd' FROM generate_series(1, 20) AS n;"#
        ),
    )
    .await?;
    let mut engine = scene
        .scan_and_stream(&format!(
            r#"INSERT INTO {table} ({columns}) VALUES ('new', 100, 'a', 'b', '本', 'c', 'd', 'e');
            UPDATE {table} SET "it's" = "it's" + 1, "$1" = 'it''s' WHERE "it's" < 5;
            UPDATE {table} SET "日本語" = '日' || "日本語" WHERE "it's" BETWEEN 6 AND 8;
            DELETE FROM {table} WHERE "it's" BETWEEN 10 AND 12"#
        ))
        .await?;
    scene
        .client
        .batch_execute(&format!(
            r#"ALTER TABLE {table} ADD COLUMN "Added ""later"".1" text DEFAULT 'it''s "5"';
            INSERT INTO {table} ({columns}) VALUES ('last', 101, 'a', 'b', '本', 'c', 'd', 'e');
            ALTER TABLE {table} DROP COLUMN "UPPER";
            UPDATE {table} SET "select" = 'from' WHERE "it's" = 101"#
        ))
        .await?;
    scene.equal(&mut engine).await
}

/// As many as PostgreSQL allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_have_1600_columns() -> Result<()> {
    let columns: Vec<_> = (1..1_600).map(|number| format!("column_{number} int4")).collect();
    let create = format!(
        "CREATE TABLE wide (id int4 PRIMARY KEY, {});
         INSERT INTO wide (id, column_1, column_800, column_1599)
             SELECT n, n, 2 * n, 3 * n FROM generate_series(1, 50) AS n",
        columns.join(", ")
    );
    let scene = Scene::new("public.wide", "wide", &create).await?;
    scene
        .scan_and_stream(
            "INSERT INTO wide (id, column_2, column_1599) VALUES (100, 7, 8);
             UPDATE wide SET column_1500 = id WHERE id > 40;
             UPDATE wide SET id = id + 1000 WHERE id < 10;
             DELETE FROM wide WHERE id = 20",
        )
        .await
        .map(drop)
}

/// The rows are larger than every buffer on the way, and an update of another column leaves the value out of the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_16_mib_passes_scan_and_stream() -> Result<()> {
    let value = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 524288) AS n)";
    let scene = Scene::new(
        "public.large",
        "large",
        &format!(
            "CREATE TABLE large (id int4 PRIMARY KEY, value text, note text);
             INSERT INTO large VALUES (1, {value}, 'scanned'), (2, 'short', 'scanned')"
        ),
    )
    .await?;
    scene
        .scan_and_stream(&format!(
            "INSERT INTO large VALUES (3, {value}, 'inserted');
             UPDATE large SET value = {value} WHERE id = 2;
             UPDATE large SET note = 'value not in the log';
             UPDATE large SET id = 4 WHERE id = 1"
        ))
        .await?;
    let long: i64 = scene
        .client
        .query_one("SELECT count(*) FROM large WHERE length(value) = 16 * 1024 * 1024", &[])
        .await?
        .get(0);
    ensure!(long == 3, "{long} values are that long");
    Ok(())
}
