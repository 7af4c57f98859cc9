//! The byte stream to a server: TCP, with TLS on top where the two agreed on it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::tls;

use super::line::Line;

/// A peer that vanished without a word is noticed after about a minute, also while a long statement runs and nothing is
/// expected from it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

#[derive(Debug)]
pub(in crate::source) enum Socket {
    Plain(Line),
    // Boxed: a TLS session is a kilobyte, and sockets are moved about.
    Encrypted(Box<TlsStream<Line>>),
}

/// A connection without TLS yet.
pub(in crate::source) async fn connect(host: &str, port: u16) -> io::Result<Line> {
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    SockRef::from(&tcp).set_tcp_keepalive(&KEEPALIVE)?;
    Ok(Line::Watched(tcp))
}

impl Socket {
    /// One that is closed.
    pub(in crate::source) fn lost() -> Self {
        Self::Plain(Line::Lost)
    }

    pub(in crate::source) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    /// See [`Line::leave_alone`].
    pub(in crate::source) fn leave_alone(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(line) => line.leave_alone(),
            Self::Encrypted(stream) => stream.get_mut().0.leave_alone(),
        }
    }

    /// Data of the binding `tls-server-end-point`, where there is one.
    pub(in crate::source) fn channel_binding(&self) -> Option<Vec<u8>> {
        let Self::Encrypted(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        tls::server_end_point(session.peer_certificates()?.first()?)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
