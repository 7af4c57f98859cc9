//! Logging in on a connection of our own, for the log.
//!
//! The ways in are those that the client library has, so that the log is reached wherever the tables are:
//! `caching_sha2_password`, `mysql_native_password` and `ed25519`. One thing is left to it: without TLS, the first login
//! by `caching_sha2_password` after the server's start needs the password encrypted with the server's key. Every attempt
//! opens a session for SQL before the log's, which does that, and then the server remembers the account; where it has
//! forgotten it again in between, the attempt is transient.

use bytes::{Buf, Bytes};
use mysql_common::packets::AuthPlugin;

use crate::config::{MySqlServer, SslMode};

use super::failure::Failure;
use super::wire::{Wire, head, malformed, server_error};

const PROTOCOL: u8 = 10;
/// Bytes of the random text that the password is mixed with.
const NONCE_BYTES: usize = 20;
const PACKET_BYTES_MAX: u32 = 1 << 30;
/// `utf8mb4_general_ci`, which both servers have.
const COLLATION: u8 = 45;

mod capability {
    /// On MariaDB it also says that we know nothing of its extensions.
    pub(super) const LONG_PASSWORD: u32 = 1;
    pub(super) const LONG_FLAG: u32 = 1 << 2;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const TLS: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
    /// What the conversation that follows relies on. Lists end with a packet of their own, since `DEPRECATE_EOF` is not
    /// among them.
    pub(super) const OURS: u32 =
        LONG_PASSWORD | LONG_FLAG | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
    pub(super) const REQUIRED: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
}

/// What a server says of itself before anything else.
#[derive(Debug, PartialEq, Eq)]
struct Greeting {
    capabilities: u32,
    nonce: Vec<u8>,
    plugin: Vec<u8>,
}

/// Logs in on a fresh connection.
pub(super) async fn run(
    wire: &mut Wire,
    server: &MySqlServer,
    mode: SslMode,
) -> Result<(), Failure> {
    let what = format!("log in at {}:{} as {}", server.host, server.port, server.user);
    let packet = wire.packet().await?;
    if packet.first() == Some(&head::ERROR) {
        return Err(server_error(&what, &packet));
    }
    let greeting = greeting(packet).ok_or_else(malformed)?;
    if greeting.capabilities & capability::REQUIRED != capability::REQUIRED {
        return Err(malformed());
    }
    let mut capabilities = capability::OURS;
    let offered = greeting.capabilities & capability::TLS != 0;
    match mode {
        SslMode::Disable => {}
        SslMode::Prefer if !offered => {}
        _ if !offered => {
            return Err(Failure::definite(
                format!("the server at {}:{} does not offer TLS", server.host, server.port),
                "switch it on there, or choose another sslmode",
            ));
        }
        _ => {
            capabilities |= capability::TLS;
            wire.send(&preamble(capabilities)).await?;
            wire.encrypt(server).await?;
        }
    }
    // The server names its default; the account's own may be another, to which it then switches.
    let known = plugin(&greeting.plugin).is_some();
    let name = if known { &greeting.plugin[..] } else { b"mysql_native_password" };
    let proof = prove(server, name, &greeting.nonce)?;
    wire.send(&response(capabilities, &server.user, &proof, name)).await?;
    authenticate(wire, server, &what).await
}

async fn authenticate(wire: &mut Wire, server: &MySqlServer, what: &str) -> Result<(), Failure> {
    /// Of `caching_sha2_password`: the server remembers the account, or wants the password itself.
    const REMEMBERED: u8 = 3;
    const WANTED: u8 = 4;
    let mut switched = false;
    loop {
        let packet = wire.packet().await?;
        match (packet.first(), packet.get(1)) {
            (Some(&head::OK), _) => return Ok(()),
            (Some(&head::ERROR), _) => return Err(server_error(what, &packet)),
            (Some(&head::END), _) if !switched => {
                switched = true;
                let (name, nonce) = switch(packet).ok_or_else(malformed)?;
                let proof = prove(server, &name, &nonce)?;
                wire.send(&proof).await?;
            }
            (Some(1), Some(&REMEMBERED)) => {}
            (Some(1), Some(&WANTED)) if wire.is_encrypted() => {
                let password = server.password.as_ref().map_or("", |password| password.reveal());
                wire.send(&[password.as_bytes(), &[0]].concat()).await?;
            }
            (Some(1), Some(&WANTED)) => {
                return Err(Failure::transient(
                    format!("{what}: the server has forgotten the account meanwhile"),
                    "it is tried again; with sslmode require or better this does not happen",
                ));
            }
            _ => return Err(malformed()),
        }
    }
}

fn plugin(name: &[u8]) -> Option<AuthPlugin<'static>> {
    match AuthPlugin::from_bytes(name) {
        known @ (AuthPlugin::CachingSha2Password
        | AuthPlugin::MysqlNativePassword
        | AuthPlugin::Ed25519) => Some(known.into_owned()),
        _ => None,
    }
}

/// The proof that we know the password.
fn prove(server: &MySqlServer, name: &[u8], nonce: &[u8]) -> Result<Vec<u8>, Failure> {
    let plugin = plugin(name).ok_or_else(|| {
        Failure::definite(
            format!(
                "the account {} logs in by {}, which is not known here",
                server.user,
                String::from_utf8_lossy(name)
            ),
            "give it another way to log in: caching_sha2_password, mysql_native_password or ed25519",
        )
    })?;
    let password = server.password.as_ref().map(|password| password.reveal());
    Ok(plugin.gen_data(password, nonce).map(|data| data.to_vec()).unwrap_or_default())
}

fn greeting(mut packet: Bytes) -> Option<Greeting> {
    if packet.try_get_u8().ok()? != PROTOCOL {
        return None;
    }
    let _version = text(&mut packet)?;
    let _session = packet.try_get_u32_le().ok()?;
    let mut nonce = take(&mut packet, 8)?.to_vec();
    take(&mut packet, 1)?;
    let low = packet.try_get_u16_le().ok()?;
    // Collation and status.
    take(&mut packet, 3)?;
    let high = packet.try_get_u16_le().ok()?;
    let nonce_bytes = usize::from(packet.try_get_u8().ok()?);
    take(&mut packet, 10)?;
    // The rest of the nonce takes 13 bytes at least, with the zero that ends it.
    let rest = take(&mut packet, nonce_bytes.saturating_sub(8).max(13))?;
    nonce.extend_from_slice(&rest);
    nonce.truncate(NONCE_BYTES);
    // Some servers leave out the zero that ends the name.
    let plugin = packet.split(|&byte| byte == 0).next()?.to_vec();
    Some(Greeting { capabilities: u32::from(high) << 16 | u32::from(low), nonce, plugin })
}

/// A request to go on with another plugin: its name and nonce.
fn switch(mut packet: Bytes) -> Option<(Bytes, Bytes)> {
    take(&mut packet, 1)?;
    let name = text(&mut packet)?;
    if packet.last() == Some(&0) {
        packet.truncate(packet.len() - 1);
    }
    Some((name, packet))
}

fn take(packet: &mut Bytes, length: usize) -> Option<Bytes> {
    (packet.len() >= length).then(|| packet.split_to(length))
}

/// Up to a zero.
fn text(packet: &mut Bytes) -> Option<Bytes> {
    let length = packet.iter().position(|&byte| byte == 0)?;
    let text = packet.split_to(length);
    packet.advance(1);
    Some(text)
}

/// What a request for TLS and the response to the greeting begin with.
fn preamble(capabilities: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend_from_slice(&capabilities.to_le_bytes());
    packet.extend_from_slice(&PACKET_BYTES_MAX.to_le_bytes());
    packet.push(COLLATION);
    packet.extend_from_slice(&[0; 23]);
    packet
}

fn response(capabilities: u32, user: &str, proof: &[u8], plugin: &[u8]) -> Vec<u8> {
    let mut packet = preamble(capabilities);
    packet.extend_from_slice(user.as_bytes());
    packet.push(0);
    packet.push(u8::try_from(proof.len()).expect("proofs have at most 64 bytes"));
    packet.extend_from_slice(proof);
    packet.extend_from_slice(plugin);
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(nonce_bytes: u8, end: &[u8]) -> Vec<u8> {
        [
            b"\x0a9.7.4\0\x01\0\0\0".as_slice(),
            b"abcdefgh\0",
            b"\xff\xf7\x2d\x02\0\xff\xdf",
            &[nonce_bytes],
            &[0; 10],
            b"ijklmnopqrst\0",
            end,
        ]
        .concat()
    }

    #[test]
    fn a_greeting_is_read() {
        for (nonce_bytes, end) in
            [(21, &b"caching_sha2_password\0"[..]), (0, b"caching_sha2_password")]
        {
            let greeting = greeting(sample(nonce_bytes, end).into()).expect("sound");
            assert_eq!(greeting.nonce, b"abcdefghijklmnopqrst");
            assert_eq!(greeting.plugin, b"caching_sha2_password");
            assert_eq!(greeting.capabilities, 0xdfff_f7ff);
        }
    }

    #[test]
    fn a_greeting_cut_anywhere_is_refused_or_without_a_plugin() {
        let whole = sample(255, &[b'x'; 300]);
        for length in 0..whole.len() {
            let read = greeting(Bytes::copy_from_slice(&whole[..length]));
            assert!(read.is_none_or(|greeting| greeting.nonce.len() == NONCE_BYTES), "{length}");
        }
        assert_eq!(greeting(Bytes::from_static(b"\x09old\0")), None);
    }

    #[test]
    fn a_switch_is_read() {
        let (name, nonce) = switch(Bytes::from_static(b"\xfeclient_ed25519\0nonce\0")).unwrap();
        assert_eq!((&name[..], &nonce[..]), (&b"client_ed25519"[..], &b"nonce"[..]));
        // Its short form means passwords of the last century.
        assert_eq!(switch(Bytes::from_static(b"\xfe")), None);
    }
}
