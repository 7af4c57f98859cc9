//! A column's definition from what a table map says of it.

use super::charset::{Charset, Unsupported};
use super::definition::{ColumnDefinition, DataType, Server, Shape, Size, Width};
use super::labels::Labels;
use super::layout::{Layout, code, integer_code, unpack_string};

/// One column of a table map. What the map leaves out is `None`.
#[derive(Clone, Debug, Default)]
pub struct LogColumn<'a> {
    /// The type code.
    pub code: u8,
    /// The bytes of the metadata as they stand, the first in the low place.
    pub metadata: u16,
    pub unsigned: Option<bool>,
    /// Of a text, or of the labels of an ENUM or SET.
    pub collation: Option<u32>,
    pub labels: Option<Vec<&'a [u8]>>,
    pub shape: Option<u64>,
    pub dimensions: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Undefined {
    #[error(
        "the log does not give {what}: set binlog_row_metadata=FULL, or let the catalog say it"
    )]
    NeedsCatalog { what: &'static str },
    #[error("type {code} with metadata {metadata:#06x} is not known")]
    Unknown { code: u8, metadata: u16 },
    #[error("character set: {0}")]
    Charset(#[from] Unsupported),
    #[error("a label that is not text in its character set")]
    Label,
}

impl ColumnDefinition {
    /// The definition that a table map gives.
    ///
    /// On MariaDB a `binary(16)`, `binary(4)` or `varbinary` of this may be a `uuid`, `inet6`, `inet4` or `vector`:
    /// there the catalog's record has to be asked as well (see [`with_layout`](Self::with_layout)).
    ///
    /// # Errors
    /// When the type is not known, or the log does not say enough to read its values.
    pub fn from_log(name: &str, server: Server, column: &LogColumn<'_>) -> Result<Self, Undefined> {
        let data_type = data_type(server, column)?;
        let layout = Layout::fitting(&data_type, server, column.code, column.metadata)
            .ok_or_else(|| column.unknown())?;
        Ok(Self { name: name.to_owned(), server, data_type, layout })
    }
}

fn data_type(server: Server, column: &LogColumn<'_>) -> Result<DataType, Undefined> {
    let [low, high] = column.metadata.to_le_bytes();
    if let Some(width) = Width::ALL.into_iter().find(|it| integer_code(*it) == column.code) {
        return Ok(DataType::Integer { width, unsigned: column.sign()? });
    }
    Ok(match column.code {
        code::FLOAT => DataType::Float { unsigned: column.sign()? },
        code::DOUBLE => DataType::Double { unsigned: column.sign()? },
        code::DECIMAL => {
            DataType::Decimal { precision: low, scale: high, unsigned: column.sign()? }
        }
        code::YEAR => DataType::Year,
        code::DATE | code::NEW_DATE => DataType::Date,
        code::TIME => DataType::Time { fraction: low },
        code::DATETIME => DataType::DateTime { fraction: low },
        code::TIMESTAMP => DataType::Timestamp { fraction: low },
        // MariaDB's have a fraction that only the catalog knows.
        code::OLD_TIME if server == Server::MySql => DataType::Time { fraction: 0 },
        code::OLD_DATETIME if server == Server::MySql => DataType::DateTime { fraction: 0 },
        code::OLD_TIMESTAMP if server == Server::MySql => DataType::Timestamp { fraction: 0 },
        code::OLD_TIME | code::OLD_DATETIME | code::OLD_TIMESTAMP => {
            return Err(Undefined::NeedsCatalog { what: "the fraction of an old temporal column" });
        }
        code::STRING => return string(column),
        code::VARCHAR | code::VAR_STRING => variable(column, u32::from(column.metadata))?,
        code::COMPRESSED_VARCHAR if server == Server::MariaDb => {
            let content = u32::from(column.metadata).checked_sub(1);
            variable(column, content.ok_or_else(|| column.unknown())?)?
        }
        code::COMPRESSED_BLOB if server == Server::MariaDb => blob(column, low)?,
        code::BLOB => blob(column, low)?,
        code::BIT => DataType::Bit { length: u32::from(high) * 8 + u32::from(low) },
        code::ENUM => DataType::Enum { labels: column.labels()?, charset: column.charset()? },
        code::SET => DataType::Set { labels: column.labels()?, charset: column.charset()? },
        code::JSON if server == Server::MySql => DataType::Json,
        code::GEOMETRY => {
            let number =
                column.shape.ok_or(Undefined::NeedsCatalog { what: "the type of a geometry" })?;
            let shape = usize::try_from(number).ok().and_then(|number| Shape::ALL.get(number));
            DataType::Geometry(*shape.ok_or_else(|| column.unknown())?)
        }
        code::VECTOR if server == Server::MySql => {
            let dimensions = column
                .dimensions
                .ok_or(Undefined::NeedsCatalog { what: "the dimensions of a vector" })?;
            let dimensions = u32::try_from(dimensions).map_err(|_| column.unknown())?;
            DataType::Vector { dimensions }
        }
        _ => return Err(column.unknown()),
    })
}

fn string(column: &LogColumn<'_>) -> Result<DataType, Undefined> {
    let (real, bytes) = unpack_string(column.metadata);
    Ok(match real {
        code::STRING => match column.charset()? {
            Charset::Binary => DataType::Binary { length: bytes },
            charset => DataType::Char { length: bytes / charset.bytes_per_character(), charset },
        },
        code::ENUM => DataType::Enum { labels: column.labels()?, charset: column.charset()? },
        code::SET => DataType::Set { labels: column.labels()?, charset: column.charset()? },
        _ => return Err(column.unknown()),
    })
}

fn variable(column: &LogColumn<'_>, bytes: u32) -> Result<DataType, Undefined> {
    Ok(match column.charset()? {
        Charset::Binary => DataType::VarBinary { length: bytes },
        charset => DataType::VarChar { length: bytes / charset.bytes_per_character(), charset },
    })
}

fn blob(column: &LogColumn<'_>, count_bytes: u8) -> Result<DataType, Undefined> {
    let size = Size::ALL.into_iter().find(|size| size.count_bytes() == count_bytes);
    let size = size.ok_or_else(|| column.unknown())?;
    Ok(match column.charset()? {
        Charset::Binary => DataType::Blob(size),
        charset => DataType::Text { size, charset },
    })
}

impl LogColumn<'_> {
    fn unknown(&self) -> Undefined {
        Undefined::Unknown { code: self.code, metadata: self.metadata }
    }

    fn sign(&self) -> Result<bool, Undefined> {
        self.unsigned.ok_or(Undefined::NeedsCatalog { what: "the sign of a number" })
    }

    fn charset(&self) -> Result<Charset, Undefined> {
        let collation = self
            .collation
            .ok_or(Undefined::NeedsCatalog { what: "the character set of a text" })?;
        Ok(Charset::of_collation(collation)?)
    }

    fn labels(&self) -> Result<Labels, Undefined> {
        let missing = Undefined::NeedsCatalog { what: "the labels of an ENUM or SET" };
        let charset = self.charset()?;
        let mut labels = Vec::new();
        for label in self.labels.as_ref().ok_or(missing)? {
            let label = bytes::Bytes::copy_from_slice(label);
            labels.push(charset.text(label).map_err(|_| Undefined::Label)?);
        }
        Ok(Labels::new(labels))
    }
}
