//! `TABLE_MAP`: a table, as the row events behind it mean it.
//!
//! What a column holds is in three places, of which only the first is always there: a type code with two bytes of
//! metadata, which say how to find the end of a value; optional metadata that is always written since MySQL 8.0 and
//! MariaDB 10.5 (signedness, character sets); and more of it under `binlog_row_metadata=FULL` (names, labels, the primary
//! key). Optional metadata speaks of "the third numeric column", so a kind of column that is counted in one server and
//! not in the other would shift all that follow; the numbers of entries are therefore checked to their end.

use super::format::Flavor;
use super::metadata::{self, InvalidMetadata, Metadata};
use super::reader::{Reader, Short};

/// Numbers of column types.
pub mod code {
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const NULL: u8 = 6;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const NEWDATE: u8 = 14;
    pub const VARCHAR: u8 = 15;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    /// MariaDB.
    pub const BLOB_COMPRESSED: u8 = 140;
    /// MariaDB.
    pub const VARCHAR_COMPRESSED: u8 = 141;
    pub const VECTOR: u8 = 242;
    pub const JSON: u8 = 245;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
    pub const TINY_BLOB: u8 = 249;
    pub const MEDIUM_BLOB: u8 = 250;
    pub const LONG_BLOB: u8 = 251;
    pub const BLOB: u8 = 252;
    pub const VAR_STRING: u8 = 253;
    pub const STRING: u8 = 254;
    pub const GEOMETRY: u8 = 255;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    pub schema: String,
    pub table: String,
    pub columns: Vec<ColumnMap>,
    /// Columns of the primary key in its order, with the length of their prefix, 0 for a whole column. `None` where the
    /// metadata does not say it, which without [`has_names`](Self::has_names) means nothing.
    pub primary_key: Option<Vec<(usize, u64)>>,
}

/// One column. `None` is what the metadata does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMap {
    /// See [`code`]; enums and sets are written as `STRING`.
    pub code: u8,
    /// Up to two bytes, as they stand: the first in the low place.
    pub metadata: u16,
    pub nullable: bool,
    pub name: Option<String>,
    /// Of numeric columns.
    pub unsigned: Option<bool>,
    /// Collation id of columns of characters, and of enums and sets under full metadata.
    pub collation: Option<u32>,
    /// Of enums and sets, in the column's character set.
    pub labels: Option<Vec<Vec<u8>>>,
    pub geometry: Option<u64>,
    /// Dimensions of a vector.
    pub dimensions: Option<u64>,
    pub visible: Option<bool>,
}

impl TableMap {
    /// `binlog_row_metadata=FULL`: columns have names, enums and sets their labels.
    pub fn has_names(&self) -> bool {
        self.columns.iter().all(|column| column.name.is_some())
    }
}

impl ColumnMap {
    /// What the code and metadata of a string mean: an enum, a set or a string.
    pub fn real_code(&self) -> u8 {
        /// Two bits of a long length, inverted; without one they are set.
        const LENGTH_BITS: u8 = 0x30;
        let [real, _] = self.metadata.to_le_bytes();
        match self.code {
            code::STRING => real | LENGTH_BITS,
            other => other,
        }
    }

    /// Whether signedness is said of it.
    pub(super) fn is_numeric(&self) -> bool {
        use code::{DOUBLE, FLOAT, INT24, LONG, LONGLONG, NEWDECIMAL, SHORT, TINY, YEAR};
        matches!(
            self.code,
            TINY | SHORT | INT24 | LONG | LONGLONG | NEWDECIMAL | FLOAT | DOUBLE | YEAR
        )
    }

    /// Whether a collation is said of it. A geometry is a blob to MariaDB, and a vector is one to MySQL, so they are
    /// counted there.
    pub(super) fn is_character(&self, flavor: Flavor) -> bool {
        match self.real_code() {
            code::STRING | code::VAR_STRING | code::VARCHAR => true,
            code::TINY_BLOB | code::BLOB | code::MEDIUM_BLOB | code::LONG_BLOB => true,
            code::BLOB_COMPRESSED | code::VARCHAR_COMPRESSED | code::GEOMETRY => {
                flavor == Flavor::MariaDb
            }
            code::VECTOR => flavor == Flavor::MySql,
            _ => false,
        }
    }

    pub(super) fn has_labels(&self) -> bool {
        matches!(self.real_code(), code::ENUM | code::SET)
    }
}

/// Definite: rows behind it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTableMap {
    #[error("it ends too early")]
    Short,
    #[error("a name that is not utf-8")]
    Name,
    #[error("column {column} of {table} has type {code}, which is not known")]
    Type { table: String, column: usize, code: u8 },
    #[error("{table} has columns that are described wrongly")]
    Metadata { table: String, source: InvalidMetadata },
}

impl From<Short> for InvalidTableMap {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// Reads what is needed to tell tables apart: the number by which rows refer to it, and the rest.
pub(super) fn split(body: &[u8]) -> Result<(u64, &[u8]), Short> {
    let mut reader = Reader::new(body);
    let id = reader.uint::<6>()?;
    let _flags = reader.u16()?;
    Ok((id, reader.rest()))
}

/// The schema and the table of a description.
pub fn name(description: &[u8]) -> Result<(&str, &str), InvalidTableMap> {
    let mut reader = Reader::new(description);
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| InvalidTableMap::Name);
    let schema = text(reader.short_string()?)?;
    let table = text(reader.short_string()?)?;
    Ok((schema, table))
}

/// The whole of a description.
pub fn table_map(description: &[u8], flavor: Flavor) -> Result<TableMap, InvalidTableMap> {
    let (schema, table) = name(description)?;
    let mut reader = Reader::new(description);
    let (_schema, _table) = (reader.short_string()?, reader.short_string()?);
    let width = reader.packed_length()?;
    let codes = reader.take(width)?;
    let mut types = Reader::new(reader.packed_bytes()?);
    let nullable = reader.take(width.div_ceil(8))?;
    let full_name = || format!("{schema}.{table}");

    let mut columns = Vec::with_capacity(width);
    for (index, code) in codes.iter().copied().enumerate() {
        let Some(length) = metadata_length(code) else {
            return Err(InvalidTableMap::Type { table: full_name(), column: index + 1, code });
        };
        let metadata = match length {
            0 => 0,
            1 => u16::from(types.u8()?),
            _ => types.u16()?,
        };
        let nullable = is_set(nullable, index);
        columns.push(ColumnMap {
            code,
            metadata,
            nullable,
            name: None,
            unsigned: None,
            collation: None,
            labels: None,
            geometry: None,
            dimensions: None,
            visible: None,
        });
    }
    if !types.is_empty() {
        return Err(InvalidTableMap::Short);
    }
    let metadata = metadata::read(reader.rest(), &columns, flavor)
        .map_err(|source| InvalidTableMap::Metadata { table: full_name(), source })?;
    let Metadata { primary_key } = metadata.apply(&mut columns);
    Ok(TableMap { schema: schema.to_owned(), table: table.to_owned(), columns, primary_key })
}

/// First bit in the lowest place.
pub fn is_set(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Bytes of metadata; `None` for a type that is not known.
fn metadata_length(code: u8) -> Option<usize> {
    Some(match code {
        code::TINY
        | code::SHORT
        | code::LONG
        | code::LONGLONG
        | code::INT24
        | code::NULL
        | code::TIMESTAMP
        | code::DATE
        | code::TIME
        | code::DATETIME
        | code::YEAR
        | code::NEWDATE => 0,
        code::FLOAT
        | code::DOUBLE
        | code::TIMESTAMP2
        | code::DATETIME2
        | code::TIME2
        | code::VECTOR
        | code::JSON
        | code::GEOMETRY
        | code::BLOB_COMPRESSED
        | code::TINY_BLOB
        | code::MEDIUM_BLOB
        | code::LONG_BLOB
        | code::BLOB => 1,
        code::VARCHAR
        | code::VAR_STRING
        | code::VARCHAR_COMPRESSED
        | code::BIT
        | code::NEWDECIMAL
        | code::STRING
        | code::ENUM
        | code::SET => 2,
        _ => return None,
    })
}
