//! PostgreSQL's timelines: which history a server's log is of.
//!
//! A server that ends its recovery, because it was promoted or was restored, writes on under a new number, and notes
//! where it left the one before. So a log is a series of timelines, each up to where it was left, and two logs are the same
//! up to where their series differ. A position in one of them says the same in the other if it is not behind that place.
//!
//! A doubt: two standbys that were promoted at the very same position begin the same number there, and nothing in their
//! histories tells them apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::position::Lsn;

/// A timeline, and where each of those before it was left, oldest first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct History {
    timeline: u32,
    left: Vec<(u32, Lsn)>,
}

/// Definite: the server's file of it is of another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the history of a timeline")]
pub struct InvalidHistory;

impl History {
    /// Of the first timeline, which has no file.
    pub fn of_first() -> Self {
        Self { timeline: 1, left: Vec::new() }
    }

    /// From the server's file: a line for each timeline before this one, with its number, where it was left, and why.
    ///
    /// # Errors
    /// When it is not of that form.
    pub fn parse(timeline: u32, file: &str) -> Result<Self, InvalidHistory> {
        let mut left: Vec<(u32, Lsn)> = Vec::new();
        for line in file.lines() {
            let mut words = line.split_ascii_whitespace();
            let number = match words.next() {
                None => continue,
                Some(word) if word.starts_with('#') => continue,
                Some(word) => word.parse().map_err(|_| InvalidHistory)?,
            };
            let at = words.next().ok_or(InvalidHistory)?.parse().map_err(|_| InvalidHistory)?;
            if number >= timeline || left.last().is_some_and(|(last, _)| *last >= number) {
                return Err(InvalidHistory);
            }
            left.push((number, at));
        }
        Ok(Self { timeline, left })
    }

    /// Where it and another one part; `None` where they are the same.
    pub fn fork(&self, other: &Self) -> Option<Lsn> {
        let mut common = Lsn::ZERO;
        let (mut own, mut others) = (self.stretches(), other.stretches());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return None,
                (Some((number, left)), Some((other, other_left))) if number == other => {
                    common = match (left, other_left) {
                        (Some(left), Some(other_left)) if left == other_left => left,
                        (None, None) => continue,
                        (left, other_left) => return left.into_iter().chain(other_left).min(),
                    };
                }
                _ => return Some(common),
            }
        }
    }

    /// Each timeline, and where it was left: the last one not yet.
    fn stretches(&self) -> impl Iterator<Item = (u32, Option<Lsn>)> {
        let left = self.left.iter().map(|(number, left)| (*number, Some(*left)));
        left.chain([(self.timeline, None)])
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeline {}", self.timeline)?;
        match self.left.last() {
            Some((number, left)) => write!(f, " (from timeline {number} at {left})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(timeline: u32, left: &[(u32, u64)]) -> History {
        let left = left.iter().map(|(number, at)| (*number, Lsn::new(*at))).collect();
        History { timeline, left }
    }

    #[test]
    fn the_file_of_a_server_is_read() {
        let file = "1\t0/3000148\tno recovery target specified\n\n# a comment\n3\t16/B374D848\tbefore 2000-01-01\n";
        let expected = history(4, &[(1, 0x300_0148), (3, 0x16_B374_D848)]);
        assert_eq!(History::parse(4, file), Ok(expected));
        assert_eq!(History::parse(1, ""), Ok(History::of_first()));
        for file in ["1", "1\tx", "x\t0/1", "2\t0/1\n1\t0/2", "4\t0/1"] {
            assert_eq!(History::parse(4, file), Err(InvalidHistory), "{file}");
        }
    }

    #[test]
    fn histories_part_where_one_of_them_left_a_timeline() {
        let first = History::of_first();
        let promoted = history(2, &[(1, 100)]);
        let elsewhere = history(2, &[(1, 90)]);
        let again = history(3, &[(1, 100), (2, 200)]);
        let skipping = history(3, &[(1, 100)]);
        for (one, other, fork) in [
            (&first, &first, None),
            (&again, &again, None),
            (&first, &promoted, Some(100)),
            (&promoted, &elsewhere, Some(90)),
            (&promoted, &again, Some(200)),
            (&first, &again, Some(100)),
            // A third standby took its number from an archive that it shares with the second.
            (&skipping, &again, Some(100)),
            (&skipping, &promoted, Some(100)),
            (&skipping, &elsewhere, Some(90)),
        ] {
            assert_eq!(one.fork(other), fork.map(Lsn::new), "{one} {other}");
            assert_eq!(other.fork(one), fork.map(Lsn::new), "{other} {one}");
        }
    }

    #[test]
    fn a_history_survives_being_stored() {
        let history = history(3, &[(1, 100), (2, 200)]);
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(text, r#"{"timeline":3,"left":[[1,"0/64"],[2,"0/C8"]]}"#);
        assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
    }
}
