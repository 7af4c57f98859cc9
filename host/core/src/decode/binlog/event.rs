//! One event of a dump, told apart by its type. See the table in [the module](super).

use bytes::Bytes;

use super::arriving::Arriving;
use super::compressed::decompress;
use super::format::{Flavor, Format, InvalidFormat, format};
use super::gtid::{self, MariaDbGtid, MySqlGtid};
use super::header::{self, Checksum, Header, InvalidFrame};
use super::kind;
use super::payload::{InvalidPayload, Payload};
use super::query::{self, Query};
use super::reader::{Reader, Short};
use super::rows::{self, Rows};
use super::xid::{self, Xid};
use crate::gtid::{mariadb, mysql};

#[derive(Debug)]
pub enum Event<'a> {
    Format(Format),
    /// The log goes on in another file; or, made up by the server, the file that is sent now.
    Rotate {
        file: &'a str,
        offset: u64,
    },
    /// Nothing has happened behind this place, which is the lower half of an offset in the first version.
    Heartbeat {
        file: &'a str,
        offset: u64,
        is_whole: bool,
    },
    PreviousGtids(mysql::GtidSet),
    GtidList(Vec<mariadb::Gtid>),
    MySqlGtid(MySqlGtid),
    MariaDbGtid(MariaDbGtid),
    Query(Query<'a>),
    /// The commit of a transaction.
    Commit,
    XaPrepare {
        /// Prepared and committed in one.
        is_commit: bool,
        xid: Xid,
    },
    /// See [`table_map`](super::table_map).
    TableMap {
        table: u64,
        description: &'a [u8],
    },
    Rows(Rows<'a>),
    Payload(Payload),
    /// Carries no rows, and nothing that is needed.
    Nothing,
}

/// Definite: what is not understood may have been a change.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEvent {
    #[error(transparent)]
    Frame(#[from] InvalidFrame),
    #[error("event of type {kind} that does not hold what its type says")]
    Body { kind: u8 },
    #[error("description of a binlog file that cannot be read")]
    Format(#[from] InvalidFormat),
    #[error(transparent)]
    Payload(#[from] InvalidPayload),
    #[error("event of type {kind} before the description of its file")]
    NoFormat { kind: u8 },
    #[error(
        "event of type {kind}, which is not known{}; a newer server may write rows in it, so update this program",
        if *.is_ignorable { " (marked as one that may be ignored, which says nothing of rows)" } else { "" }
    )]
    Unknown { kind: u8, is_ignorable: bool },
    #[error(
        "the server notes an incident: its binary log lacks changes from here on; scan the tables again in a new pipeline"
    )]
    Incident,
    #[error(
        "data of LOAD DATA, logged as a statement: its rows are not in the log; set binlog_format to ROW everywhere and scan \
         the tables again"
    )]
    LoadData,
}

/// Reads the events of one connection. What an event looks like is said by the one at the beginning of its file.
#[derive(Debug, Default)]
pub struct Decoder {
    format: Option<Format>,
}

impl Decoder {
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// An event as the server sent it, whole.
    pub fn decode<'a>(&mut self, event: &'a Bytes) -> Result<(Header, Event<'a>), InvalidEvent> {
        let header = header::header(event)?;
        let checksum = match (header.kind, &self.format) {
            (kind::FORMAT_DESCRIPTION, _) => Checksum::Unused,
            (kind::ROTATE | kind::HEARTBEAT | kind::HEARTBEAT_V2, _) => Checksum::Guessed,
            (_, Some(format)) => format.checksum,
            (kind, None) => return Err(InvalidEvent::NoFormat { kind }),
        };
        let body = header::body(event, checksum)?;
        if header.kind == kind::FORMAT_DESCRIPTION {
            let format = format(body)?;
            if format.checksum == Checksum::Present {
                header::body(event, Checksum::Present)?;
            }
            self.format = Some(format.clone());
            return Ok((header, Event::Format(format)));
        }
        Ok((header, self.event(event, &header, body)?))
    }

    /// The first part of a compressed transaction.
    pub(super) fn begin(&self, first: &Bytes) -> Result<(Header, Payload, Arriving), InvalidEvent> {
        match &self.format {
            Some(format) if format.flavor == Flavor::MySql => {
                Arriving::begin(first, format.checksum)
            }
            _ => Err(InvalidEvent::NoFormat { kind: kind::TRANSACTION_PAYLOAD }),
        }
    }

    /// An event of a compressed transaction.
    pub fn decode_unpacked<'a>(
        &self,
        event: &'a Bytes,
    ) -> Result<(Header, Event<'a>), InvalidEvent> {
        let header = header::header(event)?;
        let body = header::body(event, Checksum::Absent)?;
        match header.kind {
            kind::QUERY | kind::XID | kind::XA_PREPARE | kind::TABLE_MAP | kind::ROWS_QUERY => {}
            kind::WRITE_ROWS..=kind::DELETE_ROWS | kind::PARTIAL_UPDATE_ROWS => {}
            kind::INTVAR | kind::RAND | kind::USER_VAR => {}
            kind => return Err(InvalidEvent::Body { kind }),
        }
        Ok((header, self.event(event, &header, body)?))
    }

    fn event<'a>(
        &self,
        event: &'a Bytes,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Event<'a>, InvalidEvent> {
        let kind = header.kind;
        let invalid = |Short| InvalidEvent::Body { kind };
        let flavor = self.format.as_ref().map_or(Flavor::MySql, |format| format.flavor);
        let event = match kind {
            kind::ROTATE => rotate(body).map_err(invalid)?,
            kind::HEARTBEAT => heartbeat(header, body).map_err(invalid)?,
            kind::QUERY => Event::Query(query::query(body).map_err(invalid)?),
            kind::XID => Event::Commit,
            kind::XA_PREPARE => {
                let (is_commit, xid) = xid::prepare(body).map_err(invalid)?;
                Event::XaPrepare { is_commit, xid }
            }
            kind::TABLE_MAP => {
                let (table, description) = super::table_map::split(body).map_err(invalid)?;
                Event::TableMap { table, description }
            }
            kind::WRITE_ROWS_V1..=kind::DELETE_ROWS_V1 | kind::WRITE_ROWS..=kind::DELETE_ROWS => {
                Event::Rows(rows::rows(kind, body).map_err(invalid)?)
            }
            // Belong to the statement behind them, which is stopped at if it changes rows.
            kind::INTVAR | kind::RAND | kind::USER_VAR => Event::Nothing,
            kind::STOP | kind::IGNORABLE | kind::ROWS_QUERY => Event::Nothing,
            kind::INCIDENT => return Err(InvalidEvent::Incident),
            kind::LOAD
            | kind::CREATE_FILE
            | kind::APPEND_BLOCK
            | kind::EXEC_LOAD
            | kind::DELETE_FILE
            | kind::NEW_LOAD
            | kind::BEGIN_LOAD_QUERY
            | kind::EXECUTE_LOAD_QUERY => return Err(InvalidEvent::LoadData),
            _ => match flavor {
                Flavor::MySql => mysql_event(event, header, body)?,
                Flavor::MariaDb => mariadb_event(header, body)?,
            },
        };
        Ok(event)
    }
}

fn mysql_event<'a>(
    event: &'a Bytes,
    header: &Header,
    body: &'a [u8],
) -> Result<Event<'a>, InvalidEvent> {
    let kind = header.kind;
    let invalid = |Short| InvalidEvent::Body { kind };
    Ok(match kind {
        kind::GTID => Event::MySqlGtid(gtid::mysql_gtid(body, false).map_err(invalid)?),
        kind::ANONYMOUS_GTID => Event::MySqlGtid(gtid::mysql_gtid(body, true).map_err(invalid)?),
        kind::GTID_TAGGED => Event::MySqlGtid(gtid::mysql_gtid_tagged(body).map_err(invalid)?),
        kind::PREVIOUS_GTIDS => {
            let set = mysql::GtidSet::decode(body);
            Event::PreviousGtids(set.map_err(|_| InvalidEvent::Body { kind })?)
        }
        kind::PARTIAL_UPDATE_ROWS => Event::Rows(rows::rows(kind, body).map_err(invalid)?),
        kind::TRANSACTION_PAYLOAD => Event::Payload(Payload::new(event, body, 0)?),
        kind::HEARTBEAT_V2 => heartbeat_v2(body).map_err(invalid)?,
        kind::TRANSACTION_CONTEXT | kind::VIEW_CHANGE => Event::Nothing,
        _ => return Err(InvalidEvent::Unknown { kind, is_ignorable: header.is_ignorable() }),
    })
}

fn mariadb_event<'a>(header: &Header, body: &'a [u8]) -> Result<Event<'a>, InvalidEvent> {
    let kind = header.kind;
    let invalid = |Short| InvalidEvent::Body { kind };
    Ok(match kind {
        kind::MARIADB_GTID => {
            Event::MariaDbGtid(gtid::mariadb_gtid(body, header.server).map_err(invalid)?)
        }
        kind::GTID_LIST => Event::GtidList(gtid::mariadb_gtid_list(body).map_err(invalid)?),
        kind::QUERY_COMPRESSED => {
            Event::Query(query::query_compressed(body, decompress).map_err(invalid)?)
        }
        kind::WRITE_ROWS_COMPRESSED_V1..=kind::DELETE_ROWS_COMPRESSED => {
            Event::Rows(rows::rows(kind, body).map_err(invalid)?)
        }
        // The events behind it are sent in clear; in a file that is read as it is they are not, and are not understood.
        kind::START_ENCRYPTION => Event::Nothing,
        kind::ANNOTATE_ROWS | kind::BINLOG_CHECKPOINT => Event::Nothing,
        _ => return Err(InvalidEvent::Unknown { kind, is_ignorable: header.is_ignorable() }),
    })
}

fn rotate(body: &[u8]) -> Result<Event<'_>, Short> {
    let mut reader = Reader::new(body);
    let offset = reader.u64()?;
    Ok(Event::Rotate { file: file_name(reader.rest())?, offset })
}

/// MariaDB puts an offset that does not fit the header in front of the name.
fn heartbeat<'a>(header: &Header, body: &'a [u8]) -> Result<Event<'a>, Short> {
    let mut reader = Reader::new(body);
    let is_whole = header.end == 0;
    let offset = if is_whole { reader.u64()? } else { u64::from(header.end) };
    Ok(Event::Heartbeat { file: file_name(reader.rest())?, offset, is_whole })
}

fn heartbeat_v2(body: &[u8]) -> Result<Event<'_>, Short> {
    mod field {
        pub(super) const END: u64 = 0;
        pub(super) const FILE: u64 = 1;
        pub(super) const OFFSET: u64 = 2;
    }
    let mut reader = Reader::new(body);
    let (mut file, mut offset) = (None, None);
    while !reader.is_empty() {
        let kind = reader.packed()?;
        if kind == field::END {
            break;
        }
        let content = reader.packed_bytes()?;
        match kind {
            field::FILE => file = Some(file_name(content)?),
            field::OFFSET => offset = Some(Reader::new(content).packed()?),
            _ => {}
        }
    }
    Ok(Event::Heartbeat { file: file.ok_or(Short)?, offset: offset.ok_or(Short)?, is_whole: true })
}

fn file_name(bytes: &[u8]) -> Result<&str, Short> {
    let name = std::str::from_utf8(bytes).map_err(|_| Short)?;
    if name.is_empty() { Err(Short) } else { Ok(name) }
}
