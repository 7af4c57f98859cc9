//! Values as MySQL 9.7, MariaDB 10.11 and MariaDB 11.8 wrote and printed them.
//!
//! `vectors/cells.tsv` and `vectors/json.tsv` hold one value a line: the server; COLUMN_TYPE and CHARACTER_SET_NAME of the catalog; type code, metadata and
//! optional metadata of the table map; the cell's bytes; how the server printed it, and what it printed.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::decode::temporal::{MICROS_PER_DAY, civil_from_days};
use crate::schema::Kind;
use crate::value::{TemporalSpecial, Value};

const CELLS: &str = include_str!("vectors/cells.tsv");
const DOCUMENTS: &str = include_str!("vectors/json.tsv");
/// Both images of a row of a JSON and an INT column, the second with differences, and what the server printed after it.
const DIFFERENCES: &str = include_str!("vectors/diffs.tsv");

struct Vector {
    line: usize,
    server: Server,
    column_type: String,
    charset: Option<String>,
    code: u8,
    metadata: u16,
    optional: Vec<(u8, Vec<u8>)>,
    cell: Bytes,
    mode: String,
    printed: String,
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.strip_prefix('-').unwrap_or(text).as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn vectors(file: &str) -> Vec<Vector> {
    let line = |(index, line): (usize, &str)| {
        let fields: Vec<&str> = line.split('\t').collect();
        let optional = fields[5].split(',').filter_map(|field| field.split_once(':'));
        let mut metadata = hex(fields[4]);
        metadata.resize(2, 0);
        Vector {
            line: index + 1,
            server: if fields[0] == "mysql" { Server::MySql } else { Server::MariaDb },
            column_type: utf8(hex(fields[1])),
            charset: (fields[2] != "-").then(|| fields[2].to_owned()),
            code: fields[3].parse().unwrap(),
            metadata: u16::from_le_bytes([metadata[0], metadata[1]]),
            optional: optional.map(|(key, value)| (key.parse().unwrap(), hex(value))).collect(),
            cell: hex(fields[6]).into(),
            mode: fields[7].to_owned(),
            printed: utf8(hex(fields[8])),
        }
    };
    let vectors: Vec<Vector> = file.lines().enumerate().map(line).collect();
    assert!(vectors.len() > 100, "the file of vectors is not whole");
    vectors
}

/// A number in the protocol's variable form, and what follows it.
fn variable(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes[0] {
        252 => (u16::from_le_bytes([bytes[1], bytes[2]]).into(), &bytes[3..]),
        short => (short.into(), &bytes[1..]),
    }
}

fn labels(bytes: &[u8]) -> Vec<&[u8]> {
    let (count, mut rest) = variable(bytes);
    let mut labels = Vec::new();
    for _ in 0..count {
        let (length, tail) = variable(rest);
        let (label, tail) = tail.split_at(usize::try_from(length).unwrap());
        labels.push(label);
        rest = tail;
    }
    labels
}

impl Vector {
    /// The table map's fields for the column under test, which comes first.
    fn log_column(&self) -> LogColumn<'_> {
        let field = |key: u8| self.optional.iter().find(|(it, _)| *it == key).map(|(_, it)| &**it);
        let collation = [2, 3, 10, 11].into_iter().find_map(field);
        LogColumn {
            code: self.code,
            metadata: self.metadata,
            unsigned: field(1).map(|bits| bits[0] & 0x80 != 0),
            collation: collation.map(|bytes| u32::try_from(variable(bytes).0).unwrap()),
            labels: [5, 6].into_iter().find_map(field).map(labels),
            shape: field(7).map(|bytes| variable(bytes).0),
            dimensions: field(13).map(|bytes| variable(bytes).0),
        }
    }

    fn catalog_definition(&self) -> ColumnDefinition {
        let charset = self.charset.as_deref();
        ColumnDefinition::from_catalog("c", self.server, &self.column_type, charset)
            .unwrap_or_else(|error| panic!("line {}: {error}", self.line))
    }

    /// The definition to read the log by: the catalog's, in the layout of the log.
    fn definition(&self) -> ColumnDefinition {
        self.catalog_definition()
            .with_layout(self.code, self.metadata)
            .unwrap_or_else(|error| panic!("line {}: {error}", self.line))
    }

    /// MariaDB's log does not tell these from other types.
    fn is_hidden_in_the_log(&self) -> bool {
        let type_name = self.catalog_definition().type_name();
        let special = ["uuid", "inet4", "inet6", "vector"];
        self.server == Server::MariaDb
            && (special.iter().any(|it| type_name.starts_with(it))
                || matches!(self.code, layout::code::OLD_TIME..=layout::code::OLD_DATETIME)
                || self.code == layout::code::OLD_TIMESTAMP)
    }

    /// What a client gets of the printed value.
    fn client_cell(&self, definition: &ColumnDefinition) -> Cell {
        let bytes = |bytes: Vec<u8>| Cell::Bytes(bytes.into());
        let printed = &self.printed;
        match &definition.data_type {
            DataType::Integer { .. } | DataType::Year => match printed.parse() {
                Ok(number) => Cell::Int(number),
                Err(_) => Cell::Uint(printed.parse().unwrap()),
            },
            DataType::Float { .. } => Cell::Float(printed.parse().unwrap()),
            DataType::Double { .. } => Cell::Double(printed.parse().unwrap()),
            DataType::Date | DataType::DateTime { .. } | DataType::Timestamp { .. } => {
                client_date(printed)
            }
            DataType::Time { .. } => client_time(printed),
            DataType::Decimal { .. } | DataType::Uuid | DataType::Inet4 | DataType::Inet6 => {
                bytes(printed.clone().into_bytes())
            }
            // HEX() leaves out the zeros that a client gets.
            DataType::Bit { length } => {
                let digits = usize::try_from(length.div_ceil(8) * 2).unwrap();
                bytes(hex(&format!("{printed:0>digits$}")))
            }
            _ => bytes(hex(printed)),
        }
    }
}

fn client_date(printed: &str) -> Cell {
    let part = |range: std::ops::Range<usize>| printed.get(range).unwrap_or("0");
    Cell::Date {
        year: part(0..4).parse().unwrap(),
        month: part(5..7).parse().unwrap(),
        day: part(8..10).parse().unwrap(),
        hour: part(11..13).parse().unwrap(),
        minute: part(14..16).parse().unwrap(),
        second: part(17..19).parse().unwrap(),
        micros: micros(printed),
    }
}

fn client_time(printed: &str) -> Cell {
    let positive = printed.trim_start_matches('-');
    let whole = positive.split('.').next().unwrap();
    let parts: Vec<u32> = whole.split(':').map(|part| part.parse().unwrap()).collect();
    Cell::Time {
        negative: printed.starts_with('-'),
        days: parts[0] / 24,
        hours: (parts[0] % 24).try_into().unwrap(),
        minutes: parts[1].try_into().unwrap(),
        seconds: parts[2].try_into().unwrap(),
        micros: micros(printed),
    }
}

fn micros(printed: &str) -> u32 {
    let fraction = printed.split_once('.').map_or("", |(_, fraction)| fraction);
    format!("{fraction:0<6}").parse().unwrap()
}

/// As the servers print it, in the given number of digits behind the point.
fn print(value: &Value, fraction: usize) -> String {
    let clock = |micros: i64| {
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let digits = format!("{micros:06}");
        let point = if fraction > 0 { "." } else { "" };
        assert!(digits[fraction..].bytes().all(|digit| digit == b'0'), "{digits}");
        format!("{hours:02}:{minutes:02}:{seconds:02}{point}{}", &digits[..fraction])
    };
    let date = |days: i64| {
        let (year, month, day) = civil_from_days(days);
        format!("{year:04}-{month:02}-{day:02}")
    };
    match value {
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Decimal(text) | Value::Json(text) | Value::Text(text) | Value::Raw(text) => {
            text.to_string()
        }
        Value::Date(days) => date((*days).into()),
        Value::Timestamp(micros) | Value::TimestampTz(micros) => {
            let (days, micros) =
                (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
            format!("{} {}", date(days), clock(micros))
        }
        Value::Time(micros) => {
            let sign = if *micros < 0 { "-" } else { "" };
            format!("{sign}{}", clock(micros.abs()))
        }
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => text.to_string(),
        Value::Uuid(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
            groups.map(|group| digits[group].to_owned()).join("-")
        }
        other => panic!("{other:?}"),
    }
}

fn expect(vector: &Vector, definition: &ColumnDefinition, value: &Value) {
    let line = vector.line;
    let upper = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    match (vector.mode.as_str(), value) {
        ("float", Value::Float32(number)) => {
            let printed: f64 = vector.printed.parse().unwrap();
            assert_eq!(f64::from(*number).to_bits(), printed.to_bits(), "line {line}");
        }
        ("float", Value::Float64(number)) => {
            let printed: f64 = vector.printed.parse().unwrap();
            assert_eq!(number.to_bits(), printed.to_bits(), "line {line}");
        }
        ("bit", Value::Bits { length, bytes }) => {
            let number = u64::from_str_radix(&vector.printed, 16).unwrap();
            let shifted =
                bytes.iter().fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
            let unused = bytes.len() * 8 - usize::try_from(*length).unwrap();
            assert_eq!(shifted, u128::from(number) << unused, "line {line}");
        }
        ("bin", Value::Bytes(bytes)) => assert_eq!(upper(bytes), vector.printed, "line {line}"),
        ("str" | "enum" | "json", value) => {
            let printed = print(value, 0);
            assert_eq!(printed, utf8(hex(&vector.printed)), "line {line}");
        }
        ("dec", value) => {
            let printed = str::from_utf8(decimal::without_padding(vector.printed.as_bytes()));
            assert_eq!(print(value, 0), printed.unwrap(), "line {line}");
        }
        (_, value) => {
            let fraction = definition.data_type.fraction().unwrap_or_default();
            // YEAR and ZEROFILL print zeros that the number does not have.
            let number = vector.printed.trim_start_matches('0');
            let expected = match value {
                Value::Uint(0) | Value::Int(0) => "0",
                Value::Uint(_) => number,
                _ => &vector.printed,
            };
            assert_eq!(print(value, fraction.into()), expected, "line {line}");
        }
    }
}

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
    fn any_code_and_metadata_give_a_definition_or_an_error(
        code: u8, metadata: u16, unsigned: Option<bool>, collation in prop::option::of(0_u32..3_300), shape in prop::option::of(0_u64..10)
    ) {
        for server in [Server::MySql, Server::MariaDb] {
            let dimensions = shape;
            let labels = Some(vec![b"a".as_slice(), b"b"]);
            let column = LogColumn { code, metadata, unsigned, collation, labels, shape, dimensions };
            if let Ok(definition) = ColumnDefinition::from_log("c", server, &column) {
                prop_assert!(metadata_bytes(server, code).is_some());
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
