//! The type of a column that the outlet creates.

use crate::origin;
use crate::outlet::mysql_types::TypeName;

/// Types that every server from version 14 on has, and whose text any server reads. Not among them: what refers to
/// objects of the source's own server (`regclass` and its like, `aclitem`, `tid`), and what is output only.
const KEPT: [&str; 49] = [
    "bool",
    "bytea",
    "char",
    "name",
    "int8",
    "int2",
    "int4",
    "text",
    "oid",
    "xid",
    "xid8",
    "json",
    "xml",
    "point",
    "lseg",
    "path",
    "box",
    "polygon",
    "line",
    "circle",
    "float4",
    "float8",
    "money",
    "macaddr",
    "macaddr8",
    "inet",
    "cidr",
    "bpchar",
    "varchar",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "timetz",
    "varbit",
    "numeric",
    "uuid",
    "pg_lsn",
    "tsvector",
    "tsquery",
    "jsonb",
    "jsonpath",
    "int4range",
    "numrange",
    "tsrange",
    "tstzrange",
    "daterange",
    "int8range",
];

const MULTIRANGES: [&str; 6] = [
    "int4multirange",
    "nummultirange",
    "tsmultirange",
    "tstzmultirange",
    "datemultirange",
    "int8multirange",
];

/// The type for a column of a source of this kind.
pub(super) fn created_for(source: origin::Kind, type_name: &str) -> String {
    match source {
        origin::Kind::Postgres => created_as(type_name),
        origin::Kind::MySql | origin::Kind::MariaDb => match mysql_as(type_name) {
            Some(name) => format!("pg_catalog.{name}"),
            None => "pg_catalog.text".to_owned(),
        },
    }
}

/// A type of MySQL's or MariaDB's: the smallest that holds all its values. `time` is a duration of up to 838 hours there,
/// so it is an interval. `None`: text.
fn mysql_as(type_name: &str) -> Option<&'static str> {
    let name = TypeName::parse(type_name)?;
    Some(match (name.word, name.unsigned) {
        ("tinyint", _) | ("smallint", false) | ("year", _) => "int2",
        ("smallint", true) | ("mediumint", _) | ("int", false) => "int4",
        ("int", true) | ("bigint", false) => "int8",
        ("bigint", true) => "numeric(20)",
        ("decimal", _) => "\"numeric\"",
        ("float", _) => "float4",
        ("double", _) => "float8",
        ("date", _) => "date",
        ("datetime", _) => "\"timestamp\"",
        ("timestamp", _) => "timestamptz",
        ("time", _) => "\"interval\"",
        ("bit", _) => "varbit",
        ("json", _) => "\"json\"",
        ("uuid", _) => "uuid",
        ("inet4" | "inet6", _) => "inet",
        (
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "geometry"
            | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
            | "multipolygon" | "geomcollection" | "geometrycollection" | "vector",
            _,
        ) => "bytea",
        _ => return None,
    })
}

/// A built-in type keeps its name, without a modifier: what `numeric(10,2)` held, `numeric` holds. `bit` without a
/// length would mean one bit, so it becomes `varbit`. A type of the source's own (enum, composite, an extension's) is
/// text here, and so is what is left.
fn created_as(type_name: &str) -> String {
    let (array, element) = match type_name.strip_prefix('_') {
        Some(element) => ("_", element),
        None => ("", type_name),
    };
    match element {
        "bit" => format!("pg_catalog.{array}varbit"),
        element if KEPT.contains(&element) || MULTIRANGES.contains(&element) => {
            format!("pg_catalog.\"{array}{element}\"")
        }
        _ => "pg_catalog.text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_mysql_is_the_smallest_that_holds_its_values() {
        for (name, expected) in [
            ("tinyint(1)", "int2"),
            ("smallint unsigned", "int4"),
            ("int unsigned", "int8"),
            ("bigint unsigned", "numeric(20)"),
            ("time(6)", "\"interval\""),
            ("datetime", "\"timestamp\""),
            ("timestamp(3)", "timestamptz"),
            ("varchar(40)", "text"),
            ("enum('a','b')", "text"),
            ("vector(3)", "bytea"),
            ("int; DROP", "text"),
        ] {
            let created = created_for(origin::Kind::MySql, name);
            assert_eq!(created, format!("pg_catalog.{expected}"), "{name}");
        }
    }

    #[test]
    fn a_type_keeps_its_name_or_is_text() {
        assert_eq!(created_as("numeric"), "pg_catalog.\"numeric\"");
        assert_eq!(created_as("char"), "pg_catalog.\"char\"");
        assert_eq!(created_as("_text"), "pg_catalog.\"_text\"");
        assert_eq!(created_as("bit"), "pg_catalog.varbit");
        assert_eq!(created_as("_bit"), "pg_catalog._varbit");
        for text in ["public.mood", "_public.mood", "regclass", "aclitem", "int4; DROP"] {
            assert_eq!(created_as(text), "pg_catalog.text", "{text}");
        }
    }
}
