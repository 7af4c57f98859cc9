//! The wire protocol, as far as the engine speaks it itself: login, queries with short answers, and the log.
//!
//! Of its own because the client library's log stream parses what it passes on: it decompresses a compressed transaction
//! as a whole, with the size that the log claims; it keeps a copy of every table map; it cuts a position off at 32 bits;
//! and it can't ask for a set with tagged GTIDs. All of that is the decoder's business, on bytes as they were sent. Here
//! an event is a slice of one big read buffer, counted and never copied, but for those of 16 MiB and more, which the
//! protocol cuts into pieces.
//!
//! Reading is cancel-safe: bytes wait in the connection's buffer until a packet is whole.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use mysql_async::ServerError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::{MySqlServer, SslMode};
use crate::source::socket::{self, Socket};
use crate::tls;

use super::connection::LOGIN_TIMEOUT;
use super::failure::{self, Failure};
use super::login;

/// Size of a read, as for PostgreSQL: smaller ones show in a profile, larger ones gain nothing.
const READ_BYTES: usize = 128 * 1024;
/// Length and sequence number.
const HEADER_BYTES: usize = 4;
/// A piece of this length is followed by another one of the same packet.
const PIECE_BYTES_MAX: usize = 0x00ff_ffff;
/// The largest packet: an event has at most 1 GiB, beside its own header. A length beyond is not a server's.
const PACKET_BYTES_MAX: usize = (1 << 30) + (1 << 24);
/// Where the length of an event stands, behind a packet's header and the byte that says that it is one.
const EVENT_LENGTH_AT: usize = HEADER_BYTES + 1 + 9;

/// Where its type stands.
const EVENT_KIND_AT: usize = HEADER_BYTES + 1 + 4;

/// First bytes of what a server sends.
pub(super) mod head {
    pub(crate) const OK: u8 = 0x00;
    pub(crate) const END: u8 = 0xfe;
    pub(crate) const ERROR: u8 = 0xff;
}

/// First bytes of what is sent to a server.
pub(super) mod command {
    pub(crate) const QUERY: u8 = 0x03;
    pub(crate) const DUMP: u8 = 0x12;
    pub(crate) const REGISTER: u8 = 0x15;
    pub(crate) const DUMP_GTID: u8 = 0x1e;
}

/// Values of one row of a query, as text.
pub(super) type TextRow = Vec<Option<String>>;

/// A connection that is logged in.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    input: BytesMut,
    /// Pieces of a packet that is not whole yet.
    pieces: BytesMut,
    /// Number of the next piece, in either direction.
    sequence: u8,
}

impl Wire {
    pub(super) async fn open(server: &MySqlServer) -> Result<Self, Failure> {
        match Self::attempt(server, server.tls.mode).await {
            // Under `prefer` what fails encrypted is tried once more in the clear.
            Err(failure) if server.tls.mode == SslMode::Prefer && is_tls(&failure) => {
                Self::attempt(server, SslMode::Disable).await
            }
            wire => wire,
        }
    }

    async fn attempt(server: &MySqlServer, mode: SslMode) -> Result<Self, Failure> {
        let what = || format!("connect to {}:{}", server.host, server.port);
        let attempt = async {
            let line = socket::connect(&server.host, server.port)
                .await
                .map_err(|error| Failure::io(what(), error))?;
            let mut wire = Self {
                socket: Socket::Plain(line),
                input: BytesMut::new(),
                pieces: BytesMut::new(),
                sequence: 0,
            };
            login::run(&mut wire, server, mode).await?;
            Ok(wire)
        };
        tokio::time::timeout(LOGIN_TIMEOUT, attempt).await.unwrap_or_else(|_| {
            Err(Failure::transient(
                format!("{}: no login within {} s", what(), LOGIN_TIMEOUT.as_secs()),
                "check that the server runs and that the network lets this machine reach it",
            ))
        })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.socket.is_encrypted()
    }

    /// Goes on encrypted.
    pub(super) async fn encrypt(&mut self, server: &MySqlServer) -> Result<(), Failure> {
        let what = || format!("encrypt the connection to {}:{}", server.host, server.port);
        let refused = |error: tls::Error| match error {
            tls::Error::Handshake(error) => Failure::io(what(), error),
            error => Failure::Definite {
                what: what(),
                advice: "the connection must be encrypted in the way that sslmode says".into(),
                source: Some(error.into()),
            },
        };
        // Load-bearing: nothing may have come in the clear behind the greeting, or it would pass for encrypted.
        if !self.input.is_empty() {
            return Err(malformed());
        }
        let connector = tls::Connector::new(&server.tls).map_err(refused)?;
        let Socket::Plain(line) = std::mem::replace(&mut self.socket, Socket::lost()) else {
            return Err(malformed());
        };
        let stream = connector.handshake(&server.host, line).await.map_err(refused)?;
        self.socket = Socket::Encrypted(Box::new(stream));
        Ok(())
    }

    /// Sends a packet of the conversation under way.
    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let lost = |error| Failure::io("send to the server", error);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        if payload.len() >= PIECE_BYTES_MAX {
            return Err(Failure::definite(
                "send to the server: more than fits into a packet",
                "purge old GTIDs or server ids; their set is too large to be sent",
            ));
        }
        let mut packet = Vec::with_capacity(HEADER_BYTES + payload.len());
        packet.extend_from_slice(&[length[0], length[1], length[2], self.sequence]);
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.write_all(&packet).await.map_err(lost)?;
        self.socket.flush().await.map_err(lost)
    }

    /// Begins a conversation.
    pub(super) async fn command(&mut self, command: u8, payload: &[u8]) -> Result<(), Failure> {
        self.sequence = 0;
        let mut packet = Vec::with_capacity(1 + payload.len());
        packet.push(command);
        packet.extend_from_slice(payload);
        self.send(&packet).await
    }

    /// The next packet. Cancel-safe.
    pub(super) async fn packet(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let Some(packet) = self.buffered_packet()? {
                return Ok(packet);
            }
            self.read().await?;
        }
    }

    /// The next packet if all of it has been read.
    pub(super) fn buffered_packet(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(piece) = self.buffered_piece()? {
            let length = piece.len();
            if self.pieces.len() + length > PACKET_BYTES_MAX {
                return Err(malformed());
            }
            if self.pieces.is_empty() && length < PIECE_BYTES_MAX {
                return Ok(Some(piece));
            }
            if self.pieces.is_empty() {
                // Once, and not by doubling: the largest event would take four times its size.
                let event = announced(piece.get(EVENT_LENGTH_AT - HEADER_BYTES..)).unwrap_or(0);
                self.pieces.reserve(event.saturating_add(1).clamp(length, PACKET_BYTES_MAX));
            }
            self.pieces.extend_from_slice(&piece);
            if length < PIECE_BYTES_MAX {
                return Ok(Some(std::mem::take(&mut self.pieces).freeze()));
            }
        }
        Ok(None)
    }

    /// The next piece if all of it has been read. One that [is full](is_full) is followed by another one of its packet.
    pub(super) fn buffered_piece(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some((length, sequence)) = header(&self.input) else { return Ok(None) };
        let total = HEADER_BYTES + length;
        if self.input.len() < total {
            return Ok(None);
        }
        if sequence != self.sequence {
            return Err(Failure::transient(
                "read from the server: packets are missing",
                "the connection is made anew",
            ));
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut piece = self.input.split_to(total);
        piece.advance(HEADER_BYTES);
        Ok(Some(piece.freeze()))
    }

    /// Whether an event of this type comes next, in pieces.
    pub(super) fn begins_in_pieces(&self, kind: u8) -> bool {
        let is_full = header(&self.input).is_some_and(|(length, _)| length == PIECE_BYTES_MAX);
        is_full && self.pieces.is_empty() && self.input.get(EVENT_KIND_AT) == Some(&kind)
    }

    /// Length of the event that comes next or is under way, as far as known. Not yet checked.
    pub(super) fn announced_event(&self) -> Option<usize> {
        match self.pieces.is_empty() {
            true => announced(self.input.get(EVENT_LENGTH_AT..)),
            false => announced(self.pieces.get(EVENT_LENGTH_AT - HEADER_BYTES..)),
        }
    }

    /// Reads what the socket has, at least one byte. Makes room for the next piece as a whole. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<usize, Failure> {
        let total = header(&self.input).map_or(0, |(length, _)| HEADER_BYTES + length);
        if total > READ_BYTES {
            self.input.reserve(total.saturating_sub(self.input.len()));
        } else if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(READ_BYTES);
        }
        match self.socket.read_buf(&mut self.input).await {
            Ok(0) => Err(Failure::io("read from the server", io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(Failure::io("read from the server", error)),
        }
    }

    /// Until it is used again, the connection wakes nobody.
    pub(super) fn leave_alone(&mut self) -> Result<(), Failure> {
        self.socket.leave_alone().map_err(|error| Failure::io("wait for the server", error))
    }

    /// Runs a statement and returns the rows of its answer, if there are any.
    pub(super) async fn query(&mut self, what: &str, sql: &str) -> Result<Vec<TextRow>, Failure> {
        self.command(command::QUERY, sql.as_bytes()).await?;
        let first = self.packet().await?;
        match first.first() {
            Some(&head::OK) => return Ok(Vec::new()),
            Some(&head::ERROR) => return Err(server_error(what, &first)),
            _ => {}
        }
        let columns = length_encoded(&mut first.clone()).ok_or_else(malformed)?;
        for _ in 0..columns {
            self.packet().await?;
        }
        if !is_end(&self.packet().await?) {
            return Err(malformed());
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.packet().await?;
            match packet.first() {
                _ if is_end(&packet) => return Ok(rows),
                Some(&head::ERROR) => return Err(server_error(what, &packet)),
                _ => rows.push(text_row(packet, columns)?),
            }
        }
    }

    /// Waits for the answer to a command that has no rows.
    pub(super) async fn acknowledgement(&mut self, what: &str) -> Result<(), Failure> {
        let packet = self.packet().await?;
        match packet.first() {
            Some(&head::OK) => Ok(()),
            Some(&head::ERROR) => Err(server_error(what, &packet)),
            _ => Err(malformed()),
        }
    }
}

/// Whether another piece of the packet follows.
pub(super) fn is_full(piece: &[u8]) -> bool {
    piece.len() == PIECE_BYTES_MAX
}

/// A length off the front.
fn announced(bytes: Option<&[u8]>) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*bytes?.first_chunk()?)).ok()
}

/// Length of a piece and its number.
fn header(input: &[u8]) -> Option<(usize, u8)> {
    let &[a, b, c, sequence] = input.first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes([a, b, c, 0])).ok()?, sequence))
}

/// Whether a packet ends a list, or the log. A row of that first byte would be longer.
pub(super) fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&head::END) && packet.len() < 9
}

/// An integer of one to nine bytes, off the front.
fn length_encoded(bytes: &mut Bytes) -> Option<usize> {
    let value = match bytes.try_get_u8().ok()? {
        small @ ..=0xfa => u64::from(small),
        0xfc => u64::from(bytes.try_get_u16_le().ok()?),
        0xfd => bytes.try_get_uint_le(3).ok()?,
        0xfe => bytes.try_get_u64_le().ok()?,
        _ => return None,
    };
    usize::try_from(value).ok()
}

fn text_row(mut packet: Bytes, columns: usize) -> Result<TextRow, Failure> {
    const NULL: u8 = 0xfb;
    let mut row = Vec::new();
    for _ in 0..columns {
        if packet.first() == Some(&NULL) {
            packet.advance(1);
            row.push(None);
            continue;
        }
        let length = length_encoded(&mut packet).ok_or_else(malformed)?;
        if packet.len() < length {
            return Err(malformed());
        }
        row.push(Some(String::from_utf8_lossy(&packet.split_to(length)).into_owned()));
    }
    Ok(row)
}

/// The server's report of an error. One that cannot be read is an error all the same, just without words.
pub(super) fn server_error(what: &str, packet: &[u8]) -> Failure {
    let mut report =
        ServerError { code: 0, message: "without a message".into(), state: "HY000".into() };
    let rest = packet.get(1..).unwrap_or_default();
    if let Some((code, rest)) = rest.split_first_chunk() {
        report.code = u16::from_le_bytes(*code);
        // Before the login there is no state.
        let (state, message) = match rest {
            [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
            _ => (&b"HY000"[..], rest),
        };
        report.state = String::from_utf8_lossy(state).into_owned();
        report.message = String::from_utf8_lossy(message).into_owned();
    }
    failure::sql(what, mysql_async::Error::Server(report))
}

fn is_tls(failure: &Failure) -> bool {
    let Failure::Definite { source, .. } = failure else { return false };
    source.as_ref().is_some_and(|cause| cause.downcast_ref::<tls::Error>().is_some())
}

/// The server broke the protocol, or speaks one that is not understood.
pub(super) fn malformed() -> Failure {
    Failure::definite(
        "read from the server: it answers in a way that this program does not understand",
        "check that host and port are those of a MySQL or MariaDB server",
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// A connection to a peer that sends `bytes` and no more.
    async fn wire(bytes: Vec<u8>) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = socket::connect("127.0.0.1", port).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            peer.write_all(&bytes).await?;
            peer.shutdown().await?;
            // Closed with something unread, it would be reset.
            tokio::io::copy(&mut peer, &mut tokio::io::sink()).await
        });
        Wire {
            socket: Socket::Plain(line),
            input: BytesMut::new(),
            pieces: BytesMut::new(),
            sequence: 0,
        }
    }

    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&length[..3], &[sequence], payload].concat()
    }

    #[tokio::test]
    async fn packets_come_whole_and_in_order() {
        let mut wire = wire([packet(0, b"one"), packet(1, b""), packet(2, b"two")].concat()).await;
        for expected in [&b"one"[..], b"", b"two"] {
            assert_eq!(wire.packet().await.unwrap(), expected);
        }
        assert!(wire.packet().await.unwrap_err().is_transient());
    }

    #[tokio::test]
    async fn a_packet_of_many_pieces_is_put_together() {
        for tail in [0, 5] {
            let length = 2 * PIECE_BYTES_MAX + tail;
            let mut payload: Vec<u8> = (0u32..).flat_map(u32::to_le_bytes).take(length).collect();
            payload[10..14].copy_from_slice(&77u32.to_le_bytes());
            let pieces: Vec<u8> = [
                packet(0, &payload[..PIECE_BYTES_MAX]),
                packet(1, &payload[PIECE_BYTES_MAX..2 * PIECE_BYTES_MAX]),
                packet(2, &payload[2 * PIECE_BYTES_MAX..]),
                packet(3, b"next"),
            ]
            .concat();
            let mut wire = wire(pieces).await;
            while wire.pieces.is_empty() {
                wire.read().await.unwrap();
                assert_eq!(wire.buffered_packet().unwrap(), None);
                assert_eq!(wire.announced_event(), Some(77));
            }
            assert!(wire.packet().await.unwrap() == payload);
            assert_eq!(wire.packet().await.unwrap(), &b"next"[..]);
        }
    }

    #[tokio::test]
    async fn a_missing_packet_is_noticed() {
        let mut wire = wire([packet(0, b"one"), packet(2, b"three")].concat()).await;
        wire.packet().await.unwrap();
        assert!(wire.packet().await.unwrap_err().is_transient());
    }

    #[tokio::test]
    async fn the_rows_of_an_answer_are_read() {
        let answer = [
            packet(1, &[2]),
            packet(2, b"definition"),
            packet(3, b"definition"),
            packet(4, &[head::END, 0, 0, 2, 0]),
            packet(5, b"\x03abc\xfb"),
            packet(6, b"\x00\xfc\x02\x00de"),
            packet(7, &[head::END, 0, 0, 2, 0]),
            packet(1, b"\xff\x15\x04#28000denied"),
            packet(1, b"\x01"),
            packet(2, b"definition"),
            packet(3, &[head::END, 0, 0, 2, 0]),
            packet(4, b"\x05abc"),
        ]
        .concat();
        let mut wire = wire(answer).await;
        let rows = wire.query("ask", "SELECT").await.unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(rows, [vec![some("abc"), None], vec![some(""), some("de")]]);
        let failure = wire.query("ask", "SELECT").await.unwrap_err();
        assert_eq!(failure::number(&failure), Some(1045));
        assert!(!wire.query("ask", "SELECT").await.unwrap_err().is_transient());
    }

    #[test]
    fn an_error_without_words_is_an_error() {
        for packet in [&b"\xff"[..], b"\xff\x01", b"\xff\xd4\x04", b"\xff\xd4\x04#HY"] {
            let failure = server_error("read", packet);
            assert!(!failure.is_transient());
            let expected = if packet.len() < 3 { 0 } else { 1236 };
            assert_eq!(failure::number(&failure), Some(expected));
        }
    }
}
