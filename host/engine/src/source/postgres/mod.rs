//! PostgreSQL: preflight, pin, views, scan, stream.
//!
//! The one order that compiles is [`slot::create`] -> [`view::View::pinned`] -> [`view::View::scan`]: rows come from a
//! view only, the first view is opened from the pin and consumes it. Views that are opened after the pin
//! ([`view::View::later`]) bring the fence with which their overlap with the stream is judged.

pub mod catalog;
mod chunk;
pub mod connection;
mod consequence;
mod definition;
pub mod failure;
pub mod identifier;
mod login;
pub mod note;
pub mod preflight;
mod reader;
pub mod scan;
pub mod slot;
mod socket;
pub mod source;
pub mod stream;
pub mod view;
mod wire;
