//! What is kept beside a position, so that a stream can go on from it on another server, or from a lower bound.
//!
//! The state keeps the text and never looks into it. It is written with the pin and with each checkpoint, in the same
//! step, and read at the start.

use dovetail_core::gtid::mariadb::GtidState;
use dovetail_core::gtid::mysql::GtidSet;
use dovetail_core::position::Lsn;
use serde::{Deserialize, Serialize};

use super::continuity::{Footprint, Gtids};
use super::prepared::Asked;
use crate::config::Rung;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub at: Lsn,
    /// How the position was pinned.
    pub rung: Rung,
    /// The server that the position is of; see [`identity`](super::server::identity).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// MySQL: every transaction before the position, or, at a pin that is a lower bound, those that its views hold for
    /// certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids: Option<GtidSet>,
    /// MariaDB: the last GTID of each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid_state: Option<GtidState>,
    /// At a pin: where its stream begins, which has to read the XA transactions that are prepared before the pin and
    /// committed behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// The event before the position. None at a pin that is the beginning of a file, and where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// An earlier event, where there is no footprint; at a pin, the one with which its file begins. See
    /// [`event`](super::event).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Footprint>,
}

impl Note {
    /// Nothing but how it was pinned.
    pub(super) fn of(rung: Rung) -> Self {
        Self {
            at: Lsn::ZERO,
            rung,
            server: None,
            gtids: None,
            gtid_state: None,
            asked: None,
            footprint: None,
            head: None,
        }
    }

    /// What was known at a position.
    pub(super) fn with(self, at: Lsn, gtids: &Gtids, footprint: Option<Footprint>) -> Self {
        let (gtids, gtid_state) = match gtids {
            Gtids::None => (None, None),
            Gtids::Set(set) => (Some(set.clone()), None),
            Gtids::State(state) => (None, Some(state.clone())),
        };
        Self { at, gtids, gtid_state, asked: None, footprint, head: None, ..self }
    }

    pub(super) fn committed(&self) -> Gtids {
        match (&self.gtids, &self.gtid_state) {
            (Some(set), _) => Gtids::Set(set.clone()),
            (None, Some(state)) => Gtids::State(state.clone()),
            (None, None) => Gtids::None,
        }
    }

    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and sets of numbers have a JSON form")
    }

    /// `None` where it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_what_it_wrote() {
        let footprint = Some(Footprint::of(Lsn::binlog(0, 3, 500), b"event"));
        let sets =
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:1";
        for gtids in [
            Gtids::None,
            Gtids::Set(sets.parse().unwrap()),
            Gtids::State("0-1-42,7-2-3".parse().unwrap()),
        ] {
            let note = Note { server: Some("a".into()), ..Note::of(Rung::Gtid) };
            let note = note.with(Lsn::binlog(0, 3, 531), &gtids, footprint);
            let read = Note::parse(&note.to_text()).expect("one of ours");
            assert_eq!(read, note);
            assert_eq!(read.committed(), gtids);
            let head = Some(Footprint::of(Lsn::binlog(0, 3, 125), b"head"));
            let pinned = Note { head, ..note };
            assert_eq!(Note::parse(&pinned.to_text()), Some(pinned));
        }
    }

    #[test]
    fn a_note_of_a_pin_tells_where_its_stream_begins() {
        let set = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5".parse().unwrap();
        for asked in [Asked::At(Lsn::binlog(0, 3, 500)), Asked::Behind(set)] {
            let note = Note { asked: Some(asked), ..Note::of(Rung::Gtid) };
            assert_eq!(Note::parse(&note.to_text()), Some(note));
        }
    }

    #[test]
    fn a_note_of_an_older_engine_is_read() {
        let note = Note::parse(r#"{"at":"000003:531","rung":"snapshot","gtid_state":"0-1-42"}"#)
            .expect("sound");
        assert_eq!(note.footprint, None);
        assert_eq!(note.committed(), Gtids::State("0-1-42".parse().unwrap()));
        assert_eq!(Note::parse("{}"), None);
    }
}
