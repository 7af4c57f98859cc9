//! Which rung is chosen, and what its views are.

use std::num::NonZeroU16;

use anyhow::{Context, Result};
use dovetail::config::{MySql, PinChoice, Rung, Secret};
use dovetail::source::finding::Finding;
use dovetail::source::mysql::connection::Session;
use dovetail::source::mysql::pin::{self, Pin, PinError};
use dovetail::source::mysql::preflight;
use dovetail::source::mysql::view::View;
use dovetail_core::schema::TableName;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::PASSWORD;
use tokio::task::JoinSet;

use super::{server, source};

const WORKERS: NonZeroU16 = NonZeroU16::new(3).expect("not zero");

fn as_user(server: &Server, user: &str) -> MySql {
    let mut config = source(server);
    config.server.user = user.into();
    config.server.password = Some(Secret::new(PASSWORD.into()));
    config
}

async fn chosen(config: &MySql) -> Result<Rung, PinError> {
    let mut session = Session::open(&config.server).await?;
    Ok(pin::choose(config, &mut session).await?.rung)
}

#[tokio::test]
async fn the_rung_follows_from_server_and_account() -> Result<()> {
    for version in Version::installed()? {
        let gtids = if version.is_mariadb() {
            Options::default()
        } else {
            Options::default().set("gtid-mode", "OFF").set("enforce-gtid-consistency", "OFF")
        };
        let (server, mut root) = server(version, gtids).await?;
        let create = format!("CREATE USER plain IDENTIFIED BY '{PASSWORD}'");
        let client = if version.is_mariadb() { "BINLOG MONITOR" } else { "REPLICATION CLIENT" };
        let grant = format!("GRANT SELECT, {client} ON *.* TO plain");
        execute(&mut root, &[&create, &grant]).await?;
        let config = as_user(&server, "plain");
        if version.is_mariadb() {
            assert_eq!(chosen(&config).await?, Rung::Snapshot, "{version}");
            continue;
        }
        assert!(matches!(chosen(&config).await, Err(PinError::NoRung(_))));
        execute(
            &mut root,
            &[
                "CREATE TABLE shop.own (id int PRIMARY KEY, touched bigint NOT NULL)",
                "GRANT INSERT, UPDATE ON shop.own TO plain",
            ],
        )
        .await?;
        let own = TableName { namespace: "shop".into(), name: "own".into() };
        let config = MySql { own_table: Some(own), ..config };
        assert_eq!(chosen(&config).await?, Rung::OwnRow);
        execute(&mut root, &["GRANT RELOAD ON *.* TO plain"]).await?;
        execute(&mut root, &["GRANT LOCK TABLES ON shop.* TO plain"]).await?;
        assert_eq!(chosen(&config).await?, Rung::Lock);
        execute(&mut root, &["GRANT BACKUP_ADMIN ON *.* TO plain"]).await?;
        assert_eq!(chosen(&config).await?, Rung::LogStatus);

        execute(&mut root, &["SET GLOBAL binlog_order_commits = OFF"]).await?;
        let asked = MySql { pin: PinChoice::Rung(Rung::OwnRow), ..config };
        let refused = chosen(&asked).await.map(|_| ()).expect_err("commits are not ordered");
        assert!(refused.to_string().contains("binlog_order_commits"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn views_of_all_connections_hold_the_same_rows() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut root) = server(version, Options::default()).await?;
        execute(
            &mut root,
            &["CREATE TABLE shop.own (id int PRIMARY KEY, touched bigint NOT NULL)"],
        )
        .await?;
        let mut writers = JoinSet::new();
        for writer in 0..3_u32 {
            let mut connection = server.connect().await?;
            writers.spawn(async move {
                for number in 0_u32.. {
                    let id = number * 3 + writer;
                    let statement = format!("INSERT INTO shop.t VALUES ({id}, 'x')");
                    execute(&mut connection, &[&statement]).await?;
                }
                anyhow::Ok(())
            });
        }
        let own = TableName { namespace: "shop".into(), name: "own".into() };
        let config = MySql { own_table: Some(own), ..source(&server) };
        let rungs: &[Rung] = match version.is_mariadb() {
            true => &[Rung::Snapshot, Rung::Lock, Rung::OwnRow],
            false => &[Rung::Gtid, Rung::LogStatus, Rung::Lock, Rung::OwnRow],
        };
        for &rung in rungs {
            let pin = Pin::take(&config, rung, WORKERS).await?;
            let (at, note) = (pin.position(), pin.note().clone());
            let mut views = Vec::new();
            if pin.has_view() {
                views.push(View::pinned(pin, &config.tables).await?);
            }
            let mark = pin::settle(&config, rung, at, Some(&note)).await?;
            let later = View::later(&config, rung, 0, &config.tables, WORKERS).await?;
            let fence = later.fence().context("a later view has a fence")?;
            assert!(fence.covers(&mark)?, "{version} {rung:?}");
            assert!(later.horizon() >= at, "{version} {rung:?}");
            views.push(later);
            for mut view in views {
                let mut counts = Vec::new();
                for session in view.sessions() {
                    counts.push(session.one::<u64>("count", "SELECT count(*) FROM shop.t").await?);
                }
                let same = counts.iter().all(|count| Some(count) == counts.first());
                assert!(same && !counts.is_empty(), "{version} {rung:?}: {counts:?}");
            }
        }
        assert!(writers.try_join_next().is_none(), "{version}: the writers go on");
        writers.abort_all();
    }
    Ok(())
}

/// What may be in the view comes again, and would be there twice.
#[tokio::test]
async fn a_table_without_a_key_is_read_in_exact_views_only() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut root) = server(version, Options::default()).await?;
        let statements = [
            "CREATE TABLE shop.own (id int PRIMARY KEY, touched bigint NOT NULL)",
            "CREATE TABLE shop.keyless (a int)",
        ];
        execute(&mut root, &statements).await?;
        let name = |name: &str| TableName { namespace: "shop".into(), name: name.into() };
        let config = MySql {
            own_table: Some(name("own")),
            pin: PinChoice::Rung(Rung::OwnRow),
            tables: vec![name("keyless")],
            ..source(&server)
        };
        let refused = View::later(&config, Rung::OwnRow, 0, &config.tables, WORKERS).await;
        let refused = refused.map(|_| ()).expect_err("a lower bound");
        assert!(!refused.is_transient(), "{version}: {refused}");
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        let told = |finding: &Finding| {
            finding.to_string().starts_with("error: table shop.keyless has no key")
        };
        assert!(findings.iter().any(told), "{version}");
        View::later(&config, Rung::Lock, 0, &config.tables, WORKERS).await?;
    }
    Ok(())
}

#[tokio::test]
async fn settings_that_lose_changes_are_found_with_what_mends_them() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut root) = server(version, Options::default()).await?;
        let config = source(&server);
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        let errors: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let errors: Vec<&String> =
            errors.iter().filter(|finding| finding.starts_with("error")).collect();
        assert!(errors.is_empty(), "{version}: {errors:?}");

        let create = format!("CREATE USER plain IDENTIFIED BY '{PASSWORD}'");
        execute(
            &mut root,
            &[
                &create,
                "GRANT SELECT ON shop.other TO plain",
                "SET GLOBAL binlog_format = 'STATEMENT'",
                "SET GLOBAL binlog_row_image = 'MINIMAL'",
                "SET GLOBAL binlog_row_metadata = 'MINIMAL'",
                "CREATE TABLE shop.keyless (a int) ENGINE = MyISAM",
                "CREATE TABLE shop.child (id int PRIMARY KEY, parent int, \
                 FOREIGN KEY (parent) REFERENCES shop.t (id) ON DELETE CASCADE)",
            ],
        )
        .await?;
        let name = |name: &str| TableName { namespace: "shop".into(), name: name.into() };
        let tables = ["T", "keyless", "child", "absent"].map(name).to_vec();
        let config = MySql { tables, ..config };
        let mut session = Session::open(&config.server).await?;
        let findings = preflight::inspect(&mut session, &config, &config.tables).await?;
        let text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        let cascades = "foreign keys of table shop.child";
        assert_eq!(text.contains(cascades), version.is_mariadb(), "{version}: {text}");
        for expected in [
            "error: binlog_format is STATEMENT",
            "SET GLOBAL binlog_format = 'ROW'",
            "warning: binlog_row_image is MINIMAL",
            "warning: binlog_row_metadata is MINIMAL",
            "warning: table shop.keyless has no key",
            "warning: table shop.keyless is of engine MyISAM",
            "error: table shop.T does not exist",
            "did you mean shop.t?",
            "error: table shop.absent does not exist",
        ] {
            assert!(text.contains(expected), "{version}: {expected}\n{text}");
        }

        let plain = as_user(&server, "plain");
        let mut session = Session::open(&plain.server).await?;
        let findings = preflight::inspect(&mut session, &plain, &plain.tables).await?;
        let text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        for expected in
            ["GRANT REPLICATION SLAVE ON *.* TO 'plain'@'%'", "may not see where the log ends"]
        {
            assert!(text.contains(expected), "{version}: {expected}\n{text}");
        }
    }
    Ok(())
}
