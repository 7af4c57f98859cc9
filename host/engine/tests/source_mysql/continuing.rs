//! Whether the log is still the one that a position is of.

use anyhow::{Result, bail};
use dovetail::config::Rung;
use dovetail::source::mysql::note::Note;
use dovetail::source::mysql::pin::Pin;
use dovetail::source::mysql::stream::{Start, Stream, StreamError, look};
use dovetail_core::position::Lsn;
use dovetail_core::seam::Continuity;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::wait::until;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::num::NonZeroU16;

use super::{PATIENCE, Read, end, open, read_all, read_until, server, source};

/// Reads up to a row of its own, and what to go on with from behind it.
async fn checkpoint(
    server: &Server,
    application: &mut Conn,
    from: Lsn,
    id: i32,
) -> Result<(Lsn, Note)> {
    let mut stream = open(server, from, None).await?;
    application.query_drop(format!("INSERT INTO shop.t VALUES ({id}, 'end')")).await?;
    let at = read_all(&mut stream).await?.last()?;
    let note = stream.notebook().note(at);
    stream.close().await?;
    Ok((at, note))
}

async fn lost(server: &Server, at: Lsn, note: &Note) -> Result<String> {
    let start = Start { from: at, note: Some(note), epoch: at.epoch() };
    match Stream::open(&source(server), start).await {
        Err(error @ StreamError::Lost { .. }) => Ok(error.to_string()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("it streams from {at}"),
    }
}

fn reset(version: Version) -> &'static str {
    if version.is_mariadb() { "RESET MASTER" } else { "RESET BINARY LOGS AND GTIDS" }
}

/// P13.
#[tokio::test]
async fn a_server_that_was_killed_goes_on_where_it_was() -> Result<()> {
    for version in Version::installed()? {
        let (mut server, mut application) = server(version, Options::default().durable()).await?;
        let from = end(&server).await?;
        let (at, note) = checkpoint(&server, &mut application, from, 1).await?;
        let mut stream = open(&server, at, Some(&note)).await?;
        server.kill()?;
        let error = loop {
            if let Err(error) = stream.next().await {
                break error;
            }
        };
        assert!(error.is_transient(), "{version}: {error}");
        server.restart()?;
        let mut stream = open(&server, at, Some(&note)).await?;
        let mut application = server.connect().await?;
        application.query_drop("INSERT INTO shop.t VALUES (2, 'end')").await?;
        assert_eq!(read_all(&mut stream).await?.shown(), ["+2=end"], "{version}");
    }
    Ok(())
}

/// P8: the same file, offset, and on MariaDB the same GTID, with other bytes.
#[tokio::test]
async fn a_reset_is_recognised_when_the_same_place_exists_again() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        application.query_drop(reset(version)).await?;
        let from = end(&server).await?;
        let (at, note) = checkpoint(&server, &mut application, from, 1).await?;
        application.query_drop(reset(version)).await?;
        execute(&mut application, &["DELETE FROM shop.t"]).await?;
        application.query_drop(reset(version)).await?;
        for id in 1..=3 {
            application.query_drop(format!("INSERT INTO shop.t VALUES ({id}, 'end')")).await?;
        }
        assert!(end(&server).await? > at, "{version}: the place exists");
        let told = lost(&server, at, &note).await?;
        assert!(told.contains("reset"), "{version}: {told}");
        let seen = look(&source(&server), Some((at, Some(&note))), 1).await?;
        assert_eq!(seen.continuity, Continuity::Reset, "{version}");
    }
    Ok(())
}

/// P8, before anything was read.
#[tokio::test]
async fn a_reset_behind_a_pin_is_recognised_when_the_same_place_exists_again() -> Result<()> {
    for version in Version::installed()? {
        let rungs: &[Rung] = match version.is_mariadb() {
            true => &[Rung::Snapshot, Rung::Lock],
            false => &[Rung::Gtid, Rung::LogStatus, Rung::Lock],
        };
        for &rung in rungs {
            let (server, mut application) = server(version, Options::default()).await?;
            application.query_drop("INSERT INTO shop.t VALUES (1, 'a')").await?;
            let pin = Pin::take(&source(&server), rung, NonZeroU16::MIN).await?;
            let (at, note) = (pin.position(), pin.note().clone());
            drop(pin);
            let passed = end(&server).await?;
            let seen = look(&source(&server), Some((at, Some(&note))), 1).await?;
            assert_eq!(seen.continuity, Continuity::Same, "{version} {rung:?}");
            // A heartbeat closes the end of the log, and no event was read before it.
            let mut stream = open(&server, at, Some(&note)).await?;
            let at_end = |read: &Read| read.closed.last() == Some(&passed);
            let rested = match at == passed {
                true => note.clone(),
                false => {
                    read_until(&mut stream, at_end).await?;
                    stream.notebook().note(passed)
                }
            };
            stream.close().await?;
            // Files are told apart by the second that they were begun in.
            let mut second = async || -> Result<Option<u64>> {
                Ok(application.query_first("SELECT unix_timestamp()").await?)
            };
            let now = second().await?;
            until("a second to pass", PATIENCE, async || Ok((second().await? > now).then_some(())))
                .await?;
            application.query_drop(reset(version)).await?;
            // Past the place, and with more transactions.
            let mut id = 100;
            while end(&server).await? <= passed || id < 120 {
                id += 1;
                application.query_drop(format!("INSERT INTO shop.t VALUES ({id}, 'b')")).await?;
            }
            let told = lost(&server, at, &note).await?;
            assert!(told.contains("reset"), "{version} {rung:?}: {told}");
            let seen = look(&source(&server), Some((at, Some(&note))), 1).await?;
            assert_eq!(seen.continuity, Continuity::Reset, "{version} {rung:?}");
            let told = lost(&server, rested.at, &rested).await?;
            assert!(told.contains("reset"), "{version} {rung:?}: {told}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_purged_position_is_recognised() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let from = end(&server).await?;
        let (at, note) = checkpoint(&server, &mut application, from, 1).await?;
        application.query_drop("FLUSH BINARY LOGS").await?;
        application.query_drop("INSERT INTO shop.t VALUES (2, 'b')").await?;
        let newest = format!("binlog.{:06}", end(&server).await?.number());
        // A file that somebody reads is not removed; the reader of before may not have been noticed to be gone.
        until("the file to be removed", PATIENCE, async || {
            application.query_drop(format!("PURGE BINARY LOGS TO '{newest}'")).await?;
            let seen = look(&source(&server), Some((at, Some(&note))), 1).await?;
            Ok((seen.first > at).then_some(()))
        })
        .await?;
        let told = lost(&server, at, &note).await?;
        assert!(told.contains("removed"), "{version}: {told}");
        let seen = look(&source(&server), Some((at, Some(&note))), 1).await?;
        assert_eq!(seen.continuity, Continuity::Same, "{version}");
    }
    Ok(())
}

/// P9, first half.
#[tokio::test]
async fn a_replica_that_has_everything_goes_on_in_a_new_epoch() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let replica = server.replica(Options::default()).await?;
        // From the log's beginning on, so that the set beside the position is whole.
        let (at, note) = first_checkpoint(&server, &mut application).await?;
        application.query_drop("INSERT INTO shop.t VALUES (2, 'b')").await?;
        replica.caught_up_with(&server).await?;
        replica.promote().await?;
        let mut application = replica.connect().await?;
        application.query_drop("INSERT INTO shop.t VALUES (3, 'end')").await?;

        let seen = look(&source(&replica), Some((at, Some(&note))), 5).await?;
        assert_eq!((seen.continuity, seen.epoch), (Continuity::Elsewhere, 5), "{version}");
        let start = Start { from: at, note: Some(&note), epoch: seen.epoch };
        let mut stream = Stream::open(&source(&replica), start).await?;
        let read = read_all(&mut stream).await?;
        assert_eq!(read.shown(), ["+2=b", "+3=end"], "{version}");
        let last = read.last()?;
        assert_eq!(last.epoch(), 5, "{version}");

        let note = stream.notebook().note(last);
        let mut stream = open(&replica, last, Some(&note)).await?;
        application.query_drop("INSERT INTO shop.t VALUES (4, 'end')").await?;
        assert_eq!(read_all(&mut stream).await?.shown(), ["+4=end"], "{version}");
    }
    Ok(())
}

/// P9, second half.
#[tokio::test]
async fn a_replica_that_lacks_something_is_recognised() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let replica = server.replica(Options::default()).await?;
        replica.caught_up_with(&server).await?;
        replica.promote().await?;
        let (at, note) = first_checkpoint(&server, &mut application).await?;
        let told = lost(&replica, at, &note).await?;
        assert!(told.contains("lacks"), "{version}: {told}");

        let mut elsewhere = replica.connect().await?;
        for id in 1..=3 {
            elsewhere.query_drop(format!("INSERT INTO shop.t VALUES ({id}, 'other')")).await?;
        }
        let seen = look(&source(&replica), Some((at, Some(&note))), 1).await?;
        assert_eq!(seen.continuity, Continuity::Diverged, "{version}");
    }
    Ok(())
}

/// A checkpoint with the GTIDs of everything before it, as pins have them.
async fn first_checkpoint(server: &Server, application: &mut Conn) -> Result<(Lsn, Note)> {
    let rung = if server.version().is_mariadb() { Rung::Snapshot } else { Rung::Gtid };
    let pin = Pin::take(&source(server), rung, NonZeroU16::MIN).await?;
    application.query_drop("INSERT INTO shop.t VALUES (1, 'end')").await?;
    let mut stream = open(server, pin.position(), Some(pin.note())).await?;
    let read = read_all(&mut stream).await?;
    assert_eq!(read.shown(), ["+1=end"], "{}: nothing from before the pin", server.version());
    let at = read.last()?;
    Ok((at, stream.notebook().note(at)))
}
