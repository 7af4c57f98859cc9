//! Transactions that are in the log and not visible yet: no view is taken for one that holds them.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result};
use dovetail::config::{MySql, PinChoice, Rung};
use dovetail::source::mysql::connection::Session;
use dovetail::source::mysql::pin::{self, Pin, PinError};
use dovetail::source::mysql::view::View;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use tokio::task::JoinHandle;

use super::{end, server, source};

const ONE: NonZeroU16 = NonZeroU16::MIN;

/// Long enough for what comes by itself; what hangs, hangs for as long as the test wants.
fn impatient(server: &Server) -> MySql {
    MySql { pin_timeout: Duration::from_secs(2), ..source(server) }
}

/// A transaction that hangs in its commit. Who waits for it gets it when commits are let go.
async fn hanging(server: &Server, statement: String) -> Result<JoinHandle<Result<()>>> {
    server.hang_commits().await?;
    let mut connection = server.connect().await?;
    let hanging = tokio::spawn(async move { execute(&mut connection, &[&statement]).await });
    server.hanging(1).await?;
    Ok(hanging)
}

async fn count(view: &mut View) -> Result<u64> {
    let session = view.sessions().first_mut().context("a connection")?;
    Ok(session.one("count", "SELECT count(*) FROM shop.t").await?)
}

#[tokio::test]
async fn what_is_in_the_log_and_not_visible_is_waited_for() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut root) = server(version, Options::default()).await?;
        execute(&mut root, &["INSERT INTO shop.t VALUES (1, 'a')"]).await?;
        let config = impatient(&server);
        let mut session = Session::open(&config.server).await?;
        let rung = pin::choose(&config, &mut session).await?.rung;
        let note = Pin::take(&config, rung, ONE).await?.note().clone();
        let insert = hanging(&server, "INSERT INTO shop.t VALUES (2, 'b')".into()).await?;
        // An outlet that is ahead of the checkpoint can have it.
        let before = end(&server).await?;

        let settled = pin::settle(&config, rung, before, Some(&note)).await;
        assert!(matches!(settled, Err(PinError::Waiting { .. })), "{version}: {settled:?}");

        server.let_commits_go().await?;
        insert.await??;
        let mark = pin::settle(&config, rung, before, Some(&note)).await?;
        let mut view = View::later(&config, rung, 0, &config.tables, ONE).await?;
        assert!(view.fence().context("a fence")?.covers(&mark)?, "{version}: {mark:?}");
        assert_eq!(count(&mut view).await?, 2, "{version}");
    }
    Ok(())
}

/// A group of commits that fills a file begins the next one before it is visible.
#[tokio::test]
async fn a_pin_at_the_head_of_a_file_holds_what_filled_the_one_before() -> Result<()> {
    for version in Version::installed()?.into_iter().filter(|version| version.is_mariadb()) {
        let (server, _root) =
            server(version, Options::default().set("max-binlog-size", "4096")).await?;
        let rows = (1..=200).map(|id| format!("({id}, repeat('x', 40))"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let file = end(&server).await?.number();
        let insert = hanging(&server, format!("INSERT INTO shop.t VALUES {rows}")).await?;
        assert!(end(&server).await?.number() > file, "{version}: a new file was begun");

        let config = impatient(&server);
        let pin = Pin::take(&config, Rung::Snapshot, ONE).await;
        let error = pin.map(|pin| pin.position()).expect_err("it may lack them");
        assert!(error.is_transient(), "{version}: {error}");

        server.let_commits_go().await?;
        insert.await??;
        let pin = Pin::take(&config, Rung::Snapshot, ONE).await?;
        assert!(pin.position().number() > file, "{version}");
        let mut view = View::pinned(pin, &config.tables).await?;
        assert_eq!(count(&mut view).await?, 200, "{version}");
    }
    Ok(())
}

/// What a pin under locks keeps beside its position is enough to go on at another server.
#[tokio::test]
async fn a_pin_under_locks_knows_what_was_executed() -> Result<()> {
    for version in Version::installed()? {
        for gtids in [true, false] {
            let options = Options::default();
            let options = match gtids || version.is_mariadb() {
                true => options,
                false => options.set("gtid-mode", "OFF").set("enforce-gtid-consistency", "OFF"),
            };
            let (server, mut root) = server(version, options).await?;
            execute(&mut root, &["INSERT INTO shop.t VALUES (1, 'a')"]).await?;
            let config = MySql { pin: PinChoice::Rung(Rung::Lock), ..source(&server) };
            let pin = Pin::take(&config, Rung::Lock, ONE).await?;
            let note = pin.note();
            assert!(pin.has_view(), "{version}");
            assert_eq!(note.gtid_state.is_some(), version.is_mariadb(), "{version}");
            assert_eq!(note.gtids.is_some(), gtids && !version.is_mariadb(), "{version}");
            if let Some(set) = &note.gtids {
                let mut session = Session::open(&config.server).await?;
                let executed: String = session.one("ask", "SELECT @@GLOBAL.gtid_executed").await?;
                assert_eq!(executed.parse(), Ok(set.clone()), "{version}");
            }
        }
    }
    Ok(())
}
