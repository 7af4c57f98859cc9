//! What the log may contain, beside plain changes of plain rows.

use anyhow::{Context, Result, ensure};
use dovetail_tests::content::{of_postgres, of_sqlite};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line};
use dovetail_tests::postgres::{Server, Version};
use dovetail_tests::wait::{PATIENCE, until};
use serde_json::json;
use tokio_postgres::Client;

async fn start(sql: &str) -> Result<(Server, Client)> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute(sql).await?;
    Ok((server, client))
}

async fn replica_equals(client: &Client, setup: &Setup, tables: &[&str]) -> Result<()> {
    for table in tables {
        let source = of_postgres(client, &format!("public.{table}")).await?;
        let differences = source.differences(&of_sqlite(&setup.replica_file(), table)?);
        ensure!(differences.is_empty(), "{table}: {differences}");
    }
    Ok(())
}

fn updates<'a>(lines: &'a [Line], table: &str) -> Vec<&'a Line> {
    lines.iter().filter(|line| line.op == "update" && line.table == table).collect()
}

/// L7.
#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_large_value_is_unavailable_and_stays_in_the_replica() -> Result<()> {
    let create = |name: &str, identity: &str| {
        format!(
            "CREATE TABLE {name} (id bigint PRIMARY KEY, small text NOT NULL, body text);
             ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL;
             CREATE UNIQUE INDEX {name}_small ON {name} (small);
             ALTER TABLE {name} REPLICA IDENTITY {identity};
             INSERT INTO {name} SELECT i, 's' || i, repeat(md5(i::text), 200) FROM generate_series(1, 5) i;"
        )
    };
    let tables = [
        ("by_default", "DEFAULT"),
        ("by_full", "FULL"),
        ("by_index", "USING INDEX by_index_small"),
    ];
    let sql: String = tables.iter().map(|(name, identity)| create(name, identity)).collect();
    let (server, client) = start(&sql).await?;
    let names = ["public.by_default", "public.by_full", "public.by_index"];
    let setup = Setup::new("l7", &server, &names)?.to_file().to_sqlite();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    for (name, _) in tables {
        // Another small value, another key, both, and a large value that does change.
        client
            .batch_execute(&format!(
                "UPDATE {name} SET small = 'new ' || id WHERE id = 1;
                 UPDATE {name} SET id = 102 WHERE id = 2;
                 UPDATE {name} SET id = 103, small = 'moved' WHERE id = 3;
                 UPDATE {name} SET body = 'short' WHERE id = 4;
                 DELETE FROM {name} WHERE id = 5;"
            ))
            .await?;
    }
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    let kept = updates(&lines, "public.by_default");
    let kept = kept.first().context("an update under the default identity")?;
    assert_eq!(kept.unavailable, ["body"]);
    assert!(kept.after("body").is_none(), "unavailable is not null");
    let full = updates(&lines, "public.by_full");
    let full = full.first().context("an update under FULL")?;
    assert!(full.unavailable.is_empty(), "the old row had it");
    let length = full.after("body").and_then(|body| body.as_str()).map(str::len);
    assert_eq!(length, Some(32 * 200));
    setup.lines_equal(&client, &names).await?;
    replica_equals(&client, &setup, &["by_default", "by_full", "by_index"]).await
}

/// L8.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncate_of_several_tables_is_a_barrier_on_all_lanes() -> Result<()> {
    let (server, client) = start(
        "CREATE TABLE parent (id bigint PRIMARY KEY);
         CREATE TABLE child (id bigint PRIMARY KEY, parent bigint REFERENCES parent);
         CREATE TABLE beside (id bigint PRIMARY KEY);
         INSERT INTO parent SELECT generate_series(1, 100);
         INSERT INTO child SELECT i, i FROM generate_series(1, 100) i;
         INSERT INTO beside SELECT generate_series(1, 100);",
    )
    .await?;
    let names = ["public.parent", "public.child", "public.beside"];
    let setup = Setup::new("l8", &server, &names)?.to_file().to_sqlite().set("/lanes", json!(4));
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    for round in 1..=5 {
        client
            .batch_execute(&format!(
                "BEGIN;
                 INSERT INTO parent SELECT {round} * 1000 + i FROM generate_series(1, 50) i;
                 INSERT INTO child SELECT {round} * 1000 + i, {round} * 1000 + i FROM generate_series(1, 50) i;
                 UPDATE beside SET id = -id;
                 TRUNCATE parent, beside RESTART IDENTITY CASCADE;
                 INSERT INTO parent SELECT i FROM generate_series(1, {round}) i;
                 INSERT INTO child SELECT i, i FROM generate_series(1, {round}) i;
                 INSERT INTO beside VALUES ({round});
                 COMMIT"
            ))
            .await?;
    }
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    for table in names {
        let truncates = lines.iter().filter(|line| line.op == "truncate" && line.table == table);
        assert_eq!(truncates.count(), 5, "{table}");
    }
    setup.lines_equal(&client, &names).await?;
    replica_equals(&client, &setup, &["parent", "child", "beside"]).await
}

/// L10.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_identity_is_never_published_without_consent() -> Result<()> {
    let (server, client) = start(
        "CREATE TABLE t (id int PRIMARY KEY);
         CREATE TABLE keyless (v int);
         INSERT INTO keyless VALUES (1);",
    )
    .await?;
    let setup = Setup::new("l10", &server, &["public.t", "public.keyless"])?.to_file();

    let check = setup.finished("check", &[])?;
    assert!(check.text().contains("keyless"), "{}", check.text());
    assert!(check.text().contains("REPLICA IDENTITY"), "says the way out: {}", check.text());
    let run = setup.finished("run", &[])?;
    assert_eq!(run.code, 70, "{}", run.text());
    assert!(run.stderr.contains("keyless"), "{}", run.stderr);

    client.batch_execute("UPDATE keyless SET v = 2").await.context("the application suffers")?;
    Ok(())
}

/// L10: what the operator has published himself is his.
#[tokio::test(flavor = "multi_thread")]
async fn a_published_table_without_identity_is_warned_of_and_its_inserts_arrive() -> Result<()> {
    let (server, client) = start(
        "CREATE TABLE keyless (v int);
         INSERT INTO keyless VALUES (1), (1);
         CREATE PUBLICATION l10 FOR TABLE keyless;",
    )
    .await?;
    let setup = Setup::new("l10", &server, &["public.keyless"])?.to_file();

    let check = setup.finished("check", &[])?;
    assert_eq!(check.code, 0, "{}", check.text());
    assert!(check.text().contains("keyless"), "{}", check.text());
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    client.batch_execute("INSERT INTO keyless VALUES (2), (2)").await?;
    setup.caught_up(&mut engine, &client).await?;
    setup.lines_equal(&client, &["public.keyless"]).await
}

async fn message(setup: &Setup, content: &str) -> Result<Line> {
    let bytes: String = content.bytes().map(|byte| format!("{byte:02x}")).collect();
    let written = format!("\\x{bytes}");
    until(format!("the message {content}"), PATIENCE, async || {
        let mut lines = lines::read(&setup.lines_file())?.into_iter();
        Ok(lines.find(|line| line.op == "message" && line.content.as_ref() == Some(&written)))
    })
    .await
}

/// L14.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_an_event_in_its_place() -> Result<()> {
    let (server, client) = start("CREATE TABLE t (id int PRIMARY KEY)").await?;
    let setup = Setup::new("l14", &server, &["public.t"])?.to_file();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    client
        .batch_execute(
            "BEGIN; SELECT pg_logical_emit_message(true, 'note', 'rolled back'); ROLLBACK;
             BEGIN; INSERT INTO t VALUES (1); SELECT pg_logical_emit_message(true, 'note', 'between');
             INSERT INTO t VALUES (2); COMMIT;",
        )
        .await?;
    setup.caught_up(&mut engine, &client).await?;

    let lines = lines::read(&setup.lines_file())?;
    let kinds: Vec<_> = lines.iter().map(|line| line.op.as_str()).collect();
    assert_eq!(kinds, ["insert", "message", "insert"]);
    let between = message(&setup, "between").await?;
    assert_eq!((between.prefix.as_deref(), between.transactional), (Some("note"), Some(true)));
    Ok(())
}

/// L14.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_outside_transactions_does_not_step_over_an_open_one() -> Result<()> {
    let (server, client) = start("CREATE TABLE t (id int PRIMARY KEY)").await?;
    let setup = Setup::new("l14", &server, &["public.t"])?.to_file();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let open = server.connect().await?;
    open.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await?;
    client.batch_execute("SELECT pg_logical_emit_message(false, 'note', 'alone')").await?;
    // The server sends it with the next thing that it flushes.
    client.batch_execute("INSERT INTO t VALUES (2)").await?;
    let alone = message(&setup, "alone").await?;
    assert_eq!((alone.transactional, alone.xid), (Some(false), None));
    setup.caught_up(&mut engine, &client).await?;
    engine.kill()?;
    open.batch_execute("COMMIT").await?;

    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    setup.lines_equal(&client, &["public.t"]).await
}
