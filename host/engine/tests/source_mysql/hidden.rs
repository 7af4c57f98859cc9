//! Columns and rows that MariaDB keeps in a table and shows in no `SELECT`.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use dovetail::source::Item;
use dovetail::source::mysql::catalog;
use dovetail::source::mysql::connection::Session;
use dovetail::source::mysql::preflight;
use dovetail::source::mysql::stream::StreamError;
use dovetail_core::change::Change;
use dovetail_core::schema::Relation;
use dovetail_tests::mysql::{Options, Version, execute};
use tokio::time::timeout;

use super::{PATIENCE, end, open, read_until, server, source};

/// MariaDB's.
fn versions() -> Result<Vec<Version>> {
    Ok(Version::installed()?.into_iter().filter(|version| version.is_mariadb()).collect())
}

#[tokio::test]
async fn digests_of_unique_keys_are_neither_columns_nor_values() -> Result<()> {
    for version in versions()? {
        for metadata in ["FULL", "MINIMAL"] {
            let options = Options::default().set("binlog-row-metadata", metadata);
            let (server, mut application) = server(version, options).await?;
            let config = source(&server);
            execute(
                &mut application,
                &[
                    "DROP TABLE shop.t",
                    "CREATE TABLE shop.t (id int PRIMARY KEY, v longtext NOT NULL, w text, UNIQUE (v), UNIQUE (w))",
                ],
            )
            .await?;
            let mut session = Session::open(&config.server).await?;
            let table = catalog::tables(&mut session, &config.tables).await?.remove(0);
            let from = end(&server).await?;
            execute(
                &mut application,
                &[
                    "INSERT INTO shop.t VALUES (1, 'a', NULL), (2, 'b', 'c')",
                    "UPDATE shop.t SET v = 'd' WHERE id = 1",
                    "DELETE FROM shop.t WHERE id = 2",
                ],
            )
            .await?;
            let mut stream = open(&server, from, None).await?;
            let relation = described(&mut stream).await?;
            assert_eq!(relation, table.relation, "{version} {metadata}");
            let read = read_until(&mut stream, |read| read.events.len() == 4).await?;
            for event in &read.events {
                let (Change::Insert { after: row, .. }
                | Change::Update { after: row, .. }
                | Change::Delete { before: row, .. }) = &event.change
                else {
                    bail!("{version} {metadata}: {event:?}")
                };
                assert_eq!(row.values().len(), 3, "{version} {metadata}");
            }
        }
    }
    Ok(())
}

async fn described(stream: &mut dovetail::source::mysql::stream::Stream) -> Result<Arc<Relation>> {
    loop {
        let item = timeout(PATIENCE, stream.next()).await.context("a description")??;
        if let Item::Relation(relation) = item {
            return Ok(relation);
        }
    }
}

/// An update of such a table is logged as an update, and the old row behind it as an insert of the same key.
#[tokio::test]
async fn a_table_that_is_versioned_by_the_system_is_refused() -> Result<()> {
    for version in versions()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let config = source(&server);
        let from = end(&server).await?;
        execute(
            &mut application,
            &[
                "INSERT INTO shop.t VALUES (1, 'a')",
                "ALTER TABLE shop.t ADD SYSTEM VERSIONING",
                "UPDATE shop.t SET v = 'b'",
            ],
        )
        .await?;
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        let found = findings.iter().find(|finding| finding.title.contains("versioned"));
        let found = found.with_context(|| format!("{version}: {findings:?}"))?;
        ensure!(found.fix_sql.as_deref().is_some_and(|fix| fix.contains("DROP SYSTEM VERSIONING")));
        ensure!(catalog::tables(&mut session, &config.tables).await.is_err(), "{version}");
        let error = stopped(&mut open(&server, from, None).await?).await?;
        ensure!(!error.is_transient(), "{version}: {error}");

        // Also where only the log knows it any more.
        execute(&mut application, &["ALTER TABLE shop.t DROP SYSTEM VERSIONING"]).await?;
        let error = stopped(&mut open(&server, from, None).await?).await?;
        ensure!(matches!(error, StreamError::Undefinable { .. }), "{version}: {error}");
    }
    Ok(())
}

/// Why it ends. It must not bring an old row as a new one.
async fn stopped(stream: &mut dovetail::source::mysql::stream::Stream) -> Result<StreamError> {
    loop {
        match timeout(PATIENCE, stream.next()).await.context("the stream ends")? {
            Ok(Item::Batch { events, .. }) => ensure!(events.len() < 2, "{events:?}"),
            Ok(_) => {}
            Err(error) => return Ok(error),
        }
    }
}
