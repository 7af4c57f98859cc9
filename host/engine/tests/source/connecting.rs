//! Login, encryption, preflight.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use dovetail::config::{Postgres, Secret, SslMode};
use dovetail::source::finding::{Finding, Severity};
use dovetail::source::postgres::connection::Session;
use dovetail::source::postgres::failure::Failure;
use dovetail::source::postgres::preflight::{self, Prepared, SlotState};
use dovetail::source::postgres::slot;
use dovetail_core::schema::TableName;
use dovetail_tests::postgres::{Options, Server, Version};

use super::{address, server, source};

async fn refusal(address: &dovetail::config::Server) -> Result<Failure> {
    match Session::open(address).await {
        Ok(_) => bail!("the login was accepted"),
        Err(failure) => Ok(failure),
    }
}

#[tokio::test]
async fn a_refused_login_is_definite_and_an_unreachable_server_transient() -> Result<()> {
    let (mut server, _application) = server("CREATE ROLE reader LOGIN PASSWORD 'right'").await?;
    let mut wrong = address(&server);
    wrong.password = Some(Secret::new("wrong-and-secret".into()));
    let failure = refusal(&wrong).await?;
    assert_eq!((failure.is_transient(), failure.sqlstate()), (false, Some("28P01")));
    assert!(!format!("{failure:?} {failure}").contains("wrong-and-secret"));

    wrong.password = None;
    assert!(refusal(&wrong).await?.to_string().contains("password"));

    let mut elsewhere = address(&server);
    elsewhere.database = "nowhere".into();
    assert_eq!(refusal(&elsewhere).await?.sqlstate(), Some("3D000"));

    server.stop()?;
    assert!(refusal(&address(&server)).await?.is_transient());
    Ok(())
}

#[tokio::test]
async fn sslmode_decides_which_certificates_will_do() -> Result<()> {
    let version = Version::under_test();
    let encrypted = Server::start_with(version, Options::default().with_tls())?;
    let other = Server::start_with(version, Options::default().with_tls())?;
    let plain = Server::start(version)?;
    let attempt = async |server: &Server, mode, host: &str, authority| {
        let mut address = address(server);
        address.host = host.to_owned();
        address.tls.mode = mode;
        address.tls.root_certificates = authority;
        let session = Session::open(&address).await?;
        let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let row = session.client().query_one(query, &[]).await?;
        anyhow::Ok(row.get::<_, bool>(0))
    };
    let authority = || Some(encrypted.authority());

    assert!(attempt(&encrypted, SslMode::Require, "127.0.0.1", None).await?);
    assert!(attempt(&encrypted, SslMode::Prefer, "127.0.0.1", None).await?);
    assert!(!attempt(&encrypted, SslMode::Disable, "127.0.0.1", None).await?);
    assert!(attempt(&encrypted, SslMode::VerifyCa, "127.0.0.1", authority()).await?);
    assert!(attempt(&encrypted, SslMode::VerifyFull, "127.0.0.1", authority()).await?);
    assert!(attempt(&encrypted, SslMode::VerifyFull, "localhost", authority()).await?);
    assert!(!attempt(&plain, SslMode::Prefer, "127.0.0.1", None).await?);

    for (server, mode, host, authority) in [
        (&plain, SslMode::Require, "127.0.0.1", None),
        (&other, SslMode::Require, "127.0.0.1", authority()),
        (&other, SslMode::VerifyCa, "127.0.0.1", authority()),
        (&encrypted, SslMode::VerifyFull, "127.0.0.2", authority()),
        (&encrypted, SslMode::VerifyCa, "127.0.0.1", Some("/nonexistent".into())),
    ] {
        let error = attempt(server, mode, host, authority).await.expect_err("must be refused");
        let failure = error.downcast::<Failure>()?;
        // 127.0.0.2 is not listened on everywhere, so only what was reached is judged.
        assert!(!failure.is_transient() || host == "127.0.0.2", "{mode:?}: {failure}");
    }
    Ok(())
}

/// All tables are still to be scanned.
fn due(source: &Postgres) -> BTreeSet<TableName> {
    source.tables.iter().cloned().collect()
}

fn titles(findings: &[Finding], severity: Severity) -> Vec<&str> {
    let chosen = findings.iter().filter(|finding| finding.severity == severity);
    chosen.map(|finding| finding.title.as_str()).collect()
}

#[tokio::test]
async fn preflight_finds_everything_at_once_each_with_its_sql() -> Result<()> {
    let options = Options::default().set("wal_level", "replica");
    let server = Server::start_with(Version::under_test(), options)?;
    let application = server.connect().await?;
    application
        .batch_execute(
            "CREATE ROLE reader LOGIN PASSWORD 'r';
             CREATE TABLE \"Orders\" (id int PRIMARY KEY); CREATE TABLE keyless (a int);
             CREATE UNLOGGED TABLE volatile (id int PRIMARY KEY); CREATE VIEW shown AS SELECT 1;",
        )
        .await?;
    let mut source = source(&server, &["orders", "keyless", "volatile", "shown"]);
    source.server.user = "reader".into();
    source.server.password = Some(Secret::new("r".into()));

    let session = Session::open(&source.server).await?;
    let findings =
        preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;

    let errors = titles(&findings, Severity::Error).join("\n");
    for part in [
        "wal_level is replica",
        "role reader may not replicate",
        "table public.orders does not exist",
        "role reader may not read table public.keyless",
        "table public.volatile is unlogged",
        "public.shown is a view",
        "does not publish table public.keyless",
    ] {
        assert!(errors.contains(part), "{part} in:\n{errors}");
    }
    let meant = findings.iter().find(|finding| finding.title.contains("public.orders"));
    assert!(meant.is_some_and(|finding| finding.detail.contains("public.Orders")));
    Ok(())
}

#[tokio::test]
async fn the_fixes_that_preflight_prints_make_it_content() -> Result<()> {
    let (server, application) = server(
        "CREATE ROLE reader LOGIN PASSWORD 'r';
         CREATE TABLE t (id int PRIMARY KEY, a text); CREATE TABLE keyless (a int);
         CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE leaf PARTITION OF parted FOR VALUES FROM (0) TO (10);
         CREATE PUBLICATION dovetail FOR TABLE t WITH (publish = 'insert');",
    )
    .await?;
    let mut source = source(&server, &["t", "keyless", "parted"]);
    source.server.user = "reader".into();
    source.server.password = Some(Secret::new("r".into()));
    source.create_publication = false;
    let session = Session::open(&source.server).await?;

    // A fix can bring the next thing to light, but must not take as many rounds as there are faults.
    for _ in 0..4 {
        let findings =
            preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;
        for finding in &findings {
            assert!(finding.severity != Severity::Error || finding.fix_sql.is_some());
            if let Some(sql) = &finding.fix_sql {
                application.batch_execute(sql).await?;
            }
        }
    }
    let findings =
        preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;
    let [warning] = titles(&findings, Severity::Warning)[..] else { bail!("{findings:?}") };
    assert!(warning.contains("single partitions of table public.parted"), "{warning}");
    assert_eq!(titles(&findings, Severity::Error), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_partition_that_differs_from_its_root_is_found() -> Result<()> {
    let (server, application) = server(
        "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'r';
         CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE whole_1 PARTITION OF whole FOR VALUES FROM (0) TO (10);
         ALTER TABLE whole REPLICA IDENTITY FULL;
         CREATE TABLE keyed (id int PRIMARY KEY, code int NOT NULL) PARTITION BY RANGE (id);
         CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES FROM (0) TO (10);
         CREATE TABLE keyed_2 PARTITION OF keyed FOR VALUES FROM (10) TO (20);
         CREATE UNIQUE INDEX by_code ON keyed_1 (code);
         ALTER TABLE keyed_1 REPLICA IDENTITY USING INDEX by_code;
         CREATE TABLE coded (id int PRIMARY KEY, code int NOT NULL, UNIQUE (id, code)) PARTITION BY RANGE (id);
         CREATE TABLE coded_1 PARTITION OF coded FOR VALUES FROM (0) TO (10);
         ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_id_code_key;
         ALTER TABLE keyed_2 ENABLE ROW LEVEL SECURITY;
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
         CREATE PUBLICATION dovetail FOR TABLE whole, keyed, coded WITH (publish_via_partition_root = true);",
    )
    .await?;
    let mut source = source(&server, &["whole", "keyed", "coded"]);
    source.server.user = "reader".into();
    source.server.password = Some(Secret::new("r".into()));
    let session = Session::open(&source.server).await?;

    let findings =
        preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;

    assert_eq!(
        titles(&findings, Severity::Error),
        [
            "partition public.whole_1 has another replica identity than its root public.whole",
            "row security hides rows of table public.keyed_2 from role reader",
            "partition public.keyed_1 has another replica identity than its root public.keyed",
            "partition public.coded_1 has another replica identity than its root public.coded",
        ]
    );
    for sql in findings.iter().filter_map(|finding| finding.fix_sql.as_ref()) {
        application.batch_execute(sql).await?;
    }
    let findings =
        preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;
    assert_eq!(titles(&findings, Severity::Error), [""; 0]);
    assert_eq!(titles(&findings, Severity::Warning).len(), 3, "one for each root: {findings:?}");
    Ok(())
}

#[tokio::test]
async fn a_partition_is_not_captured_beside_its_root() -> Result<()> {
    let (server, _application) = server(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10);
         CREATE PUBLICATION dovetail FOR TABLE root WITH (publish_via_partition_root = true);",
    )
    .await?;
    let session = Session::open(&address(&server)).await?;

    let both = source(&server, &["root", "leaf"]);
    let findings =
        preflight::inspect(&session, &both, SlotState::Absent, &due(&both), None).await?;
    assert_eq!(
        titles(&findings, Severity::Error),
        ["table public.leaf is a partition of public.root, which is captured too"]
    );

    let one = source(&server, &["leaf"]);
    let findings = preflight::inspect(&session, &one, SlotState::Absent, &due(&one), None).await?;
    assert_eq!(
        titles(&findings, Severity::Error),
        [
            "publication dovetail sends the changes of table public.leaf under the name of public.root"
        ]
    );
    let failure = preflight::prepare_publication(&session, &one, None).await.expect_err("not sent");
    assert!(!failure.is_transient() && failure.to_string().contains("public.leaf"), "{failure}");
    Ok(())
}

#[tokio::test]
async fn a_database_without_an_encoding_is_refused() -> Result<()> {
    let (server, _application) =
        server("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0").await?;
    let mut source = source(&server, &[]);
    source.server.database = "bytes".into();
    let session = Session::open(&source.server).await?;
    let findings =
        preflight::inspect(&session, &source, SlotState::Absent, &due(&source), None).await?;
    let errors = titles(&findings, Severity::Error);
    assert!(errors.contains(&"the encoding of the database is SQL_ASCII"), "{errors:?}");
    Ok(())
}

#[tokio::test]
async fn the_publication_is_created_and_extended_only_with_consent() -> Result<()> {
    let (server, application) =
        server("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)").await?;
    let session = Session::open(&address(&server)).await?;
    let mut one = source(&server, &["t"]);
    one.create_publication = false;
    assert_eq!(preflight::prepare_publication(&session, &one, None).await?, Prepared::Unchanged);
    let findings = preflight::inspect(&session, &one, SlotState::Absent, &due(&one), None).await?;
    assert_eq!(titles(&findings, Severity::Error), ["publication dovetail does not exist"]);

    one.create_publication = true;
    assert_eq!(preflight::prepare_publication(&session, &one, None).await?, Prepared::Created);
    let two = source(&server, &["t", "u"]);
    let added = vec![super::table("u")];
    assert_eq!(
        preflight::prepare_publication(&session, &two, None).await?,
        Prepared::Extended(added)
    );
    let findings = preflight::inspect(&session, &two, SlotState::Absent, &due(&two), None).await?;
    assert_eq!(titles(&findings, Severity::Error), [""; 0]);

    application
        .execute("SELECT pg_create_logical_replication_slot('dovetail_test', 'pgoutput')", &[])
        .await?;
    let findings = preflight::inspect(&session, &two, SlotState::Absent, &due(&two), None).await?;
    assert_eq!(titles(&findings, Severity::Error).len(), 1, "somebody else's slot: {findings:?}");
    slot::drop(&session, "dovetail_test").await?;
    slot::drop(&session, "dovetail_test").await?;
    assert_eq!(slot::inspect(&session, "dovetail_test").await?, None);
    Ok(())
}

#[tokio::test]
async fn a_publication_that_lost_what_is_streamed_is_never_mended() -> Result<()> {
    let (server, application) =
        server("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)").await?;
    let session = Session::open(&address(&server)).await?;
    let both = source(&server, &["t", "u"]);
    let scanned = [super::table("t")].into();
    let nothing = BTreeSet::new();
    let found = async || -> Result<Vec<String>> {
        let (slot, due) = (SlotState::Intended, [super::table("u")].into());
        let findings = preflight::inspect(&session, &both, slot, &due, Some(&scanned)).await?;
        let errors = findings.iter().filter(|it| it.severity == Severity::Error);
        ensure!(errors.clone().all(|it| it.fix_sql.is_none()), "a fix that makes a hole");
        Ok(errors.map(|it| it.title.clone()).collect())
    };
    assert_eq!(found().await?, ["publication dovetail is gone"]);
    let refused = preflight::prepare_publication(&session, &both, Some(&nothing)).await;
    ensure!(refused.is_err(), "made after a pin: {refused:?}");

    application.batch_execute("CREATE PUBLICATION dovetail FOR TABLE u").await?;
    assert_eq!(found().await?, ["publication dovetail does not send table public.t any more"]);
    let refused = preflight::prepare_publication(&session, &both, Some(&scanned)).await;
    ensure!(refused.is_err(), "extended over a gap: {refused:?}");

    application.batch_execute("ALTER PUBLICATION dovetail SET TABLE t").await?;
    assert_eq!(found().await?, [""; 0]);
    let added = vec![super::table("u")];
    let prepared = preflight::prepare_publication(&session, &both, Some(&scanned)).await?;
    assert_eq!(prepared, Prepared::Extended(added), "what is not scanned yet has no gap");
    Ok(())
}
