//! What is wrong with a configuration, said all at once.
//!
//! An operator who gets one complaint per start fixes a file with five mistakes in five starts. So nothing stops at the
//! first problem: each is noted with its place, and reading goes on with what is left.
//!
//! A problem quotes the file as it is *written*, never after the environment was put in: an error text may end in a
//! log, and what came from the environment may be a secret.

use std::fmt;

/// A place in the file, counted from 1. Ordered as one reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// `source.postgres.tables[1]`; empty for the document as a whole.
    pub path: String,
    /// What is wrong, and what is expected instead.
    pub text: String,
}

/// Everything that is wrong with one file, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    file: String,
    list: Vec<Problem>,
}

impl Problems {
    pub(in crate::config) fn new(file: String, mut list: Vec<Problem>) -> Self {
        list.sort_by(|one, other| (one.place, &one.path).cmp(&(other.place, &other.path)));
        Self { file, list }
    }

    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    pub(in crate::config) fn count(&self) -> String {
        match self.list.len() {
            1 => "one problem".to_owned(),
            count => format!("{count} problems"),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { place, path, text }) in self.list.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}:{}: ", self.file, place.line, place.column)?;
            if !path.is_empty() {
                write!(f, "{path}: ")?;
            }
            f.write_str(text)?;
        }
        Ok(())
    }
}

/// The candidate that `word` was probably meant to be: at most a third of its letters are wrong.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance in characters, by the usual single row.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        if let Some(first) = row.first_mut() {
            *first = before;
        }
        for (cell, other) in row.iter_mut().skip(1).zip(&right) {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            before = replaced.min(before + 1).min(*cell + 1);
            *cell = before;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// `a, b or c`.
pub(in crate::config) fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_edits() {
        for (left, right, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("tabels", "tables", 2),
            ("slot", "slots", 1),
            ("a", "b", 1),
        ] {
            assert_eq!(distance(left, right), edits, "{left} {right}");
            assert_eq!(distance(right, left), edits, "{right} {left}");
        }
    }

    #[test]
    fn a_suggestion_is_near_or_absent() {
        let keys = ["tables", "slot", "url", "publication"];
        assert_eq!(nearest("tabels", keys), Some("tables"));
        assert_eq!(nearest("publicaton", keys), Some("publication"));
        assert_eq!(nearest("colour", keys), None);
    }
}
