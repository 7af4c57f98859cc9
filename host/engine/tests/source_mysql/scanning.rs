//! Every row of a view, once.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dovetail::config::MySql;
use dovetail::source::Options as ScanOptions;
use dovetail::source::mysql::pin::{self, Pin};
use dovetail::source::mysql::view::{View, ViewError};
use dovetail_core::change::Change;
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::value::{TemporalSpecial, Value};
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::wait::until;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{PATIENCE, source};

const WORKERS: NonZeroU16 = NonZeroU16::new(3).expect("not zero");
/// Small and odd, so that boundaries fall everywhere.
const CHUNK_ROWS: u32 = 7;

fn table(name: &str) -> TableName {
    TableName { namespace: "keys".into(), name: name.into() }
}

fn config(server: &Server, names: &[&str]) -> MySql {
    MySql { tables: names.iter().copied().map(table).collect(), ..source(server) }
}

/// A view of now by the best rung.
async fn view(config: &MySql) -> Result<View> {
    let mut session = dovetail::source::mysql::connection::Session::open(&config.server).await?;
    let chosen = pin::choose(config, &mut session).await?;
    let pin = Pin::take(config, chosen.rung, WORKERS).await?;
    if pin.has_view() {
        return Ok(View::pinned(pin, &config.tables).await?);
    }
    let (at, note) = (pin.position(), pin.note().clone());
    pin::settle(config, chosen.rung, at, Some(&note)).await?;
    Ok(View::later(config, chosen.rung, 0, &config.tables, WORKERS).await?)
}

/// Rows by table, in the order in which they came.
type Rows = BTreeMap<String, Vec<Vec<Value>>>;

async fn scan(view: View, chunk_rows: u32) -> Result<Rows> {
    let plan = view.plan(chunk_rows);
    let planned: BTreeMap<String, u32> =
        plan.tables().map(|(relation, chunks)| (relation.table.name.clone(), chunks)).collect();
    let options = ScanOptions { pin: Lsn::binlog(0, 1, 4), redelivery: false };
    let mut scan = view.scan(plan, options).await?;
    let mut rows = Rows::new();
    let mut closed: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    while let Some(piece) = timeout(PATIENCE, scan.next()).await.context("the next piece")?? {
        let name = piece.relation.table.name.clone();
        let of_table = rows.entry(name.clone()).or_default();
        for event in piece.events {
            let Change::Read { after, .. } = event.change else { bail!("not a row that was read") };
            of_table.push(after.into_values());
        }
        closed.entry(name).or_default().extend(piece.chunk.map(|chunk| chunk.number));
    }
    for (name, chunks) in planned {
        let mut closed = closed.remove(&name).unwrap_or_default();
        closed.sort_unstable();
        ensure!(closed == (0..chunks).collect::<Vec<_>>(), "{name}: chunks {closed:?} of {chunks}");
    }
    Ok(rows)
}

/// 210 rows of each kind of key; `n` counts them from 0 to 209.
const KEYS: [(&str, &str, &str); 16] = [
    ("signed", "a int PRIMARY KEY", "n - 100"),
    ("sparse", "a bigint PRIMARY KEY", "n * n * n * 1000000007 - 4000000000000000000"),
    ("unsigned", "a bigint unsigned PRIMARY KEY", "18446744073709551615 - n"),
    (
        "composite",
        "a tinyint, b varchar(9) CHARACTER SET latin1, c smallint, PRIMARY KEY (a, b, c)",
        "n DIV 70, concat('k', n DIV 10 % 7), n % 10",
    ),
    (
        "text",
        "a varchar(40) CHARACTER SET utf8mb4 PRIMARY KEY",
        "concat(char(0xC3A9 + n % 3 USING utf8mb4), 'é', n)",
    ),
    (
        "latin",
        "a varchar(40) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY",
        "concat(elt(1 + n % 4, 'ä', 'o', 'ß', 'Z'), n)",
    ),
    ("wide", "a char(10) CHARACTER SET ucs2 PRIMARY KEY", "concat('ж', n)"),
    ("bytes", "a varbinary(9) PRIMARY KEY", "concat(unhex('00FF'), char(n USING binary))"),
    ("padded", "a binary(6) PRIMARY KEY", "n * 3"),
    ("exact", "a decimal(65,30) PRIMARY KEY", "concat(n, '.', lpad(n, 30, '0'))"),
    ("single", "a float PRIMARY KEY", "(n - 100) / 7"),
    ("double_key", "a double PRIMARY KEY", "(n - 100) / 7e5"),
    (
        "moments",
        "a datetime(6), b time(3), PRIMARY KEY (a, b)",
        "timestamp('2024-02-28 23:59:59.999999') + interval n DIV 30 day, sec_to_time(n * 1000.125 - 90000)",
    ),
    ("bits", "a bit(12) PRIMARY KEY", "n * 19"),
    ("labels", "a enum('z','y','x','w','v','u','t'), b int, PRIMARY KEY (a, b)", "n % 7 + 1, n"),
    ("unique_only", "a int NOT NULL UNIQUE KEY", "n"),
];

async fn filled(server: &Server) -> Result<Conn> {
    let mut connection = server.connect().await?;
    execute(
        &mut connection,
        &[
            "SET NAMES utf8mb4",
            "CREATE DATABASE `keys`",
            "CREATE TABLE `keys`.ten (d int PRIMARY KEY)",
            "INSERT INTO `keys`.ten VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
            "CREATE TABLE `keys`.n (n int PRIMARY KEY)",
            "INSERT INTO `keys`.n SELECT x.d * 100 + y.d * 10 + z.d FROM `keys`.ten x, `keys`.ten y, `keys`.ten z \
             WHERE x.d * 100 + y.d * 10 + z.d < 210",
        ],
    )
    .await?;
    for (name, columns, values) in KEYS {
        let create =
            format!("CREATE TABLE `keys`.{name} ({columns}, payload varchar(20) DEFAULT 'x')");
        let columns: Vec<&str> = ["a", "b", "c"].into_iter().take(values_count(values)).collect();
        let insert = format!(
            "INSERT INTO `keys`.{name} ({}) SELECT {values} FROM `keys`.n",
            columns.join(", ")
        );
        let analyze = format!("ANALYZE TABLE `keys`.{name}");
        execute(&mut connection, &[&create, &insert]).await?;
        let _: Vec<mysql_async::Row> = connection.query(analyze).await?;
    }
    Ok(connection)
}

/// Commas outside parentheses, and one.
fn values_count(values: &str) -> usize {
    let mut depth = 0;
    let commas = values.chars().filter(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0 && *c == ','
    });
    commas.count() + 1
}

#[tokio::test]
async fn every_row_comes_once_whatever_the_key() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        filled(&server).await?;
        let names: Vec<&str> = KEYS.iter().map(|(name, ..)| *name).collect();
        let config = config(&server, &names);
        let by_chunks = scan(view(&config).await?, CHUNK_ROWS).await?;
        let at_once = scan(view(&config).await?, 1_000_000).await?;
        for name in names {
            let shown = |rows: &Rows| {
                let rows = rows.get(name).cloned().unwrap_or_default();
                let mut shown: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
                shown.sort_unstable();
                shown
            };
            let (chunked, whole) = (shown(&by_chunks), shown(&at_once));
            assert_eq!(chunked.len(), 210, "{version} {name}");
            assert_eq!(chunked, whole, "{version} {name}");
            let mut distinct = chunked.clone();
            distinct.dedup();
            assert_eq!(distinct.len(), 210, "{version} {name}: no row twice");
        }
    }
    Ok(())
}

/// Rows that the storage engine was asked for in this server's life, by index or not.
async fn rows_read(connection: &mut Conn) -> Result<u64> {
    let query = "SHOW GLOBAL STATUS WHERE Variable_name IN \
        ('Handler_read_first', 'Handler_read_key', 'Handler_read_next', 'Handler_read_rnd_next')";
    let rows: Vec<(String, u64)> = connection.query(query).await?;
    Ok(rows.iter().map(|(_, count)| count).sum())
}

#[tokio::test]
async fn chunks_are_looked_up_and_not_walked_to() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = filled(&server).await?;
        for name in ["composite", "text", "latin", "exact", "moments", "padded", "single", "bits"] {
            let config = config(&server, &[name]);
            let view = view(&config).await?;
            let before = rows_read(&mut application).await?;
            scan(view, CHUNK_ROWS).await?;
            let read = rows_read(&mut application).await? - before;
            // Once for the boundary and once for the row, and a little for each of about 60 chunks and for the
            // questions asked here. Walked to, 30 chunks would read 15 times as many.
            assert!(read < 1_500, "{version} {name}: {read} reads for 210 rows");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_table_without_a_key_or_without_rows_is_read_too() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = filled(&server).await?;
        execute(
            &mut application,
            &[
                "CREATE TABLE `keys`.keyless (a int, b text)",
                "INSERT INTO `keys`.keyless SELECT n % 5, 'x' FROM `keys`.n",
                "CREATE TABLE `keys`.empty (a int PRIMARY KEY)",
                "CREATE TABLE `keys`.nothing (a int)",
            ],
        )
        .await?;
        let config = config(&server, &["keyless", "empty", "nothing"]);
        let rows = scan(view(&config).await?, CHUNK_ROWS).await?;
        assert_eq!(rows["keyless"].len(), 210, "{version}");
        assert!(rows["empty"].is_empty() && rows["nothing"].is_empty(), "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn odd_names_zero_dates_and_hidden_columns_are_read() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = server.connect().await?;
        execute(
            &mut application,
            &[
                "SET NAMES utf8mb4, sql_mode = ''",
                "CREATE DATABASE `keys`",
                "CREATE TABLE `keys`.`a``b. 表` (`k\"1` date PRIMARY KEY, `列` int INVISIBLE DEFAULT 7, \
                 g int GENERATED ALWAYS AS (year(`k\"1`)) STORED)",
                "INSERT INTO `keys`.`a``b. 表` (`k\"1`) VALUES ('0000-00-00'), ('2020-00-00'), ('2020-02-29')",
            ],
        )
        .await?;
        let config = config(&server, &["a`b. 表"]);
        let mut rows = scan(view(&config).await?, 1).await?.remove("a`b. 表").context("rows")?;
        // The workers' chunks arrive in any order.
        rows.sort_by_key(|row| format!("{row:?}"));
        let literal = |text: &str| Value::TemporalSpecial(TemporalSpecial::Literal(text.into()));
        let expected = [
            vec![Value::Date(18_321), Value::Int(7), Value::Int(2020)],
            vec![literal("0000-00-00"), Value::Int(7), Value::Int(0)],
            vec![literal("2020-00-00"), Value::Int(7), Value::Int(2020)],
        ];
        assert_eq!(rows, expected, "{version}");
    }
    Ok(())
}

/// Statements that are under way until a lock is given back.
async fn busy(server: &Server, application: &mut Conn, count: u64) -> Result<JoinSet<Result<()>>> {
    let _: Option<i64> = application.query_first("SELECT GET_LOCK('busy', 0)").await?;
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let mut session = server.connect().await?;
        tasks.spawn(async move {
            let statements = ["DO GET_LOCK('busy', 60)", "DO RELEASE_LOCK('busy')"];
            execute(&mut session, &statements).await
        });
    }
    until("the statements to be under way", PATIENCE, async || {
        let query =
            "SELECT count(*) FROM information_schema.PROCESSLIST WHERE state LIKE 'User lock%'";
        let waiting: Option<u64> = application.query_first(query).await?;
        Ok((waiting == Some(count)).then_some(()))
    })
    .await?;
    Ok(tasks)
}

#[tokio::test]
async fn a_scan_begins_nothing_while_the_server_is_busy() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = filled(&server).await?;
        let config = MySql { threads_running_max: 8, ..config(&server, &["signed"]) };
        let view = view(&config).await?;
        let mut busy = busy(&server, &mut application, 12).await?;
        let plan = view.plan(CHUNK_ROWS);
        let options = ScanOptions { pin: Lsn::binlog(0, 1, 4), redelivery: false };
        let mut scan = view.scan(plan, options).await?;
        // Some looks of the guard; were it not heeded, all rows would be there in a hundredth of that.
        let early = timeout(Duration::from_secs(3), scan.next()).await;
        ensure!(early.is_err(), "{version}: rows were read all the same");
        execute(&mut application, &["DO RELEASE_LOCK('busy')"]).await?;
        while let Some(ended) = busy.join_next().await {
            ended??;
        }
        let mut rows = 0;
        while let Some(piece) = timeout(PATIENCE, scan.next()).await.context("a piece")?? {
            rows += piece.events.len();
        }
        assert_eq!(rows, 210, "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn a_table_that_was_made_again_after_the_view_makes_it_stale() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = filled(&server).await?;
        let config = config(&server, &["signed"]);
        let mut session =
            dovetail::source::mysql::connection::Session::open(&config.server).await?;
        let chosen = pin::choose(&config, &mut session).await?;
        if !version.is_mariadb() {
            continue;
        }
        // The pin's own view is open, but does not hold its tables yet.
        let pin = Pin::take(&config, chosen.rung, WORKERS).await?;
        execute(&mut application, &["TRUNCATE `keys`.signed"]).await?;
        let stale = View::pinned(pin, &config.tables).await;
        assert!(matches!(stale, Err(ViewError::Stale { .. })), "{version}: {stale:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_scan_that_is_dropped_in_the_middle_leaves_no_session() -> Result<()> {
    for version in Version::installed()? {
        let server = Server::start_with(version, Options::default())?;
        let mut application = filled(&server).await?;
        execute(
            &mut application,
            &[
                "CREATE TABLE `keys`.large (a int, b varchar(2000))",
                "INSERT INTO `keys`.large SELECT x.n, repeat('x', 2000) FROM `keys`.n x, `keys`.n y",
            ],
        )
        .await?;
        let config = config(&server, &["large"]);
        let view = view(&config).await?;
        let plan = view.plan(CHUNK_ROWS);
        let options = ScanOptions { pin: Lsn::binlog(0, 1, 4), redelivery: false };
        let mut scan = view.scan(plan, options).await?;
        timeout(PATIENCE, scan.next()).await.context("a first piece")??;
        drop(scan);
        until("the scan's sessions to end", PATIENCE, async || {
            let query = "SELECT count(*) FROM information_schema.PROCESSLIST \
                WHERE id <> connection_id() AND user = 'root'";
            let left: Option<u64> = application.query_first(query).await?;
            Ok((left == Some(0)).then_some(()))
        })
        .await?;
    }
    Ok(())
}
