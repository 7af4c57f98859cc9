//! Definitions of tables, and how batches name them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::SeqAccess;
use serde::ser::{Serialize, SerializeSeq, SerializeTupleStruct, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use super::array::{Array, Context, Elements, Optional, Str, next, next_by};
use super::{Malformed, tag as entry};
use crate::schema::{Column, Initial, Kind, Relation, RelationId, TableName};

/// Numbers of kinds of columns and of their initial values. They are in files: none is ever changed or given to another
/// case.
mod tag {
    pub(super) const BOOLEAN: u8 = 1;
    pub(super) const INT: u8 = 2;
    pub(super) const UINT: u8 = 3;
    pub(super) const FLOAT32: u8 = 4;
    pub(super) const FLOAT64: u8 = 5;
    pub(super) const DECIMAL: u8 = 6;
    pub(super) const TEXT: u8 = 7;
    pub(super) const BYTES: u8 = 8;
    pub(super) const JSON: u8 = 9;
    pub(super) const UUID: u8 = 10;
    pub(super) const DATE: u8 = 11;
    pub(super) const TIME: u8 = 12;
    pub(super) const TIME_TZ: u8 = 13;
    pub(super) const TIMESTAMP: u8 = 14;
    pub(super) const TIMESTAMP_TZ: u8 = 15;
    pub(super) const INTERVAL: u8 = 16;
    pub(super) const BITS: u8 = 17;
    pub(super) const RAW: u8 = 18;

    pub(super) const INITIAL_TEXT: u8 = 1;
    pub(super) const INITIAL_UNKNOWN: u8 = 2;
}

/// The fewest bytes that a column takes: array, two texts, modifier, kind, initial value, number.
const COLUMN_BYTES_MIN: usize = 7;

/// Of the MessagePack value of a definition's entry: what batches name the definition by. Equal ones have equal digests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn of_value(value: &[u8]) -> Self {
        Self(xxh3_64(value))
    }

    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }
}

/// The definitions that were written.
#[derive(Debug, Default)]
pub(super) struct Described {
    all: Vec<Written>,
    /// Places in `all`: more than one where definitions share id and version.
    places: BTreeMap<(RelationId, u32), Vec<usize>>,
}

#[derive(Debug)]
pub(super) struct Written {
    relation: Arc<Relation>,
    pub(super) digest: Digest,
    /// The latest batch that names it, and where in that one's list.
    pub(super) listed: Option<(u64, u32)>,
}

impl Described {
    pub(super) fn find(&mut self, relation: &Arc<Relation>) -> Option<&mut Written> {
        let places = self.places.get(&(relation.id, relation.version))?;
        let same = |place: &&usize| {
            let written = self.all.get(**place);
            written.is_some_and(|written| {
                Arc::ptr_eq(&written.relation, relation) || written.relation == *relation
            })
        };
        let place = *places.iter().find(same)?;
        let written = self.all.get_mut(place)?;
        if !Arc::ptr_eq(&written.relation, relation) {
            // So that the next look is at the address only.
            written.relation = Arc::clone(relation);
        }
        Some(written)
    }

    /// One that is not found.
    pub(super) fn add(&mut self, relation: &Arc<Relation>, digest: Digest) {
        let places = self.places.entry((relation.id, relation.version)).or_default();
        places.push(self.all.len());
        self.all.push(Written { relation: Arc::clone(relation), digest, listed: None });
    }
}

/// A definition as it is written.
pub(super) struct RelationForm<'a>(pub(super) &'a Relation);

impl Serialize for RelationForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Relation { id, version, table: TableName { namespace, name }, columns, key } = self.0;
        let mut array = serializer.serialize_tuple_struct("relation", 7)?;
        array.serialize_field(&entry::RELATION)?;
        array.serialize_field(&id.0)?;
        array.serialize_field(version)?;
        array.serialize_field(&Str(namespace))?;
        array.serialize_field(&Str(name))?;
        array.serialize_field(&Columns(columns))?;
        array.serialize_field(key)?;
        array.end()
    }
}

struct Columns<'a>(&'a [Column]);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(Some(self.0.len()))?;
        for column in self.0 {
            array.serialize_element(&ColumnForm(column))?;
        }
        array.end()
    }
}

struct ColumnForm<'a>(&'a Column);

impl Serialize for ColumnForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Column { name, type_name, type_modifier, kind, initial, number } = self.0;
        let initial = match initial {
            Initial::Null => None,
            initial => Some(InitialForm(initial)),
        };
        let mut array = serializer.serialize_tuple_struct("column", 6)?;
        array.serialize_field(&Str(name))?;
        array.serialize_field(&Str(type_name))?;
        array.serialize_field(type_modifier)?;
        array.serialize_field(&kind_tag(*kind))?;
        array.serialize_field(&initial)?;
        array.serialize_field(number)?;
        array.end()
    }
}

struct InitialForm<'a>(&'a Initial);

impl Serialize for InitialForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Initial::Null => serializer.serialize_none(),
            Initial::Text(text) => {
                let mut array = serializer.serialize_tuple_struct("initial", 2)?;
                array.serialize_field(&tag::INITIAL_TEXT)?;
                array.serialize_field(&Str(text))?;
                array.end()
            }
            Initial::Unknown => {
                let mut array = serializer.serialize_tuple_struct("initial", 1)?;
                array.serialize_field(&tag::INITIAL_UNKNOWN)?;
                array.end()
            }
        }
    }
}

fn kind_tag(kind: Kind) -> u8 {
    match kind {
        Kind::Boolean => tag::BOOLEAN,
        Kind::Int => tag::INT,
        Kind::Uint => tag::UINT,
        Kind::Float32 => tag::FLOAT32,
        Kind::Float64 => tag::FLOAT64,
        Kind::Decimal => tag::DECIMAL,
        Kind::Text => tag::TEXT,
        Kind::Bytes => tag::BYTES,
        Kind::Json => tag::JSON,
        Kind::Uuid => tag::UUID,
        Kind::Date => tag::DATE,
        Kind::Time => tag::TIME,
        Kind::TimeTz => tag::TIME_TZ,
        Kind::Timestamp => tag::TIMESTAMP,
        Kind::TimestampTz => tag::TIMESTAMP_TZ,
        Kind::Interval => tag::INTERVAL,
        Kind::Bits => tag::BITS,
        Kind::Raw => tag::RAW,
    }
}

fn kind(tag: u8) -> Option<Kind> {
    Some(match tag {
        tag::BOOLEAN => Kind::Boolean,
        tag::INT => Kind::Int,
        tag::UINT => Kind::Uint,
        tag::FLOAT32 => Kind::Float32,
        tag::FLOAT64 => Kind::Float64,
        tag::DECIMAL => Kind::Decimal,
        tag::TEXT => Kind::Text,
        tag::BYTES => Kind::Bytes,
        tag::JSON => Kind::Json,
        tag::UUID => Kind::Uuid,
        tag::DATE => Kind::Date,
        tag::TIME => Kind::Time,
        tag::TIME_TZ => Kind::TimeTz,
        tag::TIMESTAMP => Kind::Timestamp,
        tag::TIMESTAMP_TZ => Kind::TimestampTz,
        tag::INTERVAL => Kind::Interval,
        tag::BITS => Kind::Bits,
        tag::RAW => Kind::Raw,
        _ => return None,
    })
}

/// The elements of a definition behind its tag.
pub(super) fn read<'de, A: SeqAccess<'de>>(
    array: &mut A,
    context: Context<'_>,
) -> Result<Relation, A::Error> {
    let relation = Relation {
        id: RelationId(next(array)?),
        version: next(array)?,
        table: TableName { namespace: next(array)?, name: next(array)? },
        columns: next_by(array, Array(ColumnsOf(context)))?,
        key: next_by(array, Array(KeyOf(context)))?,
    };
    if relation.key.iter().any(|index| *index >= relation.columns.len()) {
        return Err(context.refuse(Malformed::Key { table: relation.table.to_string() }));
    }
    Ok(relation)
}

struct ColumnsOf<'a>(Context<'a>);

impl<'de> Elements<'de> for ColumnsOf<'_> {
    type Value = Vec<Column>;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Vec<Column>, A::Error> {
        let mut columns = Vec::with_capacity(self.0.room(array, COLUMN_BYTES_MIN));
        while let Some(column) = array.next_element_seed(Array(ColumnOf(self.0)))? {
            columns.push(column);
        }
        Ok(columns)
    }
}

struct ColumnOf<'a>(Context<'a>);

impl<'de> Elements<'de> for ColumnOf<'_> {
    type Value = Column;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Column, A::Error> {
        let context = self.0;
        let name = next(array)?;
        let type_name = next(array)?;
        let type_modifier = next(array)?;
        let tag = next(array)?;
        let kind = kind(tag).ok_or_else(|| context.unknown("kind of column", tag))?;
        let initial = next_by(array, Optional(InitialOf(context)))?.unwrap_or_default();
        Ok(Column { name, type_name, type_modifier, kind, initial, number: next(array)? })
    }
}

struct InitialOf<'a>(Context<'a>);

impl<'de> Elements<'de> for InitialOf<'_> {
    type Value = Initial;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Initial, A::Error> {
        Ok(match next(array)? {
            tag::INITIAL_TEXT => Initial::Text(next(array)?),
            tag::INITIAL_UNKNOWN => Initial::Unknown,
            unknown => return Err(self.0.unknown("initial value", unknown)),
        })
    }
}

struct KeyOf<'a>(Context<'a>);

impl<'de> Elements<'de> for KeyOf<'_> {
    type Value = Vec<usize>;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Vec<usize>, A::Error> {
        let mut key = Vec::with_capacity(self.0.room(array, 1));
        while let Some(index) = array.next_element()? {
            key.push(index);
        }
        Ok(key)
    }
}
