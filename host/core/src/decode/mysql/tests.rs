//! Values as MySQL 9.7, MariaDB 10.11 and MariaDB 11.8 wrote and printed them.
//!
//! `vectors/cells.tsv` and `vectors/json.tsv` hold one value a line: the server; COLUMN_TYPE and CHARACTER_SET_NAME of
//! the catalog; type code, metadata and optional metadata of the table map; the cell's bytes; how the server printed
//! it, and what it printed.

mod vector;

use bytes::Bytes;
use proptest::prelude::*;

use self::vector::{CELLS, DIFFERENCES, DOCUMENTS, expect, hex, utf8, vectors};
use super::*;
use crate::schema::Kind;
use crate::value::Value;

#[test]
fn every_value_of_the_log_is_what_the_server_prints() {
    for vector in vectors(CELLS).iter().chain(&vectors(DOCUMENTS)) {
        let definition = vector.definition();
        let (value, end) = cell(&definition, &vector.cell, 0)
            .unwrap_or_else(|error| panic!("line {}: {error}", vector.line));
        assert_eq!(end, vector.cell.len(), "line {}", vector.line);
        expect(vector, &definition, &value);
        assert!(fits_kind(definition.kind(), &value), "line {}: {value:?}", vector.line);
    }
}

fn fits_kind(kind: Kind, value: &Value) -> bool {
    match value {
        Value::Int(_) => kind == Kind::Int,
        Value::Uint(_) => kind == Kind::Uint,
        Value::Float32(_) => kind == Kind::Float32,
        Value::Float64(_) => kind == Kind::Float64,
        Value::Decimal(_) => kind == Kind::Decimal,
        Value::Text(_) => kind == Kind::Text,
        Value::Bytes(_) => kind == Kind::Bytes,
        Value::Json(_) => kind == Kind::Json,
        Value::Uuid(_) => kind == Kind::Uuid,
        Value::Date(_) => kind == Kind::Date,
        Value::Time(_) => kind == Kind::Time,
        Value::Timestamp(_) => kind == Kind::Timestamp,
        Value::TimestampTz(_) => kind == Kind::TimestampTz,
        Value::Bits { .. } => kind == Kind::Bits,
        Value::Raw(_) => kind == Kind::Raw,
        Value::TemporalSpecial(_) => {
            matches!(kind, Kind::Date | Kind::Timestamp | Kind::TimestampTz)
        }
        _ => false,
    }
}

#[test]
fn a_scanned_value_equals_the_streamed_one() {
    for vector in vectors(CELLS).iter().chain(&vectors(DOCUMENTS)) {
        let definition = vector.definition();
        // Text is in the column's own character set, which only the log's bytes show.
        let is_own = definition.kind() == Kind::Text || vector.mode == "enum";
        if is_own && !matches!(vector.charset.as_deref(), Some("utf8mb4" | "utf8mb3")) {
            continue;
        }
        let (streamed, _) = cell(&definition, &vector.cell, 0).unwrap();
        let scanned = from_result(&definition, vector.client_cell(&definition));
        assert_eq!(scanned, Ok(streamed), "line {}", vector.line);
    }
}

#[test]
fn the_log_and_the_catalog_give_the_same_definition() {
    for vector in vectors(CELLS).iter().chain(&vectors(DOCUMENTS)) {
        let from_catalog = vector.definition();
        let from_log = ColumnDefinition::from_log("c", vector.server, &vector.log_column());
        if vector.is_hidden_in_the_log() {
            assert_ne!(from_log, Ok(from_catalog), "line {}", vector.line);
            continue;
        }
        assert_eq!(from_log, Ok(from_catalog), "line {}", vector.line);
    }
}

#[test]
fn a_type_name_is_the_server_s_without_what_the_log_does_not_know() {
    for vector in vectors(CELLS) {
        let name = vector.catalog_definition().type_name();
        let declared = vector.column_type.split(" /*").next().unwrap();
        if declared.contains(['(', ' ']) && !declared.starts_with("decimal") && name != declared {
            // Display widths and zerofill.
            let plain =
                ["tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "year"];
            assert!(plain.iter().any(|it| name.starts_with(it)), "{name} of {declared}");
            assert!(!name.contains('('), "{name} of {declared}");
        } else {
            assert_eq!(name, declared.replace(" zerofill", ""));
        }
    }
}

#[test]
fn a_catalog_s_record_is_refused_for_bytes_of_another_type() {
    let of = |column_type: &str, code: u8, metadata: u16| {
        ColumnDefinition::from_catalog("c", Server::MySql, column_type, Some("utf8mb4"))
            .unwrap()
            .with_layout(code, metadata)
    };
    assert!(of("int", layout::code::LONG, 0).is_ok());
    assert!(of("int", layout::code::LONG_LONG, 0).is_err());
    assert!(of("varchar(10)", layout::code::VARCHAR, 40).is_ok());
    assert!(of("varchar(10)", layout::code::VARCHAR, 44).is_err());
    assert!(of("decimal(10,2)", layout::code::DECIMAL, 0x030a).is_err());
    assert!(of("datetime(3)", layout::code::DATETIME, 0).is_err());
    assert!(of("datetime(3)", layout::code::OLD_DATETIME, 0).is_err());
    assert!(of("text", layout::code::BLOB, 3).is_err());
    let misfit = of("text", layout::code::BLOB, 3).unwrap_err().to_string();
    assert!(misfit.starts_with("column c is text in the catalog"), "{misfit}");
}

#[test]
fn minimal_metadata_asks_for_the_catalog() {
    let column = |code| LogColumn { code, ..LogColumn::default() };
    for code in [layout::code::LONG, layout::code::VARCHAR, layout::code::DECIMAL] {
        let defined = ColumnDefinition::from_log("c", Server::MySql, &column(code));
        assert!(matches!(defined, Err(Undefined::NeedsCatalog { .. })), "{defined:?}");
    }
    let json = LogColumn { code: layout::code::JSON, metadata: 4, ..LogColumn::default() };
    assert!(ColumnDefinition::from_log("c", Server::MySql, &json).is_ok());
    let defined = ColumnDefinition::from_log("c", Server::MariaDb, &json);
    assert!(matches!(defined, Err(Undefined::Unknown { code: 245, .. })), "{defined:?}");
}

#[test]
fn an_error_names_the_column_and_its_type_and_no_value() {
    let definition =
        ColumnDefinition::from_catalog("secret", Server::MySql, "varchar(10)", Some("ascii"))
            .unwrap();
    let error = cell(&definition, &Bytes::from_static(b"\x03ab\xff"), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column secret of type varchar(10): bytes that are no text in the character set ascii"
    );
}

#[test]
fn text_that_is_utf_8_shares_the_event_s_buffer() {
    let definition =
        ColumnDefinition::from_catalog("c", Server::MySql, "varchar(10)", Some("utf8mb4")).unwrap();
    let event = Bytes::from_static(b"..\x03abc");
    let (value, end) = cell(&definition, &event, 2).unwrap();
    let Value::Text(text) = value else { panic!("{value:?}") };
    assert_eq!((&*text, end), ("abc", 6));
    assert_eq!(text.as_bytes().as_ptr(), event[3..].as_ptr());
}

fn columns(types: &[&str]) -> Vec<ColumnDefinition> {
    let one = |column_type: &&str| {
        ColumnDefinition::from_catalog("c", Server::MySql, column_type, Some("utf8mb4")).unwrap()
    };
    types.iter().map(one).collect()
}

#[test]
fn an_absent_column_is_unavailable_and_shifts_nothing() {
    let columns = columns(&["int", "tinyint", "varchar(5)", "tinyint"]);
    // The second and the fourth are there, the fourth is null.
    let buffer = Bytes::from_static(&[0b10, 7, 99]);
    let (row, end) = image(&columns, Bitmap(&[0b1010]), &buffer, 0).unwrap();
    assert_eq!(row.values(), [Value::Unavailable, Value::Int(7), Value::Unavailable, Value::Null]);
    assert_eq!(end, 2);
    let short = image(&columns, Bitmap(&[0b1111]), &buffer, 0);
    assert!(matches!(short, Err(InvalidImage::Cell(_))), "{short:?}");
    assert_eq!(image(&columns, Bitmap(&[0xff]), &buffer, 3), Err(InvalidImage::Head));
}

#[test]
fn differences_make_the_document_that_the_server_made() {
    let columns = columns(&["json", "int"]);
    let both = Bitmap(&[0b11]);
    let mut updates = 0;
    for (index, line) in DIFFERENCES.lines().enumerate() {
        let (images, printed) = line.split_once('\t').unwrap();
        let images = Bytes::from(hex(images));
        let (_, after, end) = partial_images(&columns, both, both, &images, 0)
            .unwrap_or_else(|error| panic!("line {}: {error}", index + 1));
        assert_eq!(end, images.len());
        let expected = Value::Json(utf8(hex(printed)).into());
        assert_eq!(after.get(0), Some(&expected), "line {}", index + 1);
        updates += 1;
    }
    assert!(updates > 30);
}

#[test]
fn a_difference_without_the_document_before_it_is_an_error() {
    let columns = columns(&["json", "int"]);
    let images = DIFFERENCES.lines().next().unwrap().split('\t').next().unwrap();
    let images = hex(images);
    // The first image with the number only: nulls, and its last four bytes.
    let length = usize::try_from(u32::from_le_bytes(images[1..5].try_into().unwrap())).unwrap();
    let without = Bytes::from([&[0], &images[5 + length..]].concat());
    let result = partial_images(&columns, Bitmap(&[0b10]), Bitmap(&[0b11]), &without, 0);
    let Err(InvalidImage::Cell(error)) = result else { panic!("{result:?}") };
    assert_eq!(error.reason, Reason::Json(json::Invalid::Difference));
}

/// One definition of every layout.
fn one_of_each() -> Vec<ColumnDefinition> {
    let mut seen = Vec::new();
    for vector in vectors(CELLS).iter().chain(&vectors(DOCUMENTS)) {
        let definition = vector.definition();
        if !seen.contains(&definition) {
            seen.push(definition);
        }
    }
    seen
}

proptest! {
    #[test]
    fn any_bytes_give_values_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        thread_local! {
            static DEFINITIONS: Vec<ColumnDefinition> = one_of_each();
        }
        let bytes = Bytes::from(bytes);
        DEFINITIONS.with(|definitions| {
            for definition in definitions {
                if let Ok((_, end)) = cell(definition, &bytes, 0) {
                    assert!(end <= bytes.len());
                }
            }
            let all = [0xff; 200];
            for definitions in definitions.chunks(7) {
                drop(image(definitions, Bitmap(&all), &bytes, 0));
                drop(partial_images(definitions, Bitmap(&all), Bitmap(&all), &bytes, 0));
            }
        });
    }

    #[test]
    fn a_damaged_value_gives_a_value_or_an_error(
        line in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        thread_local! {
            static VECTORS: Vec<vector::Vector> = vectors(DOCUMENTS);
        }
        VECTORS.with(|vectors| {
            let vector = line.get(vectors);
            let mut bytes = vector.cell.to_vec();
            for (place, byte) in changes {
                *place.get_mut(&mut bytes) = byte;
            }
            // Its length stays, so that the damage is inside the document.
            let length = vector.cell.len().min(4);
            bytes[..length].copy_from_slice(&vector.cell[..length]);
            drop(cell(&vector.definition(), &bytes.into(), 0));
        });
    }

    #[test]
    fn damaged_differences_give_a_document_or_an_error(
        line in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let lines: Vec<&str> = DIFFERENCES.lines().collect();
        let mut images = hex(line.get(&lines).split('\t').next().unwrap());
        for (place, byte) in changes {
            *place.get_mut(&mut images) = byte;
        }
        let both = Bitmap(&[0b11]);
        drop(partial_images(&columns(&["json", "int"]), both, both, &images.into(), 0));
    }

    #[test]
    fn any_code_and_metadata_give_a_definition_or_an_error(
        code: u8, metadata: u16, unsigned: Option<bool>, collation in prop::option::of(0_u32..3_300), shape in prop::option::of(0_u64..10)
    ) {
        for server in [Server::MySql, Server::MariaDb] {
            let dimensions = shape;
            let labels = Some(vec![b"a".as_slice(), b"b"]);
            let column = LogColumn { code, metadata, unsigned, collation, labels, shape, dimensions };
            if let Ok(definition) = ColumnDefinition::from_log("c", server, &column) {
                let name = definition.type_name();
                let charset = Some("binary");
                let again = ColumnDefinition::from_catalog("c", server, &name, charset);
                prop_assert_eq!(again.map(|it| it.type_name()), Ok(name));
            }
        }
    }

    #[test]
    fn any_catalog_text_gives_a_definition_or_an_error(text in "[a-z0-9(),' /*]{0,30}") {
        drop(ColumnDefinition::from_catalog("c", Server::MariaDb, &text, None));
        drop(ColumnDefinition::from_catalog("c", Server::MySql, &text, Some("latin1")));
    }
}
