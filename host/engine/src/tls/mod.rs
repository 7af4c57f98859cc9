//! TLS to database servers, with libpq's meanings of `sslmode`.
//!
//! | mode | encrypted | certificate |
//! |---|---|---|
//! | `disable` | no | |
//! | `prefer` | if the server can | not checked: a listener can't read along, a man in the middle can |
//! | `require` | yes | not checked; with a root file: as `verify-ca` |
//! | `verify-ca` | yes | signed by a trusted authority, for whatever name |
//! | `verify-full` | yes | and for the host's name or address |
//!
//! Two differences from libpq. The name must stand among the certificate's alternative names; the common name is not
//! looked at. And a certificate that is itself in the root file is trusted as it is: the usual self-signed one of a
//! PostgreSQL server calls itself an authority, which a strict verifier would refuse to see used by a server.

mod binding;
mod verify;

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::{SslMode, Tls};

pub(crate) use binding::server_end_point;
use verify::{Trust, Verifier};

/// What stands in the way of an encrypted connection. All of it is definite, but for [`Handshake`](Error::Handshake).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "read the root certificates in {path}; sslrootcert must name a readable file of PEM certificates"
    )]
    RootFile { path: String, source: Option<rustls::pki_types::pem::Error> },
    #[error(
        "the system has no root certificates; install ca-certificates, or name a file in sslrootcert"
    )]
    NoSystemRoots,
    #[error(
        "host {host} is neither a name nor an address that a certificate can be checked against"
    )]
    HostName { host: String, source: InvalidDnsNameError },
    #[error("set up TLS")]
    Setup(#[from] rustls::Error),
    /// The certificate, or the server's way of speaking TLS, was refused.
    #[error("TLS was refused; check sslmode and sslrootcert against the certificate of the server")]
    Refused(#[source] rustls::Error),
    #[error("the connection broke in the TLS handshake")]
    Handshake(#[source] io::Error),
}

/// Makes encrypted connections in one way of checking the server.
#[derive(Clone)]
pub(crate) struct Connector(Arc<ClientConfig>);

impl Connector {
    pub(crate) fn new(tls: &Tls) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Arc::new(Verifier::new(trust(tls)?, algorithms));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    pub(crate) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> Result<TlsStream<S>, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|source| Error::HostName { host: host.to_owned(), source })?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, socket).await.map_err(|error| {
            let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match refusal.cloned() {
                Some(refusal) => Error::Refused(refusal),
                None => Error::Handshake(error),
            }
        })
    }
}

fn trust(tls: &Tls) -> Result<Trust, Error> {
    match (tls.mode, &tls.root_certificates) {
        (SslMode::Disable | SslMode::Prefer, _) | (SslMode::Require, None) => Ok(Trust::Any),
        (SslMode::Require | SslMode::VerifyCa, _) => Ok(Trust::Authority(roots(tls)?)),
        (SslMode::VerifyFull, _) => Ok(Trust::AuthorityAndName(roots(tls)?)),
    }
}

fn roots(tls: &Tls) -> Result<verify::Roots, Error> {
    let certificates = authorities(tls)?;
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(certificates.iter().cloned());
    let themselves = match tls.root_certificates {
        Some(_) => certificates,
        None if authorities.is_empty() => return Err(Error::NoSystemRoots),
        None => Vec::new(),
    };
    Ok(verify::Roots { authorities, themselves })
}

/// The certificates to trust: those of the file, or the system's.
pub(crate) fn authorities(tls: &Tls) -> Result<Vec<CertificateDer<'static>>, Error> {
    let Some(path) = &tls.root_certificates else {
        let certificates = rustls_native_certs::load_native_certs().certs;
        return if certificates.is_empty() { Err(Error::NoSystemRoots) } else { Ok(certificates) };
    };
    let unreadable = |source| Error::RootFile { path: path.display().to_string(), source };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(Some(error)))?;
    if certificates.is_empty() { Err(unreadable(None)) } else { Ok(certificates) }
}
