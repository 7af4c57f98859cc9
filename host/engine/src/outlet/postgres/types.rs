//! The type of a column that the outlet creates.

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

/// A built-in type keeps its name, without a modifier: what `numeric(10,2)` held, `numeric` holds. `bit` without a
/// length would mean one bit, so it becomes `varbit`. A type of the source's own (enum, composite, an extension's) is
/// text here, and so is what is left.
pub(super) fn created_as(type_name: &str) -> String {
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
