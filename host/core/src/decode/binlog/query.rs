//! `QUERY`: a statement, and what of its session tells how to read it.

use std::borrow::Cow;

use super::reader::{Reader, Short};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    /// The session's default schema; empty without one.
    pub schema: Cow<'a, str>,
    pub text: Cow<'a, str>,
    pub modes: Modes,
    /// Of the event, where a nonzero number says that the statement failed half-way and its effects were kept.
    pub error: u16,
}

/// The parts of `sql_mode` that change what a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// `"` quotes names.
    pub ansi_quotes: bool,
    /// `\` is a plain character in strings.
    pub no_backslash_escapes: bool,
}

mod variable {
    pub(super) const FLAGS: u8 = 0;
    pub(super) const SQL_MODE: u8 = 1;
    pub(super) const CATALOG_WITH_ZERO: u8 = 2;
    pub(super) const AUTO_INCREMENT: u8 = 3;
    pub(super) const CHARSET: u8 = 4;
    pub(super) const CATALOG: u8 = 6;
}

const ANSI_QUOTES: u64 = 4;
const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;

pub(super) fn query(body: &[u8]) -> Result<Query<'_>, Short> {
    let (fixed, text) = parts(body)?;
    finish(fixed, Cow::Borrowed(text))
}

/// MariaDB's `QUERY_COMPRESSED`: the text alone is compressed.
pub(super) fn query_compressed<'a>(
    body: &'a [u8],
    decompress: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Result<Query<'a>, Short> {
    let (fixed, text) = parts(body)?;
    let text = decompress(text).ok_or(Short)?;
    finish(fixed, Cow::Owned(text))
}

struct Fixed<'a> {
    schema: &'a [u8],
    error: u16,
    variables: &'a [u8],
}

fn parts(body: &[u8]) -> Result<(Fixed<'_>, &[u8]), Short> {
    let mut reader = Reader::new(body);
    let (_thread, _seconds) = (reader.u32()?, reader.u32()?);
    let schema_length = usize::from(reader.u8()?);
    let error = reader.u16()?;
    let variables_length = usize::from(reader.u16()?);
    let variables = reader.take(variables_length)?;
    let schema = reader.take(schema_length)?;
    if reader.u8()? != 0 {
        return Err(Short);
    }
    Ok((Fixed { schema, error, variables }, reader.rest()))
}

fn finish<'a>(fixed: Fixed<'a>, text: Cow<'a, [u8]>) -> Result<Query<'a>, Short> {
    let Session { modes, charset } = session(fixed.variables)?;
    let text = match text {
        Cow::Borrowed(text) => decode(text, charset),
        Cow::Owned(text) => Cow::Owned(decode(&text, charset).into_owned()),
    };
    let schema = String::from_utf8_lossy(fixed.schema);
    Ok(Query { schema, text, modes, error: fixed.error })
}

struct Session {
    modes: Modes,
    /// Collation id of `character_set_client`.
    charset: u16,
}

/// The variables that are needed come first, in this order; what follows them is not read.
fn session(variables: &[u8]) -> Result<Session, Short> {
    let mut reader = Reader::new(variables);
    let mut session = Session { modes: Modes::default(), charset: 0 };
    while !reader.is_empty() {
        match reader.u8()? {
            variable::FLAGS | variable::AUTO_INCREMENT => {
                reader.u32()?;
            }
            variable::SQL_MODE => {
                let mode = reader.u64()?;
                session.modes.ansi_quotes = mode & ANSI_QUOTES != 0;
                session.modes.no_backslash_escapes = mode & NO_BACKSLASH_ESCAPES != 0;
            }
            variable::CATALOG_WITH_ZERO => {
                reader.short_string()?;
            }
            variable::CATALOG => {
                let length = usize::from(reader.u8()?);
                reader.take(length)?;
            }
            variable::CHARSET => {
                session.charset = reader.u16()?;
                break;
            }
            _ => break,
        }
    }
    Ok(session)
}

/// The statement in UTF-8. Most clients speak it; among the others those matter whose second bytes look like quotes.
/// What cannot be read becomes U+FFFD, which no name of a captured table holds.
fn decode(text: &[u8], charset: u16) -> Cow<'_, str> {
    if text.is_ascii() {
        return String::from_utf8_lossy(text);
    }
    let encoding = match charset {
        1 | 84 => encoding_rs::BIG5,
        5 | 8 | 15 | 31 | 47 | 48 | 49 | 94 => encoding_rs::WINDOWS_1252,
        12 | 91 | 97 | 98 => encoding_rs::EUC_JP,
        13 | 88 | 95 | 96 => encoding_rs::SHIFT_JIS,
        19 | 85 => encoding_rs::EUC_KR,
        24 | 28 | 86 | 87 => encoding_rs::GBK,
        248..=250 => encoding_rs::GB18030,
        _ => return String::from_utf8_lossy(text),
    };
    encoding.decode_without_bom_handling(text).0
}
