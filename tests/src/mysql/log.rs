//! The commits in a server's binlog, as mysql_async's own reader sees them.
//!
//! An account that has nothing in common with the engine under test: not its connection, not its decoder, not its
//! grouping. Of every row only the first column is kept, which is an integer wherever this is used. Rows of an XA
//! transaction belong to its `XA COMMIT`; those that were rolled back, or are still prepared at the end, are left out, and so
//! is what a killed server had not written to the end.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use mysql_async::binlog::EventType;
use mysql_async::binlog::events::{Event, EventData, GtidEvent, RowsEventData, TableMapEvent};
use mysql_async::binlog::value::BinlogValue;
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStream, BinlogStreamRequest, Value};

use super::Server;
use crate::wait::{PATIENCE, until};

/// Where an event begins or ends: the number of the file, and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: u32,
    pub offset: u64,
}

impl Place {
    /// From a name such as `binlog.000012`. What follows its digits is the checksum of an event that MariaDB makes up
    /// before the reader can know that there are checksums.
    pub fn new(file: &str, offset: u64) -> Result<Self> {
        let number = file.split_once('.').and_then(|(_, rest)| rest.get(..6)?.parse().ok());
        Ok(Self { file: number.with_context(|| format!("the number of {file}"))?, offset })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}:{}", self.file, self.offset)
    }
}

/// A transaction that was committed.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Of its first event; of an XA transaction, the first event of its `XA COMMIT`.
    pub start: Place,
    pub end: Place,
    /// As the server prints it; `None` where it logs none.
    pub gtid: Option<String>,
    pub rows: Vec<Row>,
    /// What was logged as a statement: DDL, mostly.
    pub statement: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Schema and name, joined by a point.
    pub table: String,
    pub what: What,
    /// The first column, after the change; of a delete, before it.
    pub first: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Insert,
    Update,
    Delete,
}

impl Server {
    /// Every transaction that is in the log now, from its first file that is still there.
    pub async fn logged(&self) -> Result<Vec<Transaction>> {
        let mut connection = self.connect().await?;
        let mut files = connection.query_iter("SHOW BINARY LOGS").await?;
        let first = files.next().await?.and_then(|mut row| row.take::<String, _>(0));
        let first = first.context("the server has no log")?;
        drop(files);
        self.logged_from(&first, 4).await
    }

    /// Where the next event will begin.
    pub async fn log_end(&self) -> Result<Place> {
        let mariadb = self.version().is_mariadb();
        let query = if mariadb { "SHOW MASTER STATUS" } else { "SHOW BINARY LOG STATUS" };
        let row: Option<mysql_async::Row> = self.connect().await?.query_first(query).await?;
        let mut row = row.context("the server has no log")?;
        let file: String = row.take(0).context("a file")?;
        Place::new(&file, row.take(1).context("an offset")?)
    }

    /// Removes every file but the one that is written to. The server keeps, with a warning, what it still sends to a
    /// reader, and notices late that one has gone.
    pub async fn purge_to_the_end(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        let end = self.log_end().await?;
        let purge = format!("PURGE BINARY LOGS TO 'binlog.{:06}'", end.file);
        until("the log before its last file to be gone", PATIENCE, async || {
            connection.query_drop(&purge).await?;
            let files: Vec<mysql_async::Row> = connection.query("SHOW BINARY LOGS").await?;
            Ok((files.len() == 1).then_some(()))
        })
        .await
    }

    /// Every transaction from a place on that is the beginning of one.
    pub async fn logged_from(&self, file: &str, offset: u64) -> Result<Vec<Transaction>> {
        let mut reading = Reading::new(self.version().is_mariadb());
        let (mut file, mut offset) = (file.to_owned(), offset);
        while let Err(error) = self.read_from(&file, offset, &mut reading).await {
            // MariaDB leaves what it was writing when it was killed, and begins another file.
            if !is_torn(&error) {
                return Err(error);
            }
            file = self.file_behind(reading.next.file).await?.ok_or(error)?;
            offset = 4;
        }
        Ok(reading.done)
    }

    async fn read_from(&self, file: &str, offset: u64, reading: &mut Reading) -> Result<()> {
        let mut connection = self.connect().await?;
        if self.version().is_mariadb() {
            // Or it would hide its GTIDs.
            connection.query_drop("SET @mariadb_slave_capability = 4").await?;
        }
        let request = BinlogStreamRequest::new(u32::from(self.port()) + 100_000)
            .with_non_blocking()
            .with_filename(file.as_bytes())
            .with_pos(offset);
        let mut stream = connection.get_binlog_stream(request).await?;
        while let Some(event) = stream.next().await {
            let event = event.context("read the log")?;
            reading.event(&event, &stream).with_context(|| {
                format!("event {} before {}", event.header().event_type_raw(), reading.next)
            })?;
        }
        Ok(())
    }

    async fn file_behind(&self, number: u32) -> Result<Option<String>> {
        let mut connection = self.connect().await?;
        let files: Vec<mysql_async::Row> = connection.query("SHOW BINARY LOGS").await?;
        let names = files.into_iter().filter_map(|mut row| row.take::<String, _>(0));
        Ok(names.into_iter().find(|name| Place::new(name, 4).is_ok_and(|it| it.file > number)))
    }
}

/// The log ends in the middle of an event.
fn is_torn(error: &anyhow::Error) -> bool {
    const LOG_CANNOT_BE_SENT: u16 = 1236;
    match error.downcast_ref::<mysql_async::Error>() {
        Some(mysql_async::Error::Server(report)) => report.code == LOG_CANNOT_BE_SENT,
        _ => false,
    }
}

/// MariaDB's GTID event, which mysql_async does not know.
const MARIADB_GTID: u8 = 162;

#[derive(Debug)]
struct Reading {
    mariadb: bool,
    /// Where the next event begins.
    next: Place,
    open: Option<Open>,
    /// XA transactions that are prepared, by the first part of their id in hexadecimal.
    prepared: HashMap<String, Vec<Row>>,
    done: Vec<Transaction>,
}

#[derive(Debug)]
struct Open {
    start: Place,
    gtid: Option<String>,
    rows: Vec<Row>,
}

impl Reading {
    fn new(mariadb: bool) -> Self {
        let next = Place { file: 0, offset: 4 };
        Self { mariadb, next, open: None, prepared: HashMap::new(), done: Vec::new() }
    }

    fn event(&mut self, event: &Event, stream: &BinlogStream) -> Result<()> {
        let header = event.header();
        let end = u64::from(header.log_pos());
        // Events that the server makes up have no place, and those in a compressed payload that of the payload.
        if end > self.next.offset && header.event_type_raw() != EventType::ROTATE_EVENT as u8 {
            let start = Place { offset: end - u64::from(header.event_size()), ..self.next };
            self.next.offset = end;
            self.begins(event, start)?;
        }
        match event.read_data()? {
            Some(EventData::RotateEvent(rotate)) => {
                self.next = Place::new(&rotate.name(), rotate.position())?;
                // No transaction goes on in another file.
                self.open = None;
            }
            Some(EventData::RowsEvent(rows)) => {
                let table = stream.get_tme(rows.table_id()).context("rows without a table map")?;
                self.rows(&rows, table)?;
            }
            Some(EventData::QueryEvent(query)) => self.query(&query.query()),
            Some(EventData::XidEvent(_)) => self.commits(Vec::new(), None),
            Some(EventData::XaPrepareLogEvent(prepare)) => {
                if let Some(open) = self.open.take() {
                    let id = prepared_id(&prepare).context("a prepare event that is too short")?;
                    self.prepared.insert(id, open.rows);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begins(&mut self, event: &Event, start: Place) -> Result<()> {
        let header = event.header();
        let gtid = if self.mariadb && header.event_type_raw() == MARIADB_GTID {
            Some(mariadb_gtid(event).context("a GTID event that is too short")?)
        } else if !self.mariadb
            && matches!(
                header.event_type(),
                Ok(EventType::GTID_EVENT | EventType::GTID_TAGGED_LOG_EVENT)
            )
        {
            Some(mysql_gtid(&event.read_event()?))
        } else if matches!(header.event_type(), Ok(EventType::ANONYMOUS_GTID_EVENT)) {
            None
        } else {
            return Ok(());
        };
        self.open = Some(Open { start, gtid, rows: Vec::new() });
        Ok(())
    }

    fn rows(&mut self, rows: &RowsEventData<'_>, table: &TableMapEvent<'_>) -> Result<()> {
        let open = self.open.as_mut().context("rows outside a transaction")?;
        let name = format!("{}.{}", table.database_name(), table.table_name());
        for row in rows.rows(table) {
            let (before, after) = row?;
            let what = match (&before, &after) {
                (None, _) => What::Insert,
                (Some(_), Some(_)) => What::Update,
                (Some(_), None) => What::Delete,
            };
            let image = after.or(before).context("a row without an image")?;
            let first = match image.as_ref(0) {
                Some(BinlogValue::Value(Value::Int(number))) => Some(*number),
                Some(BinlogValue::Value(Value::UInt(number))) => i64::try_from(*number).ok(),
                _ => None,
            };
            open.rows.push(Row { table: name.clone(), what, first });
        }
        Ok(())
    }

    fn query(&mut self, text: &str) {
        if let Some(id) = text.strip_prefix("XA COMMIT ") {
            let rows = self.prepared.remove(hexadecimal(id)).unwrap_or_default();
            self.commits(rows, None);
        } else if let Some(id) = text.strip_prefix("XA ROLLBACK ") {
            self.prepared.remove(hexadecimal(id));
            self.open = None;
        } else if !["BEGIN", "XA START", "XA END", "SAVEPOINT", "ROLLBACK TO"]
            .iter()
            .any(|inside| text.starts_with(inside))
        {
            // A table without transactions closes its rows by a statement.
            let own = !["COMMIT", "ROLLBACK"].contains(&text);
            self.commits(Vec::new(), own.then(|| text.to_owned()));
        }
    }

    fn commits(&mut self, prepared: Vec<Row>, statement: Option<String>) {
        let Some(Open { start, gtid, mut rows, .. }) = self.open.take() else { return };
        rows.splice(..0, prepared);
        self.done.push(Transaction { start, end: self.next, gtid, rows, statement });
    }
}

fn mysql_gtid(event: &GtidEvent) -> String {
    let mut text = String::new();
    for (index, byte) in event.sid().iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    if let Some(tag) = event.tag() {
        text += &format!(":{tag}");
    }
    format!("{text}:{}", event.gno())
}

fn mariadb_gtid(event: &Event) -> Option<String> {
    let (sequence, rest) = event.data().split_first_chunk::<8>()?;
    let (domain, _) = rest.split_first_chunk::<4>()?;
    let (domain, sequence) = (u32::from_le_bytes(*domain), u64::from_le_bytes(*sequence));
    Some(format!("{domain}-{}-{sequence}", event.header().server_id()))
}

/// Of an event: a flag, a format, the lengths of the two parts of the id, and the id.
fn prepared_id(event: &[u8]) -> Option<String> {
    let (length, id) = (event.get(5..9)?, event.get(13..)?);
    let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
    Some(id.get(..length)?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Of an id as a statement in the log writes it: `X'6B657074',X'',1`.
fn hexadecimal(id: &str) -> &str {
    id.split('\'').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::{Version, execute};

    #[tokio::test]
    async fn commits_are_told_with_their_rows_and_nothing_that_was_taken_back() -> Result<()> {
        for version in Version::installed()? {
            let server = Server::start(version)?;
            let mut connection = server.connect().await?;
            let statements = [
                "CREATE DATABASE IF NOT EXISTS test",
                "CREATE TABLE test.t (id bigint PRIMARY KEY, n int)",
                "CREATE TABLE test.m (id bigint PRIMARY KEY) ENGINE = MyISAM",
                "INSERT INTO test.t VALUES (1, 1)",
                "BEGIN",
                "UPDATE test.t SET n = 2",
                "SAVEPOINT a",
                "DELETE FROM test.t",
                "ROLLBACK TO SAVEPOINT a",
                "INSERT INTO test.t VALUES (-2, 1)",
                "COMMIT",
                "INSERT INTO test.m VALUES (3)",
                "XA START 'kept'",
                "INSERT INTO test.t VALUES (4, 1)",
                "XA END 'kept'",
                "XA PREPARE 'kept'",
                "XA COMMIT 'kept'",
                "XA START 'gone'",
                "INSERT INTO test.t VALUES (5, 1)",
                "XA END 'gone'",
                "XA PREPARE 'gone'",
                "XA ROLLBACK 'gone'",
                "FLUSH BINARY LOGS",
                "DELETE FROM test.t WHERE id = 1",
            ];
            execute(&mut connection, &statements).await?;
            let logged = server.logged().await?;
            let rows: Vec<Vec<_>> = logged
                .iter()
                .filter(|transaction| !transaction.rows.is_empty())
                .map(|transaction| {
                    transaction.rows.iter().map(|row| (row.what, row.first)).collect()
                })
                .collect();
            let expected = [
                vec![(What::Insert, Some(1))],
                vec![(What::Update, Some(1)), (What::Insert, Some(-2))],
                vec![(What::Insert, Some(3))],
                vec![(What::Insert, Some(4))],
                vec![(What::Delete, Some(1))],
            ];
            assert_eq!(rows, expected, "{version}");
            let order: Vec<_> = logged.iter().flat_map(|it| [it.start, it.end]).collect();
            assert!(order.is_sorted(), "{version}: {order:?}");
            let last = logged.last().context("a transaction")?;
            assert_eq!(last.start.file, 2);
            let query = if version.is_mariadb() {
                "SELECT @@gtid_binlog_pos"
            } else {
                "SELECT @@gtid_executed"
            };
            let executed: String = connection.query_first(query).await?.context("GTIDs")?;
            let last = last.gtid.clone().context("a GTID")?;
            let number = last.rsplit([':', '-']).next().context("a number")?;
            assert!(executed.ends_with(number), "{executed} ends with {last}");
        }
        Ok(())
    }
}
