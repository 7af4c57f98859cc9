//! Which type a column has: its name, and the kind of value that its text becomes.
//!
//! The stream names a built-in type by its OID alone and sends a `Type` message for any other; the catalog gives OID,
//! schema and name. Both go through [`named`], so that the scan and the stream describe a column alike. A domain
//! arrives under the name of its base type (pgoutput resolves it, the catalog query has to), and a base type in
//! `pg_catalog` is built in again, so that a domain over `int4` is an `int4`.

use crate::schema::Kind;

/// A type as a [`Column`](crate::schema::Column) has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Type {
    pub name: String,
    pub kind: Kind,
}

/// A built-in type by its OID, which is fixed for ever. `None` above the range of built-in OIDs, for pseudo-types, and
/// for what a server newer than this table has.
pub fn built_in(oid: u32) -> Option<Type> {
    let index = BUILT_IN.binary_search_by_key(&oid, |(oid, _)| *oid).ok()?;
    let (_, name) = BUILT_IN.get(index)?;
    Some(Type { name: (*name).to_owned(), kind: kind(name) })
}

/// A type by its schema and name, as a `Type` message or the catalog gives them: of a domain, those of its base type.
/// pgoutput writes `pg_catalog` as the empty string.
pub fn named(namespace: &str, name: &str) -> Type {
    match namespace {
        "" | "pg_catalog" => Type { name: name.to_owned(), kind: kind(name) },
        _ => Type { name: format!("{namespace}.{name}"), kind: Kind::Raw },
    }
}

/// Of a name as [`Column::type_name`](crate::schema::Column::type_name) has it. Everything without a kind of its own is
/// `Raw`: arrays (`_int4`), ranges, network and geometric types, money, xml, and every type with a schema.
pub fn kind(type_name: &str) -> Kind {
    match type_name {
        "bool" => Kind::Boolean,
        "int2" | "int4" | "int8" => Kind::Int,
        "oid" | "xid" | "xid8" => Kind::Uint,
        "float4" => Kind::Float32,
        "float8" => Kind::Float64,
        "numeric" => Kind::Decimal,
        "text" | "varchar" | "bpchar" | "name" | "char" => Kind::Text,
        "bytea" => Kind::Bytes,
        "json" | "jsonb" => Kind::Json,
        "uuid" => Kind::Uuid,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "timetz" => Kind::TimeTz,
        "timestamp" => Kind::Timestamp,
        "timestamptz" => Kind::TimestampTz,
        "interval" => Kind::Interval,
        "bit" | "varbit" => Kind::Bits,
        _ => Kind::Raw,
    }
}

/// What a column can be of `pg_type` below OID 10,000, ascending; the same from PostgreSQL 14 to 18.
const BUILT_IN: &[(u32, &str)] = &[
    (16, "bool"),
    (17, "bytea"),
    (18, "char"),
    (19, "name"),
    (20, "int8"),
    (21, "int2"),
    (22, "int2vector"),
    (23, "int4"),
    (24, "regproc"),
    (25, "text"),
    (26, "oid"),
    (27, "tid"),
    (28, "xid"),
    (29, "cid"),
    (30, "oidvector"),
    (71, "pg_type"),
    (75, "pg_attribute"),
    (81, "pg_proc"),
    (83, "pg_class"),
    (114, "json"),
    (142, "xml"),
    (143, "_xml"),
    (194, "pg_node_tree"),
    (199, "_json"),
    (210, "_pg_type"),
    (270, "_pg_attribute"),
    (271, "_xid8"),
    (272, "_pg_proc"),
    (273, "_pg_class"),
    (600, "point"),
    (601, "lseg"),
    (602, "path"),
    (603, "box"),
    (604, "polygon"),
    (628, "line"),
    (629, "_line"),
    (650, "cidr"),
    (651, "_cidr"),
    (700, "float4"),
    (701, "float8"),
    (718, "circle"),
    (719, "_circle"),
    (774, "macaddr8"),
    (775, "_macaddr8"),
    (790, "money"),
    (791, "_money"),
    (829, "macaddr"),
    (869, "inet"),
    (1_000, "_bool"),
    (1_001, "_bytea"),
    (1_002, "_char"),
    (1_003, "_name"),
    (1_005, "_int2"),
    (1_006, "_int2vector"),
    (1_007, "_int4"),
    (1_008, "_regproc"),
    (1_009, "_text"),
    (1_010, "_tid"),
    (1_011, "_xid"),
    (1_012, "_cid"),
    (1_013, "_oidvector"),
    (1_014, "_bpchar"),
    (1_015, "_varchar"),
    (1_016, "_int8"),
    (1_017, "_point"),
    (1_018, "_lseg"),
    (1_019, "_path"),
    (1_020, "_box"),
    (1_021, "_float4"),
    (1_022, "_float8"),
    (1_027, "_polygon"),
    (1_028, "_oid"),
    (1_033, "aclitem"),
    (1_034, "_aclitem"),
    (1_040, "_macaddr"),
    (1_041, "_inet"),
    (1_042, "bpchar"),
    (1_043, "varchar"),
    (1_082, "date"),
    (1_083, "time"),
    (1_114, "timestamp"),
    (1_115, "_timestamp"),
    (1_182, "_date"),
    (1_183, "_time"),
    (1_184, "timestamptz"),
    (1_185, "_timestamptz"),
    (1_186, "interval"),
    (1_187, "_interval"),
    (1_231, "_numeric"),
    (1_248, "pg_database"),
    (1_263, "_cstring"),
    (1_266, "timetz"),
    (1_270, "_timetz"),
    (1_560, "bit"),
    (1_561, "_bit"),
    (1_562, "varbit"),
    (1_563, "_varbit"),
    (1_700, "numeric"),
    (1_790, "refcursor"),
    (2_201, "_refcursor"),
    (2_202, "regprocedure"),
    (2_203, "regoper"),
    (2_204, "regoperator"),
    (2_205, "regclass"),
    (2_206, "regtype"),
    (2_207, "_regprocedure"),
    (2_208, "_regoper"),
    (2_209, "_regoperator"),
    (2_210, "_regclass"),
    (2_211, "_regtype"),
    (2_842, "pg_authid"),
    (2_843, "pg_auth_members"),
    (2_949, "_txid_snapshot"),
    (2_950, "uuid"),
    (2_951, "_uuid"),
    (2_970, "txid_snapshot"),
    (3_220, "pg_lsn"),
    (3_221, "_pg_lsn"),
    (3_361, "pg_ndistinct"),
    (3_402, "pg_dependencies"),
    (3_614, "tsvector"),
    (3_615, "tsquery"),
    (3_642, "gtsvector"),
    (3_643, "_tsvector"),
    (3_644, "_gtsvector"),
    (3_645, "_tsquery"),
    (3_734, "regconfig"),
    (3_735, "_regconfig"),
    (3_769, "regdictionary"),
    (3_770, "_regdictionary"),
    (3_802, "jsonb"),
    (3_807, "_jsonb"),
    (3_904, "int4range"),
    (3_905, "_int4range"),
    (3_906, "numrange"),
    (3_907, "_numrange"),
    (3_908, "tsrange"),
    (3_909, "_tsrange"),
    (3_910, "tstzrange"),
    (3_911, "_tstzrange"),
    (3_912, "daterange"),
    (3_913, "_daterange"),
    (3_926, "int8range"),
    (3_927, "_int8range"),
    (4_066, "pg_shseclabel"),
    (4_072, "jsonpath"),
    (4_073, "_jsonpath"),
    (4_089, "regnamespace"),
    (4_090, "_regnamespace"),
    (4_096, "regrole"),
    (4_097, "_regrole"),
    (4_191, "regcollation"),
    (4_192, "_regcollation"),
    (4_451, "int4multirange"),
    (4_532, "nummultirange"),
    (4_533, "tsmultirange"),
    (4_534, "tstzmultirange"),
    (4_535, "datemultirange"),
    (4_536, "int8multirange"),
    (4_600, "pg_brin_bloom_summary"),
    (4_601, "pg_brin_minmax_multi_summary"),
    (5_017, "pg_mcv_list"),
    (5_038, "pg_snapshot"),
    (5_039, "_pg_snapshot"),
    (5_069, "xid8"),
    (6_101, "pg_subscription"),
    (6_150, "_int4multirange"),
    (6_151, "_nummultirange"),
    (6_152, "_tsmultirange"),
    (6_153, "_tstzmultirange"),
    (6_155, "_datemultirange"),
    (6_157, "_int8multirange"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_built_in_types_is_ascending() {
        assert!(BUILT_IN.is_sorted_by(|(left, _), (right, _)| left < right));
    }

    #[test]
    fn a_domain_over_a_built_in_type_is_that_type() {
        let int4 = built_in(23).expect("int4");
        assert_eq!(int4, Type { name: "int4".into(), kind: Kind::Int });
        assert_eq!(named("", "int4"), int4);
        assert_eq!(named("pg_catalog", "int4"), int4);
    }

    #[test]
    fn a_type_of_a_schema_is_raw_even_under_a_built_in_name() {
        assert_eq!(named("public", "int4"), Type { name: "public.int4".into(), kind: Kind::Raw });
        assert_eq!(built_in(1007), Some(Type { name: "_int4".into(), kind: Kind::Raw }));
    }

    #[test]
    fn an_unknown_or_pseudo_type_is_not_built_in() {
        for oid in [0, 2278, 9_999, 16_384, u32::MAX] {
            assert_eq!(built_in(oid), None, "{oid}");
        }
    }
}
