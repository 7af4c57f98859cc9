//! A replica in a PostgreSQL database.
//!
//! Rows, table definitions and the checkpoint are written in one transaction under `synchronous_commit = on`. Writes
//! of a group are folded per key (module `fold`) and go out as a few statements over arrays, one array a column, whatever
//! the number of rows; so the order of keys among each other is not kept inside a transaction, which nobody can see.
//! A large source transaction lies in the server's own transaction; here it needs no more memory than its batches.
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
//! A table that the operator made may have other types (its own enum, `varchar(20)`): values are cast to what is
//! there, and what does not fit is refused, never cut.

mod array;
mod ledger;
mod replica;
mod server;
mod statements;
mod types;

pub use replica::Replica;
