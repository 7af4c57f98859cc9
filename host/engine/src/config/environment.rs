//! `${NAME}` in values.
//!
//! A value is put in after the file was parsed, into one scalar: whatever it holds, it cannot become a key, a list or
//! a comment. It is never quoted in a problem; names of variables are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// The process's environment as `main` read it; nothing else reads it.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(name)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    /// A name that is not UTF-8 is left out: a file cannot spell it.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let readable = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into().into_string().ok()?, value.into())));
        Self(readable.collect())
    }
}

/// Why a scalar could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::config) enum Unfilled {
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    #[error("the environment variable {0} does not hold UTF-8 text")]
    NotText(String),
    #[error("a `%` is not followed by two hexadecimal digits; write `%25` for the sign itself")]
    Percent,
    #[error("a `${{` without the form ${{NAME}}; write `$${{` for the two characters themselves")]
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece<'t> {
    Literal(&'t str),
    Variable(&'t str),
}

/// Splits at `${NAME}`; `$${` is a literal `${`, and every other `$` is itself.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Unfilled> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(escaped) = before.strip_suffix('$') {
            pieces.extend([Piece::Literal(escaped), Piece::Literal("${")]);
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').ok_or(Unfilled::Malformed)?;
        if !is_variable(name) {
            return Err(Unfilled::Malformed);
        }
        pieces.extend([Piece::Literal(before), Piece::Variable(name)]);
        rest = after;
    }
    pieces.push(Piece::Literal(rest));
    Ok(pieces)
}

fn is_variable(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Whether a text holds nothing but one variable.
pub(in crate::config) fn is_one_variable(text: &str) -> bool {
    text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).is_some_and(is_variable)
}

impl Environment {
    pub(in crate::config) fn fill(&self, text: &str) -> Result<String, Unfilled> {
        self.fill_with(text, |literal| Ok(literal.to_owned()))
    }

    /// As `fill`, with what stands between the variables decoded; their values are taken as they are.
    pub(in crate::config) fn fill_with(
        &self,
        text: &str,
        decode: impl Fn(&str) -> Result<String, Unfilled>,
    ) -> Result<String, Unfilled> {
        let mut filled = String::new();
        for piece in pieces(text)? {
            match piece {
                Piece::Literal(literal) => filled.push_str(&decode(literal)?),
                Piece::Variable(name) => {
                    let value = self.get(name).ok_or_else(|| Unfilled::NotSet(name.to_owned()))?;
                    let text = value.to_str().ok_or_else(|| Unfilled::NotText(name.to_owned()))?;
                    filled.push_str(text);
                }
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_nothing_else_is_touched() {
        let environment: Environment = [("A", "x: [y]"), ("B_2", "")].into_iter().collect();
        let fill = |text: &str| environment.fill(text);
        assert_eq!(fill("a${A}b${B_2}c"), Ok("ax: [y]bc".into()));
        assert_eq!(fill("$A $$ $"), Ok("$A $$ $".into()));
        assert_eq!(fill("$${A}"), Ok("${A}".into()));
        assert_eq!(fill("${C}"), Err(Unfilled::NotSet("C".into())));
        for malformed in ["${", "${}", "${A", "${1}", "${A:-b}"] {
            assert_eq!(fill(malformed), Err(Unfilled::Malformed), "{malformed}");
        }
    }

    #[test]
    fn a_value_is_not_filled_in_again() {
        let environment: Environment = [("A", "${B}"), ("B", "secret")].into_iter().collect();
        assert_eq!(environment.fill("${A}"), Ok("${B}".into()));
    }
}
