//! The connection to an outlet's server goes at the worst moments.

use dovetail::config;
use dovetail::outlet::{Error, Outlet};
use dovetail_core::position::Lsn;
use dovetail_core::seam::Recorded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::subject::{Place, Subject, origin, try_write, write};
use crate::text::texts;
use crate::world::*;

/// Where the connection is cut: the client's COMMIT never arrives, or the server's answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Commit,
    Reply,
}

/// Passes one connection on, until the `number`th COMMIT.
async fn proxy(to: u16, commit: &'static [u8], cut: Cut, number: usize) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let passing = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut server = TcpStream::connect(("127.0.0.1", to)).await.expect("the server");
        let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let mut commits = 0;
        loop {
            tokio::select! {
                read = client.read(&mut up) => {
                    let bytes = &up[..read.expect("from the client")];
                    if bytes.is_empty() {
                        return;
                    }
                    commits += bytes.windows(commit.len()).filter(|word| *word == commit).count();
                    let is_last = commits >= number;
                    if is_last && cut == Cut::Commit {
                        return;
                    }
                    server.write_all(bytes).await.expect("to the server");
                    if is_last {
                        // The answer shows that it has happened; the client never sees it.
                        let answer = server.read(&mut down).await.expect("from the server");
                        assert!(answer > 0, "the server answers a COMMIT");
                        return;
                    }
                }
                read = server.read(&mut down) => {
                    let bytes = &down[..read.expect("from the server")];
                    client.write_all(bytes).await.expect("to the client");
                }
            }
        }
    });
    (port, passing)
}

/// A server's `COMMIT` as it goes over the wire.
fn commit_bytes(place: Place) -> &'static [u8] {
    match place {
        Place::Postgres => b"COMMIT\0",
        _ => b"\x03COMMIT",
    }
}

fn port(config: &mut config::Outlet) -> &mut u16 {
    match config {
        config::Outlet::Postgres { server, .. } => &mut server.port,
        config::Outlet::MySql { server, .. } => &mut server.port,
        other => panic!("{other:?} has no port"),
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_commit_is_found_out_by_the_recorded_checkpoint() {
    // The outlet itself commits once when it opens and once when it makes a table ready.
    const THIRD: usize = 3;
    let cuts = [(Cut::Commit, Recorded::Empty), (Cut::Reply, Recorded::At(Lsn::new(201)))];
    for (place, (cut, recorded)) in
        Place::servers().into_iter().flat_map(|place| cuts.map(|cut| (place, cut)))
    {
        let subject = Subject::new(place).await;
        let (people, log) = (people(), keyless());
        let mut direct = subject.open_with(&log).await;
        direct.prepare(&people, true).await.expect("ready");
        direct.close().await.expect("closed");
        let mut config = subject.config();
        let far = *port(&mut config);
        let (near, passing) = proxy(far, commit_bytes(place), cut, THIRD).await;
        *port(&mut config) = near;
        let mut outlet = Outlet::open(&config, &origin(), 0).await.expect("open");
        outlet.prepare(&people, false).await.expect("ready");
        let history = || {
            [transaction(
                200,
                [insert(&log, row(1, "once", "-")), insert(&people, row(1, "a", "b"))],
            )]
        };
        let result = try_write(&mut outlet, history()).await;
        assert!(matches!(result, Err(Error::Unknown { .. })), "{place:?} {cut:?}: {result:?}");
        drop(outlet);
        passing.await.expect("the proxy");
        let mut outlet = subject.open().await;
        assert_eq!(outlet.recorded(), recorded, "{place:?} {cut:?}");
        write(&mut outlet, history()).await;
        assert_eq!(subject.rows(&log).await, texts([row(1, "once", "-")]), "{place:?} {cut:?}");
        assert_eq!(subject.rows(&people).await, texts([row(1, "a", "b")]), "{place:?} {cut:?}");
    }
}

#[tokio::test]
async fn a_session_that_is_cut_is_transient_and_takes_its_open_tail_with_it() {
    for place in Place::servers() {
        let subject = Subject::new(place).await;
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let half =
            part(200, 1, [insert(&people, row(1, "a", "b"))], dovetail_core::batch::Closing::Open);
        write(&mut outlet, [half]).await;
        subject.cut_sessions().await;
        let rest = [insert(&people, row(2, "a", "b"))];
        let result = try_write(&mut outlet, [transaction(200, rest)]).await;
        assert!(matches!(result, Err(Error::Transient { .. })), "{place:?}: {result:?}");
        let outlet = subject.open().await;
        assert_eq!(outlet.recorded(), Recorded::Empty);
        assert_eq!(subject.rows(&people).await, texts([]));
    }
}

#[tokio::test]
async fn an_outlet_that_cannot_be_reached_is_transient_and_one_that_refuses_is_not() {
    const SECRET: &str = "not-the-password";
    let no_login = |config: &mut config::Outlet| {
        let (config::Outlet::Postgres { server: config::Server { password, .. }, .. }
        | config::Outlet::MySql { server: config::MySqlServer { password, .. }, .. }) = config
        else {
            panic!("a server")
        };
        *password = Some(config::Secret::new(SECRET.into()));
    };
    let no_database = |config: &mut config::Outlet| {
        let (config::Outlet::Postgres { server: config::Server { database, .. }, .. }
        | config::Outlet::MySql { database, .. }) = config
        else {
            panic!("a server")
        };
        *database = "missing".into();
    };
    for place in Place::servers() {
        let subject = Subject::new(place).await;
        let mut unreachable = subject.config();
        *port(&mut unreachable) = 1;
        let error = Outlet::open(&unreachable, &origin(), 0).await.expect_err("nobody there");
        assert!(matches!(error, Error::Transient { .. }), "{place:?}: {error}");
        for change in [&no_login as &dyn Fn(&mut config::Outlet), &no_database] {
            let mut refused = subject.config();
            change(&mut refused);
            let error = Outlet::open(&refused, &origin(), 0).await.expect_err("a refusal");
            assert!(matches!(error, Error::Definite { .. }), "{place:?}: {error}");
            assert!(!format!("{error:?}").contains(SECRET));
        }
    }
}

#[tokio::test]
async fn a_row_that_the_table_refuses_is_not_in_the_error() {
    for place in Place::servers() {
        let subject = Subject::new(place).await;
        let people = people();
        subject.open().await.close().await.expect("closed");
        subject
            .operate("CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR(20), note INT)")
            .await;
        let mut outlet = subject.open_with(&people).await;
        for wrong in [row(1, "ada", "hunter2"), row(1, "longer than twenty characters", "-")] {
            let result = try_write(&mut outlet, [transaction(200, [insert(&people, wrong)])]).await;
            let Err(error @ Error::Definite { .. }) = result else { panic!("{result:?}") };
            let text = format!("{error:?}");
            assert!(!text.contains("hunter2") && !text.contains("longer"), "{text}");
            drop(outlet);
            outlet = subject.open().await;
        }
        write(&mut outlet, [transaction(200, [insert(&people, row(1, "ada", "42"))])]).await;
        assert_eq!(subject.rows(&people).await, texts([row(1, "ada", "42")]), "{place:?}");
    }
}

#[tokio::test]
async fn a_large_group_goes_out_in_pieces() {
    for place in Place::servers() {
        let subject = Subject::new(place).await;
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let large = "x".repeat(3 * 1024 * 1024);
        let rows = || {
            (0..10_000)
                .map(|id| row(id, "small", "-"))
                .chain((10_000..10_005).map(|id| row(id, "large", &large)))
        };
        write(&mut outlet, [chunk(&people, rows())]).await;
        let deletes = (0..9_999).map(|id| delete(&people, key_only(id)));
        write(&mut outlet, [transaction(200, deletes)]).await;
        assert_eq!(subject.rows(&people).await.len(), 6, "{place:?}");
    }
}
