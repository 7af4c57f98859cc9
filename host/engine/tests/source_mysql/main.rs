//! The source of MySQL and MariaDB against private servers: what only a real server can show.

mod connecting;
mod continuing;
mod hidden;
mod pinning;
mod prepared;
mod scanning;
mod settling;
mod streaming;

use std::time::Duration;

use anyhow::{Context, Result};
use dovetail::config::{MySql, MySqlKind, MySqlServer, PinChoice, Secret, SslMode, Tls};
use dovetail::source::Item;
use dovetail::source::mysql::note::Note;
use dovetail::source::mysql::stream::{Start, Stream, look};
use dovetail_core::batch::Closing;
use dovetail_core::change::{Change, Event};
use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::value::Value;
use dovetail_tests::mysql::{Options, Server, Version, execute};
use dovetail_tests::postgres::PASSWORD;
use dovetail_tests::wait::PATIENCE;
use mysql_async::Conn;
use tokio::time::timeout;

/// A captured table and another one.
const TABLES: [&str; 3] = [
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id int PRIMARY KEY, v varchar(40))",
    "CREATE TABLE shop.other (id int PRIMARY KEY)",
];

async fn server(version: Version, options: Options) -> Result<(Server, Conn)> {
    let server = Server::start_with(version, options)?;
    let mut application = server.connect().await?;
    execute(&mut application, &TABLES).await?;
    Ok((server, application))
}

fn source(server: &Server) -> MySql {
    let kind = match server.version().is_mariadb() {
        true => MySqlKind::MariaDb,
        false => MySqlKind::MySql,
    };
    MySql {
        kind,
        server: MySqlServer {
            host: "127.0.0.1".into(),
            port: server.port(),
            user: "root".into(),
            password: Some(Secret::new(PASSWORD.into())),
            tls: Tls { mode: SslMode::Disable, root_certificates: None },
        },
        tables: vec![TableName { namespace: "shop".into(), name: "t".into() }],
        server_id: None,
        pin: PinChoice::Auto,
        own_table: None,
        pin_timeout: Duration::from_secs(10),
        threads_running_max: 50,
        ignore_cascades: false,
    }
}

/// Where the log ends now.
async fn end(server: &Server) -> Result<Lsn> {
    Ok(look(&source(server), None, 1).await?.end)
}

async fn open(server: &Server, from: Lsn, note: Option<&Note>) -> Result<Stream> {
    Ok(Stream::open(&source(server), Start { from, note, epoch: from.epoch() }).await?)
}

/// What a stream brought, and the last position that it closed.
struct Read {
    events: Vec<Event>,
    closed: Vec<Lsn>,
}

impl Read {
    fn last(&self) -> Result<Lsn> {
        self.closed.last().copied().context("something was closed")
    }

    /// In short: `+1=a`, `1=b`, `-1`, `0` for a truncate.
    fn shown(&self) -> Vec<String> {
        self.events.iter().map(show).collect()
    }
}

fn show(event: &Event) -> String {
    let pair = |row: &[Value]| match row {
        [Value::Int(id), Value::Text(text)] => {
            format!("{id}={}", String::from_utf8_lossy(text.as_ref()))
        }
        other => format!("{other:?}"),
    };
    match &event.change {
        Change::Insert { after, .. } => format!("+{}", pair(after.values())),
        Change::Update { after, .. } => pair(after.values()),
        Change::Delete { before, .. } => match before.values() {
            [Value::Int(id), ..] => format!("-{id}"),
            other => format!("{other:?}"),
        },
        Change::Truncate { .. } => "0".into(),
        other => format!("{other:?}"),
    }
}

/// Reads until `end` says that it is enough, at a commit.
async fn read_until(stream: &mut Stream, enough: impl Fn(&Read) -> bool) -> Result<Read> {
    let mut read = Read { events: Vec::new(), closed: Vec::new() };
    let all = async {
        loop {
            if let Item::Batch { events, closing } = stream.next().await? {
                read.events.extend(events);
                if let Closing::Commit(position) = closing {
                    read.closed.push(position);
                    if enough(&read) {
                        return anyhow::Ok(());
                    }
                }
            }
        }
    };
    timeout(PATIENCE, all).await.context("the stream brings what was waited for")??;
    Ok(read)
}

/// Reads the row that ends a test: the table's text `end`.
async fn read_all(stream: &mut Stream) -> Result<Read> {
    let ended = |read: &Read| read.events.last().is_some_and(|event| show(event).ends_with("=end"));
    read_until(stream, ended).await
}
