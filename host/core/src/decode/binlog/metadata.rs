//! The optional metadata of a `TABLE_MAP`: a sequence of type, length and content.
//!
//! A type that is not known is passed over, as servers do: it can only add to what is known of a column, and what is
//! needed to read one is checked where it is read.

use super::format::Flavor;
use super::reader::{Reader, Short};
use super::table_map::{ColumnMap, code};

mod field {
    pub(super) const SIGNEDNESS: u8 = 1;
    pub(super) const DEFAULT_CHARSET: u8 = 2;
    pub(super) const COLUMN_CHARSET: u8 = 3;
    pub(super) const COLUMN_NAME: u8 = 4;
    pub(super) const SET_LABELS: u8 = 5;
    pub(super) const ENUM_LABELS: u8 = 6;
    pub(super) const GEOMETRY_TYPE: u8 = 7;
    pub(super) const SIMPLE_PRIMARY_KEY: u8 = 8;
    pub(super) const PREFIXED_PRIMARY_KEY: u8 = 9;
    pub(super) const LABELS_DEFAULT_CHARSET: u8 = 10;
    pub(super) const LABELS_COLUMN_CHARSET: u8 = 11;
    pub(super) const VISIBILITY: u8 = 12;
    pub(super) const VECTOR_DIMENSIONS: u8 = 13;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    #[error("optional metadata of type {0} ends too early or too late")]
    Length(u8),
    #[error("optional metadata of type {0} names a column that is not there")]
    Column(u8),
    #[error("a column name that is not utf-8")]
    Name,
    #[error("optional metadata that ends in the middle")]
    Short,
}

impl From<Short> for InvalidMetadata {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// What is said of single columns, by their index, until it is applied to them.
#[derive(Debug, Default)]
pub(super) struct Described {
    unsigned: Vec<(usize, bool)>,
    collations: Vec<(usize, u32)>,
    names: Vec<String>,
    labels: Vec<(usize, Vec<Vec<u8>>)>,
    geometries: Vec<(usize, u64)>,
    dimensions: Vec<(usize, u64)>,
    visible: Vec<bool>,
    primary_key: Option<Vec<(usize, u64)>>,
}

/// What is said of the table.
pub(super) struct Metadata {
    pub(super) primary_key: Option<Vec<(usize, u64)>>,
}

impl Described {
    pub(super) fn apply(self, columns: &mut [ColumnMap]) -> Metadata {
        fn set<T>(
            columns: &mut [ColumnMap],
            values: Vec<(usize, T)>,
            place: impl Fn(&mut ColumnMap) -> &mut Option<T>,
        ) {
            for (index, value) in values {
                if let Some(column) = columns.get_mut(index) {
                    *place(column) = Some(value);
                }
            }
        }
        set(columns, self.unsigned, |column| &mut column.unsigned);
        set(columns, self.collations, |column| &mut column.collation);
        set(columns, self.labels, |column| &mut column.labels);
        set(columns, self.geometries, |column| &mut column.geometry);
        set(columns, self.dimensions, |column| &mut column.dimensions);
        for (column, name) in columns.iter_mut().zip(self.names) {
            column.name = Some(name);
        }
        for (column, visible) in columns.iter_mut().zip(self.visible) {
            column.visible = Some(visible);
        }
        Metadata { primary_key: self.primary_key }
    }
}

pub(super) fn read(
    bytes: &[u8],
    columns: &[ColumnMap],
    flavor: Flavor,
) -> Result<Described, InvalidMetadata> {
    let mut described = Described::default();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let kind = reader.u8()?;
        let mut content = Reader::new(reader.packed_bytes()?);
        described.field(kind, &mut content, columns, flavor).map_err(|error| match error {
            InvalidMetadata::Short => InvalidMetadata::Length(kind),
            other => other,
        })?;
        if !content.is_empty() {
            return Err(InvalidMetadata::Length(kind));
        }
    }
    Ok(described)
}

impl Described {
    fn field(
        &mut self,
        kind: u8,
        content: &mut Reader<'_>,
        columns: &[ColumnMap],
        flavor: Flavor,
    ) -> Result<(), InvalidMetadata> {
        let characters = || indices(columns, |column| column.is_character(flavor));
        match kind {
            field::SIGNEDNESS => self.signedness(content, columns)?,
            field::DEFAULT_CHARSET => {
                self.default_collations(kind, content, &characters())?;
            }
            field::LABELS_DEFAULT_CHARSET => {
                self.default_collations(kind, content, &indices(columns, ColumnMap::has_labels))?;
            }
            field::COLUMN_CHARSET => {
                self.collations_of(content, characters())?;
            }
            field::LABELS_COLUMN_CHARSET => {
                self.collations_of(content, indices(columns, ColumnMap::has_labels))?;
            }
            field::COLUMN_NAME => {
                for _ in columns {
                    let name = std::str::from_utf8(content.packed_bytes()?);
                    self.names.push(name.map_err(|_| InvalidMetadata::Name)?.to_owned());
                }
            }
            field::SET_LABELS => self.labels_of(content, code::SET, columns)?,
            field::ENUM_LABELS => self.labels_of(content, code::ENUM, columns)?,
            field::GEOMETRY_TYPE => {
                for index in indices(columns, |column| column.code == code::GEOMETRY) {
                    self.geometries.push((index, content.packed()?));
                }
            }
            field::VECTOR_DIMENSIONS => {
                for index in indices(columns, |column| column.code == code::VECTOR) {
                    self.dimensions.push((index, content.packed()?));
                }
            }
            field::SIMPLE_PRIMARY_KEY | field::PREFIXED_PRIMARY_KEY => {
                self.primary_key(kind, content, columns.len())?;
            }
            field::VISIBILITY => {
                let bits = content.take(columns.len().div_ceil(8))?;
                self.visible =
                    (0..columns.len()).map(|index| is_set_from_top(bits, index)).collect();
            }
            _ => {
                content.rest();
            }
        }
        Ok(())
    }

    fn signedness(
        &mut self,
        content: &mut Reader<'_>,
        columns: &[ColumnMap],
    ) -> Result<(), InvalidMetadata> {
        let numeric = indices(columns, ColumnMap::is_numeric);
        let bits = content.take(numeric.len().div_ceil(8))?;
        for (place, index) in numeric.into_iter().enumerate() {
            self.unsigned.push((index, is_set_from_top(bits, place)));
        }
        Ok(())
    }

    /// A collation for all, and exceptions by their place among the columns that it is about.
    fn default_collations(
        &mut self,
        kind: u8,
        content: &mut Reader<'_>,
        indices: &[usize],
    ) -> Result<(), InvalidMetadata> {
        let default = collation(content)?;
        self.collations.extend(indices.iter().map(|index| (*index, default)));
        while !content.is_empty() {
            let place = content.packed_length()?;
            let index = indices.get(place).ok_or(InvalidMetadata::Column(kind))?;
            self.collations.push((*index, collation(content)?));
        }
        Ok(())
    }

    fn collations_of(
        &mut self,
        content: &mut Reader<'_>,
        indices: Vec<usize>,
    ) -> Result<(), InvalidMetadata> {
        for index in indices {
            self.collations.push((index, collation(content)?));
        }
        Ok(())
    }

    fn labels_of(
        &mut self,
        content: &mut Reader<'_>,
        code: u8,
        columns: &[ColumnMap],
    ) -> Result<(), InvalidMetadata> {
        for index in indices(columns, |column| column.real_code() == code) {
            let count = content.packed_length()?;
            let mut labels = Vec::with_capacity(count.min(content.left()));
            for _ in 0..count {
                labels.push(content.packed_bytes()?.to_vec());
            }
            self.labels.push((index, labels));
        }
        Ok(())
    }

    fn primary_key(
        &mut self,
        kind: u8,
        content: &mut Reader<'_>,
        width: usize,
    ) -> Result<(), InvalidMetadata> {
        let mut key = Vec::new();
        while !content.is_empty() {
            let index = content.packed_length()?;
            let prefix = if kind == field::PREFIXED_PRIMARY_KEY { content.packed()? } else { 0 };
            if index >= width {
                return Err(InvalidMetadata::Column(kind));
            }
            key.push((index, prefix));
        }
        self.primary_key = Some(key);
        Ok(())
    }
}

fn collation(content: &mut Reader<'_>) -> Result<u32, InvalidMetadata> {
    u32::try_from(content.packed()?).map_err(|_| InvalidMetadata::Short)
}

fn indices(columns: &[ColumnMap], is_meant: impl Fn(&ColumnMap) -> bool) -> Vec<usize> {
    let meant = columns.iter().enumerate().filter(|(_, column)| is_meant(column));
    meant.map(|(index, _)| index).collect()
}

/// First bit in the highest place.
fn is_set_from_top(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (7 - index % 8) & 1 == 1)
}
