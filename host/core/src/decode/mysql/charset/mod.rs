//! Text of every character set of both servers, to UTF-8.
//!
//! The servers' tables are the measure, not the standards: MySQL's `latin1` is Windows-1252 with the five holes filled,
//! its `sjis` and `big5` are not the web's. Every code of every set was converted by real servers and compared
//! (`upper`, `runs`). A byte that the server itself does not convert (it would hand a client a question mark) is an
//! error: what cannot be read back is not passed on.
//!
//! | set | read by |
//! |---|---|
//! | `utf8mb4`, `utf8mb3`, `ascii` | as they stand; the value shares the buffer |
//! | `ucs2`, `utf16`, `utf16le`, `utf32` | code units; no half of a surrogate pair |
//! | single bytes | tables of their own |
//! | `big5`, `euckr`, `gbk`, `gb2312`, `gb18030`, `sjis`, `cp932`, `ujis`, `eucjpms` | `encoding_rs`, with the servers' differences |

mod collation;
mod multi_byte;
mod runs;
mod unicode;
mod upper;

use bytes::Bytes;

use crate::value::Text;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Charset {
    Armscii8,
    Ascii,
    Big5,
    /// Not text: columns of this set are bytes.
    Binary,
    Cp1250,
    Cp1251,
    Cp1256,
    Cp1257,
    Cp850,
    Cp852,
    Cp866,
    Cp932,
    Dec8,
    EucJpMs,
    EucKr,
    Gb18030,
    Gb2312,
    Gbk,
    Geostd8,
    Greek,
    Hebrew,
    Hp8,
    Keybcs2,
    Koi8R,
    Koi8U,
    Latin1,
    Latin2,
    Latin5,
    Latin7,
    MacCe,
    MacRoman,
    Sjis,
    Swe7,
    Tis620,
    Ucs2,
    Ujis,
    Utf16,
    Utf16Le,
    Utf32,
    Utf8Mb3,
    Utf8Mb4,
}

/// Neither server has it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsupported {
    #[error("collation {0} is not known")]
    Collation(u32),
    #[error("{0} is not known")]
    Name(String),
}

/// Bytes that the server itself does not convert.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("bytes that are no text in the character set {}", .charset.name())]
pub struct NotText {
    pub charset: Charset,
}

const NAMES: &[(&str, Charset)] = &[
    ("armscii8", Charset::Armscii8),
    ("ascii", Charset::Ascii),
    ("big5", Charset::Big5),
    ("binary", Charset::Binary),
    ("cp1250", Charset::Cp1250),
    ("cp1251", Charset::Cp1251),
    ("cp1256", Charset::Cp1256),
    ("cp1257", Charset::Cp1257),
    ("cp850", Charset::Cp850),
    ("cp852", Charset::Cp852),
    ("cp866", Charset::Cp866),
    ("cp932", Charset::Cp932),
    ("dec8", Charset::Dec8),
    ("eucjpms", Charset::EucJpMs),
    ("euckr", Charset::EucKr),
    ("gb18030", Charset::Gb18030),
    ("gb2312", Charset::Gb2312),
    ("gbk", Charset::Gbk),
    ("geostd8", Charset::Geostd8),
    ("greek", Charset::Greek),
    ("hebrew", Charset::Hebrew),
    ("hp8", Charset::Hp8),
    ("keybcs2", Charset::Keybcs2),
    ("koi8r", Charset::Koi8R),
    ("koi8u", Charset::Koi8U),
    ("latin1", Charset::Latin1),
    ("latin2", Charset::Latin2),
    ("latin5", Charset::Latin5),
    ("latin7", Charset::Latin7),
    ("macce", Charset::MacCe),
    ("macroman", Charset::MacRoman),
    ("sjis", Charset::Sjis),
    ("swe7", Charset::Swe7),
    ("tis620", Charset::Tis620),
    ("ucs2", Charset::Ucs2),
    ("ujis", Charset::Ujis),
    ("utf16", Charset::Utf16),
    ("utf16le", Charset::Utf16Le),
    ("utf32", Charset::Utf32),
    ("utf8mb3", Charset::Utf8Mb3),
    ("utf8mb4", Charset::Utf8Mb4),
    // What older servers call utf8mb3.
    ("utf8", Charset::Utf8Mb3),
];

impl Charset {
    /// # Errors
    /// For a number that neither server has.
    pub fn of_collation(collation: u32) -> Result<Self, Unsupported> {
        collation::charset(collation).ok_or(Unsupported::Collation(collation))
    }

    /// # Errors
    /// For a name that neither server has.
    pub fn named(name: &str) -> Result<Self, Unsupported> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, charset)| *charset).ok_or_else(|| Unsupported::Name(name.to_owned()))
    }

    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, charset)| *charset == self);
        found.map_or("unknown", |(name, _)| name)
    }

    /// The most that a character takes: a column of so many characters is declared with so many bytes in the log.
    pub fn bytes_per_character(self) -> u32 {
        match self {
            Self::Utf8Mb4 | Self::Utf16 | Self::Utf16Le | Self::Utf32 | Self::Gb18030 => 4,
            Self::Utf8Mb3 | Self::Ujis | Self::EucJpMs => 3,
            Self::Ucs2
            | Self::Big5
            | Self::Cp932
            | Self::EucKr
            | Self::Gb2312
            | Self::Gbk
            | Self::Sjis => 2,
            _ => 1,
        }
    }

    /// The text of the bytes of a column. Shares their buffer where they are UTF-8 already.
    ///
    /// # Errors
    /// When the server could not convert them either.
    pub fn text(self, bytes: Bytes) -> Result<Text, NotText> {
        let not_text = NotText { charset: self };
        let as_it_is = match self {
            // Only labels come here as bytes without a set; they were declared in UTF-8.
            Self::Utf8Mb3 | Self::Utf8Mb4 | Self::Binary => true,
            Self::Ucs2 | Self::Utf16 | Self::Utf16Le | Self::Utf32 => false,
            // ASCII with national letters in the place of brackets.
            Self::Swe7 => false,
            _ => bytes.is_ascii(),
        };
        if as_it_is {
            return Text::from_utf8(bytes).map_err(|_| not_text);
        }
        let text = match self {
            Self::Ucs2 => unicode::ucs2(&bytes),
            Self::Utf16 => unicode::utf16(&bytes, u16::from_be_bytes),
            Self::Utf16Le => unicode::utf16(&bytes, u16::from_le_bytes),
            Self::Utf32 => unicode::utf32(&bytes),
            Self::Swe7 => bytes.iter().map(|byte| swe7(*byte)).collect(),
            other => match other.upper() {
                Some(upper) => single_bytes(&bytes, upper),
                None => multi_byte::text(other, &bytes),
            },
        };
        text.map(Text::from).ok_or(not_text)
    }

    fn upper(self) -> Option<&'static upper::Upper> {
        Some(match self {
            Self::Armscii8 => &upper::ARMSCII8,
            Self::Cp1250 => &upper::CP1250,
            Self::Cp1251 => &upper::CP1251,
            Self::Cp1256 => &upper::CP1256,
            Self::Cp1257 => &upper::CP1257,
            Self::Cp850 => &upper::CP850,
            Self::Cp852 => &upper::CP852,
            Self::Cp866 => &upper::CP866,
            Self::Dec8 => &upper::DEC8,
            Self::Geostd8 => &upper::GEOSTD8,
            Self::Greek => &upper::GREEK,
            Self::Hebrew => &upper::HEBREW,
            Self::Hp8 => &upper::HP8,
            Self::Keybcs2 => &upper::KEYBCS2,
            Self::Koi8R => &upper::KOI8R,
            Self::Koi8U => &upper::KOI8U,
            Self::Latin1 => &upper::LATIN1,
            Self::Latin2 => &upper::LATIN2,
            Self::Latin5 => &upper::LATIN5,
            Self::Latin7 => &upper::LATIN7,
            Self::MacCe => &upper::MACCE,
            Self::MacRoman => &upper::MACROMAN,
            Self::Tis620 => &upper::TIS620,
            _ => return None,
        })
    }
}

fn single_bytes(bytes: &[u8], upper: &upper::Upper) -> Option<String> {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let character = match byte.checked_sub(0x80) {
            None => char::from(*byte),
            Some(index) => match *upper.get(usize::from(index))? {
                0 => return None,
                code => char::from_u32(code.into())?,
            },
        };
        text.push(character);
    }
    Some(text)
}

fn swe7(byte: u8) -> Option<char> {
    Some(match byte {
        b'@' => 'É',
        b'[' => 'Ä',
        b'\\' => 'Ö',
        b']' => 'Å',
        b'^' => 'Ü',
        b'`' => 'é',
        b'{' => 'ä',
        b'|' => 'ö',
        b'}' => 'å',
        b'~' => 'ü',
        0x7f.. => return None,
        other => char::from(other),
    })
}

#[cfg(test)]
mod tests;
