//! The types of the columns that the outlet creates.
//!
//! A key has to fit an index, and an index of InnoDB holds 3,072 bytes. A key column whose values have no known length
//! gets an equal share of what the others leave, as `varchar` or `varbinary`; a longer value is refused when it comes.
//! Everything else that is text goes into `longtext`, because the length of a row is limited as well.

use dovetail_core::schema::{Column, Relation};

use crate::outlet::Error;

/// Of an index of InnoDB, with the row format `DYNAMIC`.
const KEY_BYTES_MAX: usize = 3_072;
/// Four in utf8mb4.
const CHARACTER_BYTES_MAX: usize = 4;
/// Beyond that many bytes of `varchar` and the like in one row the rest is `longtext`: a row has at most 65,535.
pub(super) const ROW_BYTES_MAX: usize = 32_000;

/// What a column becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Made {
    /// A type of a known size, in bytes of a key.
    Fixed(String, usize),
    /// Text of at most that many characters.
    Short(usize),
    Text,
    Bytes,
}

impl Made {
    pub(super) fn fixed(name: impl Into<String>, key_bytes: usize) -> Self {
        Self::Fixed(name.into(), key_bytes)
    }
}

/// The type of every column, in their order.
///
/// # Errors
/// Definite for a key that has no place in an index.
pub(super) fn created(relation: &Relation, made: &[Made]) -> Result<Vec<String>, Error> {
    let key = |column: &usize| made.get(*column);
    let sized: usize = relation.key.iter().filter_map(key).filter_map(key_bytes).sum();
    let open = relation.key.iter().filter_map(key).filter(|made| key_bytes(made).is_none()).count();
    let share = KEY_BYTES_MAX.saturating_sub(sized) / open.max(1);
    if sized > KEY_BYTES_MAX || share < CHARACTER_BYTES_MAX {
        return Err(Error::definite(
            format!(
                "the key of {} is wider than the {KEY_BYTES_MAX} bytes of an index at the outlet",
                relation.table
            ),
            "give the source table a narrower key, or send the table to another outlet",
        ));
    }
    let mut row_bytes = 0;
    let kind = |(column, made): (usize, &Made)| {
        let is_key = relation.key.contains(&column);
        let (name, bytes) = match made {
            Made::Fixed(name, bytes) => {
                row_bytes += bytes;
                return name.clone();
            }
            Made::Short(length) => (format!("varchar({length})"), length * CHARACTER_BYTES_MAX),
            Made::Text if is_key => (format!("varchar({})", share / CHARACTER_BYTES_MAX), 0),
            Made::Bytes if is_key => (format!("varbinary({share})"), 0),
            Made::Text => ("longtext".to_owned(), 0),
            Made::Bytes => ("longblob".to_owned(), 0),
        };
        row_bytes += bytes;
        if is_key || row_bytes <= ROW_BYTES_MAX { name } else { "longtext".to_owned() }
    };
    Ok(made.iter().enumerate().map(kind).collect())
}

fn key_bytes(made: &Made) -> Option<usize> {
    match made {
        Made::Fixed(_, bytes) => Some(*bytes),
        Made::Short(length) => Some(length * CHARACTER_BYTES_MAX),
        Made::Text | Made::Bytes => None,
    }
}

/// What a column of PostgreSQL becomes. A type that MySQL has in a smaller range (it knows neither infinity nor a year
/// before the first nor a number that is none) is that type here, and what lies outside is refused: for nearly all
/// tables that is nothing, and a date that is text serves nobody.
pub(super) fn from_postgres(column: &Column) -> Made {
    match column.type_name.as_str() {
        "bool" => Made::fixed("tinyint(1)", 1),
        "int2" => Made::fixed("smallint", 2),
        "int4" => Made::fixed("int", 4),
        "int8" => Made::fixed("bigint", 8),
        "oid" | "xid" => Made::fixed("int unsigned", 4),
        "xid8" => Made::fixed("bigint unsigned", 8),
        "float4" => Made::fixed("float", 4),
        "float8" => Made::fixed("double", 8),
        "numeric" => match precision(column.type_modifier) {
            Some((precision, scale)) => Made::fixed(format!("decimal({precision},{scale})"), 30),
            None => Made::Text,
        },
        "uuid" => Made::Short(36),
        "date" => Made::fixed("date", 3),
        "time" => Made::fixed("time(6)", 6),
        "timestamp" | "timestamptz" => Made::fixed("datetime(6)", 8),
        "bytea" => Made::Bytes,
        _ => Made::Text,
    }
}

/// Digits and digits behind the point, where MySQL has as many and the digits of every value are fixed.
fn precision(modifier: i32) -> Option<(u32, u32)> {
    const HEADER: i32 = 4;
    let packed = u32::try_from(modifier.checked_sub(HEADER)?).ok()?;
    // PostgreSQL's scale has eleven bits and a sign; a negative one is beyond the limit as it stands.
    let (precision, scale) = (packed >> 16, packed & 0x7ff);
    ((1..=65).contains(&precision) && scale <= 30 && scale <= precision)
        .then_some((precision, scale))
}

#[cfg(test)]
mod tests {
    use dovetail_core::decode::types;
    use dovetail_core::schema::{Initial, RelationId, TableName};

    use super::*;

    fn columns(types: &[(&str, i32)], key: &[usize]) -> Result<Vec<String>, Error> {
        let column = |(index, (name, modifier)): (usize, &(&str, i32))| Column {
            name: format!("c{index}"),
            type_name: (*name).into(),
            type_modifier: *modifier,
            kind: types::kind(name),
            initial: Initial::Null,
            number: None,
        };
        let table = TableName { namespace: "public".into(), name: "t".into() };
        let columns: Vec<_> = types.iter().enumerate().map(column).collect();
        let made: Vec<_> = columns.iter().map(from_postgres).collect();
        created(&Relation::new(RelationId(1), table, columns, key.to_vec()), &made)
    }

    #[test]
    fn a_numeric_of_fixed_digits_is_a_decimal_and_any_other_is_text() {
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        for (modifier, expected) in [
            (modifier(10, 2), "decimal(10,2)"),
            (modifier(65, 30), "decimal(65,30)"),
            (modifier(5, 0), "decimal(5,0)"),
            (modifier(66, 2), "longtext"),
            (modifier(2, 5), "longtext"),
            (modifier(5, -2), "longtext"),
            (-1, "longtext"),
        ] {
            let types = columns(&[("numeric", modifier)], &[]).expect("types");
            assert_eq!(types, [expected], "{modifier}");
        }
    }

    #[test]
    fn text_in_a_key_has_a_share_of_the_index() {
        assert_eq!(columns(&[("text", -1)], &[0]).expect("types"), ["varchar(768)"]);
        assert_eq!(columns(&[("bytea", -1)], &[0]).expect("types"), ["varbinary(3072)"]);
        let two = columns(&[("text", -1), ("int8", -1), ("bytea", -1)], &[0, 1, 2]);
        assert_eq!(two.expect("types"), ["varchar(383)", "bigint", "varbinary(1532)"]);
        assert_eq!(
            columns(&[("text", -1), ("uuid", -1)], &[]).expect("types"),
            ["longtext", "varchar(36)"]
        );
    }
}
