//! What the log of MySQL and MariaDB may contain, beside plain changes of plain rows.

use anyhow::{Context, Result, ensure};
use dovetail_tests::engine::{Engine, Setup};
use dovetail_tests::lines::{self, Line};
use dovetail_tests::mysql::{Options, Server, Torn, Version, execute};
use dovetail_tests::wait::{PATIENCE, until};
use mysql_async::Conn;

const DEFINITE: i32 = 70;

/// A server with the statements executed, and an engine that has caught up with it.
async fn start(
    options: Options,
    statements: &[&str],
    tables: &[&str],
) -> Result<(Server, Conn, Setup, Engine)> {
    let server = Server::start_with(Version::under_test(), options)?;
    let mut connection = server.connect().await?;
    execute(&mut connection, &["CREATE DATABASE shop", "USE shop"]).await?;
    execute(&mut connection, statements).await?;
    let setup = Setup::mysql("log", &server, tables)?.to_file();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    Ok((server, connection, setup, engine))
}

fn of<'a>(lines: &'a [Line], op: &str) -> Vec<&'a Line> {
    lines.iter().filter(|line| line.op == op).collect()
}

const FIRST: [&str; 2] = [
    "CREATE TABLE t (id bigint PRIMARY KEY, label varchar(40), body longtext)",
    "INSERT INTO t VALUES (1, 'one', repeat('x', 4000)), (2, 'two', repeat('y', 4000)), (3, NULL, '')",
];
const T: &[&str] = &["shop.t"];

/// L1.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_transaction_is_read_as_any_other() -> Result<()> {
    let options = if Version::under_test().is_mariadb() {
        Options::default().set("log-bin-compress", "ON").set("log-bin-compress-min-len", "10")
    } else {
        Options::default().set("binlog-transaction-compression", "ON")
    };
    let (server, mut connection, setup, mut engine) = start(options, &FIRST, T).await?;
    let statements = [
        "BEGIN",
        "INSERT INTO t VALUES (4, 'four', repeat('z', 100000))",
        "UPDATE t SET label = concat(coalesce(label, ''), '!')",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
        "COMMIT",
    ];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    // One plain update of each of four rows; a key change is a delete and an insert.
    assert_eq!(of(&lines, "update").len(), 4);
    assert_eq!(of(&lines, "delete").len(), 2);
    setup.mysql_lines_equal(&server, T).await
}

/// L3.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_row_image_leaves_out_is_unavailable() -> Result<()> {
    let (server, mut connection, setup, mut engine) = start(Options::default(), &FIRST, T).await?;
    let statements = [
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET label = 'new' WHERE id = 1",
        "UPDATE t SET label = NULL WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (4, 'four', 'a body')",
        "SET SESSION binlog_row_image = NOBLOB",
        "UPDATE t SET label = 'four' WHERE id = 4",
    ];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    for update in of(&lines, "update") {
        ensure!(update.unavailable == ["body"], "{update:?}");
        ensure!(update.after("body").is_none(), "unavailable is not null");
        ensure!(update.after("label").is_some(), "it changed, also to null");
    }
    setup.mysql_lines_equal(&server, T).await
}

/// The log does not say what the table's defaults were, and a catalog that is read later may say something else.
#[tokio::test(flavor = "multi_thread")]
async fn a_default_that_a_new_row_took_is_unavailable_and_not_null() -> Result<()> {
    let create = "CREATE TABLE t (id int PRIMARY KEY, label varchar(9) DEFAULT 'new', body text)";
    let (server, mut connection, setup, mut engine) =
        start(Options::default(), &[create], T).await?;
    let statements = ["SET SESSION binlog_row_image = MINIMAL", "INSERT INTO t (id) VALUES (4)"];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let [insert] = of(&lines, "insert")[..] else { panic!("{lines:?}") };
    assert_eq!(insert.unavailable, ["label", "body"]);
    assert!(insert.after("label").is_none());
    Ok(())
}

/// L4.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_logged_as_a_statement_stops_the_pipeline() -> Result<()> {
    let (_server, mut connection, setup, engine) = start(Options::default(), &FIRST, T).await?;
    let before = lines::read(&setup.lines_file())?.len();
    let statements = [
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE t SET label = 'statement' WHERE id = 1",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO t VALUES (9, 'behind it', NULL)",
    ];
    execute(&mut connection, &statements).await?;
    let (code, log) = ended(engine).await?;
    assert_eq!(code, DEFINITE, "{log}");
    assert!(log.contains("binlog_format"), "says what to set: {log}");
    assert_eq!(lines::read(&setup.lines_file())?.len(), before, "nothing is delivered behind it");
    // It is not passed over by the next start either.
    assert_eq!(setup.finished("run", &[])?.code, DEFINITE);
    Ok(())
}

async fn ended(engine: Engine) -> Result<(i32, String)> {
    let log = engine.log_file();
    let code = engine.ended().await?;
    Ok((code, std::fs::read_to_string(log)?))
}

/// L5.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_delivered_when_it_commits_also_after_a_restart() -> Result<()> {
    let (server, mut connection, setup, mut engine) = start(Options::default(), &FIRST, T).await?;
    let prepare = |id: &str, row: u32| {
        [
            format!("XA START '{id}'"),
            format!("INSERT INTO t VALUES ({row}, '{id}', NULL)"),
            format!("XA END '{id}'"),
            format!("XA PREPARE '{id}'"),
        ]
    };
    let mut other = server.connect().await?;
    execute(&mut other, &["USE shop"]).await?;
    for statement in prepare("kept", 10) {
        execute(&mut connection, &[&statement]).await?;
    }
    for statement in prepare("gone", 11) {
        execute(&mut other, &[&statement]).await?;
    }
    let mut third = server.connect().await?;
    execute(&mut third, &["INSERT INTO shop.t VALUES (12, 'between', NULL)"]).await?;
    // The checkpoint stays before the oldest that is prepared, so the row is looked for instead.
    let between = async || {
        let lines = lines::read(&setup.lines_file())?;
        Ok(lines.iter().any(|line| line.key_text().as_deref() == Some("12")).then_some(lines))
    };
    let lines = until("the row between", PATIENCE, between).await?;
    ensure!(!lines.iter().any(|line| line.key_text().as_deref() == Some("10")), "not committed");
    engine.kill()?;

    execute(&mut connection, &["XA COMMIT 'kept'"]).await?;
    execute(&mut other, &["XA ROLLBACK 'gone'"]).await?;
    engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let rolled_back = lines.iter().any(|line| line.key_text().as_deref() == Some("11"));
    ensure!(!rolled_back, "a rolled back row was delivered");
    setup.mysql_lines_equal(&server, T).await
}

/// L8.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncate_is_a_barrier() -> Result<()> {
    let (server, mut connection, setup, mut engine) = start(Options::default(), &FIRST, T).await?;
    for round in 1..=5 {
        let insert = format!("INSERT INTO t VALUES ({round}, 'after', NULL)");
        execute(&mut connection, &["TRUNCATE TABLE t", &insert]).await?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    assert_eq!(of(&lines, "truncate").len(), 5);
    setup.mysql_lines_equal(&server, T).await
}

/// Other rows under the name: which they are is not in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_gets_another_name_stops_the_pipeline_until_it_is_scanned_again() -> Result<()>
{
    let first = [FIRST[0], FIRST[1], "CREATE TABLE beside (id int PRIMARY KEY)"];
    let both = ["shop.t", "shop.beside"];
    let (server, mut connection, mut setup, engine) =
        start(Options::default(), &first, &both).await?;
    let statements = [
        "CREATE TABLE other LIKE t",
        "INSERT INTO other VALUES (7, 'seven', NULL)",
        "RENAME TABLE t TO old, other TO t",
        "INSERT INTO t VALUES (8, 'eight', NULL)",
    ];
    execute(&mut connection, &statements).await?;
    let (code, log) = ended(engine).await?;
    assert_eq!(code, DEFINITE, "{log}");
    assert!(log.contains("shop.t was renamed"), "{log}");
    let kind = if Version::under_test().is_mariadb() { "mariadb" } else { "mysql" };
    for tables in [&both[1..], &both[..]] {
        setup.change(&format!("/source/{kind}/tables"), serde_json::json!(tables));
        let mut engine = setup.run()?;
        setup.scanned(&mut engine).await?;
        setup.mysql_caught_up(&mut engine, &server).await?;
        engine.terminate().await?;
    }
    setup.mysql_lines_equal(&server, &both).await
}

/// L11.
#[tokio::test(flavor = "multi_thread")]
async fn tags_and_domains_are_told_apart() -> Result<()> {
    let (server, mut connection, setup, mut engine) = start(Options::default(), &FIRST, T).await?;
    let other = if Version::under_test().is_mariadb() {
        "SET SESSION gtid_domain_id = 7"
    } else {
        "SET gtid_next = 'AUTOMATIC:tagged'"
    };
    let statements =
        [other, "INSERT INTO t VALUES (4, 'elsewhere', NULL)", "DELETE FROM t WHERE id = 1"];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.kill()?;
    execute(&mut connection, &["INSERT INTO t VALUES (5, 'while it is down', NULL)"]).await?;
    engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let names: Vec<_> = lines.iter().filter_map(|line| line.transaction.as_deref()).collect();
    let expected = if Version::under_test().is_mariadb() { "7-" } else { ":tagged:" };
    ensure!(names.iter().any(|name| name.contains(expected)), "{names:?}");
    setup.mysql_lines_equal(&server, T).await
}

/// L13.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_transactions_is_delivered_beside_others() -> Result<()> {
    let first = [
        FIRST[0],
        FIRST[1],
        "CREATE TABLE plain (id bigint PRIMARY KEY, label varchar(40)) ENGINE = MyISAM",
        "INSERT INTO plain VALUES (1, 'one'), (2, 'two')",
    ];
    let tables = ["shop.t", "shop.plain"];
    let (server, mut connection, setup, mut engine) =
        start(Options::default(), &first, &tables).await?;
    let statements = [
        "INSERT INTO plain VALUES (3, 'three'), (4, 'four')",
        "INSERT INTO t VALUES (4, 'beside', NULL)",
        "UPDATE plain SET label = 'changed' WHERE id < 3",
        "CREATE TABLE neighbour (id int)",
        "DELETE FROM plain WHERE id = 4",
    ];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    setup.mysql_lines_equal(&server, &tables).await
}

/// A transaction of many rows, none of which is there in the end.
const BIG: [&str; 4] = [
    "CREATE TABLE digit (n int PRIMARY KEY)",
    "INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    "INSERT INTO t SELECT 10000 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n, 'big', repeat('x', 100) \
     FROM digit a, digit b, digit c, digit d",
    "DELETE FROM t WHERE id >= 10000",
];
const BIG_ROWS: usize = 10_000;

/// Where the engine stands when the server is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Stopped, at the end of the log.
    Behind,
    /// Stopped, with more in the log.
    Before,
    Running,
}

/// MySQL cuts it off when it starts again; MariaDB leaves it, and goes on in another file.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_a_killed_server_left_half_written_never_was() -> Result<()> {
    let (mut server, mut connection, setup, mut engine) =
        start(Options::default(), &FIRST, T).await?;
    execute(&mut connection, &BIG).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let logged = server.logged().await?;
    let big = logged.iter().find(|transaction| transaction.rows.len() == BIG_ROWS);
    let big = big.context("the big one")?;
    let mut id = 10;
    let mut insert = async |server: &Server| {
        id += 1;
        let insert = format!("INSERT INTO shop.t VALUES ({id}, 'whole', NULL)");
        execute(&mut server.connect().await?, &[&insert]).await
    };
    for torn in Torn::ALL {
        for stands in [Stands::Behind, Stands::Before, Stands::Running] {
            let mut running = Some(engine);
            if stands != Stands::Running
                && let Some(engine) = running.take()
            {
                engine.terminate().await?;
            }
            if stands == Stands::Before {
                insert(&server).await?;
            }
            server.kill()?;
            server.tear(big, torn)?;
            server.restart()?;
            insert(&server).await?;
            engine = match running {
                Some(engine) => engine,
                None => setup.run()?,
            };
            setup
                .mysql_caught_up(&mut engine, &server)
                .await
                .with_context(|| format!("{torn:?}, {stands:?}"))?;
        }
    }
    let lines = lines::read(&setup.lines_file())?;
    let (inserts, deletes) = (of(&lines, "insert").len(), of(&lines, "delete").len());
    assert_eq!((inserts, deletes), (BIG_ROWS + id - 10, BIG_ROWS), "rows that never were");
    let log = std::fs::read_to_string(setup.log_file())?;
    let passed = log.matches("is passed over").count();
    let expected = if Version::under_test().is_mariadb() { 3 * Torn::ALL.len() } else { 0 };
    assert!(passed >= expected && (expected > 0 || passed == 0), "{passed} of {expected}: {log}");
    assert_eq!(server.logged().await?.last().map(|last| last.rows.len()), Some(1));
    setup.mysql_lines_equal(&server, T).await
}

/// It looks like the end that a killed server leaves, but what is missing was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lacks_the_end_of_a_committed_transaction_is_damaged() -> Result<()> {
    let (mut server, _, setup, engine) = start(Options::default(), &FIRST, T).await?;
    engine.terminate().await?;
    let insert = "INSERT INTO shop.t VALUES (10, 'committed', NULL)";
    execute(&mut server.connect().await?, &[insert]).await?;
    server.kill()?;
    server.restart()?;
    let last = server.logged().await?.pop().context("a transaction")?;
    let file = server.data().join(format!("binlog.{:06}", last.end.file));
    std::fs::File::options().write(true).open(file)?.set_len(last.end.offset - 5)?;
    let before = lines::read(&setup.lines_file())?.len();
    for _ in 0..2 {
        let ended = setup.finished("run", &[])?;
        assert_eq!(ended.code, DEFINITE, "{}", ended.text());
        assert!(ended.stderr.contains("damaged"), "{}", ended.stderr);
    }
    assert_eq!(lines::read(&setup.lines_file())?.len(), before);
    Ok(())
}
