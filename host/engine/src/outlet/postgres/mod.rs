//! A replica in a PostgreSQL database.
//!
//! Rows, table definitions and the checkpoint are written in one transaction under `synchronous_commit = on`. Writes
//! of a group are folded per key (module `fold`) and go out as a few statements over arrays, one array a column, whatever
//! the number of rows; so the order of keys among each other is not kept inside a transaction, which nobody can see.
//! A large source transaction lies in the server's own transaction; here it needs no more memory than its batches.
//!
//! Arrays, and not COPY into a temporary table with one INSERT from there: measured on PostgreSQL 15 with rows of eight
//! columns, by turns, the server's CPU of COPY was 0.94 (new rows) and 0.79 (rows that are there) of that of arrays, 3.4 and
//! 4.4 against 3.6 and 5.6 s per million, where a statement has 4,096 rows; but 1.21 and 1.20 of it (4.6 and 6.3 against 3.8 and
//! 5.3 s) with 512, and worse below, as a live stream has them: two more statements a batch, and a table to be emptied at
//! each commit. A scan would gain a little, the stream would lose more, and both would be two paths to keep equal.
//!
//! A table keeps its name, and its schema unless the configuration names another. Schema `_dovetail` is the engine's
//! own: `pipelines` (source, checkpoint) and `tables` (definitions).
//!
//! | source type | column |
//! |---|---|
//! | built in, and arrays of it | the same type, without a modifier (`numeric(10,2)` is `numeric`) |
//! | `bit` | `varbit` |
//! | of the source's own (enum, composite, extension), `regclass` and its like | `text`: what the source prints |
//!
//! | of MySQL and MariaDB: integers, `bigint unsigned`, `decimal` | the smallest integer that holds all, `numeric(20)`, `numeric` |
//! | `datetime`, `timestamp`, `time`, `year` | `timestamp`, `timestamptz`, `interval` (it is a duration of up to 838 hours), `int2` |
//! | text of any size, `enum`, `set`; bytes, geometries, vectors | `text`; `bytea` (geometries in the server's own form: SRID and WKB) |
//! | `bit`, `json`, `uuid`, `inet4` and `inet6` | `varbit`, `json`, `uuid`, `inet` |
//!
//! Zero dates of MySQL (`0000-00-00`) are none here, and refused when they come: NULL would be an invention, and all dates as
//! text for the sake of them the loss of a type. Where there are some, make the column text at the outlet; it takes what the
//! source prints.
//!
//! A table that the operator made may have other types (its own enum, `varchar(20)`): values are cast to what is
//! there, and what does not fit is refused, never cut.

mod array;
mod definitions;
mod ledger;
mod replica;
mod server;
mod statements;
mod types;

pub use replica::Replica;
