//! Every value of the corpus of MySQL and MariaDB through the engine: by the scan and by each kind of change. What the
//! lines and the SQLite replica say is compared with the corpus, and the corpus with what the server prints and with
//! what its own reader of the log reads.

mod reader;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dovetail_core::schema::Kind;
use dovetail_tests::corpus::{Corpus, Dialect, Subject};
use dovetail_tests::engine::Setup;
use dovetail_tests::lines::{self, Line};
use dovetail_tests::mysql::printed::Row;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use serde_json::json;

use reader::{Stored, check_printed, has_labels, is_printed};

/// Defaults that would change how values are read or printed, if anybody relied on them.
fn hostile() -> Options {
    Options::default()
        .set("sql-mode", "PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE")
        .set("default-time-zone", "+05:45")
        .set("character-set-server", "latin1")
        .set("collation-server", "latin1_german2_ci")
        .set("group-concat-max-len", "8")
        .set("max-sort-length", "8")
}

/// Where the writers of the changes say that they are.
const ZONES: [&str; 4] = ["+02:00", "+05:45", "-03:30", "+00:00"];

/// As the corpus was written.
const PLAIN_SETTINGS: &[&str] =
    &["SET NAMES utf8mb4", "SET time_zone = '+00:00'", "SET sql_mode = ''"];

async fn plain_session(server: &Server) -> Result<Conn> {
    let mut connection = server.connect().await?;
    execute(&mut connection, PLAIN_SETTINGS).await?;
    Ok(connection)
}

/// What the server prints for each row that is left, in the notation of the corpus; and the bytes or the number that it
/// stores for each value.
async fn check_server(
    subject: &Subject<'_>,
    connection: &mut Conn,
) -> Result<BTreeMap<usize, Stored>> {
    let column = subject.column();
    let text = match subject.series.kind {
        Kind::Bytes => format!("CONCAT('\\\\x', LOWER(HEX({column})))"),
        Kind::Bits => {
            let length = subject.series.type_name.trim_matches(|it: char| !it.is_ascii_digit());
            format!("LPAD(BIN({column} + 0), {length}, '0')")
        }
        _ => column.clone(),
    };
    let number = match has_labels(subject) {
        true => format!("CAST({column} AS UNSIGNED)"),
        false => "0".to_owned(),
    };
    let query = format!("SELECT id, {text}, HEX({column}), {number} FROM {}", subject.name);
    let mut expected = subject.at_rest();
    let mut stored = BTreeMap::new();
    for mut row in connection.query::<mysql_async::Row, _>(query).await? {
        let mut cell = |at| row.take::<Option<String>, _>(at).context("a cell");
        let id = cell(0)?.context("the number")?.parse()?;
        let case = expected.remove(&id).with_context(|| format!("row {id} is one too many"))?;
        let text = cell(1)?;
        ensure!(text == case.text, "row {id}, {}: {text:?}", case.sql);
        let digits = cell(2)?.unwrap_or_default();
        let number = cell(3)?.map(|number| number.parse()).transpose()?.unwrap_or(0);
        stored.insert(id, Stored { digits, number });
    }
    ensure!(expected.is_empty(), "rows are missing: {:?}", expected.keys());
    Ok(stored)
}

/// Statements of one subject, in one transaction.
async fn run(connection: &mut Conn, statements: &str) -> Result<()> {
    let all = format!("BEGIN;\n{statements}COMMIT;\n");
    connection
        .query_drop(all)
        .await
        .with_context(|| statements.chars().take(2_000).collect::<String>())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondReader {
    Asked,
    /// `mariadb-binlog` ends without a word at some forms of the log.
    Fails,
}

/// T1 to T6, T8, T9.
async fn every_value_of_the_corpus(options: Options, reader: SecondReader) -> Result<()> {
    let version = Version::under_test();
    let server = Server::start_with(version, options)?;
    let corpus = Corpus::load(Dialect::MySql)?;
    let series = corpus.on(version);
    let subjects = Subject::all(Dialect::MySql, &series);
    let mut connection = plain_session(&server).await?;
    execute(&mut connection, &["CREATE DATABASE corpus"]).await?;
    for subject in &subjects {
        execute(&mut connection, &[&subject.create()]).await?;
        run(&mut connection, &subject.before_the_pin()).await?;
    }
    execute(&mut connection, &["FLUSH BINARY LOGS"]).await?;
    let names: Vec<_> = subjects.iter().map(|it| it.name.as_str()).collect();
    let setup = Setup::mysql("types", &server, &names)?.to_file().to_sqlite();

    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    for (number, subject) in subjects.iter().enumerate() {
        let zone = ZONES[number % ZONES.len()];
        execute(&mut connection, &[&format!("SET time_zone = '{zone}'")]).await?;
        run(&mut connection, &subject.after_the_pin()).await?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;

    let mut connection = plain_session(&server).await?;
    let lines = lines::read(&setup.lines_file())?;
    let mut by_table: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    lines.iter().for_each(|line| by_table.entry(&line.table).or_default().push(line));
    let mut printed: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let rows = match reader {
        SecondReader::Asked => server.printed_rows("binlog.000002")?,
        SecondReader::Fails => Vec::new(),
    };
    for row in rows {
        printed.entry(row.table.clone()).or_default().push(row);
    }
    let sqlite = rusqlite::Connection::open(setup.replica_file())?;
    let (mut compared, mut images) = (0, 0);
    for subject in &subjects {
        let what = || format!("{}, of type {}", subject.name, subject.series.sql_type);
        let table = subject.name.as_str();
        let stored = check_server(subject, &mut connection).await;
        let stored = stored.context("the source").with_context(what)?;
        let lines = by_table.remove(table).unwrap_or_default();
        compared += subject.check_lines(&lines).context("the lines").with_context(what)?;
        let replica = table.replace('.', "__");
        subject.check_sqlite(&sqlite, &replica).context("the replica").with_context(what)?;
        if reader == SecondReader::Asked && is_printed(subject, version) {
            let rows = printed.remove(table).unwrap_or_default();
            let found = check_printed(subject, &stored, &rows);
            images += found.context("the second reader").with_context(what)?;
        }
    }
    ensure!(by_table.is_empty(), "lines of other tables: {:?}", by_table.keys());
    let values: usize = series.iter().map(|series| series.cases.len()).sum();
    println!("{values} values in {} tables, {compared} lines, {images} images", subjects.len());
    ensure!(values >= 500, "only {values} values");
    ensure!(
        images >= 5_000 || reader == SecondReader::Fails,
        "only {images} images of the second reader"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_and_stream_and_second_reader_give_every_value_of_the_corpus() -> Result<()> {
    every_value_of_the_corpus(hostile(), SecondReader::Asked).await
}

/// The catalog knows what the log does not say.
#[tokio::test(flavor = "multi_thread")]
async fn minimal_metadata_gives_the_same_values() -> Result<()> {
    let options = hostile().set("binlog-row-metadata", "MINIMAL");
    every_value_of_the_corpus(options, SecondReader::Asked).await
}

/// Tables that were made long ago hold times in another form, which the log has as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_forms_of_times_give_the_same_values() -> Result<()> {
    if !Version::under_test().is_mariadb() {
        return Ok(());
    }
    let options = hostile().set("mysql56-temporal-format", "OFF");
    every_value_of_the_corpus(options, SecondReader::Fails).await
}

/// T1: a number of the log is the label that it was when it was written.
#[tokio::test(flavor = "multi_thread")]
async fn labels_are_those_of_their_time() -> Result<()> {
    let server = Server::start_with(Version::under_test(), hostile())?;
    let mut connection = plain_session(&server).await?;
    let statements = [
        "CREATE DATABASE corpus",
        "CREATE TABLE corpus.labels (id int PRIMARY KEY, e enum('a','b'), s set('a','b'))",
        "INSERT INTO corpus.labels VALUES (1, 'a', 'a,b')",
    ];
    execute(&mut connection, &statements).await?;
    let setup = Setup::mysql("labels", &server, &["corpus.labels"])?.to_file();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;
    let alter = |more: &str| {
        format!(
            "ALTER TABLE corpus.labels MODIFY e enum({more}'a','b'), MODIFY s set({more}'a','b')"
        )
    };
    let statements = [
        "INSERT INTO corpus.labels VALUES (2, 'b', 'b')",
        &alter("'z',"),
        "INSERT INTO corpus.labels VALUES (3, 'b', 'z,b')",
        "UPDATE corpus.labels SET e = 'z' WHERE id = 1",
    ];
    execute(&mut connection, &statements).await?;
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    execute(&mut connection, &[&alter("'y','z',"), "DELETE FROM corpus.labels WHERE id = 3"])
        .await?;
    setup.mysql_caught_up(&mut engine, &server).await?;

    let row = |id: u32, e: &str, s: &str| json!({ "id": id, "e": e, "s": s }).as_object().cloned();
    let lines = lines::read(&setup.lines_file())?;
    let said: Vec<_> =
        lines.iter().map(|line| (line.op.as_str(), &line.before, &line.after)).collect();
    let expected = [
        ("read", &None, &row(1, "a", "a,b")),
        ("insert", &None, &row(2, "b", "b")),
        ("insert", &None, &row(3, "b", "z,b")),
        ("update", &row(1, "a", "a,b"), &row(1, "z", "a,b")),
        ("delete", &row(3, "b", "z,b"), &None),
    ];
    assert_eq!(said, expected);
    Ok(())
}

/// L12: what the server computes and what `SELECT *` hides are columns like others.
#[tokio::test(flavor = "multi_thread")]
async fn generated_and_invisible_columns_are_the_same_in_scan_and_stream() -> Result<()> {
    let server = Server::start_with(Version::under_test(), hostile())?;
    let mut connection = plain_session(&server).await?;
    let table = "CREATE TABLE corpus.made (id int PRIMARY KEY, a int, made_once int AS (a + 1) STORED, \
                 made_anew varchar(20) AS (concat('v', a)) VIRTUAL, hidden int INVISIBLE DEFAULT 7, z int)";
    let insert = |id| format!("INSERT INTO corpus.made (id, a, z) VALUES ({id}, 41, 3)");
    let statements = ["CREATE DATABASE corpus", table, &insert(1), &insert(2), &insert(3)];
    execute(&mut connection, &statements).await?;
    let setup = Setup::mysql("made", &server, &["corpus.made"])?.to_file();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    let statements = [
        &insert(4),
        "UPDATE corpus.made SET a = 50, hidden = 8 WHERE id = 2",
        "DELETE FROM corpus.made WHERE id = 3",
    ];
    execute(&mut connection, &statements).await?;
    setup.mysql_caught_up(&mut engine, &server).await?;

    let row = |id: u32, a: u32, hidden: u32| {
        let row = json!({ "id": id, "a": a, "made_once": a + 1, "made_anew": format!("v{a}"),
            "hidden": hidden, "z": 3 });
        row.as_object().cloned()
    };
    let lines = lines::read(&setup.lines_file())?;
    let said: Vec<_> =
        lines.iter().map(|line| (line.op.as_str(), &line.before, &line.after)).collect();
    let expected = [
        ("read", &None, &row(1, 41, 7)),
        ("read", &None, &row(2, 41, 7)),
        ("read", &None, &row(3, 41, 7)),
        ("insert", &None, &row(4, 41, 7)),
        ("update", &row(2, 41, 7), &row(2, 50, 8)),
        ("delete", &row(3, 41, 7), &None),
    ];
    assert_eq!(said, expected);
    Ok(())
}

/// A document, what is done to it, and what it is then.
const DIFFERENCES: [(&str, &str, &str); 9] = [
    (r#"{"a": 1, "b": "x"}"#, "JSON_SET(document, '$.a', 2)", r#"{"a": 2, "b": "x"}"#),
    (r#"{"a": 1}"#, "JSON_SET(document, '$.b', 'ä日')", r#"{"a": 1, "b": "ä日"}"#),
    ("[1, 2, 3]", "JSON_REPLACE(document, '$[1]', 'two')", r#"[1, "two", 3]"#),
    ("[1, 2, 3]", "JSON_REMOVE(document, '$[0]')", "[2, 3]"),
    (r#"{"a": [1]}"#, "JSON_ARRAY_APPEND(document, '$.a', 2.50)", r#"{"a": [1, 2.50]}"#),
    (
        "[1, 3]",
        "JSON_ARRAY_INSERT(document, '$[1]', CAST('2020-02-29' AS DATE))",
        r#"[1, "2020-02-29", 3]"#,
    ),
    (
        r#"{"a": {"b": {"c": null}}, "d": 1}"#,
        "JSON_REMOVE(JSON_SET(document, '$.a.b.c', 1.5), '$.d')",
        r#"{"a": {"b": {"c": 1.5}}}"#,
    ),
    (
        r#"{"a\"b": 1, "ü.x": 2}"#,
        r#"JSON_SET(document, '$."a\\"b"', 3, '$."ü.x"', TRUE)"#,
        r#"{"a\"b": 3, "ü.x": true}"#,
    ),
    (r#"{"a": 1}"#, "JSON_SET(document, '$.a', 1)", r#"{"a": 1}"#),
];

/// L2, T6: with differences of documents in the log. MariaDB has none.
#[tokio::test(flavor = "multi_thread")]
async fn differences_of_documents_are_applied() -> Result<()> {
    if Version::under_test().is_mariadb() {
        return Ok(());
    }
    let server = Server::start_with(Version::under_test(), hostile())?;
    let mut connection = plain_session(&server).await?;
    let table = "CREATE TABLE corpus.documents (id int PRIMARY KEY, document json, touched int, \
                 padding json)";
    execute(&mut connection, &["CREATE DATABASE corpus", table]).await?;
    for (id, (document, ..)) in DIFFERENCES.iter().enumerate() {
        // Long enough that a difference is worth it.
        let insert = "INSERT INTO corpus.documents VALUES \
                      (?, ?, 0, JSON_ARRAY(repeat('p', 1000)))";
        connection.exec_drop(insert, (id, document)).await?;
    }
    execute(&mut connection, &["FLUSH BINARY LOGS"]).await?;
    let setup = Setup::mysql("documents", &server, &["corpus.documents"])?.to_file().to_sqlite();
    let mut engine = setup.run()?;
    setup.mysql_caught_up(&mut engine, &server).await?;
    execute(&mut connection, &["SET SESSION binlog_row_value_options = PARTIAL_JSON"]).await?;
    for (id, (_, change, _)) in DIFFERENCES.iter().enumerate() {
        let update = format!(
            "UPDATE corpus.documents SET document = {change}, touched = 1, \
             padding = JSON_SET(padding, '$[1]', {id}) WHERE id = {id}"
        );
        execute(&mut connection, &[&update]).await?;
    }
    setup.mysql_caught_up(&mut engine, &server).await?;
    engine.terminate().await?;

    let sqlite = rusqlite::Connection::open(setup.replica_file())?;
    let lines = lines::read(&setup.lines_file())?;
    let updates: Vec<_> = lines.iter().filter(|line| line.op == "update").collect();
    ensure!(updates.len() == DIFFERENCES.len(), "{} updates", updates.len());
    for (id, ((before, change, after), line)) in DIFFERENCES.iter().zip(updates).enumerate() {
        let old = line.before.as_ref().and_then(|row| row.get("document"));
        ensure!(old == Some(&json!(before)), "{change}: before it {old:?}");
        let new = line.after("document");
        ensure!(new == Some(&json!(after)), "{change}: {new:?}");
        let query = "SELECT CAST(document AS CHAR) FROM corpus.documents WHERE id = ?";
        let there: Option<String> = connection.exec_first(query, (id,)).await?;
        ensure!(there.as_deref() == Some(after), "{change}: the server has {there:?}");
        let query = "SELECT document FROM corpus__documents WHERE id = ?";
        let there: String = sqlite.query_row(query, [i64::try_from(id)?], |row| row.get(0))?;
        ensure!(there == *after, "{change}: the replica has {there}");
    }
    let printed = server.printed_log("binlog.000002")?;
    let differences = printed.matches("=JSON_").count();
    ensure!(differences >= DIFFERENCES.len(), "only {differences} differences in the log");
    Ok(())
}
