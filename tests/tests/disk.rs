//! A state whose disk takes nothing.

use std::fs;

use anyhow::{Result, ensure};
use dovetail_tests::blockade::Disk;
use dovetail_tests::engine::Setup;
use dovetail_tests::postgres::{Server, Version};
use serde_json::json;
use tokio_postgres::Client;

/// Of the state's disk: a little more than a state and its log begin with.
const DISK_KIB: u32 = 512;

const TABLE: &[&str] = &["public.t"];

async fn server() -> Result<(Server, Client)> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)").await?;
    client.batch_execute("INSERT INTO t SELECT generate_series(1, 100)").await?;
    Ok((server, client))
}

fn setup(server: &Server, disk: &Disk) -> Result<Setup> {
    let state = json!(disk.path().join("state"));
    Ok(Setup::new("p11", server, TABLE)?.to_file().set("/state", state))
}

/// A run ends as a failure for an operator, and says each of `words`.
fn fails(setup: &Setup, words: &[&str]) -> Result<()> {
    let ended = setup.finished("run", &[])?;
    ensure!(ended.code == 70, "exit code {}: {}", ended.code, ended.text());
    for word in words {
        ensure!(ended.stderr.contains(word), "does not say {word}: {}", ended.stderr);
    }
    Ok(())
}

/// As [`fails`], and delivers nothing.
fn refuses(setup: &Setup, words: &[&str]) -> Result<()> {
    let delivered = || fs::read(setup.lines_file()).unwrap_or_default();
    let before = delivered();
    fails(setup, words)?;
    ensure!(delivered() == before, "something was delivered");
    Ok(())
}

async fn goes_on(setup: &Setup, client: &Client) -> Result<()> {
    let ended = setup.finished("run", &["--until-caught-up"])?;
    ensure!(ended.code == 0, "exit code {}: {}", ended.code, ended.text());
    setup.lines_equal(client, TABLE).await
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_whose_disk_fills_up_ends_the_run_and_goes_on_when_there_is_room() -> Result<()> {
    let Some(disk) = Disk::mount(DISK_KIB)? else { return Ok(()) };
    let (server, client) = server().await?;
    let setup = setup(&server, &disk)?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    disk.fill()?;
    let mut number = 100_i64;
    while engine.exit()?.is_none() {
        number += 1;
        client.execute("INSERT INTO t VALUES ($1)", &[&number]).await?;
        ensure!(number < 1_000_000, "the engine goes on without a state");
    }
    let log = engine.log();
    ensure!(engine.ended().await? == 70, "{log}");
    ensure!(log.contains("make room") && log.contains("state"), "{log}");

    client.batch_execute("INSERT INTO t VALUES (-1)").await?;
    disk.fill()?;
    // The state can be read, so this is known only when the first checkpoint is due: what was delivered comes again.
    fails(&setup, &["make room", "state"])?;
    disk.make_room()?;
    goes_on(&setup, &client).await
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_room_for_a_state_is_refused_before_anything_is_made() -> Result<()> {
    let Some(disk) = Disk::mount(DISK_KIB)? else { return Ok(()) };
    let (server, client) = server().await?;
    let setup = setup(&server, &disk)?;
    fs::create_dir(disk.path().join("state"))?;
    disk.fill()?;

    refuses(&setup, &["make room", "state"])?;

    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await?;
    ensure!(slots.is_empty(), "a slot was made that no state knows");
    disk.make_room()?;
    goes_on(&setup, &client).await
}

/// P11.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_on_a_disk_that_is_read_only_is_refused_and_goes_on_when_it_can_be_written()
-> Result<()> {
    let Some(disk) = Disk::mount(DISK_KIB)? else { return Ok(()) };
    let (server, client) = server().await?;
    let setup = setup(&server, &disk)?;
    goes_on(&setup, &client).await?;
    client.batch_execute("INSERT INTO t VALUES (-1)").await?;
    disk.writable(false)?;

    refuses(&setup, &["state", "write"])?;

    disk.writable(true)?;
    goes_on(&setup, &client).await
}
