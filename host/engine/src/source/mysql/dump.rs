//! The server's log as it comes: one event after the other, from a place or from a set of GTIDs on.
//!
//! **Asked for**: checksums as the log has them, which the decoder verifies; a heartbeat while there is nothing to say;
//! on MariaDB, GTID events as they are. **Not asked for**: the text of statements, which holds values.
//!
//! **A place beyond 4 GiB.** The command for places has 32 bits for the offset. MySQL with GTIDs takes 64 bits in its
//! other command, with an empty set. Elsewhere the file is asked for from its beginning, and what comes before the place
//! is for the reader to pass over: slow, but right, and only a transaction of gigabytes makes such a file.
//!
//! **A reader that stands still.** The server ends a stream that takes nothing for `net_write_timeout`, one minute by
//! default: an outlet that is slow for a minute would cost a new connection each time. So the session asks for a day.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{Buf, Bytes};
use dovetail_core::decode::binlog::kind;
use dovetail_core::gtid::mariadb::GtidState;
use dovetail_core::gtid::mysql::GtidSet;

use crate::config::MySqlKind;

use super::failure::Failure;
use super::identity::Replica;
use super::server::{FIRST_OFFSET, Place};
use super::wire::{Wire, command, head, is_end, is_full, malformed, server_error};

/// Between two signs of life of a server that has nothing to say.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);
/// Seconds for which a stream may stand still.
const WRITE_TIMEOUT_S: u32 = 86_400;
/// The name by which the list of replicas shows us.
const HOST: &[u8] = b"dovetail";

/// Where to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Place(Place),
    /// MySQL: every transaction that is not in the set.
    Gtids(GtidSet),
    /// MariaDB: every transaction behind these.
    State(GtidState),
}

/// A log under way.
#[derive(Debug)]
pub(super) struct Dump {
    wire: Wire,
    /// An event is given part by part, and has not ended.
    is_inside: bool,
}

/// What has arrived.
#[derive(Debug)]
pub(super) enum Arrived {
    Event(Bytes),
    /// The next part of a compressed transaction that the protocol sends in pieces, and may be larger than memory.
    Part(Bytes),
}

impl Dump {
    /// Turns a session into a log. What the server thinks of it comes with the first event.
    pub(super) async fn begin(
        mut wire: Wire,
        kind: MySqlKind,
        replica: &Replica,
        origin: &Origin,
    ) -> Result<Self, Failure> {
        let what = "set up the log's session";
        wire.query(what, &settings(kind, replica, origin)).await?;
        wire.command(command::REGISTER, &registration(replica)).await?;
        wire.acknowledgement("register as a replica").await?;
        let gtids = has_gtids(&mut wire, kind).await?;
        let (command, payload) = request(replica, origin, gtids);
        wire.command(command, &payload).await?;
        Ok(Self { wire, is_inside: false })
    }

    /// The next event if all of it has been read, or a part of one.
    pub(super) fn buffered(&mut self) -> Result<Option<Arrived>, Failure> {
        let is_first = self.wire.begins_in_pieces(kind::TRANSACTION_PAYLOAD);
        if !self.is_inside && !is_first {
            return Ok(self.buffered_event()?.map(Arrived::Event));
        }
        let Some(mut part) = self.wire.buffered_piece()? else { return Ok(None) };
        let goes_on = is_full(&part);
        if !self.is_inside && part.try_get_u8() != Ok(head::OK) {
            return Err(malformed());
        }
        self.is_inside = goes_on;
        Ok(Some(Arrived::Part(part)))
    }

    /// The next event if all of it has been read.
    pub(super) fn buffered_event(&mut self) -> Result<Option<Bytes>, Failure> {
        let what = "read the log";
        let Some(mut packet) = self.wire.buffered_packet()? else { return Ok(None) };
        match packet.first() {
            Some(&head::OK) => {
                packet.advance(1);
                Ok(Some(packet))
            }
            Some(&head::ERROR) => Err(server_error(what, &packet)),
            _ if is_end(&packet) => Err(Failure::transient(
                format!("{what}: the server ended it"),
                "the connection is made anew",
            )),
            _ => Err(malformed()),
        }
    }

    /// The next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let Some(event) = self.buffered_event()? {
                return Ok(event);
            }
            self.read().await?;
        }
    }

    /// Length of the event that comes next, as far as known.
    pub(super) fn announced(&self) -> Option<usize> {
        if self.is_inside { None } else { self.wire.announced_event() }
    }

    /// Reads what has come, at least one byte. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<(), Failure> {
        self.wire.read().await.map(drop)
    }

    /// Until it is used again, the connection wakes nobody.
    pub(super) fn leave_alone(&mut self) -> Result<(), Failure> {
        self.wire.leave_alone()
    }
}

/// Both spellings of each variable are set: MySQL renamed them, MariaDB did not, and either ignores what it does not know.
fn settings(kind: MySqlKind, replica: &Replica, origin: &Origin) -> String {
    let heartbeat = HEARTBEAT.as_nanos();
    let mut sql = format!("SET SESSION net_write_timeout = {WRITE_TIMEOUT_S}");
    for (old, new, value) in [
        ("master_binlog_checksum", "source_binlog_checksum", "'CRC32'".to_owned()),
        ("master_heartbeat_period", "source_heartbeat_period", heartbeat.to_string()),
        ("slave_uuid", "replica_uuid", format!("'{}'", replica.uuid)),
    ] {
        write!(sql, ", @{old} = {value}, @{new} = {value}").expect("a String takes everything");
    }
    if kind == MySqlKind::MariaDb {
        // The highest: GTID events are sent as they are.
        sql.push_str(", @mariadb_slave_capability = 4");
    }
    if let Origin::State(state) = origin {
        write!(sql, ", @slave_connect_state = '{state}', @slave_gtid_strict_mode = 1")
            .expect("a String takes everything");
    }
    sql
}

/// Whether the command for GTIDs may be used.
async fn has_gtids(wire: &mut Wire, kind: MySqlKind) -> Result<bool, Failure> {
    if kind == MySqlKind::MariaDb {
        return Ok(false);
    }
    let rows = wire.query("read gtid_mode", "SELECT @@GLOBAL.gtid_mode").await?;
    let mode = rows.into_iter().flatten().next().flatten();
    Ok(mode.is_some_and(|mode| mode.eq_ignore_ascii_case("on")))
}

fn registration(replica: &Replica) -> Vec<u8> {
    let mut payload = replica.id.get().to_le_bytes().to_vec();
    payload.push(u8::try_from(HOST.len()).expect("a short name"));
    payload.extend_from_slice(HOST);
    // No user and password to show, no port, no rank, no source that we know of.
    payload.extend_from_slice(&[0; 2 + 2 + 4 + 4]);
    payload
}

fn request(replica: &Replica, origin: &Origin, gtids: bool) -> (u8, Vec<u8>) {
    match origin {
        Origin::Place(place) => match u32::try_from(place.offset) {
            Ok(offset) => (command::DUMP, by_place(replica, &place.file, offset)),
            Err(_) if gtids => (
                command::DUMP_GTID,
                by_gtids(replica, &place.file, place.offset, &GtidSet::default()),
            ),
            Err(_) => {
                let first = u32::try_from(FIRST_OFFSET).expect("it is four");
                (command::DUMP, by_place(replica, &place.file, first))
            }
        },
        Origin::Gtids(set) => (command::DUMP_GTID, by_gtids(replica, "", FIRST_OFFSET, set)),
        // The session's variable says where.
        Origin::State(_) => (command::DUMP, by_place(replica, "", 4)),
    }
}

fn by_place(replica: &Replica, file: &str, offset: u32) -> Vec<u8> {
    let mut payload = offset.to_le_bytes().to_vec();
    payload.extend_from_slice(&[0; 2]);
    payload.extend_from_slice(&replica.id.get().to_le_bytes());
    payload.extend_from_slice(file.as_bytes());
    payload
}

fn by_gtids(replica: &Replica, file: &str, offset: u64, set: &GtidSet) -> Vec<u8> {
    let set = set.encode();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut payload = vec![0; 2];
    payload.extend_from_slice(&replica.id.get().to_le_bytes());
    payload.extend_from_slice(&length(file.as_bytes()));
    payload.extend_from_slice(file.as_bytes());
    payload.extend_from_slice(&offset.to_le_bytes());
    payload.extend_from_slice(&length(&set));
    payload.extend_from_slice(&set);
    payload
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn replica() -> Replica {
        Replica { id: NonZeroU32::new(0x0102_0304).unwrap(), uuid: "u".into() }
    }

    fn place(offset: u64) -> Origin {
        Origin::Place(Place { file: "b.7".into(), offset })
    }

    #[test]
    fn a_place_is_asked_for_with_the_bits_that_it_needs() {
        let (command, payload) = request(&replica(), &place(0x0a0b), true);
        assert_eq!(
            (command, &payload[..]),
            (command::DUMP, &b"\x0b\x0a\0\0\0\0\x04\x03\x02\x01b.7"[..])
        );
        let (command, payload) = request(&replica(), &place(1 << 32 | 5), true);
        assert_eq!(command, command::DUMP_GTID);
        let expected = b"\0\0\x04\x03\x02\x01\x03\0\0\0b.7\x05\0\0\0\x01\0\0\0";
        assert!(payload.starts_with(expected), "{payload:x?}");
        // Where there is no such command, from the file's beginning.
        let (command, payload) = request(&replica(), &place(1 << 32 | 5), false);
        assert_eq!((command, &payload[..4]), (command::DUMP, &[4, 0, 0, 0][..]));
    }

    #[test]
    fn the_variables_of_a_session_have_both_their_names() {
        let state = Origin::State("0-1-42,7-2-3".parse().unwrap());
        let sql = settings(MySqlKind::MariaDb, &replica(), &state);
        for part in [
            "@master_heartbeat_period = 5000000000, @source_heartbeat_period = 5000000000",
            "@slave_uuid = 'u', @replica_uuid = 'u'",
            "@mariadb_slave_capability = 4",
            "@slave_connect_state = '0-1-42,7-2-3'",
        ] {
            assert!(sql.contains(part), "{sql}");
        }
        let sql = settings(MySqlKind::MySql, &replica(), &place(4));
        assert!(!sql.contains("mariadb") && !sql.contains("connect_state"), "{sql}");
    }

    #[test]
    fn a_registration_has_the_length_that_servers_check() {
        assert_eq!(registration(&replica()).len(), 4 + 1 + HOST.len() + 1 + 1 + 2 + 4 + 4);
    }
}
