//! What a server that is killed while it writes to its log leaves there, made on purpose.
//!
//! By chance it is rare: a part of a transaction at the end of the newest file. Here it is a copy of a transaction that the
//! log has already, with the places and the number that it would have had there.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};

use super::Server;
use super::log::Transaction;

/// Where a transaction in the log ends that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// In the header of its first event.
    InHeader,
    /// Behind that header.
    InName,
    /// In its last rows.
    InRows,
    /// Behind an event: only the one that commits it is missing.
    BeforeCommit,
    InCommit,
}

impl Torn {
    pub const ALL: [Self; 5] =
        [Self::InHeader, Self::InName, Self::InRows, Self::BeforeCommit, Self::InCommit];
}

const HEADER_LENGTH: usize = 19;

impl Server {
    /// Adds a part of a transaction like this one to the log of the killed server.
    pub fn tear(&self, like: &Transaction, torn: Torn) -> Result<()> {
        ensure!(self.process.is_none(), "the server runs");
        let path = |number: u32| self.data().join(format!("binlog.{number:06}"));
        let newest = (like.start.file..).take_while(|number| path(*number).exists()).last();
        let newest = path(newest.context("the file of the transaction")?);
        let from = usize::try_from(like.start.offset)?;
        let log = fs::read(path(like.start.file))?;
        let copied = log.get(from..usize::try_from(like.end.offset)?).context("the transaction")?;
        let mut end = fs::metadata(&newest)?.len();
        let mut events = Vec::new();
        let mut left = copied;
        while !left.is_empty() {
            let size = u32::from_le_bytes(left.get(9..13).context("a size")?.try_into()?);
            let (event, behind) =
                left.split_at_checked(usize::try_from(size)?).context("a whole event")?;
            end += u64::from(size);
            events.push(moved(event, u32::try_from(end)?)?);
            left = behind;
        }
        let whole = |without: usize| events.len().checked_sub(without).map(|n| &events[..n]);
        let [first, .., rows, commit] = &events[..] else { anyhow::bail!("a few events") };
        let written = match torn {
            Torn::InHeader => first[..HEADER_LENGTH / 2].to_vec(),
            Torn::InName => first[..HEADER_LENGTH + 10].to_vec(),
            Torn::InRows => [&whole(2).context("rows")?.concat(), &rows[..rows.len() / 2]].concat(),
            Torn::BeforeCommit => whole(1).context("rows")?.concat(),
            Torn::InCommit => {
                [&whole(1).context("rows")?.concat(), &commit[..commit.len() - 3]].concat()
            }
        };
        Ok(fs::File::options().append(true).open(newest)?.write_all(&written)?)
    }
}

/// An event at another place, as one of the next transaction.
fn moved(event: &[u8], end: u32) -> Result<Vec<u8>> {
    const MYSQL_GTID: u8 = 33;
    const MARIADB_GTID: u8 = 162;
    let mut event = event.to_vec();
    event[13..17].copy_from_slice(&end.to_le_bytes());
    let number = match event[4] {
        MARIADB_GTID => Some(HEADER_LENGTH..HEADER_LENGTH + 8),
        MYSQL_GTID => Some(HEADER_LENGTH + 17..HEADER_LENGTH + 25),
        _ => None,
    };
    if let Some(number) = number {
        let next = u64::from_le_bytes(event[number.clone()].try_into()?) + 1_000;
        event[number].copy_from_slice(&next.to_le_bytes());
    }
    let checked = event.len() - 4;
    let checksum = checksum(&event[..checked]);
    event[checked..].copy_from_slice(&checksum.to_le_bytes());
    Ok(event)
}

/// CRC-32 as in Ethernet.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0xedb8_8320,
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}
