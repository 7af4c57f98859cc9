//! What the server's refusals mean for the chain, by their numbers.

use mysql_async::{Error as ClientError, ServerError};

use crate::outlet::Error;
use crate::source::mysql::failure::{self, Failure};

pub(super) fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Definite { what, advice, source } => {
            let number = source.as_ref().and_then(|cause| cause.downcast_ref::<ServerError>());
            let remedy = number.and_then(|error| remedy(error.code)).map_or(advice, str::to_owned);
            Error::Definite { what, remedy, source }
        }
        Failure::Transient { what, advice, source } => {
            Error::Transient { what: format!("{what}; {advice}"), source }
        }
    }
}

/// Of a write of rows. The number stays, the message goes: it may repeat a row.
pub(super) fn refused(what: String, error: ClientError) -> Error {
    let error = match error {
        ClientError::Server(report) => ClientError::Server(ServerError {
            message: "its message may repeat a row, and is left out".to_owned(),
            ..report
        }),
        error => error,
    };
    failed(failure::sql(what, error))
}

/// What to do about refusals that only an outlet meets.
fn remedy(number: u16) -> Option<&'static str> {
    Some(match number {
        1048 | 1364 => "let the column at the outlet take nulls, or give it a default",
        1062 | 1586 => {
            "drop the unique index at the outlet that is not the key's: rows of the source need not be unique there"
        }
        1264 | 1265 | 1292 | 1366 | 1406 | 1416 | 4078 => {
            "give the column at the outlet a type that holds the source's values, such as longtext"
        }
        1060 => {
            "names of columns that differ in case only are one here: rename a column of the source table"
        }
        1118 | 1117 => {
            "create the table at the outlet by hand, with longtext in place of long varchar columns"
        }
        1071 | 1070 => "give the source table a narrower key, or send the table to another outlet",
        1153 | 1301 => "raise max_allowed_packet at the outlet beyond the largest row",
        1205 => "end the session that holds the lock",
        1290 | 1792 | 1836 => "the outlet's server is read-only: name the one that is written to",
        1461 => "raise max_prepared_stmt_count at the outlet",
        1665 => "set binlog_format of the outlet's server to ROW",
        3819 | 4025 => "drop the check constraint at the outlet",
        1044 | 1142 | 1143 => {
            "grant the account SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER and DROP on the outlet's database"
        }
        1049 => "create the database at the outlet, or name another",
        _ => return None,
    })
}
