//! Why a stream ends.

use super::super::event::InvalidEvent;
use super::super::images::InvalidRow;
use super::super::place::InvalidPlace;
use super::super::table_map::InvalidTableMap;
use crate::position::Lsn;
use crate::schema::TableName;
use crate::transaction::update::NoKey;

/// Definite: the stream cannot be followed any further without a guess.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Event(#[from] InvalidEvent),
    #[error(transparent)]
    Place(#[from] InvalidPlace),
    #[error("description of a table that cannot be read")]
    TableMap(#[from] InvalidTableMap),
    #[error(transparent)]
    Row(#[from] InvalidRow),
    #[error("{what} outside a transaction")]
    Outside { what: &'static str },
    #[error("{what} inside the transaction that starts at {start}: its end is missing in the log")]
    Inside { what: &'static str, start: Lsn },
    #[error("rows of table number {number}, which the stream has not described")]
    Undescribed { number: u64 },
    #[error("rows of {table}, which has been described and not been defined")]
    Undefined { table: TableName },
    #[error("transaction that starts at {start} has more changes than can be counted")]
    TooLong { start: Lsn },
    #[error("change of {table} without its key; set binlog_row_image to FULL")]
    NoKey { table: String },
    #[error(
        "rows{} were changed by a statement that is logged as text; set binlog_format to ROW on the server and in every \
         session, and scan the tables again in a new pipeline",
        .table.as_ref().map_or(String::new(), |table| format!(" of {table}"))
    )]
    Statement { table: Option<TableName> },
    #[error("statement {word:?} in the log, which is not known; update this program")]
    UnknownStatement { word: String },
    #[error(
        "rows of {table} were added or removed with a partition or a tablespace, which the log does not tell row by row; scan \
         the table again in a new pipeline"
    )]
    Unlogged { table: TableName },
    #[error(
        "{table} was renamed, or another table was given its name: which rows it has now is not in the log. Take it out of \
         `tables` and start; then put it back, to have the table that has the name now scanned"
    )]
    Renamed { table: TableName },
    #[error(
        "the transaction that starts at {start} is rolled back in the log, behind changes of captured tables; avoid writing \
         tables with and without transactions in one, and scan the tables again in a new pipeline"
    )]
    RolledBack { start: Lsn },
    #[error(
        "XA COMMIT of a transaction that was prepared before the stream began; its rows have not been read, so scan the tables \
         again in a new pipeline while no XA transaction is prepared"
    )]
    UnknownPrepared,
    #[error("name of an XA transaction that cannot be read")]
    XaName,
    #[error(
        "prepared XA transactions hold more than {limit_bytes} bytes of rows; the oldest starts at {oldest}: commit it or roll \
         it back, then start again"
    )]
    PreparedTooLarge { limit_bytes: usize, oldest: Lsn },
}

impl From<NoKey> for Error {
    fn from(NoKey { table }: NoKey) -> Self {
        Self::NoKey { table }
    }
}
