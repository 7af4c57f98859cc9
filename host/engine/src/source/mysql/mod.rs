//! MySQL and MariaDB: preflight, pin, views, scan, stream.
//!
//! The one order that compiles is [`pin::Pin::take`] -> [`view::View::pinned`] -> [`view::View::scan`]: rows come from a
//! view only. Where the pin brings no view of its own, and after a crash, it is [`view::View::later`], behind
//! [`pin::settle`], with the fence by which its overlap with the stream is judged.

pub mod catalog;
mod chunk;
pub mod connection;
mod consequence;
pub mod continuity;
mod cutter;
mod definition;
mod dump;
mod event;
pub mod failure;
mod grants;
mod guard;
pub mod identifier;
mod identity;
mod lock;
mod login;
pub mod note;
mod opening;
pub mod pin;
pub mod preflight;
pub mod prepared;
mod reader;
pub mod scan;
pub mod server;
mod settle;
mod snapshot;
mod snapshot_place;
pub mod source;
pub mod stream;
mod tail;
mod trail;
pub mod view;
mod wire;
