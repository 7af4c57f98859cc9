//! Transactions larger than a batch, on real servers: whole at the outlet, or not there.

use anyhow::{Result, ensure};
use dovetail_tests::blockade::number;
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Lives};
use dovetail_tests::postgres::{Server, Version};
use dovetail_tests::wait::{PATIENCE, until};

/// H16.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_many_batches_is_never_half_forgotten() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint)").await?;
    let setup = Setup::new("h16", &server, &["public.t"])?.to_file();
    let mut lives = Lives::of(setup.lines_file());
    for round in 0..4_u64 {
        lives.begin()?;
        let mut engine = setup.run()?;
        setup.caught_up(&mut engine, &client).await?;
        let before = lines::read(&setup.lines_file())?.len();
        let (first, last) = (round * 25_000, round * 25_000 + 24_999);
        let insert = format!("INSERT INTO t SELECT i, 1 FROM generate_series({first}, {last}) i");
        client.batch_execute(&insert).await?;
        let enough = before + usize::try_from(round)? * 7_000 + 1;
        until("a part of the transaction", PATIENCE, async || {
            Ok((lines::read(&setup.lines_file())?.len() >= enough).then_some(()))
        })
        .await?;
        engine.kill()?;
    }
    lives.begin()?;
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;

    lives.repeat_suffixes_only()?;
    setup.lines_equal(&client, &["public.t"]).await
}

/// H16, I5.
#[tokio::test(flavor = "multi_thread")]
async fn a_transactional_replica_never_shows_half_a_transaction() -> Result<()> {
    let server = Server::start(Version::under_test())?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint)").await?;
    let setup = Setup::new("h16", &server, &["public.t"])?.to_sqlite();
    let mut engine = setup.run()?;
    setup.caught_up(&mut engine, &client).await?;
    for round in 0..3 {
        let insert =
            format!("INSERT INTO t SELECT {round} * 25000 + i, 1 FROM generate_series(1, 25000) i");
        client.batch_execute(&insert).await?;
    }

    until("all rows in the replica", PATIENCE, async || {
        engine.must_run()?;
        let rows = number(&setup.replica_file(), "SELECT count(*) FROM t")?.unwrap_or(0);
        ensure!(rows % 25_000 == 0, "{rows} rows are visible");
        Ok((rows == 75_000).then_some(()))
    })
    .await
}
