//! MySQL and MariaDB: preflight, pin, views, scan.
//!
//! The one order that compiles is [`pin::Pin::take`] -> [`view::View::pinned`]: rows come from a view only. Where the
//! pin brings no view of its own, and after a crash, it is [`view::View::later`], behind [`pin::settle`], with the fence
//! by which its overlap with the stream is judged.

pub mod connection;
pub mod failure;
mod grants;
pub mod identifier;
mod lock;
pub mod note;
pub mod pin;
pub mod server;
mod snapshot;
pub mod view;
