//! Reading a tree key by key: whoever asks for a key says what it expects there, and what is wrong is noted.
//!
//! Every reading function returns `None` exactly where it has noted a problem (or met a node that was reported when the
//! tree was made). So a caller that gets `None` just goes on, and a configuration is whole if and only if no problem
//! was noted.

use std::ops::RangeInclusive;

use super::environment::Environment;
use super::problem::{Place, Problem, alternatives, nearest};
use super::tree::{Content, Entry, Node, Scalar, below};

#[derive(Debug)]
pub(in crate::config) struct Reader<'e> {
    pub(in crate::config) environment: &'e Environment,
    pub(in crate::config) problems: Vec<Problem>,
}

impl Reader<'_> {
    pub(in crate::config) fn report(&mut self, place: Place, path: &str, text: impl Into<String>) {
        self.problems.push(Problem { place, path: path.to_owned(), text: text.into() });
    }
}

/// A value, with the path by which it was reached.
#[derive(Debug, Clone)]
pub(in crate::config) struct Field<'t> {
    pub(in crate::config) path: String,
    node: &'t Node,
}

impl<'t> Field<'t> {
    pub(in crate::config) fn root(node: &'t Node) -> Self {
        Self { path: String::new(), node }
    }

    pub(in crate::config) fn place(&self) -> Place {
        self.node.place
    }

    pub(in crate::config) fn content(&self) -> &'t Content {
        &self.node.content
    }

    pub(in crate::config) fn wrong(&self, reader: &mut Reader<'_>, text: impl Into<String>) {
        reader.report(self.node.place, &self.path, text);
    }

    fn unexpected(&self, reader: &mut Reader<'_>, expected: &str) {
        let found = match &self.node.content {
            Content::Refused => return,
            Content::Scalar(scalar) if scalar.is_null() => "empty",
            Content::Scalar(_) => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        };
        self.wrong(reader, format!("is {found}, expected {expected}"));
    }

    fn is_null(&self) -> bool {
        matches!(&self.node.content, Content::Scalar(scalar) if scalar.is_null())
    }

    pub(in crate::config) fn scalar(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
    ) -> Option<&'t Scalar> {
        match &self.node.content {
            Content::Scalar(scalar) if !scalar.is_null() => Some(scalar),
            _ => {
                self.unexpected(reader, expected);
                None
            }
        }
    }

    /// A text with its variables filled in, never empty.
    pub(in crate::config) fn text(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
    ) -> Option<String> {
        let text = self.secret(reader, expected)?;
        if text.is_empty() {
            self.wrong(reader, format!("is empty, expected {expected}"));
            return None;
        }
        Some(text)
    }

    /// As `text`, and may be empty.
    pub(in crate::config) fn secret(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
    ) -> Option<String> {
        let scalar = self.scalar(reader, expected)?;
        match reader.environment.fill(&scalar.written) {
            Ok(text) => Some(text),
            Err(unfilled) => {
                self.wrong(reader, unfilled.to_string());
                None
            }
        }
    }

    /// A text that `parse` turns into a value; `expected` completes "`text` is not ...".
    pub(in crate::config) fn parsed<T>(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(reader, expected)?;
        let value = parse(&text);
        if value.is_none() {
            let written = &self.scalar(reader, expected)?.written;
            self.wrong(reader, format!("`{written}` is not {expected}"));
        }
        value
    }

    pub(in crate::config) fn number(
        &self,
        reader: &mut Reader<'_>,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.parsed(reader, &expected, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    pub(in crate::config) fn choice<T: Copy>(
        &self,
        reader: &mut Reader<'_>,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let words = || choices.iter().map(|(word, _)| *word);
        let expected = alternatives(words());
        let text = self.text(reader, &expected)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*choice);
        }
        let written = &self.scalar(reader, &expected)?.written;
        let hint = nearest(written, words())
            .map_or(String::new(), |word| format!("; did you mean `{word}`?"));
        self.wrong(reader, format!("`{written}` is not {expected}{hint}"));
        None
    }

    pub(in crate::config) fn boolean(&self, reader: &mut Reader<'_>) -> Option<bool> {
        self.choice(reader, &[("true", true), ("false", false)])
    }

    /// The items of a list; a key without a value is an empty one.
    pub(in crate::config) fn list(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
    ) -> Option<Vec<Field<'t>>> {
        let items = match &self.node.content {
            Content::List(items) => items.as_slice(),
            _ if self.is_null() => &[],
            _ => {
                self.unexpected(reader, expected);
                return None;
            }
        };
        let item = |(index, node)| Field { path: format!("{}[{index}]", self.path), node };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The entries of a map; a key without a value is an empty one.
    pub(in crate::config) fn section(
        &self,
        reader: &mut Reader<'_>,
        expected: &str,
    ) -> Option<Section<'t>> {
        let entries = match &self.node.content {
            Content::Map(entries) => entries.as_slice(),
            _ if self.is_null() => &[],
            _ => {
                self.unexpected(reader, expected);
                return None;
            }
        };
        let (path, place) = (self.path.clone(), self.node.place);
        Some(Section { path, place, entries, asked: Vec::new() })
    }
}

/// A map whose keys are known beforehand.
#[derive(Debug)]
pub(in crate::config) struct Section<'t> {
    pub(in crate::config) path: String,
    pub(in crate::config) place: Place,
    entries: &'t [Entry],
    asked: Vec<&'static str>,
}

impl<'t> Section<'t> {
    /// The field of a key that has a value.
    pub(in crate::config) fn optional(&mut self, key: &'static str) -> Option<Field<'t>> {
        self.asked.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let field = Field { path: below(&self.path, key), node: &entry.value };
        (!field.is_null()).then_some(field)
    }

    pub(in crate::config) fn required(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        expected: &str,
    ) -> Option<Field<'t>> {
        let field = self.optional(key);
        if field.is_none() {
            let entry = self.entries.iter().find(|entry| entry.key == key);
            let place = entry.map_or(self.place, |entry| entry.place);
            reader.report(place, &below(&self.path, key), format!("missing, expected {expected}"));
        }
        field
    }

    /// All entries under the names that the operator gave them.
    pub(in crate::config) fn named(&self) -> impl Iterator<Item = (&'t str, Field<'t>)> {
        self.entries.iter().map(|Entry { key, value, .. }| {
            (key.as_str(), Field { path: below(&self.path, key), node: value })
        })
    }

    /// Notes every key that nobody asked for.
    pub(in crate::config) fn finish(self, reader: &mut Reader<'_>) {
        for entry in self.entries {
            let known = || self.asked.iter().copied();
            if known().any(|key| key == entry.key) {
                continue;
            }
            let hint = match nearest(&entry.key, known()) {
                Some(key) => format!("did you mean `{key}`?"),
                None => format!("expected {}", alternatives(known())),
            };
            let path = below(&self.path, &entry.key);
            reader.report(entry.place, &path, format!("unknown key; {hint}"));
        }
    }
}
