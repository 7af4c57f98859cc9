//! Channel binding `tls-server-end-point` (RFC 5929): the hash of the server's certificate, which SCRAM mixes into its
//! proof, so that a man in the middle with another certificate cannot pass the login on.
//!
//! The hash function is that of the certificate's own signature, SHA-256 where that is MD5 or SHA-1. Algorithms that
//! name no single hash (Ed25519, RSA-PSS with parameters) have no binding; the login goes on without one, as libpq's.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// `None` where the certificate's signature algorithm defines no binding.
pub(crate) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match signature_hash(certificate)? {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// DER tags.
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID, .. }, .. }` (RFC 5280).
fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    let (certificate, _) = element(SEQUENCE, certificate)?;
    let (_, rest) = element(SEQUENCE, certificate)?;
    let (algorithm, _) = element(SEQUENCE, rest)?;
    let (oid, _) = element(OBJECT_IDENTIFIER, algorithm)?;
    match oid {
        // 1.2.840.113549.1.1.{4,5,11,12,13}: RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 4 | 5 | 11] => Some(Hash::Sha256),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 12] => Some(Hash::Sha384),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 13] => Some(Hash::Sha512),
        // 1.2.840.10045.4.1 and 1.2.840.10045.4.3.{2,3,4}: ECDSA with SHA-1, SHA-256, SHA-384, SHA-512
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 2] => Some(Hash::Sha256),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 3] => Some(Hash::Sha384),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 4] => Some(Hash::Sha512),
        _ => None,
    }
}

/// The content of the DER element that `input` starts with, and what follows it.
fn element(tag: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, input) = input.split_first()?;
    let (&length, mut input) = input.split_first()?;
    let length = if length < 0x80 {
        usize::from(length)
    } else {
        let (bytes, rest) = input.split_at_checked(usize::from(length & 0x7f))?;
        input = rest;
        // Certificates are far below 4 GiB; more length bytes than four are not worth following.
        bytes.len().le(&4).then_some(())?;
        bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
    };
    (first == tag).then_some(())?;
    input.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(oid: &[u8]) -> Vec<u8> {
        let mut algorithm = vec![OBJECT_IDENTIFIER, u8::try_from(oid.len()).expect("short")];
        algorithm.extend_from_slice(oid);
        let mut content = vec![SEQUENCE, 0x81, 1, 0xff, SEQUENCE];
        content.push(u8::try_from(algorithm.len()).expect("short"));
        content.extend_from_slice(&algorithm);
        let mut certificate = vec![SEQUENCE, 0x82, 0];
        certificate.push(u8::try_from(content.len()).expect("short"));
        certificate.extend_from_slice(&content);
        certificate
    }

    #[test]
    fn the_hash_is_that_of_the_certificates_signature() {
        let rsa_sha1 = certificate(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5]);
        assert_eq!(server_end_point(&rsa_sha1), Some(Sha256::digest(&rsa_sha1).to_vec()));
        let ecdsa_sha384 = certificate(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]);
        assert_eq!(server_end_point(&ecdsa_sha384), Some(Sha384::digest(&ecdsa_sha384).to_vec()));
        let ed25519 = certificate(&[0x2b, 0x65, 0x70]);
        assert_eq!(server_end_point(&ed25519), None);
    }

    #[test]
    fn a_cut_certificate_has_no_binding() {
        let whole = certificate(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]);
        for length in 0..whole.len() {
            assert_eq!(server_end_point(&whole[..length]), None, "{length}");
        }
        assert_eq!(element(SEQUENCE, &[SEQUENCE, 0xff]), None);
        assert_eq!(element(SEQUENCE, &[SEQUENCE, 0x88, 1, 1, 1, 1, 1, 1, 1, 1]), None);
    }
}
