//! The wire protocol (version 3.0), as far as the engine speaks it itself: login, simple queries, COPY out, COPY both.
//!
//! Of its own because the replication protocol's "copy both" mode has no counterpart in the client library, and because
//! every row of a scan and every change of the stream passes here: frames are slices of one big read buffer, counted
//! and never copied. SQL sessions log in here too (see [`super::connection`]), so that there is one login, with one
//! set of rules, and one list of settings.
//!
//! Reading a frame is cancel-safe: bytes wait in the connection's buffer until a frame is whole.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::Server;

use super::failure::{Failure, ServerError};
use super::login;
use super::socket::{self, Encryption, LOGIN_TIMEOUT, Socket};

/// Size of a read. At 64 KiB the system calls begin to show in a profile of the stream; beyond 256 KiB nothing is
/// gained, and every value that a slow outlet holds keeps its buffer alive.
const READ_BYTES: usize = 128 * 1024;
/// The largest frame: a field has at most 1 GiB, and a row may hold escapes of it. A length beyond is not PostgreSQL.
const FRAME_BYTES_MAX: usize = (1 << 31) - 1;

/// One message of the server, without its header.
#[derive(Debug)]
pub(super) struct Frame {
    pub tag: u8,
    pub body: Bytes,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Sql,
    Replication,
}

/// A connection that is logged in.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    input: BytesMut,
    output: BytesMut,
    /// The server's process, as `pg_stat_activity` shows it.
    process_id: i32,
    /// Everything that the server sent between its accepting of the login and its being ready.
    greeting: BytesMut,
}

/// Values of one row of a simple query, as text.
pub(super) type TextRow = Vec<Option<String>>;

impl Wire {
    pub(super) async fn open(server: &Server, purpose: Purpose) -> Result<Self, Failure> {
        let encryption = Encryption::of(server.tls.mode);
        match Self::attempt(server, purpose, encryption).await {
            Err(failure) => match encryption.after(&failure) {
                Some(other) => Self::attempt(server, purpose, other).await,
                None => Err(failure),
            },
            wire => wire,
        }
    }

    async fn attempt(
        server: &Server,
        purpose: Purpose,
        encryption: Encryption,
    ) -> Result<Self, Failure> {
        let attempt = async {
            let mut wire = Self {
                socket: socket::open(server, encryption).await?,
                input: BytesMut::new(),
                output: BytesMut::new(),
                process_id: 0,
                greeting: BytesMut::new(),
            };
            login::run(&mut wire, server, purpose).await?;
            login::settle(&mut wire).await?;
            Ok(wire)
        };
        tokio::time::timeout(LOGIN_TIMEOUT, attempt).await.unwrap_or_else(|_| {
            let (address, seconds) = (socket::address(server), LOGIN_TIMEOUT.as_secs());
            Err(Failure::transient(
                format!("no login at {address} within {seconds} s"),
                "check that the server runs and that the network lets this machine reach it",
            ))
        })
    }

    pub(super) fn process_id(&self) -> i32 {
        self.process_id
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The socket and what the server greeted it with, for a client library to go on with.
    pub(super) fn into_parts(self) -> (Socket, Bytes) {
        (self.socket, self.greeting.freeze())
    }

    /// Keeps a message of the login for [`into_parts`](Self::into_parts).
    pub(super) fn greet(&mut self, frame: &Frame) {
        /// `BackendKeyData`
        const KEY: u8 = b'K';
        self.greeting.extend_from_slice(&[frame.tag]);
        let length = u32::try_from(frame.body.len() + 4).expect("was read with such a length");
        self.greeting.extend_from_slice(&length.to_be_bytes());
        self.greeting.extend_from_slice(&frame.body);
        if frame.tag == KEY && frame.body.len() >= 4 {
            self.process_id = frame.body.clone().get_i32();
        }
    }

    /// Sends a message that `build` writes.
    pub(super) async fn send(
        &mut self,
        build: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.output.clear();
        build(&mut self.output).map_err(|error| Failure::io("send to the server", error))?;
        self.flush().await
    }

    /// Sends data while a copy goes both ways.
    pub(super) async fn send_copy_data(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.output.clear();
        frontend::CopyData::new(payload)
            .map(|data| data.write(&mut self.output))
            .map_err(|error| Failure::io("send to the server", error))?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        let lost = |error| Failure::io("send to the server", error);
        self.socket.write_all(&self.output).await.map_err(lost)?;
        self.socket.flush().await.map_err(lost)
    }

    /// The next message, whatever it is. Cancel-safe.
    pub(super) async fn frame(&mut self) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = split_frame(&mut self.input)? {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// The next message if it has already been read. What is partly there stays.
    pub(super) fn buffered_frame(&mut self) -> Result<Option<Frame>, Failure> {
        split_frame(&mut self.input)
    }

    /// Length of the next message, of which at least the header has been read. Not yet checked.
    pub(super) fn announced(&self) -> Option<usize> {
        header(&self.input).map(|(_, length)| length)
    }

    /// Reads what the socket has, at least one byte. Makes room for the next message as a whole. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<usize, Failure> {
        let announced = self.announced().unwrap_or(0).min(FRAME_BYTES_MAX);
        if announced > READ_BYTES {
            self.input.reserve((announced + 1).saturating_sub(self.input.len()));
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

    /// The next message other than notices and changed parameters, which may come at any time.
    pub(super) async fn message(&mut self) -> Result<Frame, Failure> {
        loop {
            let frame = self.frame().await?;
            if !is_aside(frame.tag) {
                return Ok(frame);
            }
        }
    }

    /// Runs statements without parameters and returns the rows of them all. `what` names it where it fails.
    pub(super) async fn query(&mut self, what: &str, sql: &str) -> Result<Vec<TextRow>, Failure> {
        self.send(|out| frontend::query(sql, out)).await?;
        self.finish_query(what).await
    }

    /// Reads a query's answer to its end; the connection is then ready for the next one, also after an error.
    pub(super) async fn finish_query(&mut self, what: &str) -> Result<Vec<TextRow>, Failure> {
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let frame = self.message().await?;
            match frame.tag {
                tag::DATA_ROW => rows.push(text_row(frame.body)?),
                tag::ERROR => {
                    let error = server_error(&frame.body);
                    // FATAL: no ReadyForQuery will come.
                    if error.fatal {
                        return Err(Failure::server(what, error.report));
                    }
                    failure = Some(Failure::server(what, error.report));
                }
                tag::READY => return failure.map_or(Ok(rows), Err),
                tag::ROW_DESCRIPTION
                | tag::COMMAND_COMPLETE
                | tag::EMPTY_QUERY
                | tag::COPY_DATA
                | tag::COPY_DONE => {}
                _ => return Err(unexpected(what)),
            }
        }
    }

    /// Begins a COPY TO STDOUT; its rows are then read by [`copy_row`](Self::copy_row).
    pub(super) async fn copy_out(&mut self, what: &str, sql: &str) -> Result<(), Failure> {
        self.begin_copy(what, sql, tag::COPY_OUT).await
    }

    /// Begins streaming; frames then go both ways.
    pub(super) async fn copy_both(&mut self, what: &str, sql: &str) -> Result<(), Failure> {
        self.begin_copy(what, sql, tag::COPY_BOTH).await
    }

    async fn begin_copy(&mut self, what: &str, sql: &str, expected: u8) -> Result<(), Failure> {
        self.send(|out| frontend::query(sql, out)).await?;
        let frame = self.message().await?;
        match frame.tag {
            tag if tag == expected => Ok(()),
            tag::ERROR => {
                let error = server_error(&frame.body);
                if !error.fatal {
                    self.finish_query(what).await?;
                }
                Err(Failure::server(what, error.report))
            }
            _ => Err(unexpected(what)),
        }
    }

    /// The next row of a COPY; `None` once it is complete, and the connection ready. Cancel-safe until then.
    pub(super) async fn copy_row(&mut self, what: &str) -> Result<Option<Bytes>, Failure> {
        let frame = self.message().await?;
        match frame.tag {
            tag::COPY_DATA => Ok(Some(frame.body)),
            tag::COPY_DONE => {
                self.finish_query(what).await?;
                Ok(None)
            }
            tag::ERROR => {
                let error = server_error(&frame.body);
                if !error.fatal {
                    self.finish_query(what).await?;
                }
                Err(Failure::server(what, error.report))
            }
            _ => Err(unexpected(what)),
        }
    }
}

/// Tags of the server's messages.
pub(super) mod tag {
    pub(crate) const AUTHENTICATION: u8 = b'R';
    pub(crate) const COMMAND_COMPLETE: u8 = b'C';
    pub(crate) const COPY_BOTH: u8 = b'W';
    pub(crate) const COPY_DATA: u8 = b'd';
    pub(crate) const COPY_DONE: u8 = b'c';
    pub(crate) const COPY_OUT: u8 = b'H';
    pub(crate) const DATA_ROW: u8 = b'D';
    pub(crate) const EMPTY_QUERY: u8 = b'I';
    pub(crate) const ERROR: u8 = b'E';
    pub(crate) const NOTICE: u8 = b'N';
    pub(crate) const NOTIFICATION: u8 = b'A';
    pub(crate) const PARAMETER: u8 = b'S';
    pub(crate) const READY: u8 = b'Z';
    pub(crate) const ROW_DESCRIPTION: u8 = b'T';
}

pub(super) fn is_aside(tag: u8) -> bool {
    matches!(tag, tag::NOTICE | tag::NOTIFICATION | tag::PARAMETER)
}

pub(super) fn unexpected(what: &str) -> Failure {
    Failure::protocol(format!("{what}: a message that does not belong there"))
}

const HEADER_BYTES: usize = 5;

/// Tag and length of the message that the buffer begins with. The length counts itself, but not the tag.
fn header(input: &[u8]) -> Option<(u8, usize)> {
    let &[tag, a, b, c, d] = input.first_chunk::<HEADER_BYTES>()?;
    Some((tag, usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX)))
}

/// Takes a whole message off the buffer.
fn split_frame(input: &mut BytesMut) -> Result<Option<Frame>, Failure> {
    let Some((tag, length)) = header(input) else { return Ok(None) };
    if !(4..=FRAME_BYTES_MAX).contains(&length) {
        return Err(Failure::protocol("read from the server: a message of impossible length"));
    }
    let total = length + 1;
    if input.len() < total {
        return Ok(None);
    }
    let mut body = input.split_to(total).freeze();
    body.advance(HEADER_BYTES);
    Ok(Some(Frame { tag, body }))
}

/// An error report, and whether the server ends the connection with it.
pub(super) struct Report {
    pub fatal: bool,
    pub report: ServerError,
}

/// Reads the fields of an `ErrorResponse`. One that cannot be read is an error all the same, just without words.
pub(super) fn server_error(body: &[u8]) -> Report {
    let mut fatal = false;
    let mut report = ServerError { code: String::new(), message: "without a message".into() };
    for field in body.split(|&byte| byte == 0) {
        let Some((&kind, text)) = field.split_first() else { break };
        match kind {
            // The severity that is never translated.
            b'V' => fatal = matches!(text, b"FATAL" | b"PANIC"),
            b'C' => report.code = String::from_utf8_lossy(text).into_owned(),
            b'M' => report.message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    Report { fatal, report }
}

fn text_row(mut body: Bytes) -> Result<TextRow, Failure> {
    let invalid = || Failure::protocol("read from the server: a row that is cut short");
    let fields = body.try_get_u16().map_err(|_| invalid())?;
    (0..fields)
        .map(|_| {
            let Ok(length) = usize::try_from(body.try_get_i32().map_err(|_| invalid())?) else {
                return Ok(None);
            };
            if body.len() < length {
                return Err(invalid());
            }
            let text = body.split_to(length);
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_once_it_is_whole() {
        let whole = [b'd', 0, 0, 0, 7, 1, 2, 3, b'Z'];
        for length in 0..8 {
            let mut input = BytesMut::from(&whole[..length]);
            assert!(split_frame(&mut input).expect("no error").is_none(), "{length}");
            assert_eq!(input.len(), length);
        }
        let mut input = BytesMut::from(&whole[..]);
        let frame = split_frame(&mut input).expect("no error").expect("whole");
        assert_eq!((frame.tag, &frame.body[..], &input[..]), (b'd', &[1, 2, 3][..], &b"Z"[..]));
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        for length in [[0, 0, 0, 3], [0xff, 0xff, 0xff, 0xff]] {
            let mut input = BytesMut::from(&[b'd', length[0], length[1], length[2], length[3]][..]);
            assert!(split_frame(&mut input).is_err());
        }
    }

    #[test]
    fn an_error_report_is_read_without_its_detail() {
        let report = server_error(b"SFEHLER\0VFATAL\0C57P01\0Mbye\0Dsecret row\0\0");
        assert!(report.fatal);
        assert_eq!(report.report, ServerError { code: "57P01".into(), message: "bye".into() });
        assert!(!server_error(b"VERROR").fatal);
    }

    #[test]
    fn a_row_cut_anywhere_is_an_error() {
        let row = Bytes::from_static(&[0, 2, 0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(text_row(row.clone()).expect("whole"), vec![Some("x".into()), None]);
        for length in 0..row.len() {
            assert!(text_row(row.slice(..length)).is_err(), "{length}");
        }
    }
}
