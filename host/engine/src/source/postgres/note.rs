//! What is kept beside a position, so that a server that was promoted or restored is not taken for the one that was read.
//!
//! A slot that was copied with its server, or kept in step by it, says nothing of that: its position is one of the server's
//! own log, and the server takes ours for one too. So the history of the server's timelines is kept, and compared at every
//! start: where the two part before the position, changes that were delivered are not in the server's history, or others
//! are there in their place.

use dovetail_core::position::Lsn;
use dovetail_core::timeline::History;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::wire::{Purpose, TextRow, Wire};
use crate::config::Server;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub at: Lsn,
    /// Of the server that it was read from.
    pub history: History,
}

impl Note {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts have a JSON form")
    }

    /// `None` where it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The history of a server's log, by its replication protocol: the catalog shows a promotion only after the next
/// checkpoint.
///
/// # Errors
/// When the server cannot be asked.
pub(super) async fn history(server: &Server) -> Result<History, Failure> {
    let mut wire = Wire::open(server, Purpose::Replication).await?;
    let what = "read the timeline of the server";
    let odd = || Failure::protocol("read the timeline of the server: an answer of another form");
    let rows = wire.query(what, "IDENTIFY_SYSTEM").await?;
    let timeline = cell(&rows, 1).and_then(|text| text.parse().ok()).ok_or_else(odd)?;
    if timeline == 1 {
        return Ok(History::of_first());
    }
    let rows = wire.query(what, &format!("TIMELINE_HISTORY {timeline}")).await?;
    let file = cell(&rows, 1).ok_or_else(odd)?;
    History::parse(timeline, file).map_err(|_| odd())
}

fn cell(rows: &[TextRow], column: usize) -> Option<&str> {
    rows.first()?.get(column)?.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_what_it_wrote() {
        let history = History::parse(2, "1\t0/3000148\tno recovery target specified\n").unwrap();
        let note = Note { at: Lsn::new(0x300_0200), history };
        assert_eq!(Note::parse(&note.to_text()), Some(note));
        assert_eq!(Note::parse("{}"), None);
    }
}
