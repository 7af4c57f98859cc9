//! What comes, in which order, and what it closes.

use anyhow::{Context, Result, bail};
use dovetail::config::{SslMode, Tls};
use dovetail::source::mysql::stream::{Start, Stream, StreamError};
use dovetail_core::change::Change;
use dovetail_core::value::Value;
use dovetail_tests::mysql::{Options, Version, execute};
use mysql_async::prelude::Queryable;
use tokio::time::timeout;

use super::{PATIENCE, end, open, read_all, read_until, server, source};

#[tokio::test]
async fn transactions_come_whole_in_the_order_of_the_log() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let from = end(&server).await?;
        execute(
            &mut application,
            &[
                "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')",
                "BEGIN",
                "UPDATE shop.t SET v = 'c' WHERE id = 1",
                "DELETE FROM shop.t WHERE id = 2",
                "UPDATE shop.t SET id = 3 WHERE id = 1",
                "COMMIT",
                "BEGIN",
                "INSERT INTO shop.t VALUES (9, 'never')",
                "ROLLBACK",
                "TRUNCATE shop.t",
                "INSERT INTO shop.t VALUES (4, 'end')",
            ],
        )
        .await?;
        let mut stream = open(&server, from, None).await?;
        let read = read_all(&mut stream).await?;
        let expected = ["+1=a", "+2=b", "1=c", "-2", "-1", "+3=c", "0", "+4=end"];
        assert_eq!(read.shown(), expected, "{version}");

        let positions: Vec<_> = read.events.iter().map(|event| event.position).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{version}: {positions:?}");
        assert_eq!(positions[2].commit, positions[5].commit, "{version}: one transaction");
        assert!(positions[1].commit < positions[2].commit);
        assert!(positions.iter().all(|position| position.commit >= from));
        assert!(read.closed.is_sorted());
        assert_eq!(read.last()?, end(&server).await?, "{version}");
        let named = read.events.iter().all(|event| event.transaction.is_some());
        assert!(named, "{version}");
        stream.close().await?;
    }
    Ok(())
}

#[tokio::test]
async fn from_every_closed_position_exactly_the_rest_comes() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let from = end(&server).await?;
        for id in 1..=6 {
            application.query_drop(format!("INSERT INTO shop.t VALUES ({id}, 'x')")).await?;
            if id % 2 == 0 {
                application.query_drop("FLUSH BINARY LOGS").await?;
            }
        }
        application.query_drop("INSERT INTO shop.t VALUES (7, 'end')").await?;
        let mut stream = open(&server, from, None).await?;
        let notebook = stream.notebook();
        let whole = read_all(&mut stream).await?;
        drop(stream);
        // Batches close the last of several; so the ends of transactions are the starts of the next ones.
        let mut starts: Vec<_> = whole.events.iter().map(|event| event.position.commit).collect();
        starts.dedup();
        assert_eq!(starts.len(), 7, "{version}");
        for (passed, start) in starts.iter().enumerate() {
            let note = notebook.note(*start);
            // A note is of a position that was closed; in between, that of the one before it would not fit.
            let note = whole.closed.contains(start).then_some(&note);
            let mut stream = open(&server, *start, note).await?;
            let rest = read_all(&mut stream).await?;
            assert_eq!(rest.events, whole.events[passed..], "{version} from {start}");
        }
    }
    Ok(())
}

/// P5: the log moves on under a pipeline whose tables rest.
#[tokio::test]
async fn a_position_moves_on_while_other_tables_are_written() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let from = end(&server).await?;
        let mut stream = open(&server, from, None).await?;
        application.query_drop("INSERT INTO shop.other VALUES (1)").await?;
        let behind = end(&server).await?;
        let read = read_until(&mut stream, |read| read.closed.contains(&behind)).await?;
        assert!(read.events.is_empty(), "{version}");

        application.query_drop("FLUSH BINARY LOGS").await?;
        let number = behind.number() + 1;
        let moved = |read: &super::Read| read.closed.iter().any(|at| at.number() == number);
        let read = read_until(&mut stream, moved).await?;
        assert!(read.events.is_empty(), "{version}");
    }
    Ok(())
}

/// An event that the protocol cuts into pieces of 16 MiB.
#[tokio::test]
async fn an_event_of_many_packets_is_one_change() -> Result<()> {
    for version in Version::installed()? {
        let options = Options::default().set("max-allowed-packet", "128M");
        let (server, mut application) = server(version, options).await?;
        execute(&mut application, &["ALTER TABLE shop.t MODIFY v longtext"]).await?;
        let from = end(&server).await?;
        let length = 40 << 20;
        application
            .query_drop(format!("INSERT INTO shop.t VALUES (1, repeat('x', {length})), (2, 'end')"))
            .await?;
        let mut stream = open(&server, from, None).await?;
        let read = read_until(&mut stream, |read| read.events.len() == 2).await?;
        let Change::Insert { after, .. } = &read.events[0].change else { bail!("{version}") };
        let Some(Value::Text(text)) = after.get(1) else { bail!("{version}: a text") };
        assert_eq!(text.as_bytes().len(), length, "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn the_log_is_read_through_a_verified_connection() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default().with_tls()).await?;
        let from = end(&server).await?;
        let mut source = source(&server);
        let root_certificates = Some(server.authority());
        source.server.tls = Tls { mode: SslMode::VerifyFull, root_certificates };
        let start = Start { from, note: None, epoch: 0 };
        let mut stream = Stream::open(&source, start).await.with_context(|| version.to_string())?;
        application.query_drop("INSERT INTO shop.t VALUES (1, 'end')").await?;
        assert_eq!(read_all(&mut stream).await?.shown(), ["+1=end"], "{version}");
    }
    Ok(())
}

/// P13: the server is there and says nothing, not even that it has nothing to say.
#[tokio::test]
async fn a_server_that_falls_silent_is_noticed() -> Result<()> {
    let (server, mut application) = server(Version::under_test(), Options::default()).await?;
    let mut stream = open(&server, end(&server).await?, None).await?;
    application.query_drop("INSERT INTO shop.t VALUES (1, 'end')").await?;
    read_all(&mut stream).await?;
    server.stall()?;
    let noticed = async {
        loop {
            if let Err(error) = stream.next().await {
                return error;
            }
        }
    };
    let error = timeout(PATIENCE, noticed).await.context("the silence is noticed")?;
    assert!(error.is_transient(), "{error}");
    server.go_on()?;
    Ok(())
}

/// P12: the server would end the first of two streams with one id.
#[tokio::test]
async fn two_streams_configured_with_one_server_id_both_live() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let mut source = source(&server);
        source.server_id = Some(77.try_into()?);
        let start = Start { from: end(&server).await?, note: None, epoch: 0 };
        let mut first = Stream::open(&source, start).await?;
        application.query_drop("INSERT INTO shop.t VALUES (1, 'end')").await?;
        read_all(&mut first).await?;
        let mut second = Stream::open(&source, start).await?;
        read_all(&mut second).await?;
        application.query_drop("INSERT INTO shop.t VALUES (2, 'end')").await?;
        for stream in [&mut first, &mut second] {
            assert_eq!(read_all(stream).await?.shown(), ["+2=end"], "{version}");
        }
    }
    Ok(())
}

/// I7: rows that are in the log as text only.
#[tokio::test]
async fn a_statement_that_is_logged_as_text_stops_the_stream() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let mut stream = open(&server, end(&server).await?, None).await?;
        execute(
            &mut application,
            &[
                "INSERT INTO shop.t VALUES (1, 'a')",
                "SET SESSION binlog_format = 'STATEMENT'",
                "INSERT INTO shop.t VALUES (2, 'b')",
            ],
        )
        .await?;
        let mut shown = Vec::new();
        let stopped = async {
            loop {
                match stream.next().await {
                    Ok(dovetail::source::Item::Batch { events, .. }) => {
                        shown.extend(events.iter().map(super::show));
                    }
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        };
        let error = timeout(PATIENCE, stopped).await.context("it stops")?;
        assert!(matches!(error, StreamError::Undecodable { .. }), "{version}: {error}");
        assert_eq!(shown, ["+1=a"], "{version}");
    }
    Ok(())
}
