//! What a column is, whichever way it was learnt.
//!
//! A definition has two halves. [`DataType`] is what the column means; the scan and the stream agree on it, and with it
//! on the type's name and so on the version of the table. [`Layout`] is how the row images of the log spell the value,
//! which only the log knows: a MariaDB table made before 10.1 holds a `datetime` in another form than a newer one, and
//! the catalog calls both `datetime`.
//!
//! The log alone does not always say what a column means. MariaDB writes `uuid`, `inet6` and `vector` as strings of
//! bytes, and old temporal columns without their fraction's digits; with `binlog_row_metadata=MINIMAL` signs, character
//! sets and labels are missing on both servers. Then the catalog's definition [takes the
//! layout](ColumnDefinition::with_layout) of the log's column, provided that it fits; a definition that does not fit is
//! an error, because reading one type's bytes as another's gives wrong values without a sign of it.

use std::fmt;

use super::charset::Charset;
use super::labels::{Labels, quoted};
use super::layout::Layout;
use crate::schema::Kind;

/// Whose log it is. The two servers give some type codes different meanings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    MySql,
    MariaDb,
}

/// Bytes of an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    One,
    Two,
    Three,
    Four,
    Eight,
}

/// How many bytes count the bytes of a text or blob: what tells `tinytext` from `longtext`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    Tiny,
    Plain,
    Medium,
    Long,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Any,
    Point,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
    Collection,
}

/// What the column means. Lengths are in characters, or in bytes where there is no character set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataType {
    Integer {
        width: Width,
        unsigned: bool,
    },
    Float {
        unsigned: bool,
    },
    Double {
        unsigned: bool,
    },
    Decimal {
        precision: u8,
        scale: u8,
        unsigned: bool,
    },
    Year,
    Date,
    /// `fraction`: digits behind the point, 0 to 6; likewise below.
    Time {
        fraction: u8,
    },
    DateTime {
        fraction: u8,
    },
    Timestamp {
        fraction: u8,
    },
    Char {
        length: u32,
        charset: Charset,
    },
    VarChar {
        length: u32,
        charset: Charset,
    },
    Text {
        size: Size,
        charset: Charset,
    },
    Binary {
        length: u32,
    },
    VarBinary {
        length: u32,
    },
    Blob(Size),
    Bit {
        length: u32,
    },
    Enum {
        labels: Labels,
        charset: Charset,
    },
    Set {
        labels: Labels,
        charset: Charset,
    },
    Json,
    Geometry(Shape),
    Vector {
        dimensions: u32,
    },
    Uuid,
    Inet4,
    Inet6,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnDefinition {
    pub name: String,
    pub server: Server,
    pub data_type: DataType,
    pub layout: Layout,
}

/// The catalog's record of a column does not fit the bytes that the log announces.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "column {column} is {catalog} in the catalog, but the log holds type {code} with metadata {metadata:#06x}: \
     the table was altered in between"
)]
pub struct Misfit {
    pub column: String,
    pub catalog: String,
    pub code: u8,
    pub metadata: u16,
}

impl ColumnDefinition {
    /// The type's name in the server's spelling, as far as both the catalog and the log know it: without display
    /// widths, `zerofill`, character sets and compression.
    pub fn type_name(&self) -> String {
        TypeName { data_type: &self.data_type, server: self.server }.to_string()
    }

    pub fn kind(&self) -> Kind {
        match &self.data_type {
            DataType::Integer { unsigned: true, .. } => Kind::Uint,
            DataType::Integer { unsigned: false, .. } | DataType::Year => Kind::Int,
            DataType::Float { .. } => Kind::Float32,
            DataType::Double { .. } => Kind::Float64,
            DataType::Decimal { .. } => Kind::Decimal,
            DataType::Date => Kind::Date,
            DataType::Time { .. } => Kind::Time,
            DataType::DateTime { .. } => Kind::Timestamp,
            DataType::Timestamp { .. } => Kind::TimestampTz,
            DataType::Char { .. } | DataType::VarChar { .. } | DataType::Text { .. } => Kind::Text,
            DataType::Binary { .. }
            | DataType::VarBinary { .. }
            | DataType::Blob(_)
            | DataType::Geometry(_)
            | DataType::Vector { .. } => Kind::Bytes,
            DataType::Bit { .. } => Kind::Bits,
            DataType::Json => Kind::Json,
            DataType::Uuid => Kind::Uuid,
            DataType::Enum { .. } | DataType::Set { .. } | DataType::Inet4 | DataType::Inet6 => {
                Kind::Raw
            }
        }
    }

    /// This definition, of the catalog, for row images whose table map gives the column this type code and metadata.
    ///
    /// # Errors
    /// When bytes of that form cannot be of this type.
    pub fn with_layout(mut self, code: u8, metadata: u16) -> Result<Self, Misfit> {
        match Layout::fitting(&self.data_type, self.server, code, metadata) {
            Some(layout) => {
                self.layout = layout;
                Ok(self)
            }
            None => Err(Misfit { catalog: self.type_name(), column: self.name, code, metadata }),
        }
    }
}

impl DataType {
    /// Digits behind the point of a temporal type that has a time.
    pub(super) fn fraction(&self) -> Option<u8> {
        match self {
            Self::Time { fraction }
            | Self::DateTime { fraction }
            | Self::Timestamp { fraction } => Some(*fraction),
            _ => None,
        }
    }
}

struct TypeName<'a> {
    data_type: &'a DataType,
    server: Server,
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data_type {
            DataType::Integer { width, unsigned } => with_sign(f, width.type_name(), *unsigned),
            DataType::Float { unsigned } => with_sign(f, "float", *unsigned),
            DataType::Double { unsigned } => with_sign(f, "double", *unsigned),
            DataType::Decimal { precision, scale, unsigned } => {
                with_sign(f, &format!("decimal({precision},{scale})"), *unsigned)
            }
            DataType::Year => f.write_str("year"),
            DataType::Date => f.write_str("date"),
            DataType::Time { fraction } => with_fraction(f, "time", *fraction),
            DataType::DateTime { fraction } => with_fraction(f, "datetime", *fraction),
            DataType::Timestamp { fraction } => with_fraction(f, "timestamp", *fraction),
            DataType::Char { length, .. } => write!(f, "char({length})"),
            DataType::VarChar { length, .. } => write!(f, "varchar({length})"),
            DataType::Text { size, .. } => write!(f, "{}text", size.prefix()),
            DataType::Binary { length } => write!(f, "binary({length})"),
            DataType::VarBinary { length } => write!(f, "varbinary({length})"),
            DataType::Blob(size) => write!(f, "{}blob", size.prefix()),
            DataType::Bit { length } => write!(f, "bit({length})"),
            DataType::Enum { labels, .. } => with_labels(f, "enum", labels),
            DataType::Set { labels, .. } => with_labels(f, "set", labels),
            DataType::Json => f.write_str("json"),
            DataType::Geometry(shape) => f.write_str(shape.type_name(self.server)),
            DataType::Vector { dimensions } => write!(f, "vector({dimensions})"),
            DataType::Uuid => f.write_str("uuid"),
            DataType::Inet4 => f.write_str("inet4"),
            DataType::Inet6 => f.write_str("inet6"),
        }
    }
}

fn with_sign(f: &mut fmt::Formatter<'_>, name: &str, unsigned: bool) -> fmt::Result {
    f.write_str(name)?;
    if unsigned { f.write_str(" unsigned") } else { Ok(()) }
}

fn with_fraction(f: &mut fmt::Formatter<'_>, name: &str, fraction: u8) -> fmt::Result {
    f.write_str(name)?;
    if fraction > 0 { write!(f, "({fraction})") } else { Ok(()) }
}

fn with_labels(f: &mut fmt::Formatter<'_>, name: &str, labels: &Labels) -> fmt::Result {
    f.write_str(name)?;
    let mut separator = "(";
    for label in labels.iter() {
        f.write_str(separator)?;
        f.write_str(&quoted(label))?;
        separator = ",";
    }
    f.write_str(")")
}

impl Width {
    pub(super) const ALL: [Self; 5] = [Self::One, Self::Two, Self::Three, Self::Four, Self::Eight];

    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::One => "tinyint",
            Self::Two => "smallint",
            Self::Three => "mediumint",
            Self::Four => "int",
            Self::Eight => "bigint",
        }
    }
}

impl Size {
    pub(super) const ALL: [Self; 4] = [Self::Tiny, Self::Plain, Self::Medium, Self::Long];

    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Plain => "",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// Bytes of the count before the content.
    pub(super) const fn count_bytes(self) -> u8 {
        match self {
            Self::Tiny => 1,
            Self::Plain => 2,
            Self::Medium => 3,
            Self::Long => 4,
        }
    }
}

impl Shape {
    /// In the order of the numbers that both servers give them.
    pub(super) const ALL: [Self; 8] = [
        Self::Any,
        Self::Point,
        Self::LineString,
        Self::Polygon,
        Self::MultiPoint,
        Self::MultiLineString,
        Self::MultiPolygon,
        Self::Collection,
    ];

    pub(super) const fn type_name(self, server: Server) -> &'static str {
        match (self, server) {
            (Self::Any, _) => "geometry",
            (Self::Point, _) => "point",
            (Self::LineString, _) => "linestring",
            (Self::Polygon, _) => "polygon",
            (Self::MultiPoint, _) => "multipoint",
            (Self::MultiLineString, _) => "multilinestring",
            (Self::MultiPolygon, _) => "multipolygon",
            (Self::Collection, Server::MySql) => "geomcollection",
            (Self::Collection, Server::MariaDb) => "geometrycollection",
        }
    }
}
