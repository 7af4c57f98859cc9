//! The binary log of MySQL and MariaDB, read without doing any I/O.
//!
//! **Deny by default.** An event is decoded, or known to carry no rows, or the stream ends with an error that says what it
//! was. There is no fourth way: other readers pass over what they do not know, and that is how rows are lost without a
//! trace. A type that is not in the table below is refused even where it is marked as one that a replica may ignore; the
//! mark says that replication goes on, not that nothing was written.
//!
//! What becomes of every event type of MySQL 9.7 (`M`) and MariaDB 11.8 (`D`):
//!
//! | type | of | what it is | here |
//! |---|---|---|---|
//! | 2 `QUERY` | M D | a statement: `BEGIN`, `COMMIT`, DDL, XA; rows under statement format | classified by [`statement`]; rows stop |
//! | 3 `STOP` | M D | the server was shut down | carries no rows |
//! | 4 `ROTATE` | M D | the next file; made up by the server: the file that is sent | moves the position |
//! | 5 `INTVAR`, 13 `RAND`, 14 `USER_VAR` | M D | parameters of the statement behind it | that statement stops |
//! | 6, 8-12, 17, 18: `LOAD DATA` as files | M D | rows that are nowhere as rows | stop |
//! | 15 `FORMAT_DESCRIPTION` | M D | what events look like: flavor, checksums | decoded ([`mod@format`]) |
//! | 16 `XID` | M D | commit | closes the transaction |
//! | 19 `TABLE_MAP` | M D | a table for the rows behind it | decoded ([`table_map`]) |
//! | 23-25 rows, version 1 | D | changes | decoded ([`rows`]) |
//! | 26 `INCIDENT` | M D | the log lacks something | stop |
//! | 27 `HEARTBEAT`, 41 `HEARTBEAT_V2` | M D | nothing new | moves the position |
//! | 28 `IGNORABLE` | M D | never written | carries no rows |
//! | 29 `ROWS_QUERY`, 160 `ANNOTATE_ROWS` | M / D | the text of the statement behind the rows | carries no rows |
//! | 30-32 rows, version 2 | M D | changes | decoded |
//! | 33 `GTID`, 34 `ANONYMOUS_GTID`, 42 `GTID_TAGGED` | M | begins a transaction | decoded ([`gtid`]) |
//! | 35 `PREVIOUS_GTIDS`, 163 `GTID_LIST` | M / D | what all files before hold | decoded |
//! | 36 `TRANSACTION_CONTEXT`, 37 `VIEW_CHANGE` | M | group replication's bookkeeping | carry no rows |
//! | 38 `XA_PREPARE` | M D | ends a prepared transaction | holds it, see [`transaction`] |
//! | 39 `PARTIAL_UPDATE_ROWS` | M | updates with differences of JSON | decoded |
//! | 40 `TRANSACTION_PAYLOAD` | M | a compressed transaction | unpacked as it is read ([`payload`]) |
//! | 161 `BINLOG_CHECKPOINT` | D | for the server's own recovery | carries no rows |
//! | 162 `GTID` | D | begins a transaction or a statement | decoded |
//! | 164 `START_ENCRYPTION` | D | how the file is encrypted; a server sends what follows in clear | carries no rows |
//! | 165 `QUERY_COMPRESSED` | D | a statement | as `QUERY` |
//! | 166-171 rows, compressed | D | changes | decoded |
//! | 0, 1, 7, 20-22, all others | | not written by these servers | stop |
//!
//! Numbers above 35 are read by the flavor of their file, because each of the servers may come to use those of the other.

pub mod event;
pub mod extent;
pub mod format;
pub mod gtid;
pub mod header;
pub mod kind;
pub mod metadata;
pub mod payload;
pub mod place;
pub mod query;
pub mod rows;
pub mod statement;
pub mod table_map;
pub mod tables;
pub mod transaction;
pub mod xid;

mod arriving;
mod compressed;
mod images;
mod reader;

#[cfg(test)]
mod tests;
