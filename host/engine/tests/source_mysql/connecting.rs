//! Logging in, and what a session is set to.

use anyhow::{Context, Result};
use dovetail::config::{MySql, MySqlServer, Secret, SslMode, Tls};
use dovetail::source::mysql::connection::Session;
use dovetail::source::mysql::stream;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::{PASSWORD, cache};

use super::{server, source};

fn with_tls(server: &Server, mode: SslMode, authority: bool) -> MySqlServer {
    let root_certificates = authority.then(|| server.authority());
    MySqlServer { tls: Tls { mode, root_certificates }, ..source(server).server }
}

/// The cipher of the session; empty without TLS.
async fn cipher(server: &MySqlServer) -> Result<String> {
    let mut session = Session::open(server).await?;
    let (_, cipher): (String, String) =
        session.one("read the cipher", "SHOW STATUS LIKE 'Ssl_cipher'").await?;
    Ok(cipher)
}

#[tokio::test]
async fn every_sslmode_means_what_it_says() -> Result<()> {
    for version in Version::installed()? {
        let (server, _) = server(version, Options::default().with_tls()).await?;
        for mode in [SslMode::Prefer, SslMode::Require] {
            assert!(
                !cipher(&with_tls(&server, mode, false)).await?.is_empty(),
                "{version} {mode:?}"
            );
        }
        for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
            assert!(
                !cipher(&with_tls(&server, mode, true)).await?.is_empty(),
                "{version} {mode:?}"
            );
        }
        assert!(cipher(&with_tls(&server, SslMode::Disable, false)).await?.is_empty());
        // The system's authorities did not sign it.
        for mode in [SslMode::VerifyCa, SslMode::VerifyFull] {
            let refused = Session::open(&with_tls(&server, mode, false)).await;
            let refused = refused.map(|_| ()).expect_err("an unknown authority");
            assert!(!refused.is_transient(), "{version} {mode:?}: {refused}");
        }
        // The certificate is for another name.
        let named = MySqlServer {
            host: "127.0.0.2".into(),
            ..with_tls(&server, SslMode::VerifyFull, true)
        };
        let by_authority =
            MySqlServer { host: "127.0.0.2".into(), ..with_tls(&server, SslMode::VerifyCa, true) };
        if Session::open(&MySqlServer {
            host: "127.0.0.2".into(),
            ..with_tls(&server, SslMode::Disable, false)
        })
        .await
        .is_ok()
        {
            assert!(Session::open(&named).await.is_err(), "{version}: the name is checked");
            assert!(!cipher(&by_authority).await?.is_empty(), "{version}: the name is not checked");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_usual_ways_to_log_in_work_and_a_wrong_password_is_definite() -> Result<()> {
    for version in Version::installed()? {
        let mut options = Options::default().with_tls();
        let plugins: &[&str] = match version {
            Version::MariaDb10_11 => {
                let folder = cache()?.join("mariadb-10.11-plugins");
                options = options.set("plugin-dir", &folder.display().to_string());
                options = options.set("plugin-load-add", "auth_ed25519");
                &["mysql_native_password", "ed25519"]
            }
            Version::MariaDb11_8 => &["mysql_native_password"],
            Version::MySql9_7 => &["caching_sha2_password"],
        };
        let (server, mut root) = server(version, options).await?;
        for plugin in plugins {
            let user = format!("by_{plugin}");
            let create = match version.is_mariadb() {
                true => format!(
                    "CREATE USER {user} IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')"
                ),
                false => format!("CREATE USER {user} IDENTIFIED WITH {plugin} BY '{PASSWORD}'"),
            };
            let grant = format!("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}");
            execute(&mut root, &[&create, &grant]).await?;
            let captured = source(&server);
            for mode in [SslMode::Require, SslMode::Disable] {
                let server = MySqlServer { user: user.clone(), ..with_tls(&server, mode, false) };
                Session::open(&server).await.with_context(|| format!("{version} {plugin}"))?;
                let captured = MySql { server: server.clone(), ..captured.clone() };
                let look = stream::look(&captured, None, 1).await;
                look.with_context(|| format!("{version} {plugin}, the log's connection"))?;
                let password = Some(Secret::new("wrong".into()));
                let refused = Session::open(&MySqlServer { password, ..server }).await;
                let refused = refused.map(|_| ()).expect_err("a wrong password");
                assert!(!refused.is_transient(), "{version} {plugin}: {refused}");
                assert!(!format!("{refused:?}").contains("wrong"), "no password in an error");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn limits_and_modes_of_the_server_do_not_reach_a_session() -> Result<()> {
    for version in Version::installed()? {
        let (server, mut root) = server(version, Options::default()).await?;
        execute(
            &mut root,
            &[
                "INSERT INTO shop.other VALUES (1), (2), (3), (4), (5)",
                "SET GLOBAL sql_select_limit = 2",
                "SET GLOBAL time_zone = '+05:00'",
                "SET GLOBAL sql_mode = 'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES'",
                "SET GLOBAL transaction_isolation = 'READ-COMMITTED'",
                "SET GLOBAL wait_timeout = 1",
            ],
        )
        .await
        .or_else(|error| if version.is_mariadb() { Ok(()) } else { Err(error) })?;
        let mut session = Session::open(&source(&server).server).await?;
        let rows: Vec<u32> = session.rows("read", "SELECT id FROM shop.other").await?;
        assert_eq!(rows.len(), 5, "{version}");
        let isolation = if version.is_mariadb() { "tx_isolation" } else { "transaction_isolation" };
        let query = format!("SELECT @@{isolation}, @@time_zone, @@sql_mode");
        let found: (String, String, String) = session.one("read", &query).await?;
        let expected = ("REPEATABLE-READ".into(), "+00:00".into(), "ALLOW_INVALID_DATES".into());
        assert_eq!(found, expected, "{version}");
    }
    Ok(())
}
