//! What can go wrong with a MySQL or MariaDB server, by consequence.
//!
//! The class follows from the server's error number (or from the kind of an I/O error), never from the text of a
//! message, which is translated and changes between versions. An unknown number is definite: to stop is always safe,
//! to try for ever is not. Where the two servers use one number for two things, the cautious class counts.

use mysql_async::{DriverError, Error, IoError, ServerError};

pub use crate::source::postgres::failure::Failure;

/// Error numbers that are looked at by name.
pub(crate) mod code {
    pub(crate) const ACCESS_DENIED: u16 = 1045;
    pub(crate) const DATABASE_ACCESS_DENIED: u16 = 1044;
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    pub(crate) const UNKNOWN_DATABASE: u16 = 1049;
    pub(crate) const TABLE_ACCESS_DENIED: u16 = 1142;
    pub(crate) const COLUMN_ACCESS_DENIED: u16 = 1143;
    pub(crate) const SPECIFIC_ACCESS_DENIED: u16 = 1227;
    pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    /// The table was redefined after the view was opened.
    pub(crate) const TABLE_DEFINITION_CHANGED: u16 = 1412;
    pub(crate) const SYNTAX: u16 = 1064;
    /// The server's general error of a log that it cannot send; its text says why.
    pub(crate) const LOG_CANNOT_BE_SENT: u16 = 1236;
    /// `XA RECOVER` without the privilege for it.
    pub(crate) const XA_RECOVER_DENIED: u16 = 1401;
    /// No lock, and `NOWAIT` was asked for.
    pub(crate) const LOCK_NOWAIT: u16 = 3572;
}

/// Of a statement.
pub(crate) fn sql(what: impl Into<String>, error: Error) -> Failure {
    let what = what.into();
    match error {
        Error::Server(report) => server(what, report),
        Error::Io(IoError::Tls(_)) => refused(what, error),
        error if is_refused_handshake(&error) => refused(what, error),
        Error::Io(_) => Failure::Transient {
            what,
            advice: "check that the server runs and that the network lets this machine reach it"
                .into(),
            source: Some(error.into()),
        },
        Error::Driver(DriverError::ConnectionClosed | DriverError::PoolDisconnected) => {
            Failure::Transient {
                what,
                advice: "the connection is gone, it is made anew".into(),
                source: Some(error.into()),
            }
        }
        Error::Driver(DriverError::NoClientSslFlagFromServer) => Failure::Definite {
            what,
            advice: "the server does not offer TLS; switch it on there, or choose another sslmode"
                .into(),
            source: None,
        },
        // The library's error may hold a row. Its text does not, and only the text is kept.
        error => Failure::Definite {
            what,
            advice: "the server answers in a way that this program does not understand; check that host and port are those of a MySQL or MariaDB server".into(),
            source: Some(error.to_string().into()),
        },
    }
}

/// In the words that the log's own connection has for it.
fn refused(what: String, error: Error) -> Failure {
    Failure::Definite {
        what,
        advice:
            "TLS was refused; check sslmode and sslrootcert against the certificate of the server"
                .into(),
        source: Some(error.into()),
    }
}

/// Whether TLS was refused in the handshake: the library reports that as an I/O error with the reason inside. An
/// established connection that breaks has no such reason.
pub(crate) fn is_refused_handshake(error: &Error) -> bool {
    let Error::Io(IoError::Io(error)) = error else { return false };
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// By the number of the server's report.
fn server(what: String, report: ServerError) -> Failure {
    let (transient, advice) = judge(report.code);
    let (advice, source) = (advice.to_owned(), Some(report.into()));
    match transient {
        true => Failure::Transient { what, advice, source },
        false => Failure::Definite { what, advice, source },
    }
}

/// The server's number, where it gave one.
pub(crate) fn number(failure: &Failure) -> Option<u16> {
    let (Failure::Definite { source, .. } | Failure::Transient { source, .. }) = failure;
    source.as_ref().and_then(|cause| cause.downcast_ref::<ServerError>()).map(|error| error.code)
}

/// Whether it is transient, and what to do.
fn judge(number: u16) -> (bool, &'static str) {
    match number {
        code::ACCESS_DENIED | 1698 => {
            (false, "check user and password of this server in the configuration")
        }
        1130 => (false, "create the account for the address of this machine"),
        1251 | 1524 | 4151 => (
            false,
            "give the account another way to log in: caching_sha2_password, mysql_native_password or ed25519",
        ),
        3159 => (false, "the server wants TLS; set sslmode to require or better"),
        3118 => (false, "unlock the account"),
        1820 | 1862 => (false, "renew the password of the account"),
        code::DATABASE_ACCESS_DENIED
        | code::TABLE_ACCESS_DENIED
        | code::COLUMN_ACCESS_DENIED
        | code::SPECIFIC_ACCESS_DENIED
        | 1370
        | 1419 => (false, "grant the missing privilege; `dovetail check` prints the statement"),
        code::NO_SUCH_TABLE | code::UNKNOWN_DATABASE => {
            (false, "check that the table exists and that its name is right")
        }
        1040 | 1203 | 1226 => {
            (true, "the server has no free connection; raise max_connections or close others")
        }
        code::LOCK_WAIT_TIMEOUT | code::LOCK_NOWAIT => (true, "another session holds a lock"),
        1213 => (true, "the server rolled the transaction back"),
        code::TABLE_DEFINITION_CHANGED => (true, "the table was redefined while it was read"),
        1053 | 1077..=1079 | 3169 => (true, "the server is stopping"),
        1317 | 3024 | 1969 => (true, "the statement was cancelled"),
        1927 | 1152..=1161 | 1184 | 2006 | 2013 => {
            (true, "the connection is gone, it is made anew")
        }
        1021 | 1037 | 1038 | 1041 | 1135 | 1114 => {
            (true, "the server lacks memory, threads or disk space")
        }
        code::LOG_CANNOT_BE_SENT => (
            false,
            "the server cannot send its log from there, its own log says more; if the file is damaged, have the tables scanned again: remove the state directory, empty the outlet, and start",
        ),
        1129 => (
            false,
            "the server blocked this machine after too many broken connections; run FLUSH HOSTS there",
        ),
        _ => (false, "see the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16) -> Failure {
        let report =
            ServerError { code, message: "as the server says".into(), state: "HY000".into() };
        sql("read", Error::Server(report))
    }

    #[test]
    fn the_consequence_follows_from_the_number() {
        for definite in [1045, 1044, 1142, 1146, 1227, 1064, 1, 65_535] {
            assert!(!failure(definite).is_transient(), "{definite}");
        }
        for transient in [1040, 1053, 1159, 1205, 1213, 1317, 1412, 1927] {
            assert!(failure(transient).is_transient(), "{transient}");
        }
        assert_eq!(number(&failure(1045)), Some(1045));
    }

    #[test]
    fn a_refused_certificate_is_definite_and_a_broken_connection_is_not() {
        let io = |error| sql("connect", Error::Io(IoError::Io(error)));
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let refused = io(std::io::Error::new(std::io::ErrorKind::InvalidData, unknown));
        assert!(!refused.is_transient());
        assert!(refused.to_string().contains("TLS was refused"), "{refused}");
        assert!(io(std::io::ErrorKind::ConnectionReset.into()).is_transient());
    }
}
