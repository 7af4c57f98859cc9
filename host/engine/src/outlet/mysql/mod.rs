//! A replica in a database of MySQL or MariaDB.
//!
//! Rows, table definitions and the checkpoint are written in one transaction of InnoDB. Writes of a group are folded per
//! key (module `fold`) and go out as statements over many rows, so the order of keys among each other is not kept inside
//! a transaction, which nobody can see. A large source transaction lies in the server's own transaction; here it needs no
//! more memory than its batches. A table is emptied by DELETE: TRUNCATE would end the transaction.
//!
//! A table keeps its name, and is in the configured database; two tables of one name need two databases. `_dovetail`
//! (pipeline, source, checkpoint) and `_dovetail_tables` (definitions) are the engine's own, beside them.
//!
//! | source type (PostgreSQL) | column |
//! |---|---|
//! | bool, int2, int4, int8 | `tinyint(1)`, `smallint`, `int`, `bigint` |
//! | oid, xid; xid8 | `int unsigned`; `bigint unsigned` |
//! | float4, float8 | `float`, `double`; NaN and infinities are refused |
//! | numeric(p,s) of at most 65 digits, 30 of them behind the point | `decimal(p,s)`; NaN is refused |
//! | numeric otherwise | text, as it is written |
//! | date; time; timestamp, timestamptz (in UTC) | `date`; `time(6)`; `datetime(6)`; infinities and years outside 0 to 9999 are refused |
//! | uuid | `varchar(36)` |
//! | bytea | `longblob`, in a key `varbinary(n)` |
//! | json, jsonb | text: the servers' own type would change numbers, and the order and number of keys |
//! | everything else, arrays, intervals and enums among it | text: what the source prints |
//!
//! Types of MySQL and MariaDB stay what they are, with these exceptions: `text` of any size is `longtext` and every blob
//! `longblob`; `json` of MySQL is text at MariaDB; geometries are bytes (`longblob`) at the other server, `vector` where the
//! server has none; MariaDB's `uuid`, `inet4` and `inet6` are `varchar` at MySQL. Zero dates stay. A zero loses its sign at
//! MariaDB, which knows one zero only.
//!
//! Text is `longtext`, in a key `varchar(n)`, in utf8mb4 and under a collation that compares bytes and does not ignore
//! blanks at the end, so that keys that differ at the source differ here.
//!
//! A table that the operator made may have other types (`varchar(20)`, `json`, `binary(16)` for a uuid): values go into
//! what is there, and what does not fit is refused, never rounded and never cut. That is also the way on from a value that a
//! type of the table above refuses: make the column longtext, and it takes the source's text.

mod definitions;
mod failure;
mod form;
mod ledger;
mod replica;
mod server;
mod statements;
mod types;

pub use replica::Replica;
