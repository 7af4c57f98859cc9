//! Logging in, and the settings that every session of the engine has.
//!
//! **Load-bearing: SQL and replication connections get the same list.** The text of a value depends on its session
//! (dates, floats, bytea, intervals, money, names of tables in `regclass`); the walsender formats what it streams under
//! its own. With one list the scan and the stream print the same row in the same way, whatever the defaults of server,
//! database or role are.

use std::fmt::Write as _;

use bytes::{Buf, Bytes};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;

use crate::config::{Secret, Server};

use super::failure::Failure;
use super::wire::{self, Purpose, Wire, tag};

/// The settings of every session, in force from its first statement on.
///
/// The first block is what the decoder of values relies on, then what an outlet relies on that has values read from their
/// text: without `array_nulls` a null in an array would become the text `NULL`, under `xmloption` document a fragment of
/// XML would be refused, and without `standard_conforming_strings` a literal means something else. `search_path` makes
/// names in values fully qualified, and keeps the engine's own statements from meeting somebody's functions. `row_security` off makes a policy that would
/// hide rows from a scan an error instead of a gap. The timeouts would end a scan, or the transaction that holds a view.
const SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO,YMD"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("quote_all_identifiers", "off"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    ("standard_conforming_strings", "on"),
    ("search_path", "pg_catalog"),
    ("row_security", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// Timeouts that not every version knows, so that they can't stand in a startup packet.
const SETTLE: &str = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
     WHERE name IN ('idle_session_timeout', 'transaction_timeout')";

/// Logs in on a fresh socket.
pub(super) async fn run(wire: &mut Wire, server: &Server, purpose: Purpose) -> Result<(), Failure> {
    let what = || {
        let address = super::socket::address(server);
        format!("log in at {address} as {} to database {}", server.user, server.database)
    };
    let options = options();
    let mut parameters = vec![
        ("user", server.user.as_str()),
        ("database", server.database.as_str()),
        ("application_name", "dovetail"),
        ("options", options.as_str()),
    ];
    if purpose == Purpose::Replication {
        parameters.push(("replication", "database"));
    }
    wire.send(|out| frontend::startup_message(parameters, out)).await?;
    authenticate(wire, server, &what).await?;
    loop {
        let frame = wire.frame().await?;
        match frame.tag {
            tag::ERROR => {
                return Err(Failure::server(what(), wire::server_error(&frame.body).report));
            }
            tag => {
                wire.greet(&frame);
                if tag == tag::READY {
                    return Ok(());
                }
            }
        }
    }
}

/// Sets what the startup packet could not hold.
pub(super) async fn settle(wire: &mut Wire) -> Result<(), Failure> {
    wire.query("set the timeouts of the session", SETTLE).await.map(drop)
}

fn options() -> String {
    let mut options = String::new();
    for (name, value) in SETTINGS {
        write!(options, "-c {name}={value} ").expect("a string takes everything");
    }
    options
}

async fn authenticate(
    wire: &mut Wire,
    server: &Server,
    what: &(impl Fn() -> String + Sync),
) -> Result<(), Failure> {
    const OK: u32 = 0;
    const CLEARTEXT: u32 = 3;
    const MD5: u32 = 5;
    const SASL: u32 = 10;
    loop {
        let mut request = authentication(wire, what).await?;
        match request.try_get_u32() {
            Ok(OK) => return Ok(()),
            Ok(CLEARTEXT) => {
                if !wire.socket().is_encrypted() {
                    return Err(Failure::definite(
                        format!("{}: the server wants the password in the clear", what()),
                        "use scram-sha-256 in its pg_hba.conf, or sslmode require or better",
                    ));
                }
                let password = password(server, what)?.reveal().as_bytes();
                wire.send(|out| frontend::password_message(password, out)).await?;
            }
            Ok(MD5) => {
                let salt = request.first_chunk::<4>().ok_or_else(|| Failure::protocol(what()))?;
                let password = password(server, what)?.reveal().as_bytes();
                let hash = md5_hash(server.user.as_bytes(), password, *salt);
                wire.send(|out| frontend::password_message(hash.as_bytes(), out)).await?;
            }
            Ok(SASL) => scram(wire, password(server, what)?, &request, what).await?,
            Ok(_) => {
                return Err(Failure::definite(
                    format!("{}: the server wants a way of login that is not supported", what()),
                    "use scram-sha-256 for this role in its pg_hba.conf",
                ));
            }
            Err(_) => return Err(Failure::protocol(what())),
        }
    }
}

fn password<'a>(server: &'a Server, what: &impl Fn() -> String) -> Result<&'a Secret, Failure> {
    server.password.as_ref().ok_or_else(|| {
        Failure::definite(
            format!("{}: the server wants a password, and there is none", what()),
            "set the password of this server in the configuration",
        )
    })
}

/// The next message of the authentication.
async fn authentication(
    wire: &mut Wire,
    what: &(impl Fn() -> String + Sync),
) -> Result<Bytes, Failure> {
    let frame = wire.message().await?;
    match frame.tag {
        tag::AUTHENTICATION => Ok(frame.body),
        tag::ERROR => Err(Failure::server(what(), wire::server_error(&frame.body).report)),
        _ => Err(Failure::protocol(what())),
    }
}

/// SCRAM-SHA-256 (RFC 5802, RFC 7677), bound to the TLS channel where both sides can.
async fn scram(
    wire: &mut Wire,
    password: &Secret,
    mechanisms: &[u8],
    what: &(impl Fn() -> String + Sync),
) -> Result<(), Failure> {
    const CONTINUE: u32 = 11;
    const FINAL: u32 = 12;
    let offers = |name: &str| mechanisms.split(|&byte| byte == 0).any(|m| m == name.as_bytes());
    let binding = wire.socket().channel_binding();
    let (mechanism, binding) = match binding {
        Some(data) if offers(SCRAM_SHA_256_PLUS) => {
            (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(data))
        }
        // Says "I could have bound the channel": if the server offered it and somebody cut that out, the server notices.
        Some(_) if offers(SCRAM_SHA_256) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
        None if offers(SCRAM_SHA_256) => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        _ => {
            return Err(Failure::definite(
                format!("{}: the server offers no known sasl mechanism", what()),
                "use scram-sha-256 for this role in its pg_hba.conf",
            ));
        }
    };
    let refused = |error| Failure::Definite {
        what: format!("{}: the scram exchange", what()),
        advice: "the server could not prove that it knows the password".into(),
        source: Some(Box::new(error)),
    };
    let mut exchange = ScramSha256::new(password.reveal().as_bytes(), binding);
    wire.send(|out| frontend::sasl_initial_response(mechanism, exchange.message(), out)).await?;
    let mut challenge = authentication(wire, what).await?;
    if challenge.try_get_u32() != Ok(CONTINUE) {
        return Err(Failure::protocol(what()));
    }
    exchange.update(&challenge).map_err(refused)?;
    wire.send(|out| frontend::sasl_response(exchange.message(), out)).await?;
    let mut proof = authentication(wire, what).await?;
    if proof.try_get_u32() != Ok(FINAL) {
        return Err(Failure::protocol(what()));
    }
    exchange.finish(&proof).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_needs_escaping_in_a_startup_packet() {
        for (name, value) in SETTINGS {
            assert!(!name.contains([' ', '\\']) && !value.contains([' ', '\\']), "{name}");
        }
        assert!(options().starts_with("-c client_encoding=UTF8 -c DateStyle=ISO,YMD "));
    }
}
