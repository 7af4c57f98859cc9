//! The types of the columns that the outlet creates.
//!
//! A key has to fit an index, and an index of InnoDB holds 3,072 bytes. A key column whose values have no known length
//! gets an equal share of what the others leave, as `varchar` or `varbinary`; a longer value is refused when it comes.
//! Everything else that is text goes into `longtext`, because the length of a row is limited as well.

use dovetail_core::schema::{Column, Relation};

use crate::origin;
use crate::outlet::Error;
use crate::outlet::mysql_types::TypeName;
use crate::source::mysql::connection::Version;

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
    let of_key = || relation.key.iter().filter_map(key);
    let short: usize = of_key().filter_map(short_bytes).sum();
    let fixed: usize = of_key().filter_map(fixed_bytes).sum();
    // In utf8mb4 what is short at the source may be too much together; then it has a share as well.
    let shares_all = fixed + short > KEY_BYTES_MAX;
    let sized = if shares_all { fixed } else { fixed + short };
    let is_open = |made: &&Made| match made {
        Made::Fixed(..) => false,
        Made::Short(_) => shares_all,
        Made::Text | Made::Bytes => true,
    };
    let open = of_key().filter(is_open).count();
    let share = KEY_BYTES_MAX.saturating_sub(sized) / open.max(1);
    if sized > KEY_BYTES_MAX || (open > 0 && share < CHARACTER_BYTES_MAX) {
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
            Made::Short(_) if is_key && shares_all => {
                (format!("varchar({})", share / CHARACTER_BYTES_MAX), 0)
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

fn fixed_bytes(made: &Made) -> Option<usize> {
    if let Made::Fixed(_, bytes) = made { Some(*bytes) } else { None }
}

fn short_bytes(made: &Made) -> Option<usize> {
    if let Made::Short(length) = made { Some(length * CHARACTER_BYTES_MAX) } else { None }
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

/// What a column of MySQL or MariaDB becomes: the same type, in utf8mb4. Text of more than a line is `longtext`, because
/// more bytes may be needed than in the character set at the source. Types that one server has and the other lacks are text, or
/// bytes; the servers read each other's geometries with other axes, so between them these are bytes.
pub(super) fn from_mysql(column: &Column, from: origin::Kind, to: Version) -> Made {
    let Some(name) = TypeName::parse(&column.type_name) else { return Made::Text };
    let is_same_server = (from == origin::Kind::MariaDb) == to.maria_db;
    let length = |index: usize| {
        name.number(index).and_then(|length| usize::try_from(length).ok()).unwrap_or(1)
    };
    let as_it_is = |bytes: usize| Made::fixed(&column.type_name, bytes);
    match name.word {
        "tinyint" | "year" => as_it_is(1),
        "smallint" | "mediumint" | "int" | "float" | "date" => as_it_is(4),
        "bigint" | "double" | "time" | "datetime" | "timestamp" | "bit" | "set" | "enum" => {
            match name.labels.as_slice() {
                [] => as_it_is(8),
                labels => Made::fixed(format!("{}({})", name.word, quoted(labels)), 8),
            }
        }
        // MariaDB has more digits behind the point than MySQL.
        "decimal" if length(1) <= 30 || to.maria_db => as_it_is(30),
        "char" => as_it_is(length(0) * CHARACTER_BYTES_MAX),
        "varchar" if length(0) <= ROW_BYTES_MAX / CHARACTER_BYTES_MAX => Made::Short(length(0)),
        "binary" | "varbinary" if length(0) <= KEY_BYTES_MAX => as_it_is(length(0)),
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Made::Bytes,
        "json" if is_same_server && !to.maria_db => as_it_is(0),
        "geomcollection" if is_same_server => Made::fixed("geometrycollection", 0),
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection"
            if is_same_server =>
        {
            as_it_is(0)
        }
        "vector" if !to.maria_db || to.number >= (11, 7, 0) => as_it_is(0),
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geomcollection" | "geometrycollection" | "vector" => Made::Bytes,
        "uuid" if to.maria_db && to.number >= (10, 7, 0) => as_it_is(16),
        "inet6" if to.maria_db => as_it_is(16),
        "inet4" if to.maria_db && to.number >= (10, 10, 0) => as_it_is(4),
        "uuid" => Made::Short(36),
        "inet4" => Made::Short(15),
        "inet6" => Made::Short(45),
        _ => Made::Text,
    }
}

/// Labels as a literal has them where no backslash is special.
fn quoted(labels: &[String]) -> String {
    let labels: Vec<_> =
        labels.iter().map(|label| format!("'{}'", label.replace('\'', "''"))).collect();
    labels.join(",")
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
    fn a_type_of_the_same_kind_of_server_stays_as_it_is() {
        let mysql = Version { maria_db: false, number: (9, 7, 4) };
        let mariadb = Version { maria_db: true, number: (10, 11, 19) };
        for (name, from, to, expected) in [
            ("int unsigned", origin::Kind::MySql, mysql, "int unsigned"),
            ("decimal(65,38)", origin::Kind::MariaDb, mysql, "longtext"),
            ("datetime(6)", origin::Kind::MySql, mariadb, "datetime(6)"),
            ("enum('a','it''s','b\\\\c')", origin::Kind::MySql, mysql, "enum('a','it''s','b\\c')"),
            ("json", origin::Kind::MySql, mysql, "json"),
            ("json", origin::Kind::MySql, mariadb, "longtext"),
            ("point", origin::Kind::MySql, mysql, "point"),
            ("point", origin::Kind::MariaDb, mysql, "longblob"),
            ("vector(3)", origin::Kind::MySql, mariadb, "longblob"),
            ("uuid", origin::Kind::MariaDb, mariadb, "uuid"),
            ("uuid", origin::Kind::MariaDb, mysql, "varchar(36)"),
            ("mediumtext", origin::Kind::MySql, mysql, "longtext"),
            ("int) ENGINE=MyISAM", origin::Kind::MySql, mysql, "longtext"),
        ] {
            let column = Column {
                name: "c".into(),
                type_name: name.into(),
                type_modifier: -1,
                kind: dovetail_core::schema::Kind::Raw,
                initial: Initial::Null,
                number: None,
            };
            let table = TableName { namespace: "shop".into(), name: "t".into() };
            let made = [from_mysql(&column, from, to)];
            let relation = Relation::new(RelationId(1), table, vec![column], vec![]);
            assert_eq!(created(&relation, &made).expect("types"), [expected], "{name}");
        }
    }

    #[test]
    fn short_text_that_is_too_much_for_an_index_together_shares_it() {
        let table = TableName { namespace: "shop".into(), name: "t".into() };
        let made = [Made::Short(500), Made::Short(500), Made::fixed("int", 4)];
        let relation =
            Relation { key: vec![0, 1, 2], ..Relation::new(RelationId(1), table, vec![], vec![]) };
        let types = created(&relation, &made).expect("types");
        assert_eq!(types, ["varchar(383)", "varchar(383)", "int"]);
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
