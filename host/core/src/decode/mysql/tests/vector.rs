//! One value of the files of vectors, how to read it, and how the servers print it.

use bytes::Bytes;

use crate::decode::mysql::*;
use crate::decode::temporal::{MICROS_PER_DAY, civil_from_days};
use crate::value::{TemporalSpecial, Value};

pub(super) const CELLS: &str = include_str!("../vectors/cells.tsv");
pub(super) const DOCUMENTS: &str = include_str!("../vectors/json.tsv");
/// Both images of a row of a JSON and an INT column, the second with differences, and what the server printed after it.
pub(super) const DIFFERENCES: &str = include_str!("../vectors/diffs.tsv");

pub(super) struct Vector {
    pub(super) line: usize,
    pub(super) server: Server,
    pub(super) column_type: String,
    pub(super) charset: Option<String>,
    pub(super) code: u8,
    pub(super) metadata: u16,
    optional: Vec<(u8, Vec<u8>)>,
    pub(super) cell: Bytes,
    pub(super) mode: String,
    pub(super) printed: String,
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    let pairs = text.strip_prefix('-').unwrap_or(text).as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub(super) fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

pub(super) fn vectors(file: &str) -> Vec<Vector> {
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
    pub(super) fn log_column(&self) -> LogColumn<'_> {
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

    pub(super) fn catalog_definition(&self) -> ColumnDefinition {
        let charset = self.charset.as_deref();
        ColumnDefinition::from_catalog("c", self.server, &self.column_type, charset)
            .unwrap_or_else(|error| panic!("line {}: {error}", self.line))
    }

    /// The definition to read the log by: the catalog's, in the layout of the log.
    pub(super) fn definition(&self) -> ColumnDefinition {
        self.catalog_definition()
            .with_layout(self.code, self.metadata)
            .unwrap_or_else(|error| panic!("line {}: {error}", self.line))
    }

    /// MariaDB's log does not tell these from other types.
    pub(super) fn is_hidden_in_the_log(&self) -> bool {
        let type_name = self.catalog_definition().type_name();
        let special = ["uuid", "inet4", "inet6", "vector"];
        self.server == Server::MariaDb
            && (special.iter().any(|it| type_name.starts_with(it))
                || matches!(self.code, layout::code::OLD_TIME..=layout::code::OLD_DATETIME)
                || self.code == layout::code::OLD_TIMESTAMP)
    }

    /// What a client gets of the printed value.
    pub(super) fn client_cell(&self, definition: &ColumnDefinition) -> Cell {
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

pub(super) fn expect(vector: &Vector, definition: &ColumnDefinition, value: &Value) {
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
