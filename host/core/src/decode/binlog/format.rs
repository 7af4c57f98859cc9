//! `FORMAT_DESCRIPTION`: what the events of a file look like.

use super::header::Checksum;
use super::kind;
use super::reader::{Reader, Short};

/// Whose events they are. The two servers share the numbers up to 35 and go different ways behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    MySql,
    MariaDb,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub flavor: Flavor,
    /// As the server prints it.
    pub version: String,
    /// When the server made the file as its first after it was started, in seconds since the Unix epoch; 0 in later
    /// files, and in what is sent to a reader that starts in the middle of a file.
    pub created: u32,
    pub(super) checksum: Checksum,
}

/// Definite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFormat {
    #[error("it ends too early")]
    Short,
    #[error("binlog format {0}; only format 4, of MySQL 5.0 and later, is read")]
    Version(u16),
    #[error("events of type {kind} with a fixed part of {length} bytes")]
    Layout { kind: u8, length: u8 },
    #[error("checksum algorithm {0}; set binlog_checksum to CRC32 or NONE")]
    Checksum(u8),
}

impl From<Short> for InvalidFormat {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// Lengths of the fixed parts that this decoder takes as given. Zero stands for a type that the server never writes.
const LAYOUT: [(u8, u8); 12] = [
    (kind::QUERY, 13),
    (kind::ROTATE, 8),
    (kind::TABLE_MAP, 8),
    (kind::WRITE_ROWS_V1, 8),
    (kind::UPDATE_ROWS_V1, 8),
    (kind::DELETE_ROWS_V1, 8),
    (kind::WRITE_ROWS, 10),
    (kind::UPDATE_ROWS, 10),
    (kind::DELETE_ROWS, 10),
    (kind::PARTIAL_UPDATE_ROWS, 10),
    (kind::MARIADB_GTID, 19),
    (kind::QUERY_COMPRESSED, 13),
];

/// The body is without the checksum that always ends this event.
pub(super) fn format(body: &[u8]) -> Result<Format, InvalidFormat> {
    const VERSION_LENGTH: usize = 50;
    const HEADER_LENGTH: u8 = 19;
    let mut reader = Reader::new(body);
    let version = reader.u16()?;
    if version != 4 {
        return Err(InvalidFormat::Version(version));
    }
    let text = reader.take(VERSION_LENGTH)?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let version = String::from_utf8_lossy(text).into_owned();
    let created = reader.u32()?;
    let header_length = reader.u8()?;
    if header_length != HEADER_LENGTH {
        return Err(InvalidFormat::Layout { kind: 0, length: header_length });
    }
    let (algorithm, lengths) = reader.rest().split_last().ok_or(InvalidFormat::Short)?;
    let length_of = |kind: u8| lengths.get(usize::from(kind).wrapping_sub(1)).copied();
    for (kind, expected) in LAYOUT {
        match length_of(kind) {
            None | Some(0) => {}
            Some(length) if length == expected => {}
            Some(length) => return Err(InvalidFormat::Layout { kind, length }),
        }
    }
    let is_mariadb = version.contains("MariaDB") || length_of(kind::MARIADB_GTID).is_some();
    let checksum = match algorithm {
        0 => Checksum::Absent,
        1 => Checksum::Present,
        other => return Err(InvalidFormat::Checksum(*other)),
    };
    let flavor = if is_mariadb { Flavor::MariaDb } else { Flavor::MySql };
    Ok(Format { flavor, version, created, checksum })
}
