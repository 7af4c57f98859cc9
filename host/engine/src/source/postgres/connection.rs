//! Sessions for SQL.
//!
//! The client library runs the extended protocol, but does not log in: the engine's own login (see [`super::login`]) is
//! the only one, so that both kinds of connection have the same rules (no password in the clear without TLS, channel
//! binding) and the same settings. The library is handed a connection that is already logged in, and is shown the
//! server's greeting once more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::config::Server;

use super::failure::Failure;
use super::socket::Socket;
use super::wire::{Purpose, Wire};

/// A session for SQL with the engine's settings; ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    client: Client,
    /// Moves the bytes; ends by itself once the client is gone, and is not waited for.
    driver: JoinHandle<()>,
}

impl Session {
    /// Connects and logs in. Not cancel-safe in the sense that a cancelled call leaves nothing behind but a session that
    /// the server ends.
    ///
    /// # Errors
    /// Definite: refused login or TLS, unknown database. Transient: unreachable, starting, out of connections.
    pub async fn open(server: &Server) -> Result<Self, Failure> {
        let wire = Wire::open(server, Purpose::Sql).await?;
        let (socket, greeting) = wire.into_parts();
        let what = || format!("open a session at {}", super::socket::address(server));
        let (client, connection) = tokio_postgres::Config::new()
            .user(&server.user)
            .connect_raw(LoggedIn::new(socket, &greeting), NoTls)
            .await
            .map_err(|error| Failure::sql(what(), error))?;
        let driver = tokio::spawn(async move {
            // The statement that the connection breaks under gets an error of its own; an idle session's end shows in
            // the next one.
            if let Err(error) = connection.await {
                tracing::debug!(error = %error, "session ended");
            }
        });
        Ok(Self { client, driver })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }
}

/// A socket behind the login, made to look like one before it: swallows the startup packet of the client library, and
/// answers with "login accepted" and the greeting that the server gave to the real one.
struct LoggedIn {
    socket: Socket,
    answer: Bytes,
    startup: Startup,
}

/// How much of the startup packet has come: first its length, then as many bytes.
enum Startup {
    Length(BytesMut),
    Rest(usize),
    Over,
}

impl LoggedIn {
    fn new(socket: Socket, greeting: &[u8]) -> Self {
        /// `AuthenticationOk`
        const ACCEPTED: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 0];
        let mut answer = BytesMut::with_capacity(ACCEPTED.len() + greeting.len());
        answer.extend_from_slice(&ACCEPTED);
        answer.extend_from_slice(greeting);
        Self { socket, answer: answer.freeze(), startup: Startup::Length(BytesMut::new()) }
    }
}

impl Startup {
    /// Takes what belongs to the startup packet off the front of `bytes`; returns how much.
    fn swallow(&mut self, bytes: &[u8]) -> usize {
        const LENGTH_BYTES: usize = 4;
        let mut taken = 0;
        if let Self::Length(length) = self {
            taken = bytes.len().min(LENGTH_BYTES - length.len());
            length.put_slice(bytes.get(..taken).unwrap_or_default());
            if length.len() < LENGTH_BYTES {
                return taken;
            }
            let rest = usize::try_from(length.get_u32()).unwrap_or(usize::MAX);
            *self = Self::Rest(rest.saturating_sub(LENGTH_BYTES));
        }
        if let Self::Rest(rest) = self {
            let more = (*rest).min(bytes.len() - taken);
            taken += more;
            *rest -= more;
            if *rest == 0 {
                *self = Self::Over;
            }
        }
        taken
    }
}

impl AsyncRead for LoggedIn {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.answer.is_empty() {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        }
        let length = this.answer.len().min(buffer.remaining());
        buffer.put_slice(&this.answer.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LoggedIn {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.startup, Startup::Over) || bytes.is_empty() {
            return Pin::new(&mut this.socket).poll_write(context, bytes);
        }
        Poll::Ready(Ok(this.startup.swallow(bytes)))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_startup_packet_is_swallowed_however_it_is_cut() {
        let packet = [0, 0, 0, 8, 1, 2, 3, 4, b'Q', b'Q'];
        for cut in 1..packet.len() {
            let mut startup = Startup::Length(BytesMut::new());
            let mut taken = 0;
            for piece in [&packet[..cut], &packet[cut..]] {
                let mut piece = piece;
                while !matches!(startup, Startup::Over) && !piece.is_empty() {
                    let some = startup.swallow(piece);
                    taken += some;
                    piece = &piece[some..];
                }
            }
            assert_eq!(taken, 8, "{cut}");
        }
    }
}
