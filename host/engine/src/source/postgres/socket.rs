//! Connecting, with TLS as `sslmode` wants it.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::{Server, SslMode};
use crate::source::line::Line;
use crate::source::socket;
use crate::tls;

use super::failure::Failure;

pub(super) use crate::source::socket::Socket;

/// For name resolution, TCP, TLS and login together. A server that is there answers within a second; one that is being
/// restarted refuses. Only a silent network takes longer, and that is for the backoff.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

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
    let line = socket::connect(&server.host, server.port)
        .await
        .map_err(|error| Failure::io(what(), error))?;
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
