//! The sources' formats, read without doing any I/O.
//!
//! Both halves of the copy come from here. On PostgreSQL a scan's rows ([`copy`]) and the stream's tuples ([`pgoutput`]) carry the
//! same text that the type's output function gives, provided that both sessions have the settings of [`text`]; one
//! function turns that text into a [`Value`](crate::value::Value), so that a row is the same value on whichever side
//! of the pin it was written. MySQL and MariaDB write other bytes into the log than they send to a client; there two
//! functions make one value. Deny by default: a message, a flag or a type that is not understood is an error, never
//! skipped, because what is skipped here is lost without a trace.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | a type's name and kind, from its OID or its name |
//! | [`text`], [`mod@print`] | value from text, and back |
//! | [`copy`] | rows of `COPY ... TO STDOUT` |
//! | [`replication`] | the frames of a replication connection |
//! | [`pgoutput`] | the messages inside the frames |
//! | [`relations`] | tables known to the stream, and rows under their definition |
//! | [`mod@mysql`] | values of MySQL and MariaDB, from the log and from a scan |
//! | [`binlog`] | their log: events, tables, transactions |
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod binlog;
pub mod copy;
pub mod mysql;
pub mod pgoutput;
pub mod print;
pub mod relations;
pub mod replication;
pub mod text;
pub mod types;

mod reader;
mod temporal;
