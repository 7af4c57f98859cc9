//! Partial updates: what an UPDATE did to a document, instead of the document after it.
//!
//! With `binlog_row_value_options=PARTIAL_JSON` an after-image holds replacements, insertions and removals by path.
//! They are applied to the document of the before-image, in order; one that does not fit it exactly is an error,
//! because what follows from it would be another document than the server's.

use std::borrow::Cow;

use super::{Document, Invalid};

const REPLACE: u8 = 0;
const INSERT: u8 = 1;
const REMOVE: u8 = 2;

/// Applies a sequence of differences to the document before them.
///
/// # Errors
/// When the bytes are not differences, or one does not fit.
pub fn apply<'a>(
    mut document: Document<'a>,
    differences: &'a [u8],
) -> Result<Document<'a>, Invalid> {
    let mut rest = differences;
    while let Some((operation, tail)) = rest.split_first() {
        let (path, tail) = counted(tail)?;
        let path = path_of(std::str::from_utf8(path).map_err(|_| Invalid::Malformed)?)?;
        let value = match *operation {
            REPLACE | INSERT => {
                let (value, tail) = counted(tail)?;
                rest = tail;
                Some(Document::parse(value)?)
            }
            REMOVE => {
                rest = tail;
                None
            }
            _ => return Err(Invalid::Malformed),
        };
        match (*operation, value) {
            (REPLACE, Some(value)) => *document.at_mut(&path)? = value,
            (INSERT, Some(value)) => document.insert(&path, value)?,
            _ => document.remove(&path)?,
        }
    }
    Ok(document)
}

/// Content behind a length in the protocol's variable form.
fn counted(bytes: &[u8]) -> Result<(&[u8], &[u8]), Invalid> {
    let (first, rest) = bytes.split_first().ok_or(Invalid::Malformed)?;
    let size = match first {
        0..=250 => 0,
        252 => 2,
        253 => 3,
        254 => 8,
        _ => return Err(Invalid::Malformed),
    };
    let (length, rest) = rest.split_at_checked(size).ok_or(Invalid::Malformed)?;
    let length = match size {
        0 => u64::from(*first),
        _ => length.iter().rev().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
    };
    let length = usize::try_from(length).map_err(|_| Invalid::Malformed)?;
    rest.split_at_checked(length).ok_or(Invalid::Malformed)
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Leg<'a> {
    Member(Cow<'a, str>),
    Element(usize),
    /// So many before the last.
    FromLast(usize),
}

impl Leg<'_> {
    fn index(&self, length: usize) -> Option<usize> {
        match self {
            Self::Member(_) => None,
            Self::Element(index) => Some(*index),
            Self::FromLast(before) => length.checked_sub(1)?.checked_sub(*before),
        }
    }
}

/// The legs of `$.name."quoted name"[3][last-1]`.
fn path_of(path: &str) -> Result<Vec<Leg<'_>>, Invalid> {
    let mut legs = Vec::new();
    let mut rest = path.strip_prefix('$').ok_or(Invalid::Malformed)?.trim_start();
    while !rest.is_empty() {
        let (leg, tail) = if let Some(tail) = rest.strip_prefix('.') {
            member(tail.trim_start())?
        } else {
            let inside = rest.strip_prefix('[').ok_or(Invalid::Malformed)?;
            let (inside, tail) = inside.split_once(']').ok_or(Invalid::Malformed)?;
            (element(inside.trim())?, tail)
        };
        legs.push(leg);
        rest = tail.trim_start();
    }
    Ok(legs)
}

fn element(inside: &str) -> Result<Leg<'_>, Invalid> {
    let number = |text: &str| text.trim().parse().map_err(|_| Invalid::Malformed);
    let Some(after) = inside.strip_prefix("last") else { return Ok(Leg::Element(number(inside)?)) };
    match after.trim_start().strip_prefix('-') {
        Some(before) => Ok(Leg::FromLast(number(before)?)),
        None if after.is_empty() => Ok(Leg::FromLast(0)),
        None => Err(Invalid::Malformed),
    }
}

fn member(text: &str) -> Result<(Leg<'_>, &str), Invalid> {
    if text.starts_with('"') {
        let end = closing_quote(text).ok_or(Invalid::Malformed)?;
        let (quoted, tail) = text.split_at_checked(end + 1).ok_or(Invalid::Malformed)?;
        return Ok((Leg::Member(unquoted(quoted).ok_or(Invalid::Malformed)?), tail));
    }
    let end = text.find(['.', '[', ' ']).unwrap_or(text.len());
    let (name, tail) = text.split_at_checked(end).ok_or(Invalid::Malformed)?;
    // A wildcard names no one place.
    if name.is_empty() || name.contains('*') {
        return Err(Invalid::Malformed);
    }
    Ok((Leg::Member(name.into()), tail))
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index),
            _ => {}
        }
    }
    None
}

/// A JSON string literal, with its quotes.
fn unquoted(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(inner.into());
    }
    let mut name = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            name.push(character);
            continue;
        }
        name.push(match characters.next()? {
            '"' => '"',
            '\\' => '\\',
            '/' => '/',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            // The server writes control characters only in this form, never a surrogate.
            'u' => {
                let digits = characters.as_str().get(..4)?;
                characters = characters.as_str().get(4..)?.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
    }
    Some(name.into())
}

impl<'a> Document<'a> {
    /// The one place that a path leads to. An element 0 of what is no array is the thing itself, as in the server's
    /// paths.
    fn at_mut(&mut self, path: &[Leg<'a>]) -> Result<&mut Self, Invalid> {
        let mut place = self;
        for leg in path {
            place = match (place, leg) {
                (Self::Object(members), Leg::Member(name)) => {
                    let found = members.iter_mut().find(|(key, _)| key == name);
                    &mut found.ok_or(Invalid::Difference)?.1
                }
                (Self::Array(elements), leg) => {
                    let index = leg.index(elements.len()).ok_or(Invalid::Difference)?;
                    elements.get_mut(index).ok_or(Invalid::Difference)?
                }
                (other, Leg::Element(0) | Leg::FromLast(0)) => other,
                _ => return Err(Invalid::Difference),
            };
        }
        Ok(place)
    }

    fn insert(&mut self, path: &[Leg<'a>], value: Self) -> Result<(), Invalid> {
        let (last, parent) = path.split_last().ok_or(Invalid::Difference)?;
        match (self.at_mut(parent)?, last) {
            (Self::Object(members), Leg::Member(name)) => {
                let behind = |key: &str| (key.len(), key) >= (name.len(), name.as_ref());
                let place = members.partition_point(|(key, _)| !behind(key));
                if members.get(place).is_some_and(|(key, _)| key == name) {
                    return Err(Invalid::Difference);
                }
                members.insert(place, (name.clone(), value));
                Ok(())
            }
            (Self::Array(elements), leg) => {
                let index = leg.index(elements.len()).ok_or(Invalid::Difference)?;
                // Behind the end is the end, as JSON_ARRAY_INSERT has it.
                elements.insert(index.min(elements.len()), value);
                Ok(())
            }
            _ => Err(Invalid::Difference),
        }
    }

    fn remove(&mut self, path: &[Leg<'a>]) -> Result<(), Invalid> {
        let (last, parent) = path.split_last().ok_or(Invalid::Difference)?;
        match (self.at_mut(parent)?, last) {
            (Self::Object(members), Leg::Member(name)) => {
                let found = members.iter().position(|(key, _)| key == name);
                members.remove(found.ok_or(Invalid::Difference)?);
                Ok(())
            }
            (Self::Array(elements), leg) => {
                let index = leg.index(elements.len()).ok_or(Invalid::Difference)?;
                if index >= elements.len() {
                    return Err(Invalid::Difference);
                }
                elements.remove(index);
                Ok(())
            }
            _ => Err(Invalid::Difference),
        }
    }
}
