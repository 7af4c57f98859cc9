//! XA transactions beside a pin.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dovetail::config::{MySql, Secret};
use dovetail::source::mysql::connection::Session;
use dovetail::source::mysql::note::Note;
use dovetail::source::mysql::pin::{self, Pin};
use dovetail::source::mysql::preflight;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::PASSWORD;
use mysql_async::Conn;

use super::{end, open, read_all, server, source};

const WORKERS: NonZeroU16 = NonZeroU16::new(2).expect("not zero");

/// A row that is prepared under its number, and the session that may end it.
async fn prepare(server: &Server, row: u32) -> Result<Conn> {
    let mut connection = server.connect().await?;
    let statements = [
        format!("XA START '{row}'"),
        format!("INSERT INTO shop.t VALUES ({row}, 'prepared')"),
        format!("XA END '{row}'"),
        format!("XA PREPARE '{row}'"),
    ];
    for statement in &statements {
        execute(&mut connection, &[statement]).await?;
    }
    Ok(connection)
}

async fn take(config: &MySql) -> Result<Pin> {
    let mut session = Session::open(&config.server).await?;
    let chosen = pin::choose(config, &mut session).await?;
    Ok(Pin::take(config, chosen.rung, WORKERS).await?)
}

#[tokio::test]
async fn no_pin_is_taken_while_something_is_prepared() -> Result<()> {
    for version in Version::installed()? {
        let (server, _application) = server(version, Options::default()).await?;
        let config = MySql { pin_timeout: Duration::from_millis(300), ..source(&server) };
        let mut coordinator = prepare(&server, 1).await?;
        let refused = take(&config).await.map(drop).expect_err("a row would be lost");
        let failure = refused.downcast_ref::<pin::PinError>().context("a pin's error")?;
        ensure!(failure.is_transient(), "{version}: {refused}");
        ensure!(refused.to_string().contains("XA RECOVER"), "{version}: {refused}");
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        ensure!(findings.iter().any(|finding| finding.title.contains("are prepared")), "{version}");

        execute(&mut coordinator, &["XA ROLLBACK '1'"]).await?;
        take(&config).await.with_context(|| version.to_string())?;
    }
    Ok(())
}

/// Who pins sees no transaction that is prepared only between the look and the pin; so the stream begins at the look.
#[tokio::test]
async fn rows_that_are_prepared_just_before_a_pin_come_with_their_commit() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let early = take(&source(&server)).await?.note().clone();
        let mut kept = prepare(&server, 1).await?;
        let mut gone = prepare(&server, 2).await?;
        execute(&mut application, &["INSERT INTO shop.t VALUES (3, 'in the view')"]).await?;
        // As if the pin had been taken now, behind that look.
        let mut note = Note { at: end(&server).await?, ..early };
        if note.gtids.is_some() {
            let mut session = Session::open(&source(&server).server).await?;
            let executed: String =
                session.one("read the set", "SELECT @@GLOBAL.gtid_executed").await?;
            note.gtids = Some(executed.replace(['\n', ' '], "").parse()?);
        }
        execute(&mut kept, &["XA COMMIT '1'"]).await?;
        execute(&mut gone, &["XA ROLLBACK '2'"]).await?;
        execute(&mut application, &["INSERT INTO shop.t VALUES (4, 'end')"]).await?;
        let mut stream = open(&server, note.at, Some(&note)).await?;
        let read = read_all(&mut stream).await.with_context(|| version.to_string())?;
        assert_eq!(read.shown(), ["+1=prepared", "+4=end"], "{version}");
        ensure!(read.closed.iter().all(|closed| *closed >= note.at), "{version}");
    }
    Ok(())
}

/// The checkpoint stays at the pin while a transaction from before it is open, and a restart finds its rows again.
#[tokio::test]
async fn a_restart_behind_a_pin_reads_what_was_prepared_before_it() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut application) = server(version, Options::default()).await?;
        let pin = take(&source(&server)).await?;
        let early = pin.note().clone();
        drop(pin);
        let mut kept = prepare(&server, 1).await?;
        execute(&mut application, &["INSERT INTO shop.t VALUES (2, 'x')"]).await?;
        if early.gtids.is_some() {
            // Its pin is a set, to which nothing can be added by hand: see the test above.
            execute(&mut kept, &["XA ROLLBACK '1'"]).await?;
            continue;
        }
        let note = Note { at: end(&server).await?, ..early };
        execute(&mut application, &["INSERT INTO shop.t VALUES (3, 'end')"]).await?;
        let mut stream = open(&server, note.at, Some(&note)).await?;
        let read = read_all(&mut stream).await?;
        assert_eq!(read.shown(), ["+3=end"], "{version}");
        assert_eq!(read.last()?, note.at, "{version}: no further than the pin");
        drop(stream);
        execute(&mut kept, &["XA COMMIT '1'"]).await?;
        execute(&mut application, &["INSERT INTO shop.t VALUES (4, 'end')"]).await?;
        let mut stream = open(&server, note.at, Some(&note)).await?;
        let read = super::read_until(&mut stream, |read| read.events.len() == 3).await?;
        assert_eq!(read.shown(), ["+3=end", "+1=prepared", "+4=end"], "{version}");
        assert_eq!(read.last()?, end(&server).await?, "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn an_account_that_may_not_see_them_pins_all_the_same_and_is_told() -> Result<()> {
    for version in Version::installed()? {
        if version.is_mariadb() {
            continue;
        }
        let (server, mut root) = server(version, Options::default()).await?;
        let create = format!("CREATE USER plain IDENTIFIED BY '{PASSWORD}'");
        let grant = "GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO plain";
        execute(&mut root, &[&create, grant]).await?;
        let mut config = source(&server);
        config.server.user = "plain".into();
        config.server.password = Some(Secret::new(PASSWORD.into()));
        let _coordinator = prepare(&server, 1).await?;
        let pin = take(&config).await?;
        ensure!(pin.note().asked.is_none(), "{version}: nothing was looked at");
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        let fix = findings.iter().filter_map(|finding| finding.fix_sql.as_deref());
        ensure!(fix.into_iter().any(|fix| fix.contains("XA_RECOVER_ADMIN")), "{version}");
    }
    Ok(())
}
