//! What is kept beside a position, so that a stream can go on from it on another server, or from a lower bound.
//!
//! The state keeps the text and never looks into it. It is written with the pin and with each checkpoint, in the same
//! step, and read at the start.

use dovetail_core::gtid::mysql::GtidSet;
use serde::{Deserialize, Serialize};

use crate::config::Rung;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// How the position was pinned.
    pub rung: Rung,
    /// `server_uuid` of the server that the position is of; MariaDB has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// MySQL: every transaction before the position, or, at a pin that is a lower bound, those that its views hold for
    /// certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids: Option<GtidSet>,
    /// MariaDB: the last GTID of each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid_state: Option<String>,
}

impl Note {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and sets of numbers have a JSON form")
    }

    /// `None` where it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
