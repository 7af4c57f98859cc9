//! What the server's own reader of the log prints of a value.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};
use dovetail_core::schema::Kind;
use dovetail_core::value::Value;
use dovetail_tests::corpus::{Case, Fate, Subject};
use dovetail_tests::mysql::Version;
use dovetail_tests::mysql::printed::{Printed, Row};

/// How the server holds a value.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Of its bytes, in hexadecimal.
    pub(crate) digits: String,
    /// Of the label, or of all labels of a set.
    pub(crate) number: u64,
}

pub(crate) fn has_labels(subject: &Subject<'_>) -> bool {
    ["enum(", "set("].iter().any(|it| subject.series.sql_type.starts_with(it))
}

/// What the second reader cannot read: it prints compressed columns as they are, and MySQL's does not know geometry.
pub(crate) fn is_printed(subject: &Subject<'_>, version: Version) -> bool {
    let geometry = subject.cases.iter().any(|case| case.sql.starts_with("ST_Geom"));
    !subject.series.sql_type.contains("COMPRESSED")
        && (version.is_mariadb() || subject.series.kind != Kind::Bytes || !geometry)
}

/// Compares what the second reader says of the table's rows after the pin; how many images it printed.
pub(crate) fn check_printed(
    subject: &Subject<'_>,
    stored: &BTreeMap<usize, Stored>,
    rows: &[Row],
) -> Result<usize> {
    let mut by_id: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let image = row.after.as_ref().or(row.before.as_ref()).context("an image")?;
        let id = image.first().context("its number")?.text().parse()?;
        by_id.entry(id).or_default().push(row);
    }
    let mut compared = 0;
    for (id, fate, case, before) in subject.rows() {
        let (operation, old, new) = match fate {
            Fate::Stays => continue,
            Fate::Comes => ("insert", None, Some(Some(case))),
            Fate::Changes => ("update", Some(before), Some(Some(case))),
            Fate::Goes => ("delete", Some(Some(case)), None),
            Fate::IsTouched => ("update", Some(Some(case)), Some(Some(case))),
        };
        let [row] = by_id.remove(&id).unwrap_or_default()[..] else {
            let nothing = before.map(|it| &it.value) == case.text.is_some().then_some(&case.value);
            ensure!(matches!(fate, Fate::Changes) && nothing, "row {id} was not printed once");
            continue;
        };
        ensure!(row.op == operation, "row {id}: {} instead of {operation}", row.op);
        for (image, expected) in [(&row.before, old), (&row.after, new)] {
            let cell = image.as_ref().and_then(|image| image.get(1));
            let is_same = match (cell, expected) {
                (None, None) => true,
                (Some(cell), Some(None)) => cell.text() == "NULL",
                (Some(cell), Some(Some(case))) => {
                    let number = subject.cases.iter().position(|it| std::ptr::eq(*it, case));
                    let stored = number.and_then(|it| stored.get(&it)).context("the value")?;
                    is_as_printed(subject, case, stored, cell)
                }
                _ => false,
            };
            ensure!(is_same, "{operation} of row {id}, {}: {cell:?}", case.sql);
            compared += usize::from(cell.is_some());
        }
    }
    ensure!(by_id.is_empty(), "rows that were never written: {:?}", by_id.keys());
    Ok(compared)
}

/// The notation of the second reader.
fn is_as_printed(subject: &Subject<'_>, case: &Case, stored: &Stored, cell: &Printed) -> bool {
    let printed = cell.text();
    let text = case.text.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<f64>().ok();
    let quoted = || cell.bytes().unwrap_or_default();
    match &case.value {
        Value::Null => printed == "NULL",
        // The year without a date is printed as MariaDB counts its bytes.
        Value::Int(0) if subject.series.type_name == "year" => {
            ["0", "0000", "1900"].contains(&printed.as_str())
        }
        // Of a negative number, or one that would be if it had a sign, `-1 (255)`.
        Value::Int(_) | Value::Uint(_) => {
            let numbers = printed.split([' ', '(', ')']).filter_map(|it| it.parse::<i128>().ok());
            text.parse().is_ok_and(|value: i128| numbers.into_iter().any(|it| it == value))
        }
        Value::Float32(value) => is_near(number(&printed), *value),
        Value::Float64(value) => {
            number(&printed).is_some_and(|there| there.to_bits() == value.to_bits())
        }
        Value::Decimal(_) => printed.trim_start_matches('0') == text.trim_start_matches('0'),
        Value::Text(_) => upper_digits(&quoted()) == stored.digits,
        Value::Bytes(value) if printed.starts_with('[') => {
            let floats: Vec<_> = printed.trim_matches(['[', ']']).split(',').map(number).collect();
            let stored = value.chunks_exact(4).map(|it| it.try_into().map(f32::from_le_bytes));
            floats.len() * 4 == value.len()
                && floats
                    .iter()
                    .zip(stored)
                    .all(|(there, it)| it.is_ok_and(|it| is_near(*there, it)))
        }
        Value::Bytes(value) => {
            without_padding(subject, &quoted()) == without_padding(subject, value)
        }
        Value::Bits { .. } => printed == format!("b'{text}'"),
        // A document that is but a text is printed as that text.
        Value::Json(_) => {
            let inner = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            quoted() == inner.as_bytes()
        }
        Value::Date(_) => quoted() == text.replace('-', ":").as_bytes(),
        Value::Time(_) | Value::Timestamp(_) => quoted() == text.as_bytes(),
        Value::TimestampTz(micros) => {
            let (seconds, fraction) = printed.split_once('.').unwrap_or((&printed, ""));
            format!("{seconds}{fraction:0<6}").parse() == Ok(*micros)
        }
        Value::TemporalSpecial(_) => match subject.series.kind {
            Kind::Date => quoted() == text.replace('-', ":").as_bytes(),
            Kind::TimestampTz => printed.bytes().all(|byte| matches!(byte, b'0' | b'.')),
            _ => quoted() == text.as_bytes(),
        },
        Value::Uuid(value) => is_uuid_as_printed(*value, &quoted()),
        Value::Raw(_) if subject.series.sql_type.starts_with("enum(") => {
            printed == stored.number.to_string()
        }
        Value::Raw(_) if has_labels(subject) => set_bits(&printed) == Some(stored.number),
        Value::Raw(_) => {
            let v4 = text.parse::<Ipv4Addr>().map(|it| it.octets().to_vec());
            let octets = v4.or_else(|_| text.parse::<Ipv6Addr>().map(|it| it.octets().to_vec()));
            octets.is_ok_and(|octets| without_zeros(&octets) == without_zeros(&quoted()))
        }
        _ => false,
    }
}

/// Printed in six digits.
fn is_near(there: Option<f64>, value: f32) -> bool {
    let value = f64::from(value);
    there.is_some_and(|there| (there - value).abs() <= value.abs() * 1e-5)
}

fn upper_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.split_at(end).0
}

/// The log leaves out the padding of `binary(n)`.
fn without_padding<'a>(subject: &Subject<'_>, bytes: &'a [u8]) -> &'a [u8] {
    if subject.series.type_name.starts_with("binary(") { without_zeros(bytes) } else { bytes }
}

/// MariaDB stores some versions of UUIDs with their parts in the reverse order.
fn is_uuid_as_printed(value: [u8; 16], printed: &[u8]) -> bool {
    let parts = [10..16, 8..10, 6..8, 4..6, 0..4];
    let reversed: Vec<u8> = parts.into_iter().flat_map(|part| value[part].to_vec()).collect();
    [&value, &*reversed].iter().any(|it| without_zeros(it) == without_zeros(printed))
}

/// Of `b'...'`, in which the lowest byte of a set comes first.
fn set_bits(printed: &str) -> Option<u64> {
    let bits = printed.strip_prefix("b'")?.strip_suffix('\'')?;
    let bytes = bits
        .as_bytes()
        .chunks(8)
        .map(|byte| u64::from_str_radix(str::from_utf8(byte).ok()?, 2).ok());
    bytes.rev().try_fold(0, |set, byte| Some(set << 8 | byte?))
}
