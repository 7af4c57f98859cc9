//! What can go wrong with a PostgreSQL server, by consequence.
//!
//! *Definite*: the same attempt will fail again until an operator acts; the pipeline stops and says what to do.
//! *Transient*: the world may be better in a moment; back off and try again. The class follows from the SQLSTATE (or
//! from the kind of an I/O error), never from the text of a message, which is translated and changes between versions.
//! An unknown SQLSTATE is definite: to stop is always safe, to try for ever is not.
//!
//! Of the server's report only severity, code and message are kept. Its detail and context can hold row values.

use std::error::Error as StdError;

/// What lies below a failure. Printed as the chain of causes, never matched on.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// A failed operation on a server: what failed, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{what}; {advice}")]
    Definite { what: String, advice: String, source: Option<Cause> },
    #[error("{what}; {advice}")]
    Transient { what: String, advice: String, source: Option<Cause> },
}

/// An error report of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (sqlstate {code})")]
pub struct ServerError {
    pub code: String,
    pub message: String,
}

impl Failure {
    pub(crate) fn definite(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Definite { what: what.into(), advice: advice.into(), source: None }
    }

    pub(crate) fn transient(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Transient { what: what.into(), advice: advice.into(), source: None }
    }

    /// By the SQLSTATE of the server's report.
    pub(crate) fn server(what: impl Into<String>, error: ServerError) -> Self {
        let what = what.into();
        let (consequence, advice) = judge(&error.code);
        let (advice, source) = (advice.to_owned(), Some(error.into()));
        match consequence {
            Consequence::Definite => Self::Definite { what, advice, source },
            Consequence::Transient => Self::Transient { what, advice, source },
        }
    }

    pub(crate) fn sql(what: impl Into<String>, error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(report) => Self::server(what, ServerError::from(report)),
            None if is_ours(&error) => Self::Definite {
                what: what.into(),
                advice: "the server answers in a way that this program does not understand".into(),
                source: Some(error.into()),
            },
            None => Self::Transient {
                what: what.into(),
                advice: "the connection is gone, it is made anew".into(),
                source: Some(error.into()),
            },
        }
    }

    pub(crate) fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        Self::Transient {
            what: what.into(),
            advice: "check that the server runs and that the network lets this machine reach it"
                .into(),
            source: Some(error.into()),
        }
    }

    /// The server broke the protocol, or speaks one that is not understood.
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::definite(what, "check that host and port are those of a PostgreSQL server")
    }

    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// SQLSTATE, where the server gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        let (Self::Definite { source, .. } | Self::Transient { source, .. }) = self;
        source
            .as_ref()
            .and_then(|cause| cause.downcast_ref::<ServerError>())
            .map(|error| error.code.as_str())
    }
}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(report: &tokio_postgres::error::DbError) -> Self {
        Self { code: report.code().code().to_owned(), message: report.message().to_owned() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Consequence {
    Definite,
    Transient,
}

/// Whether the client library refused what it got, rather than lost its connection.
fn is_ours(error: &tokio_postgres::Error) -> bool {
    let mut source = StdError::source(error);
    while let Some(cause) = source {
        if cause.downcast_ref::<std::io::Error>().is_some() {
            return false;
        }
        source = cause.source();
    }
    !error.is_closed()
}

fn judge(code: &str) -> (Consequence, &'static str) {
    use Consequence::{Definite, Transient};
    match code {
        "28P01" => (Definite, "check user and password of this server in the configuration"),
        "28000" => (
            Definite,
            "check that the role exists and may log in, and that pg_hba.conf of the server admits this role, database, address and encryption",
        ),
        "3D000" => (Definite, "check the name of the database in the configuration"),
        "42501" => (Definite, "grant the missing privilege; `dovetail check` prints the statement"),
        "42P01" | "3F000" => (Definite, "check that the table exists and that its name is right"),
        "42704" => (
            Definite,
            "check that the server is PostgreSQL 14 or later and that the named object exists",
        ),
        "53300" => {
            (Transient, "the server has no free connection; raise max_connections or close others")
        }
        "53400" => (Definite, "raise the limit that the server names in its configuration"),
        "57P01" | "57P02" | "57P03" | "57P05" => (Transient, "the server is starting or stopping"),
        "57014" => (Transient, "the statement was cancelled"),
        "55P03" => (Transient, "another session holds a lock on the table"),
        "55006" => (Transient, "another session uses the object"),
        "55000" => {
            (Definite, "check the server's settings; `dovetail check` names what is missing")
        }
        _ => match code.get(..2) {
            Some("08") => (Transient, "the connection is gone, it is made anew"),
            Some("40") => (Transient, "the server rolled the transaction back"),
            Some("53") => (Transient, "the server lacks memory or disk space"),
            _ => (Definite, "see the server's log"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: &str) -> Failure {
        let error = ServerError { code: code.into(), message: "as the server says".into() };
        Failure::server("read", error)
    }

    #[test]
    fn the_consequence_follows_from_the_sqlstate() {
        for definite in ["28P01", "28000", "3D000", "42501", "42P01", "XX000", "", "0"] {
            assert!(!failure(definite).is_transient(), "{definite}");
        }
        for transient in ["08006", "40001", "53100", "53300", "55006", "57P01", "57P03"] {
            assert!(failure(transient).is_transient(), "{transient}");
        }
        assert_eq!(failure("28P01").sqlstate(), Some("28P01"));
    }
}
