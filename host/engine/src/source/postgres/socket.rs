//! The byte stream to a server: TCP, and TLS on top as `sslmode` wants it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::config::{Server, SslMode};
use crate::tls;

use super::failure::Failure;
use super::line::Line;

/// For name resolution, TCP, TLS and login together. A server that is there answers within a second; one that is being
/// restarted refuses. Only a silent network takes longer, and that is for the backoff.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// A peer that vanished without a word is noticed after about a minute, also while a long statement runs and nothing is
/// expected from it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

#[derive(Debug)]
pub(super) enum Socket {
    Plain(Line),
    // Boxed: a TLS session is a kilobyte, and sockets are moved about.
    Encrypted(Box<TlsStream<Line>>),
}

/// How to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Never,
    IfOffered,
    Always,
}

impl Encryption {
    pub(super) fn of(mode: SslMode) -> Self {
        match mode {
            SslMode::Disable => Self::Never,
            SslMode::Prefer => Self::IfOffered,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Self::Always,
        }
    }

    /// How to try again after this failure. Under `prefer` what fails encrypted, by its TLS or because pg_hba.conf does
    /// not admit encrypted connections, is tried once more in the clear, as libpq does.
    pub(super) fn after(self, failure: &Failure) -> Option<Self> {
        (self == Self::IfOffered && may_pass_in_the_clear(failure)).then_some(Self::Never)
    }
}

fn may_pass_in_the_clear(failure: &Failure) -> bool {
    /// `invalid_authorization_specification`: no line of pg_hba.conf admits this way of connecting.
    const REFUSED_BY_HBA: &str = "28000";
    let Failure::Definite { source, .. } = failure else { return false };
    failure.sqlstate() == Some(REFUSED_BY_HBA)
        || source.as_ref().is_some_and(|cause| cause.downcast_ref::<tls::Error>().is_some())
}

pub(super) fn address(server: &Server) -> String {
    format!("{}:{}", server.host, server.port)
}

pub(super) async fn open(server: &Server, encryption: Encryption) -> Result<Socket, Failure> {
    let what = || format!("connect to {}", address(server));
    let tcp = TcpStream::connect((server.host.as_str(), server.port))
        .await
        .map_err(|error| Failure::io(what(), error))?;
    tcp.set_nodelay(true)
        .and_then(|()| SockRef::from(&tcp).set_tcp_keepalive(&KEEPALIVE))
        .map_err(|error| Failure::io(what(), error))?;
    let line = Line::Watched(tcp);
    match encryption {
        Encryption::Never => Ok(Socket::Plain(line)),
        Encryption::IfOffered | Encryption::Always => encrypt(server, encryption, line).await,
    }
}

async fn encrypt(
    server: &Server,
    encryption: Encryption,
    mut line: Line,
) -> Result<Socket, Failure> {
    let what = || format!("encrypt the connection to {}", address(server));
    let refused = |error: tls::Error| match error {
        tls::Error::Handshake(error) => Failure::io(what(), error),
        error => Failure::Definite {
            what: what(),
            advice: "the connection must be encrypted in the way that sslmode says".into(),
            source: Some(error.into()),
        },
    };
    // Before the first byte: a configuration that can't work is told without a connection.
    let connector = tls::Connector::new(&server.tls).map_err(refused)?;
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    line.write_all(&request).await.map_err(|error| Failure::io(what(), error))?;
    // Load-bearing: exactly one byte. What an attacker puts after it in the clear must reach the handshake, and fail
    // there, never the protocol behind it.
    match line.read_u8().await.map_err(|error| Failure::io(what(), error))? {
        b'S' => match connector.handshake(&server.host, line).await {
            Ok(stream) => Ok(Socket::Encrypted(Box::new(stream))),
            Err(error) => Err(refused(error)),
        },
        b'N' if encryption == Encryption::IfOffered => Ok(Socket::Plain(line)),
        b'N' => Err(Failure::definite(
            format!("the server at {} does not offer TLS", address(server)),
            "switch ssl on in the server's configuration, or choose another sslmode",
        )),
        // An error report: the server could not even start a process for us.
        b'E' => Err(Failure::transient(what(), "the server is out of resources")),
        _ => Err(Failure::protocol(what())),
    }
}

impl Socket {
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    /// See [`Line::leave_alone`].
    pub(super) fn leave_alone(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(line) => line.leave_alone(),
            Self::Encrypted(stream) => stream.get_mut().0.leave_alone(),
        }
    }

    /// Data of the binding `tls-server-end-point`, where there is one.
    pub(super) fn channel_binding(&self) -> Option<Vec<u8>> {
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
