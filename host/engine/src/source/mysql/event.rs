//! Single events of the log, looked at beside the stream.
//!
//! What begins at a place is asked of the server as a stream is. At a place where no event begins it says so, with the
//! error for all that it cannot send. Beyond 4 GiB of a file a server may only be asked for its beginning
//! ([`dump`](super::dump)), so nothing is looked at there ([`is_in_reach`]), and what would rest on it is not known.
//!
//! # What is kept of a pin
//!
//! A checkpoint knows the event before it, because it was read. Before a pin nothing was read, so it is looked for:
//! - The *footprint*, as of a checkpoint. A position says where the event before it ends and not where it begins. But
//!   transactions end in an event of a fixed length, which holds the server's number of the transaction and the time. Where
//!   the log ends otherwise (in DDL, in a compressed transaction) there is no footprint.
//! - The *head*: the second event of the file, which says what the files before it hold. It is written when the file is
//!   begun, and has the time of that: a file of the same name that was begun anew has another one. It does not tell a
//!   log that was put back to a place behind the head, and goes on otherwise; there, a pin without a footprint has only
//!   GTIDs and lengths to go by.
//!
//! A checkpoint that a heartbeat closed has no footprint either: the event before it was not sent. It keeps the latest
//! event that is known, and on a server at rest since the pin that is the pin's head.

use bytes::Bytes;
use dovetail_core::decode::binlog::{header, kind};
use dovetail_core::position::Lsn;
use tokio::time::timeout;

use super::continuity::Footprint;
use super::dump::{Dump, Origin};
use super::failure::Failure;
use super::identity::Replica;
use super::reader;
use super::server::{FIRST_OFFSET, Place};
use super::wire::Wire;
use crate::config::MySql;

/// Header and number of the transaction; with and without a checksum.
const COMMIT_LENGTHS: [u64; 2] = [31, 27];

/// Events of the log in their order.
struct Events {
    dump: Dump,
}

impl Events {
    async fn at(config: &MySql, place: Place) -> Result<Self, Failure> {
        let mut wire = Wire::open(&config.server).await?;
        let replica = Replica::choose(&mut wire, config.server_id).await?;
        let dump = Dump::begin(wire, config.kind, &replica, &Origin::Place(place)).await?;
        Ok(Self { dump })
    }

    /// `None` where no event begins.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match timeout(reader::SILENCE, self.dump.event()).await {
                Ok(Ok(event)) if reader::is_in_the_log(&event) => return Ok(Some(event)),
                Ok(Ok(event)) if is_heartbeat(&event) => return Ok(None),
                Ok(Ok(_)) => {}
                Ok(Err(Failure::Definite { source, .. })) if reader::is_fatal(source.as_ref()) => {
                    return Ok(None);
                }
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(reader::silent()),
            }
        }
    }
}

/// There is nothing more in the log.
fn is_heartbeat(event: &[u8]) -> bool {
    header::header(event)
        .is_ok_and(|header| matches!(header.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2))
}

/// Whether the event at a place can be looked at without reading all of the file before it.
pub(super) fn is_in_reach(place: &Place) -> bool {
    u32::try_from(place.offset).is_ok()
}

/// The event that begins at a place; `None` as well where it is out of reach.
pub(super) async fn event_at(config: &MySql, place: Place) -> Result<Option<Bytes>, Failure> {
    if !is_in_reach(&place) {
        return Ok(None);
    }
    Events::at(config, place).await?.next().await
}

/// The event of this kind and length that ends at a place.
pub(super) async fn event_before(
    config: &MySql,
    place: &Place,
    kind: u8,
    length: u64,
) -> Result<Option<Bytes>, Failure> {
    let Some(offset) = place.offset.checked_sub(length) else { return Ok(None) };
    if offset < FIRST_OFFSET {
        return Ok(None);
    }
    let event = event_at(config, Place { file: place.file.clone(), offset }).await?;
    Ok(event.filter(|event| {
        header::header(event)
            .is_ok_and(|header| header.kind == kind && u64::from(header.size) == length)
    }))
}

/// The commit that ends at a pin.
pub(super) async fn footprint(
    config: &MySql,
    file: &str,
    at: Lsn,
) -> Result<Option<Footprint>, Failure> {
    let place = Place { file: file.to_owned(), offset: at.offset() };
    for length in COMMIT_LENGTHS {
        if let Some(event) = event_before(config, &place, kind::XID, length).await? {
            let start = Lsn::binlog(at.epoch(), at.number(), at.offset().saturating_sub(length));
            return Ok(Some(Footprint::of(start, &event)));
        }
    }
    Ok(None)
}

/// The second event of the file of a pin.
pub(super) async fn head(
    config: &MySql,
    file: &str,
    at: Lsn,
) -> Result<Option<Footprint>, Failure> {
    let start = Place { file: file.to_owned(), offset: FIRST_OFFSET };
    let mut events = Events::at(config, start).await?;
    while let Some(event) = events.next().await? {
        let Ok(header) = header::header(&event) else { return Ok(None) };
        if header.kind == kind::FORMAT_DESCRIPTION {
            continue;
        }
        let start = u64::from(header.end).checked_sub(u64::from(header.size));
        return Ok(
            start.map(|start| Footprint::of(Lsn::binlog(at.epoch(), at.number(), start), &event))
        );
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_cannot_name_is_out_of_reach() {
        let place = |offset| Place { file: "binlog.000007".into(), offset };
        assert!(is_in_reach(&place(4)) && is_in_reach(&place((1 << 32) - 1)));
        assert!(!is_in_reach(&place(1 << 32)));
    }
}
