//! A server, writers that commit as fast as it lets them, and a monitor that looks at it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dovetail::config::{MySql, MySqlKind, MySqlServer, PinChoice, Rung, Secret, SslMode, Tls};
use dovetail_core::schema::TableName;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::PASSWORD;
use dovetail_tests::wait::{PATIENCE, until};
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::order::Order;

pub(crate) const WRITERS: usize = 6;
/// Ids of a writer begin at its number times this.
pub(crate) const IDS: i64 = 1_000_000_000;

/// How a server is set up, and the orders that are tried there.
pub(crate) struct Plan {
    pub(crate) server: Version,
    pub(crate) order_commits: bool,
    pub(crate) gtids: bool,
    /// The log goes on in a new file every few dozen commits.
    pub(crate) small_files: bool,
    pub(crate) orders: Vec<Order>,
}

impl Plan {
    /// Every order of a server, where it is used.
    pub(crate) fn all(server: Version) -> Vec<Self> {
        use crate::order::Forbidden::{GtidsThenView, StatusThenView, ViewsThenPosition};
        use Order::{Forbidden, Rung as By};
        if server.is_mariadb() {
            let orders = vec![
                By(Rung::Snapshot),
                By(Rung::Lock),
                By(Rung::OwnRow),
                Forbidden(ViewsThenPosition),
                Forbidden(GtidsThenView),
            ];
            // The place of a snapshot is told wrongly there.
            let changing = vec![By(Rung::Snapshot)];
            let plan = |small_files, orders| Self {
                server,
                order_commits: true,
                gtids: true,
                small_files,
                orders,
            };
            return vec![plan(false, orders), plan(true, changing)];
        }
        let usual = vec![
            By(Rung::Gtid),
            By(Rung::LogStatus),
            By(Rung::Lock),
            By(Rung::OwnRow),
            Forbidden(ViewsThenPosition),
            Forbidden(StatusThenView),
        ];
        // An own row is refused there.
        let unordered = vec![By(Rung::Gtid), By(Rung::LogStatus), By(Rung::Lock)];
        let without = vec![By(Rung::LogStatus), By(Rung::Lock), By(Rung::OwnRow)];
        let plan = |order_commits, gtids, orders| Self {
            server,
            order_commits,
            gtids,
            small_files: false,
            orders,
        };
        vec![plan(true, true, usual), plan(false, true, unordered), plan(true, false, without)]
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server)?;
        if !self.order_commits {
            f.write_str(", unordered commits")?;
        }
        if !self.gtids {
            f.write_str(", no GTIDs")?;
        }
        if self.small_files {
            f.write_str(", small files")?;
        }
        Ok(())
    }
}

pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) config: MySql,
    /// Per writer: how many of its rows are committed for certain.
    acknowledged: Arc<[AtomicI64; WRITERS]>,
    orders: Arc<Orders>,
    writers: JoinSet<Result<()>>,
}

/// What the writers are told.
#[derive(Default)]
struct Orders {
    stop: AtomicBool,
    large: AtomicBool,
}

/// Takes milliseconds to log, so that much happens while a commit is under way.
const LARGE_BYTES: usize = 200_000;

impl Bed {
    pub(crate) async fn start(plan: &Plan) -> Result<Self> {
        let mut options = Options::default().durable();
        if !plan.order_commits {
            options = options.set("binlog-order-commits", "OFF");
        }
        if !plan.gtids {
            options = options.set("gtid-mode", "OFF").set("enforce-gtid-consistency", "OFF");
        }
        if plan.small_files {
            options = options.set("max-binlog-size", "16384");
        }
        let server = Server::start_with(plan.server, options)?;
        let mut connection = server.connect().await?;
        let statements = [
            "CREATE DATABASE race",
            "CREATE TABLE race.t (id bigint PRIMARY KEY, pad mediumblob NOT NULL)",
            "CREATE TABLE race.own (id int PRIMARY KEY, touched bigint NOT NULL)",
        ];
        execute(&mut connection, &statements).await?;
        let acknowledged: Arc<[AtomicI64; WRITERS]> = Arc::default();
        let orders = Arc::new(Orders::default());
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let connection = server.connect().await?;
            writers.spawn(write(connection, number, acknowledged.clone(), orders.clone()));
        }
        writers.spawn(watch(server.connect().await?, orders.clone()));
        if plan.server.is_mariadb() {
            writers.spawn(watch_from_a_snapshot(server.connect().await?, orders.clone()));
        }
        let config = config(&server);
        let bed = Self { server, config, acknowledged, orders, writers };
        let all = || bed.floor().iter().all(|count| *count > 50);
        until("every writer to write", PATIENCE, async || Ok(all().then_some(()))).await?;
        Ok(bed)
    }

    /// Per writer: its rows up to this one are visible in every view that is opened from now on.
    pub(crate) fn floor(&self) -> [i64; WRITERS] {
        std::array::from_fn(|number| {
            self.acknowledged.get(number).map_or(0, |count| count.load(Ordering::SeqCst))
        })
    }

    /// Whether rows are large from now on. In the orders that lose, more is lost then.
    pub(crate) fn write_large_rows(&self, large: bool) {
        self.orders.large.store(large, Ordering::SeqCst);
    }

    /// Ends the writers.
    pub(crate) async fn stop(mut self) -> Result<Server> {
        self.orders.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.writers.join_next().await {
            ended.context("a writer panicked")??;
        }
        Ok(self.server)
    }
}

async fn write(
    mut connection: mysql_async::Conn,
    number: usize,
    acknowledged: Arc<[AtomicI64; WRITERS]>,
    orders: Arc<Orders>,
) -> Result<()> {
    let own = acknowledged.get(number).context("a count of its own")?;
    let base = i64::try_from(number)? * IDS;
    for id in 1.. {
        if orders.stop.load(Ordering::SeqCst) {
            break;
        }
        let bytes = if orders.large.load(Ordering::SeqCst) { LARGE_BYTES } else { 0 };
        connection
            .exec_drop("INSERT INTO race.t VALUES (?, repeat('x', ?))", (base + id, bytes))
            .await?;
        own.store(id, Ordering::SeqCst);
    }
    Ok(())
}

/// Asks for the server's status again and again, as monitors do. (MariaDB keeps the place that it is about to show in one
/// place for all sessions.)
async fn watch(mut connection: mysql_async::Conn, orders: Arc<Orders>) -> Result<()> {
    while !orders.stop.load(Ordering::SeqCst) {
        let query = "SHOW GLOBAL STATUS LIKE 'binlog%'";
        let _: Vec<(String, String)> = connection.query(query).await?;
    }
    Ok(())
}

/// The same in a snapshot that is older than those of the pins: what others are told by mistake is too low then.
async fn watch_from_a_snapshot(
    mut connection: mysql_async::Conn,
    orders: Arc<Orders>,
) -> Result<()> {
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    connection.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
    while !orders.stop.load(Ordering::SeqCst) {
        connection.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
        for _ in 0..50 {
            pace.tick().await;
            let query = "SHOW STATUS LIKE 'binlog%'";
            let _: Vec<(String, String)> = connection.query(query).await?;
        }
    }
    Ok(())
}

fn config(server: &Server) -> MySql {
    let table = |name: &str| TableName { namespace: "race".into(), name: name.into() };
    let mariadb = server.version().is_mariadb();
    MySql {
        kind: if mariadb { MySqlKind::MariaDb } else { MySqlKind::MySql },
        server: MySqlServer {
            host: "127.0.0.1".into(),
            port: server.port(),
            user: "root".into(),
            password: Some(Secret::new(PASSWORD.into())),
            tls: Tls { mode: SslMode::Prefer, root_certificates: None },
        },
        tables: vec![table("t")],
        server_id: None,
        pin: PinChoice::Auto,
        own_table: Some(table("own")),
        pin_timeout: Duration::from_secs(30),
        threads_running_max: 50,
        ignore_cascades: false,
    }
}
