//! The outlets under test, and what they hold, read back by other means than the outlet's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dovetail::config;
use dovetail::origin::{self, Origin, Source};
use dovetail::outlet::{Delivery, Error, Landed, Outlet};
use dovetail_core::schema::{Column, Relation};
use dovetail_core::value::Value;
use dovetail_tests::mysql;
use dovetail_tests::postgres::{PASSWORD, Server, Version};
use dovetail_tests::wait;
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::text::{backticked, json_text, mysql_text, printed, sqlite_text};

/// Rows as PostgreSQL prints them, sorted.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    File,
    Sqlite,
    Postgres,
    MySql(mysql::Version),
}

impl Place {
    /// Those of tables that a server keeps.
    pub(crate) fn servers() -> Vec<Self> {
        [Self::Postgres].into_iter().chain(Self::mysql()).collect()
    }

    /// MariaDB and MySQL, as far as they are installed.
    pub(crate) fn mysql() -> Vec<Self> {
        let installed = mysql::Version::installed().expect("MariaDB at least");
        installed.into_iter().map(Self::MySql).collect()
    }

    /// Whether its own types hold a value of this kind. What they do not hold is refused; see the outlet's own tests.
    pub(crate) fn holds(self, value: &Value) -> bool {
        let Self::MySql(_) = self else { return true };
        match value {
            // Nor is there a sign of zero at MariaDB.
            Value::Float32(value) => value.is_finite() && *value != 0.0,
            Value::Float64(value) => value.is_finite() && *value != 0.0,
            Value::TemporalSpecial(_) => false,
            Value::Date(_) | Value::Timestamp(_) | Value::TimestampTz(_) => {
                printed(value).is_some_and(|text| !text.ends_with("BC"))
            }
            _ => true,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) place: Place,
    directory: TempDir,
    database: Option<Database>,
    schema: Option<Schema>,
}

/// What MySQL calls a database, of this subject's own.
#[derive(Debug)]
struct Schema {
    server: Arc<mysql::Server>,
    name: String,
}

impl Schema {
    async fn create(version: mysql::Version) -> Self {
        static SHARED: Mutex<BTreeMap<mysql::Version, Weak<mysql::Server>>> =
            Mutex::new(BTreeMap::new());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            let running = shared.get(&version).and_then(Weak::upgrade);
            running.unwrap_or_else(|| {
                let options = mysql::Options::default().set("innodb-flush-log-at-trx-commit", "1");
                let started = mysql::Server::start_with(version, options);
                let started = Arc::new(started.expect("a private server"));
                shared.insert(version, Arc::downgrade(&started));
                started
            })
        };
        let name = format!("replica_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut connection = server.connect().await.expect("a connection");
        connection.query_drop(format!("CREATE DATABASE {name}")).await.expect("a database");
        Self { server, name }
    }

    async fn connection(&self) -> mysql_async::Conn {
        let mut connection = self.server.connect().await.expect("a connection");
        let settings = format!("USE {}; SET time_zone = '+00:00'", self.name);
        connection.query_drop(settings).await.expect("settings");
        connection
    }

    fn config(&self) -> config::Outlet {
        let server = config::MySqlServer {
            host: "127.0.0.1".into(),
            port: self.server.port(),
            user: "root".into(),
            password: Some(config::Secret::new(PASSWORD.into())),
            tls: config::Tls { mode: config::SslMode::Disable, root_certificates: None },
        };
        config::Outlet::MySql { server, database: self.name.clone() }
    }
}

/// A database of this subject's own, on the server that the tests which run at the moment share.
#[derive(Debug)]
struct Database {
    server: Arc<Server>,
    name: String,
}

impl Database {
    async fn create() -> Self {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let started = Arc::new(Server::start(Version::V15).expect("a private server"));
                *shared = Arc::downgrade(&started);
                started
            })
        };
        let name = format!("replica_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let client = server.connect().await.expect("a connection");
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        Self { server, name }
    }

    async fn client(&self) -> Client {
        let client = self.server.connect_to(&self.server.url(&self.name)).await.expect("connect");
        let settings = "SET TimeZone = 'UTC'; SET extra_float_digits = 3";
        client.batch_execute(settings).await.expect("settings");
        client
    }

    fn config(&self) -> config::Outlet {
        let server = config::Server {
            host: "127.0.0.1".into(),
            port: self.server.port(),
            database: self.name.clone(),
            user: "postgres".into(),
            password: Some(config::Secret::new(PASSWORD.into())),
            tls: config::Tls { mode: config::SslMode::Disable, root_certificates: None },
        };
        config::Outlet::Postgres { server, schema: None }
    }
}

pub(crate) fn origin() -> Origin {
    origin_of(origin::Kind::Postgres)
}

pub(crate) fn origin_of(kind: origin::Kind) -> Origin {
    let source = Source { kind, system: "7301".into(), database: "shop".into() };
    Origin { pipeline: "test".into(), source }
}

impl Subject {
    /// Every outlet of rows.
    pub(crate) async fn all() -> Vec<Self> {
        let mut all = Self::transactional().await;
        all.push(Self::new(Place::File).await);
        all
    }

    /// Those that hold tables and a checkpoint.
    pub(crate) async fn transactional() -> Vec<Self> {
        let mut all = vec![Self::new(Place::Sqlite).await];
        for place in Place::servers() {
            all.push(Self::new(place).await);
        }
        all
    }

    pub(crate) async fn new(place: Place) -> Self {
        let database = match place {
            Place::Postgres => Some(Database::create().await),
            Place::File | Place::Sqlite | Place::MySql(_) => None,
        };
        let schema = match place {
            Place::MySql(version) => Some(Schema::create(version).await),
            Place::File | Place::Sqlite | Place::Postgres => None,
        };
        Self { place, directory: tempfile::tempdir().expect("a directory"), database, schema }
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("a subject of this place has one")
    }

    fn schema(&self) -> &Schema {
        self.schema.as_ref().expect("a subject of this place has one")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("replica")
    }

    pub(crate) fn config(&self) -> config::Outlet {
        let path = self.path();
        match self.place {
            Place::File => config::Outlet::File { path },
            Place::Sqlite => config::Outlet::Sqlite { path },
            Place::Postgres => self.database().config(),
            Place::MySql(_) => self.schema().config(),
        }
    }

    pub(crate) async fn try_open(&self, origin: &Origin) -> Result<Outlet, Error> {
        Outlet::open(&self.config(), origin, 0).await
    }

    pub(crate) async fn open(&self) -> Outlet {
        self.try_open(&origin()).await.expect("an outlet that opens")
    }

    /// Opens it with the table ready, as before a first scan.
    pub(crate) async fn open_with(&self, relation: &Arc<Relation>) -> Outlet {
        let mut outlet = self.open().await;
        outlet.prepare(relation, true).await.expect("a table that is made ready");
        outlet
    }

    /// Runs SQL on the replica as its operator would.
    pub(crate) async fn operate(&self, sql: &str) {
        match self.place {
            Place::File => panic!("a file takes no SQL"),
            Place::Sqlite => {
                let connection = rusqlite::Connection::open(self.path()).expect("open");
                connection.execute_batch(sql).expect(sql);
            }
            Place::Postgres => {
                self.database().client().await.batch_execute(sql).await.expect(sql);
            }
            Place::MySql(_) if sql.is_empty() => {}
            Place::MySql(_) => {
                self.schema().connection().await.query_drop(sql).await.expect(sql);
            }
        }
    }

    /// Ends every session that is in the replica, as an administrator would.
    pub(crate) async fn cut_sessions(&self) {
        match self.place {
            Place::File | Place::Sqlite => panic!("{:?} has no sessions", self.place),
            Place::Postgres => {
                self.operate(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )
                .await;
            }
            Place::MySql(_) => {
                let mut connection = self.schema().connection().await;
                for id in self.sessions(&mut connection, "").await {
                    connection.query_drop(format!("KILL {id}")).await.expect("an end");
                }
            }
        }
    }

    /// Waits until a session in the replica is in this state of a server of MySQL's kind.
    pub(crate) async fn wait_for_session(&self, state: &str) {
        let mut connection = self.schema().connection().await;
        let what = format!("a session in the state {state}");
        wait::until(what, wait::PATIENCE, async || {
            Ok(self.sessions(&mut connection, state).await.first().map(|_| ()))
        })
        .await
        .expect("a session");
    }

    async fn sessions(&self, connection: &mut mysql_async::Conn, state: &str) -> Vec<u64> {
        let find = "SELECT id FROM information_schema.processlist
                    WHERE db = ? AND id <> connection_id() AND (? = '' OR state = ?)";
        connection.exec(find, (&self.schema().name, state, state)).await.expect("sessions")
    }

    /// What a reader who is not the outlet sees in the table now.
    pub(crate) async fn rows(&self, relation: &Arc<Relation>) -> Rows {
        let mut rows = match self.place {
            Place::File => self.folded_lines(relation),
            Place::Sqlite => self.sqlite_rows(relation),
            Place::Postgres => self.postgres_rows(relation).await,
            Place::MySql(_) => self.mysql_rows(relation).await,
        };
        rows.sort();
        rows
    }

    fn sqlite_rows(&self, relation: &Relation) -> Rows {
        let connection = rusqlite::Connection::open(self.path()).expect("open");
        let names: Vec<_> = relation
            .columns
            .iter()
            .map(|c| format!("\"{}\"", c.name.replace('"', "\"\"")))
            .collect();
        let sql = format!("SELECT {} FROM \"{}\"", names.join(", "), relation.table.name);
        let mut statement = connection.prepare(&sql).expect("a table with these columns");
        let read = |row: &rusqlite::Row<'_>| {
            let cell = |(index, column): (usize, &Column)| {
                row.get_ref(index).map(|cell| sqlite_text(column.kind, cell))
            };
            relation.columns.iter().enumerate().map(cell).collect()
        };
        statement.query_map([], read).expect("rows").collect::<Result<_, _>>().expect("rows")
    }

    /// By the types' own output functions, which a cast to text is not for every type.
    async fn postgres_rows(&self, relation: &Relation) -> Rows {
        let cells: Vec<_> = relation
            .columns
            .iter()
            .map(|column| format!("\"{}\"", column.name.replace('"', "\"\"")))
            .map(|name| format!("CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"))
            .collect();
        let name = relation.table.name.replace('"', "\"\"");
        let sql = format!("SELECT {} FROM public.\"{name}\"", cells.join(", "));
        let rows = self.database().client().await.query(&sql, &[]).await.expect(&sql);
        let row = |row: &tokio_postgres::Row| (0..row.len()).map(|cell| row.get(cell)).collect();
        rows.iter().map(row).collect()
    }

    async fn mysql_rows(&self, relation: &Relation) -> Rows {
        let names: Vec<_> = relation.columns.iter().map(|c| backticked(&c.name)).collect();
        let sql = format!("SELECT {} FROM {}", names.join(", "), backticked(&relation.table.name));
        let mut connection = self.schema().connection().await;
        let rows: Vec<mysql_async::Row> = connection.exec(&sql, ()).await.expect(&sql);
        let row = |row: mysql_async::Row| {
            let cells = row.unwrap().into_iter().zip(&relation.columns);
            let text = |(cell, column): (mysql_async::Value, &Column)| match cell {
                mysql_async::Value::Bytes(bytes) if column.type_name.starts_with("bit(") => {
                    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
                    let length = column.type_name.trim_matches(|c: char| !c.is_ascii_digit());
                    let length: usize = length.parse().expect("a length");
                    Some(bits[bits.len() - length..].to_owned())
                }
                cell => mysql_text(column.kind, cell),
            };
            cells.map(text).collect()
        };
        rows.into_iter().map(row).collect()
    }

    /// Folds the lines into the table that they describe. A line whose id was seen is a repetition.
    fn folded_lines(&self, relation: &Relation) -> Rows {
        let mut seen = BTreeSet::new();
        let mut keyed: BTreeMap<String, BTreeMap<String, serde_json::Value>> = BTreeMap::new();
        let mut loose: Vec<BTreeMap<String, serde_json::Value>> = Vec::new();
        let mut left = None;
        for line in self.lines() {
            if line["table"] != format!("public.{}", relation.table.name).as_str() {
                continue;
            }
            let id = line["id"].as_str();
            if line["op"] != "truncate" && id.is_some_and(|id| !seen.insert(id.to_owned())) {
                continue;
            }
            let cells = |name: &str| -> Option<BTreeMap<String, serde_json::Value>> {
                let object = line.get(name)?.as_object()?;
                Some(object.iter().map(|(name, cell)| (name.clone(), cell.clone())).collect())
            };
            let key = line.get("key").map(ToString::to_string);
            match (line["op"].as_str().expect("op"), key) {
                ("truncate", _) => {
                    keyed.clear();
                    loose.clear();
                    // A table that is scanned again gives the same ids again.
                    seen.clear();
                }
                ("delete", Some(key)) => left = keyed.remove(&key),
                ("delete", None) => {
                    let before = cells("before").expect("before");
                    let at = loose.iter().position(|row| *row == before).expect("the old row");
                    loose.remove(at);
                }
                ("update", None) => {
                    let before = cells("before").expect("before");
                    let at = loose.iter().position(|row| *row == before).expect("the old row");
                    loose[at] = cells("after").expect("after");
                }
                (_, Some(key)) => {
                    let moved = line["moved"] == true;
                    let base = if moved { left.take() } else { keyed.remove(&key) };
                    let mut row = base.unwrap_or_default();
                    row.extend(cells("after").expect("after"));
                    keyed.insert(key, row);
                }
                (_, None) => loose.push(cells("after").expect("after")),
            }
        }
        let text = |row: &BTreeMap<String, serde_json::Value>| {
            let cell = |column: &Column| {
                json_text(column.kind, row.get(&column.name).expect("every column"))
            };
            relation.columns.iter().map(cell).collect()
        };
        keyed.values().chain(&loose).map(text).collect()
    }

    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path()).expect("a file of lines");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

pub(crate) async fn write(
    outlet: &mut Outlet,
    group: impl IntoIterator<Item = Delivery>,
) -> Vec<Landed> {
    let written = try_write(outlet, group).await;
    written.unwrap_or_else(|error| panic!("a write that succeeds: {error:?}"))
}

pub(crate) async fn try_write(
    outlet: &mut Outlet,
    group: impl IntoIterator<Item = Delivery>,
) -> Result<Vec<Landed>, Error> {
    outlet.write(&group.into_iter().collect()).await
}
