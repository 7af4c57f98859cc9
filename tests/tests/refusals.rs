//! What cannot work is refused: with the right exit code, one paragraph that says what to do, and nothing left behind.

use std::fs;

use anyhow::{Result, ensure};
use dovetail_tests::content::of_sqlite;
use dovetail_tests::engine::{Finished, Setup};
use dovetail_tests::postgres::{Options, PASSWORD, Server, Version};
use dovetail_tests::session::create_user;
use rusqlite::Connection;
use serde_json::json;
use tokio_postgres::Client;

const CONFIGURATION: i32 = 65;
const DEFINITE: i32 = 70;
const TRANSIENT: i32 = 75;

async fn source(options: Options) -> Result<(Server, Client, Setup)> {
    let server = Server::start_with(Version::under_test(), options)?;
    let client = server.connect().await?;
    client
        .batch_execute(
            "CREATE TABLE cities (id bigint PRIMARY KEY, name text);
             INSERT INTO cities VALUES (1, 'Vila')",
        )
        .await?;
    let setup = Setup::new("refused", &server, &["public.cities"])?.to_sqlite();
    Ok((server, client, setup))
}

/// The last paragraph on standard error is for people: short, without a backtrace, with every one of `words`.
fn refused(setup: &Setup, code: i32, words: &[&str]) -> Result<Finished> {
    let ended = setup.finished("run", &[])?;
    ensure!(ended.code == code, "exit code {} instead of {code}: {}", ended.code, ended.text());
    for word in words {
        ensure!(ended.stderr.contains(word), "does not say {word:?}: {}", ended.stderr);
    }
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ensure!(!ended.stderr.contains(PASSWORD), "shows the password: {}", ended.stderr);
    Ok(ended)
}

async fn nothing_is_left(client: &Client) -> Result<()> {
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    ensure!(slots.is_empty(), "a slot is left behind");
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_reached() -> Result<()> {
    let (mut server, _, setup) = source(Options::default()).await?;
    let port = server.port().to_string();
    server.stop()?;
    refused(&setup, TRANSIENT, &["127.0.0.1", &port])?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_password() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    let setup = setup.set("/source/postgres/password", json!("not the password"));
    let ended = refused(&setup, DEFINITE, &["password"])?;
    ensure!(!ended.stderr.contains("not the password"));
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_database_that_does_not_exist() -> Result<()> {
    let (server, _, setup) = source(Options::default()).await?;
    let url = format!("postgresql://postgres@127.0.0.1:{}/nowhere", server.port());
    refused(&setup.set("/source/postgres/url", json!(url)), DEFINITE, &["nowhere"])?;
    Ok(())
}

#[tokio::test]
async fn tls_that_the_server_does_not_offer() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    refused(&setup.set("/source/postgres/sslmode", json!("require")), DEFINITE, &["sslmode"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_not_trusted() -> Result<()> {
    let (_server, client, setup) = source(Options::default().with_tls()).await?;
    let other = Server::start_with(Version::V15, Options::default().with_tls())?;
    let setup = setup.set("/source/postgres/sslmode", json!("verify-full"));
    let setup = setup.set("/source/postgres/sslrootcert", json!(other.authority()));
    refused(&setup, DEFINITE, &["certificate"])?;
    nothing_is_left(&client).await
}

/// The same with the right authority, so that the refusal means something.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_verified_lets_everything_through() -> Result<()> {
    let (server, client, setup) = source(Options::default().with_tls()).await?;
    let setup = setup.set("/source/postgres/sslmode", json!("verify-full"));
    let setup = setup.set("/source/postgres/sslrootcert", json!(server.authority()));
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE application_name = 'dovetail' AND NOT ssl";
    let plain: i64 = client.query_one(plain, &[]).await?.get(0);
    ensure!(plain == 0, "{plain} connections without TLS");
    ensure!(of_sqlite(&setup.replica_file(), "cities")?.len() == 1);
    Ok(())
}

#[tokio::test]
async fn a_user_without_select() -> Result<()> {
    let (server, client, setup) = source(Options::default()).await?;
    create_user(&client, "capture", "refused", &["public.cities"]).await?;
    client.batch_execute("REVOKE SELECT ON cities FROM capture").await?;
    refused(&setup.as_user("capture", &server), DEFINITE, &["cities", "GRANT SELECT"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_user_that_may_not_replicate() -> Result<()> {
    let (server, client, setup) = source(Options::default()).await?;
    create_user(&client, "capture", "refused", &["public.cities"]).await?;
    client.batch_execute("ALTER ROLE capture NOREPLICATION").await?;
    refused(&setup.as_user("capture", &server), DEFINITE, &["REPLICATION"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_server_whose_log_has_not_enough_in_it() -> Result<()> {
    let (_server, _, setup) = source(Options::default().set("wal_level", "replica")).await?;
    refused(&setup, DEFINITE, &["wal_level", "logical"])?;
    Ok(())
}

#[tokio::test]
async fn a_server_without_a_free_slot() -> Result<()> {
    let (_server, client, setup) =
        source(Options::default().set("max_replication_slots", "1")).await?;
    client.execute("SELECT pg_create_physical_replication_slot('somebodys')", &[]).await?;
    refused(&setup, DEFINITE, &["max_replication_slots"])?;
    Ok(())
}

#[tokio::test]
async fn a_table_that_does_not_exist() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    let setup = setup.set("/source/postgres/tables", json!(["public.citys"]));
    refused(&setup, DEFINITE, &["public.citys", "public.cities"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_view_and_an_unlogged_table() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    client
        .batch_execute("CREATE VIEW seen AS SELECT * FROM cities; CREATE UNLOGGED TABLE lost (id int PRIMARY KEY)")
        .await?;
    let setup = setup.set("/source/postgres/tables", json!(["public.seen", "public.lost"]));
    refused(&setup, DEFINITE, &["public.seen", "public.lost"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_slot_that_is_somebody_elses() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    client.execute("SELECT pg_create_logical_replication_slot('refused', 'pgoutput')", &[]).await?;
    refused(&setup, DEFINITE, &["refused"])?;
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    ensure!(slots.len() == 1, "somebody else's slot is gone");
    Ok(())
}

#[tokio::test]
async fn a_plugin_that_is_none() -> Result<()> {
    let (server, client, setup) = source(Options::default()).await?;
    let files: [(&str, &[u8]); 4] = [
        ("text.wasm", b"not a component"),
        ("empty.wasm", b""),
        ("core.wasm", b"\0asm\x01\0\0\0"),
        ("truncated.wasm", b"\0asm\x0d\0\x01\0\x01\x7f"),
    ];
    for (name, bytes) in files {
        let file = setup.directory().join(name);
        fs::write(&file, bytes)?;
        let setup = Setup::new("refused", &server, &["public.cities"])?.to_sqlite();
        refused(&setup.plugin("broken", &file, json!({})), DEFINITE, &["broken"])?;
        nothing_is_left(&client).await?;
    }
    let missing = setup.directory().join("missing.wasm");
    let setup = setup.plugin("absent", &missing, json!({}));
    refused(&setup, DEFINITE, &["missing.wasm"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_replica_in_a_directory_that_is_not_there() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    let setup = setup.set("/outlets/replica/sqlite/path", json!("nowhere/replica.db"));
    refused(&setup, DEFINITE, &["nowhere"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_replica_with_a_table_of_somebody_else() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    let replica = Connection::open(setup.replica_file())?;
    replica.execute_batch("CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO cities VALUES (7, 'mine')")?;
    refused(&setup, DEFINITE, &["cities"])?;
    let rows: i64 =
        replica.query_row("SELECT count(*) FROM cities WHERE id = 7", [], |row| row.get(0))?;
    ensure!(rows == 1, "somebody else's row is gone");
    drop(client);
    Ok(())
}

#[tokio::test]
async fn a_postgres_replica_that_cannot_be_reached() -> Result<()> {
    let (server, client, _) = source(Options::default()).await?;
    let setup = Setup::new("refused", &server, &["public.cities"])?;
    let copy = json!({ "postgres": { "url": "postgresql://postgres@127.0.0.1:1/replica", "password": "${SOURCE_PASSWORD}" } });
    refused(&setup.set("/outlets/copy", copy), TRANSIENT, &["127.0.0.1"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_configuration_with_several_faults_names_them_all() -> Result<()> {
    let (_server, client, setup) = source(Options::default()).await?;
    let setup = setup
        .set("/lanes", json!(0))
        .set("/snapshot/mode", json!("sometimes"))
        .set("/source/postgres/tabels", json!(["public.cities"]))
        .set("/deliver", json!(["replicas"]));
    refused(&setup, CONFIGURATION, &["lanes", "sometimes", "tabels", "tables", "replicas"])?;
    nothing_is_left(&client).await
}

#[tokio::test]
async fn a_command_that_does_not_exist() -> Result<()> {
    let (_server, _, setup) = source(Options::default()).await?;
    let ended = setup.finished("sprint", &[])?;
    assert_eq!(ended.code, 64, "{}", ended.text());
    Ok(())
}
