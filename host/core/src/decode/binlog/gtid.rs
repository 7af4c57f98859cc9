//! The events that begin a transaction by naming it.

use super::reader::{Reader, Short};
use crate::gtid::{mariadb, mysql};

/// MySQL's `GTID`, `ANONYMOUS_GTID` and `GTID_TAGGED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MySqlGtid {
    /// None with GTIDs switched off.
    pub gtid: Option<mysql::Gtid>,
    /// When this server committed it, in microseconds since the Unix epoch.
    pub commit_time_micros: Option<i64>,
}

/// MariaDB's `GTID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariaDbGtid {
    pub gtid: mariadb::Gtid,
    /// One statement follows, that commits itself; otherwise a transaction is begun.
    pub is_standalone: bool,
    /// The transaction ends in `XA PREPARE`. Servers from 10.5 on say so.
    pub is_prepared: bool,
}

/// The highest bit of seven bytes says that another time follows.
const TIME_BITS: u32 = 55;

pub(super) fn mysql_gtid(body: &[u8], is_anonymous: bool) -> Result<MySqlGtid, Short> {
    let mut reader = Reader::new(body);
    let _flags = reader.u8()?;
    let uuid = mysql::Uuid(reader.array()?);
    let number = reader.u64()?;
    let gtid =
        if is_anonymous { None } else { Some(gtid(mysql::Issuer { uuid, tag: None }, number)?) };
    // What follows came with later versions: a type of clock, two logical times, and the time of the commit.
    let commit_time_micros = match reader.left() {
        0..24 => None,
        _ => {
            let (_clock, _committed, _sequence) = (reader.u8()?, reader.u64()?, reader.u64()?);
            micros(reader.uint::<7>()? & !(1 << TIME_BITS))
        }
    };
    Ok(MySqlGtid { gtid, commit_time_micros })
}

/// The fields are numbered, so that later versions may add some: those behind the ones that are needed are not read.
pub(super) fn mysql_gtid_tagged(body: &[u8]) -> Result<MySqlGtid, Short> {
    const VERSION: u64 = 1;
    mod field {
        pub(super) const FLAGS: u64 = 0;
        pub(super) const UUID: u64 = 1;
        pub(super) const NUMBER: u64 = 2;
        pub(super) const TAG: u64 = 3;
        pub(super) const LAST_COMMITTED: u64 = 4;
        pub(super) const SEQUENCE: u64 = 5;
        pub(super) const COMMIT_TIME: u64 = 6;
        /// The last that servers of version 9.7 write.
        pub(super) const KNOWN_LAST: u64 = 11;
    }
    let mut reader = Reader::new(body);
    if varint(&mut reader)? != VERSION {
        return Err(Short);
    }
    let _size = varint(&mut reader)?;
    // A reader that does not know the last field that may not be ignored must not go on.
    if varint(&mut reader)? > field::KNOWN_LAST {
        return Err(Short);
    }
    let (mut uuid, mut number, mut tag, mut time) = ([0; 16], 0, None, None);
    while !reader.is_empty() {
        match varint(&mut reader)? {
            field::FLAGS | field::LAST_COMMITTED | field::SEQUENCE => {
                varint(&mut reader)?;
            }
            field::UUID => {
                for byte in &mut uuid {
                    *byte = u8::try_from(varint(&mut reader)?).map_err(|_| Short)?;
                }
            }
            field::NUMBER => number = unsigned(varint(&mut reader)?)?,
            field::TAG => tag = tag_of(&mut reader)?,
            field::COMMIT_TIME => {
                time = micros(varint(&mut reader)?);
                break;
            }
            _ => break,
        }
    }
    let issuer = mysql::Issuer { uuid: mysql::Uuid(uuid), tag };
    Ok(MySqlGtid { gtid: Some(gtid(issuer, number)?), commit_time_micros: time })
}

fn gtid(issuer: mysql::Issuer, number: u64) -> Result<mysql::Gtid, Short> {
    match number {
        1..=mysql::NUMBER_MAX => Ok(mysql::Gtid { issuer, number }),
        _ => Err(Short),
    }
}

fn tag_of(reader: &mut Reader<'_>) -> Result<Option<mysql::Tag>, Short> {
    let length = usize::try_from(varint(reader)?).map_err(|_| Short)?;
    let tag = std::str::from_utf8(reader.take(length)?).map_err(|_| Short)?;
    if tag.is_empty() { Ok(None) } else { tag.parse().map(Some).map_err(|_| Short) }
}

fn micros(time: u64) -> Option<i64> {
    i64::try_from(time).ok().filter(|micros| *micros > 0)
}

/// Of MySQL's serialization library: as many ones as bytes follow the first, a zero, and the number behind them.
fn varint(reader: &mut Reader<'_>) -> Result<u64, Short> {
    let first = reader.u8()?;
    let following = first.trailing_ones();
    let number = match following {
        0 => 0,
        1 => reader.uint::<1>()?,
        2 => reader.uint::<2>()?,
        3 => reader.uint::<3>()?,
        4 => reader.uint::<4>()?,
        5 => reader.uint::<5>()?,
        6 => reader.uint::<6>()?,
        7 => reader.uint::<7>()?,
        _ => return reader.u64(),
    };
    let low_bits = 7 - following;
    Ok(number << low_bits | u64::from(first.unbounded_shr(following + 1)))
}

/// A signed number has its sign in its lowest bit.
fn unsigned(number: u64) -> Result<u64, Short> {
    if number & 1 == 0 { Ok(number >> 1) } else { Err(Short) }
}

pub(super) fn mariadb_gtid(body: &[u8], server: u32) -> Result<MariaDbGtid, Short> {
    const STANDALONE: u8 = 1;
    const PREPARED_XA: u8 = 64;
    let mut reader = Reader::new(body);
    let sequence = reader.u64()?;
    let domain = reader.u32()?;
    let flags = reader.u8()?;
    Ok(MariaDbGtid {
        gtid: mariadb::Gtid { domain, server, sequence },
        is_standalone: flags & STANDALONE != 0,
        is_prepared: flags & PREPARED_XA != 0,
    })
}

/// In the order in which the latest of a domain comes last.
pub(super) fn mariadb_gtid_list(body: &[u8]) -> Result<Vec<mariadb::Gtid>, Short> {
    /// The upper bits are flags.
    const COUNT: u32 = (1 << 28) - 1;
    const LENGTH: usize = 16;
    let mut reader = Reader::new(body);
    let count = usize::try_from(reader.u32()? & COUNT).map_err(|_| Short)?;
    let mut gtids = Vec::with_capacity(count.min(reader.left() / LENGTH));
    for _ in 0..count {
        let (domain, server, sequence) = (reader.u32()?, reader.u32()?, reader.u64()?);
        gtids.push(mariadb::Gtid { domain, server, sequence });
    }
    Ok(gtids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_serialization_library() {
        let number = |bytes: &[u8]| varint(&mut Reader::new(bytes));
        assert_eq!(number(&[0xFE]), Ok(127));
        assert_eq!(number(&[0xC5, 0x02]), Ok(0xB1));
        assert_eq!(number(&[0b1111_1011, 0xFF, 0x07]), Ok(65535));
        assert_eq!(number(&[0xFF, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(0x0807_0605_0403_0201));
        assert_eq!(number(&[0x7F, 1, 0, 0, 0, 0, 0, 0x80]), Ok(0x80_0000_0000_0001));
        assert_eq!(number(&[0x01]), Err(Short));
    }
}
