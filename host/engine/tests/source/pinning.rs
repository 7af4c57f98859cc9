//! The slot and the views.

use std::time::Duration;

use anyhow::{Result, ensure};
use dovetail::source::postgres::connection::Session;
use dovetail::source::postgres::slot::{self, Blocker, CreateError};
use dovetail::source::postgres::view::{View, ViewError};
use dovetail_core::position::Lsn;

use super::{WORKERS, address, server, source, table};

const SCHEMA: &str = "\
    CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');
    CREATE PUBLICATION dovetail FOR TABLE t";

#[tokio::test]
async fn a_slot_that_waits_says_for_whom_and_leaves_nothing_when_it_gives_up() -> Result<()> {
    let (server, application) = server(SCHEMA).await?;
    let writer = server.connect().await?;
    writer.batch_execute("BEGIN; INSERT INTO t VALUES (2, 'secret')").await?;
    let pid: i32 = writer.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let mut source = source(&server, &["t"]);
    source.pin_timeout = Duration::from_secs(3);

    let mut seen = Vec::new();
    let created = slot::create(&source, |blockers| seen.extend(blockers.to_vec())).await;

    let Err(CreateError::Waiting { blockers, .. }) = created else { panic!("{created:?}") };
    for blockers in [&blockers, &seen] {
        let of_writer =
            |blocker: &Blocker| matches!(blocker, Blocker::Session { pid: p, .. } if *p == pid);
        assert!(blockers.iter().any(of_writer), "{blockers:?}");
    }
    let session = Session::open(&source.server).await?;
    assert_eq!(slot::inspect(&session, &source.slot).await?, None);

    writer.batch_execute("ROLLBACK").await?;
    application
        .batch_execute("BEGIN; INSERT INTO t VALUES (3, 'x'); PREPARE TRANSACTION 'left open'")
        .await?;
    let created = slot::create(&source, |_| {}).await;
    let Err(CreateError::Waiting { blockers, .. }) = created else { panic!("{created:?}") };
    let prepared =
        |blocker: &Blocker| matches!(blocker, Blocker::Prepared { gid, .. } if gid == "left open");
    assert!(blockers.iter().any(prepared), "{blockers:?}");

    application.batch_execute("ROLLBACK PREPARED 'left open'").await?;
    slot::create(&source, |_| {}).await?;
    let again = slot::create(&source, |_| {}).await;
    assert!(matches!(again, Err(CreateError::Exists { .. })), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn a_table_changed_between_pin_and_lock_makes_the_view_stale() -> Result<()> {
    let (server, application) = server(SCHEMA).await?;
    let source = source(&server, &["t"]);
    let session = Session::open(&address(&server)).await?;
    for change in [
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN w int",
        "ALTER TABLE t ALTER COLUMN id TYPE bigint",
        "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, v text, w int)",
    ] {
        let pin = slot::create(&source, |_| {}).await?;
        application.batch_execute(change).await?;
        let view = View::pinned(pin, &source, &[table("t")], WORKERS).await;
        assert!(matches!(view, Err(ViewError::Stale { .. })), "{change}: {view:?}");
        slot::drop(&session, &source.slot).await?;
    }
    let pin = slot::create(&source, |_| {}).await?;
    let position = pin.position();
    let view = View::pinned(pin, &source, &[table("t")], WORKERS).await?;
    assert_eq!((view.fence(), view.horizon()), (None, position));
    Ok(())
}

#[tokio::test]
async fn a_later_view_comes_with_a_fence_and_a_horizon_behind_it() -> Result<()> {
    let (server, application) = server(SCHEMA).await?;
    // H11: the role's default isolation must not weaken a view.
    application
        .batch_execute("ALTER ROLE postgres SET default_transaction_isolation = 'read uncommitted'")
        .await?;
    let before: i64 = application.query_one("SELECT txid_current()", &[]).await?.get(0);
    let running = server.connect().await?;
    running.batch_execute("BEGIN").await?;
    let open: i64 = running.query_one("SELECT txid_current()", &[]).await?.get(0);

    let view = View::later(&source(&server, &["t"]), &[table("t")], WORKERS).await?;

    let row = application.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?;
    let now: Lsn = row.get::<_, String>(0).parse()?;
    let fence = view.fence().expect("a later view");
    let contains = |xid: i64| {
        let xid = u64::try_from(xid).expect("not negative");
        fence.contains(&dovetail_core::change::Xid(xid).into(), Lsn::ZERO)
    };
    assert!(contains(before) && !contains(open), "{fence}");
    assert!(Lsn::ZERO < view.horizon() && view.horizon() <= now);

    let locked = application
        .batch_execute("SET lock_timeout = '100ms'; TRUNCATE t")
        .await
        .expect_err("the view holds the table");
    ensure!(locked.code().is_some_and(|code| code.code() == "55P03"), "{locked}");
    drop(view);
    application.batch_execute("SET lock_timeout = '30s'; TRUNCATE t").await?;
    Ok(())
}
