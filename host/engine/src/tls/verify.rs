//! Whether a server's certificate is good enough for an `sslmode`.
//!
//! The handshake's own signature is checked in every mode: without that even an unchecked certificate would say
//! nothing about who holds its key, and channel binding would rest on air.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

#[derive(Debug)]
pub(super) struct Roots {
    pub authorities: RootCertStore,
    /// The certificates of the root file, for a server that shows one of them as its own.
    pub themselves: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
pub(super) enum Trust {
    Any,
    Authority(Roots),
    AuthorityAndName(Roots),
}

#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(trust: Trust, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { trust, algorithms }
    }

    fn check_authority(
        &self,
        roots: &Roots,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if roots.themselves.iter().any(|root| root.as_ref() == certificate.as_ref()) {
            return Ok(());
        }
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(certificate)?,
            &roots.authorities,
            intermediates,
            now,
            self.algorithms.all,
        )
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::Any => {}
            Trust::Authority(roots) => {
                self.check_authority(roots, certificate, intermediates, now)?;
            }
            Trust::AuthorityAndName(roots) => {
                self.check_authority(roots, certificate, intermediates, now)?;
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
