//! What Dovetail decides, with nothing that performs.
//!
//! Events, bytes and the time come in as arguments; actions and values go out. There is no tokio, wasmtime, driver,
//! socket, clock, environment, random source or file here (`clippy.toml` beside this crate bans them), so that the
//! rules that lose rows when they are wrong can be explored exhaustively instead of being raced.
//!
//! | module | holds |
//! |---|---|
//! | [`position`] | where in the source's log a change stands |
//! | [`value`], [`schema`] | what a row holds, and what a table is |
//! | [`change`] | one keyed change, as it crosses every boundary after the decoder |
//! | [`key`], [`lane`] | canonical key bytes and the ordered path that they choose |
//! | [`batch`] | what is handed on in one go, and what it closes |
//! | [`decode`] | the sources' formats: rows of a scan, messages of a stream, binlogs with their transactions |
//! | [`transaction`] | PostgreSQL's stream: events with positions, and what closes them |
//! | [`gtid`] | a transaction's name on every server: MySQL's sets, MariaDB's domains |
//! | [`fence`] | what a view contains |
//! | [`seam`] | the hand-over from the scan to the stream |
//! | [`frame`] | a batch as one run of bytes, for plugins |
//! | [`envelope`] | what comes from a source as bytes that are kept |
//! | [`outcome`] | what a plugin makes of an event |

pub mod batch;
pub mod change;
pub mod decode;
pub mod envelope;
pub mod fence;
pub mod frame;
pub mod gtid;
pub mod key;
pub mod lane;
pub mod outcome;
pub mod position;
pub mod schema;
pub mod seam;
pub mod timeline;
pub mod transaction;
pub mod value;
