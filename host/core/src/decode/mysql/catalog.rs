//! A column's definition from the catalog's `COLUMN_TYPE` and `CHARACTER_SET_NAME`.

use super::charset::{Charset, Unsupported};
use super::definition::{ColumnDefinition, DataType, Server, Shape, Size, Width};
use super::labels::unquoted;
use super::layout::{Layout, code, integer_code};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("column {column} is of type {column_type}, which is not known")]
    Unknown { column: String, column_type: String },
    #[error("column {column} is of type {column_type} without a character set")]
    NoCharset { column: String, column_type: String },
    #[error("column {column}: character set {source}")]
    Charset {
        column: String,
        #[source]
        source: Unsupported,
    },
}

impl ColumnDefinition {
    /// The definition that the catalog gives. `charset` is `CHARACTER_SET_NAME`.
    ///
    /// Its layout is what the server writes for a table made now.
    ///
    /// # Errors
    /// When the type or the character set is not known.
    pub fn from_catalog(
        name: &str,
        server: Server,
        column_type: &str,
        charset: Option<&str>,
    ) -> Result<Self, Unreadable> {
        let charset = match charset {
            Some(charset) => Some(
                Charset::named(charset)
                    .map_err(|source| Unreadable::Charset { column: name.to_owned(), source })?,
            ),
            None => None,
        };
        let unknown =
            || Unreadable::Unknown { column: name.to_owned(), column_type: column_type.to_owned() };
        let declared = Declared::split(column_type).ok_or_else(unknown)?;
        if declared.is_text() && charset.is_none() {
            return Err(Unreadable::NoCharset {
                column: name.to_owned(),
                column_type: column_type.to_owned(),
            });
        }
        // MySQL gives no character set for labels in the binary one.
        let charset = charset.unwrap_or(Charset::Binary);
        let data_type = declared.data_type(server, charset).ok_or_else(unknown)?;
        let layout = newest_layout(&data_type, server).ok_or_else(unknown)?;
        Ok(Self { name: name.to_owned(), server, data_type, layout })
    }
}

/// `name(arguments) unsigned zerofill`
struct Declared<'a> {
    name: &'a str,
    /// With their parentheses; empty without.
    arguments: &'a str,
    unsigned: bool,
}

impl<'a> Declared<'a> {
    fn split(column_type: &'a str) -> Option<Self> {
        let end = column_type
            .find(|character: char| !character.is_ascii_alphanumeric())
            .unwrap_or(column_type.len());
        let (name, rest) = column_type.split_at_checked(end)?;
        // Labels may hold anything, and nothing stands behind them.
        let arguments = match rest.find(')') {
            Some(_) if matches!(name, "enum" | "set") => rest,
            Some(end) if rest.starts_with('(') => rest.get(..=end)?,
            _ => "",
        };
        let words = rest.get(arguments.len()..)?;
        // MariaDB's COMPRESSED, and other things that do not change what a value is, stand in such a comment.
        let words = words.split_once("/*").map_or(words, |(before, _)| before);
        let mut unsigned = false;
        for word in words.split_ascii_whitespace() {
            match word {
                "unsigned" => unsigned = true,
                "zerofill" => {}
                _ => return None,
            }
        }
        Some(Self { name, arguments, unsigned })
    }

    fn is_text(&self) -> bool {
        matches!(self.name, "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext")
    }

    fn data_type(&self, server: Server, charset: Charset) -> Option<DataType> {
        let unsigned = self.unsigned;
        if let Some(width) = Width::ALL.into_iter().find(|width| width.type_name() == self.name) {
            return Some(DataType::Integer { width, unsigned });
        }
        let sized = |family: &str| {
            let prefix = self.name.strip_suffix(family)?;
            Size::ALL.into_iter().find(|size| size.prefix() == prefix)
        };
        if let Some(size) = sized("text") {
            return Some(DataType::Text { size, charset });
        }
        if let Some(size) = sized("blob") {
            return Some(DataType::Blob(size));
        }
        if let Some(shape) =
            Shape::ALL.into_iter().find(|shape| shape.type_name(server) == self.name)
        {
            return Some(DataType::Geometry(shape));
        }
        self.other(server, charset)
    }

    fn other(&self, server: Server, charset: Charset) -> Option<DataType> {
        let unsigned = self.unsigned;
        let mariadb = server == Server::MariaDb;
        Some(match self.name {
            "float" => DataType::Float { unsigned },
            "double" => DataType::Double { unsigned },
            "decimal" => {
                let (precision, scale) = self.two_numbers()?;
                DataType::Decimal { precision, scale, unsigned }
            }
            "year" => DataType::Year,
            "date" => DataType::Date,
            "time" => DataType::Time { fraction: self.fraction()? },
            "datetime" => DataType::DateTime { fraction: self.fraction()? },
            "timestamp" => DataType::Timestamp { fraction: self.fraction()? },
            "char" => DataType::Char { length: self.number()?, charset },
            "varchar" => DataType::VarChar { length: self.number()?, charset },
            "binary" => DataType::Binary { length: self.number()? },
            "varbinary" => DataType::VarBinary { length: self.number()? },
            "bit" => DataType::Bit { length: self.number()? },
            "enum" => DataType::Enum { labels: unquoted(self.arguments)?, charset },
            "set" => DataType::Set { labels: unquoted(self.arguments)?, charset },
            "vector" => DataType::Vector { dimensions: self.number()? },
            "json" if !mariadb => DataType::Json,
            "uuid" if mariadb => DataType::Uuid,
            "inet4" if mariadb => DataType::Inet4,
            "inet6" if mariadb => DataType::Inet6,
            _ => return None,
        })
    }

    fn inner(&self) -> Option<&'a str> {
        self.arguments.strip_prefix('(')?.strip_suffix(')')
    }

    fn number(&self) -> Option<u32> {
        self.inner()?.parse().ok()
    }

    fn two_numbers(&self) -> Option<(u8, u8)> {
        let (first, second) = self.inner()?.split_once(',')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    }

    fn fraction(&self) -> Option<u8> {
        if self.arguments.is_empty() { Some(0) } else { self.inner()?.parse().ok() }
    }
}

/// The layout under the code and metadata that a new table's map would have.
fn newest_layout(data_type: &DataType, server: Server) -> Option<Layout> {
    let pair = |low: u8, high: u8| u16::from_le_bytes([low, high]);
    let (code, metadata) = match data_type {
        DataType::Integer { width, .. } => (integer_code(*width), 0),
        DataType::Float { .. } => (code::FLOAT, 4),
        DataType::Double { .. } => (code::DOUBLE, 8),
        DataType::Decimal { precision, scale, .. } => (code::DECIMAL, pair(*precision, *scale)),
        DataType::Year => (code::YEAR, 0),
        DataType::Date => (code::DATE, 0),
        DataType::Time { fraction } => (code::TIME, u16::from(*fraction)),
        DataType::DateTime { fraction } => (code::DATETIME, u16::from(*fraction)),
        DataType::Timestamp { fraction } => (code::TIMESTAMP, u16::from(*fraction)),
        DataType::Char { length, charset } => {
            fixed(length.checked_mul(charset.bytes_per_character())?)?
        }
        DataType::Binary { length } => fixed(*length)?,
        DataType::VarChar { length, charset } => {
            let bytes = length.checked_mul(charset.bytes_per_character())?;
            (code::VARCHAR, u16::try_from(bytes).ok()?)
        }
        DataType::VarBinary { length } => (code::VARCHAR, u16::try_from(*length).ok()?),
        DataType::Text { size, .. } | DataType::Blob(size) => {
            (code::BLOB, u16::from(size.count_bytes()))
        }
        DataType::Bit { length } => {
            (code::BIT, pair(u8::try_from(length % 8).ok()?, u8::try_from(length / 8).ok()?))
        }
        DataType::Enum { labels, .. } => {
            (code::STRING, pair(code::ENUM, 1 + u8::from(labels.len() > 255)))
        }
        DataType::Set { labels, .. } => {
            let bytes = match labels.len().div_ceil(8) {
                5.. => 8,
                bytes => u8::try_from(bytes).ok()?,
            };
            (code::STRING, pair(code::SET, bytes))
        }
        DataType::Json => (code::JSON, 4),
        DataType::Geometry(_) => (code::GEOMETRY, 4),
        DataType::Vector { dimensions } => match server {
            Server::MySql => (code::VECTOR, 4),
            Server::MariaDb => (code::VARCHAR, u16::try_from(dimensions.checked_mul(4)?).ok()?),
        },
        DataType::Uuid | DataType::Inet6 => fixed(16)?,
        DataType::Inet4 => fixed(4)?,
    };
    Layout::fitting(data_type, server, code, metadata)
}

/// The inverse of `unpack_string`.
fn fixed(bytes: u32) -> Option<(u8, u16)> {
    let [low, high, 0, 0] = bytes.to_le_bytes() else { return None };
    let first = code::STRING ^ (high.checked_mul(16)? & 0x30);
    (high < 4).then_some((code::STRING, u16::from_le_bytes([first, low])))
}
