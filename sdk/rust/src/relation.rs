//! Tables as a plugin sees them.

/// Which case of [`Value`](crate::Value) a column holds, unless it is null, unavailable or a temporal special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Int,
    Uint,
    Float32,
    Float64,
    Decimal,
    Text,
    Bytes,
    Json,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Bits,
    Raw,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The source's name of the base type.
    pub type_name: String,
    /// PostgreSQL's `atttypmod`; -1 without one.
    pub type_modifier: i32,
    pub kind: Kind,
    /// Place in the key, from 0.
    pub key_ordinal: Option<u16>,
}

/// A table under one definition, in the columns that the plugin asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub id: u32,
    /// Another one after each change of the definition.
    pub version: u32,
    pub namespace: String,
    pub name: String,
    pub columns: Vec<Column>,
}

impl Relation {
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
