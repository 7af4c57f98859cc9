//! PostgreSQL's text form of a value: what an outlet sends, and what [`text`](super::text) reads back to an equal value.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::temporal::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days};
use crate::value::{TemporalSpecial, Value};

/// A value on its way out. Three cases, so that nobody writes a null for what is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printed<'a> {
    Null,
    Unavailable,
    Text(Cow<'a, str>),
}

/// Text that the value already is, is borrowed.
pub fn text(value: &Value) -> Printed<'_> {
    match value {
        Value::Null => Printed::Null,
        Value::Unavailable => Printed::Unavailable,
        Value::Boolean(true) => Printed::Text("t".into()),
        Value::Boolean(false) => Printed::Text("f".into()),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) | Value::Raw(text) => {
            Printed::Text(text.as_str().into())
        }
        Value::TemporalSpecial(TemporalSpecial::Infinity) => Printed::Text("infinity".into()),
        Value::TemporalSpecial(TemporalSpecial::NegativeInfinity) => {
            Printed::Text("-infinity".into())
        }
        Value::TemporalSpecial(TemporalSpecial::Literal(text)) => {
            Printed::Text(text.as_str().into())
        }
        formatted => {
            let mut text = String::new();
            write(formatted, &mut text).expect("a string takes everything");
            Printed::Text(text.into())
        }
    }
}

fn write(value: &Value, out: &mut String) -> fmt::Result {
    match value {
        Value::Int(number) => write!(out, "{number}"),
        Value::Uint(number) => write!(out, "{number}"),
        Value::Float32(number) if number.is_finite() => {
            write_float(format_args!("{number:e}"), FLOAT32_DIGITS, out)
        }
        Value::Float64(number) if number.is_finite() => {
            write_float(format_args!("{number:e}"), FLOAT64_DIGITS, out)
        }
        Value::Float32(number) => write_not_finite(f64::from(*number), out),
        Value::Float64(number) => write_not_finite(*number, out),
        Value::Bytes(bytes) => {
            out.reserve(2 + 2 * bytes.len());
            out.push_str("\\x");
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Value::Uuid(uuid) => write_uuid(uuid, out),
        Value::Date(days) => {
            let before_christ = write_date(i64::from(*days), out)?;
            out.write_str(before_christ)
        }
        // MySQL's is a duration, and may be negative.
        Value::Time(micros) => {
            if *micros < 0 {
                out.push('-');
            }
            write_time(micros.unsigned_abs(), out)
        }
        Value::TimeTz { micros, offset_seconds } => {
            write_time(micros.unsigned_abs(), out)?;
            write_offset(*offset_seconds, out)
        }
        Value::Timestamp(micros) => write_timestamp(*micros, "", out),
        Value::TimestampTz(micros) => write_timestamp(*micros, "+00", out),
        Value::Interval { months, days, micros } => write_interval(*months, *days, *micros, out),
        Value::Bits { length, bytes } => {
            let bits = bytes.iter().flat_map(|byte| (0..8).map(move |place| byte << place & 0x80));
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            out.extend(bits.take(length).map(|bit| if bit == 0 { '0' } else { '1' }));
            Ok(())
        }
        // These are text already, or have none.
        Value::Null
        | Value::Unavailable
        | Value::Boolean(_)
        | Value::Decimal(_)
        | Value::Text(_)
        | Value::Json(_)
        | Value::Raw(_)
        | Value::TemporalSpecial(_) => Ok(()),
    }
}

/// Decimal digits that a float of this width always holds; from this power of ten on PostgreSQL prints an exponent.
const FLOAT32_DIGITS: i32 = 6;
const FLOAT64_DIGITS: i32 = 15;

/// From the shortest digits that read back exactly, with an exponent where PostgreSQL prints one.
fn write_float(scientific: fmt::Arguments<'_>, digits_max: i32, out: &mut String) -> fmt::Result {
    let scientific = scientific.to_string();
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    out.push_str(sign);
    if exponent < -4 || exponent >= digits_max {
        let direction = if exponent < 0 { '-' } else { '+' };
        return write!(out, "{mantissa}e{direction}{:02}", exponent.unsigned_abs());
    }
    let digits = mantissa.replace('.', "");
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
        return write!(out, "0.{}{digits}", "0".repeat(zeros));
    };
    match digits.split_at_checked(whole) {
        Some((before, "")) => out.write_str(before),
        Some(("", after)) => write!(out, "0.{after}"),
        Some((before, after)) => write!(out, "{before}.{after}"),
        None => write!(out, "{digits:0<whole$}"),
    }
}

fn write_not_finite(number: f64, out: &mut String) -> fmt::Result {
    out.write_str(if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    })
}

fn write_uuid(uuid: &[u8; 16], out: &mut String) -> fmt::Result {
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        write!(out, "{byte:02x}")?;
    }
    Ok(())
}

/// Returns the era's mark, which stands behind the time and the zone.
fn write_date(days: i64, out: &mut String) -> Result<&'static str, fmt::Error> {
    let (year, month, day) = civil_from_days(days);
    let (year, mark) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    write!(out, "{year:04}-{month:02}-{day:02}")?;
    Ok(mark)
}

fn write_timestamp(micros: i64, zone: &str, out: &mut String) -> fmt::Result {
    let before_christ = write_date(micros.div_euclid(MICROS_PER_DAY), out)?;
    out.push(' ');
    write_time(micros.rem_euclid(MICROS_PER_DAY).unsigned_abs(), out)?;
    out.push_str(zone);
    out.write_str(before_christ)
}

fn write_time(micros: u64, out: &mut String) -> fmt::Result {
    let second = MICROS_PER_SECOND.unsigned_abs();
    let (seconds, fraction) = (micros / second, micros % second);
    write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
    if fraction == 0 {
        return Ok(());
    }
    let fraction = format!("{fraction:06}");
    write!(out, ".{}", fraction.trim_end_matches('0'))
}

fn write_offset(offset_seconds: i32, out: &mut String) -> fmt::Result {
    let sign = if offset_seconds < 0 { '-' } else { '+' };
    let seconds = offset_seconds.unsigned_abs();
    write!(out, "{sign}{:02}", seconds / 3_600)?;
    if !seconds.is_multiple_of(3_600) {
        write!(out, ":{:02}", seconds / 60 % 60)?;
    }
    if !seconds.is_multiple_of(60) {
        write!(out, ":{:02}", seconds % 60)?;
    }
    Ok(())
}

/// A field behind a negative one shows its sign even when it is positive.
fn write_interval(months: i32, days: i32, micros: i64, out: &mut String) -> fmt::Result {
    let mut negative = false;
    let mut first = true;
    for (count, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if count == 0 {
            continue;
        }
        let space = if first { "" } else { " " };
        let plus = if negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        write!(out, "{space}{plus}{count} {unit}{plural}")?;
        negative = count < 0;
        first = false;
    }
    if micros == 0 && !first {
        return Ok(());
    }
    let space = if first { "" } else { " " };
    let sign = match (micros < 0, negative) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    write!(out, "{space}{sign}")?;
    write_time(micros.unsigned_abs(), out)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::text::value_of;
    use super::*;
    use crate::schema::Kind;

    fn printed(value: &Value) -> String {
        match text(value) {
            Printed::Text(text) => text.into_owned(),
            other => panic!("no text: {other:?}"),
        }
    }

    fn read(kind: Kind, text: &str) -> Option<Value> {
        value_of(kind, &Bytes::copy_from_slice(text.as_bytes())).ok()
    }

    #[test]
    fn what_the_server_prints_is_printed_again() {
        let cases: &[(Kind, &[&str])] = &[
            (Kind::Date, &["4713-11-24 BC", "0001-01-01", "0001-12-31 BC", "5874897-12-31"]),
            (Kind::Date, &["0005-02-29 BC", "2024-02-29", "infinity", "-infinity"]),
            (Kind::Timestamp, &["4713-11-24 00:00:00 BC", "294246-12-31 23:59:59.999999"]),
            (Kind::Timestamp, &["294276-12-31 23:59:59.999999", "1999-12-31 23:59:59.9"]),
            (Kind::TimestampTz, &["0044-03-15 11:00:00+00 BC", "infinity"]),
            (Kind::Time, &["24:00:00", "00:00:00", "23:59:59.000001"]),
            (Kind::TimeTz, &["24:00:00+00", "12:00:00-03:30", "00:00:00+15:59:59"]),
            (Kind::Interval, &["00:00:00", "1 year 2 mons -3 days +04:05:06.789"]),
            (Kind::Interval, &["-1 years -2 mons +3 days -04:05:06", "-1 days +00:00:01"]),
            (Kind::Interval, &["1 mon", "-178956970 years -8 mons", "2147483647 days"]),
            (Kind::Interval, &["-2562047788:00:54.775808", "2562047788:00:54.775807", "infinity"]),
            (Kind::Float64, &["0", "-0", "1e+15", "100000000000000", "0.0001", "1e-05", "1.5"]),
            (Kind::Float64, &["5e-324", "1.7976931348623157e+308", "123456.789", "NaN"]),
            (Kind::Float32, &["1e+06", "100000", "3.4028235e+38", "1e-45", "-Infinity"]),
        ];
        for (kind, texts) in cases {
            for text in *texts {
                let value = read(*kind, text).unwrap_or_else(|| panic!("{kind:?} {text}"));
                assert_eq!(printed(&value), *text);
            }
        }
    }

    #[test]
    fn a_timestamp_beyond_64_bits_of_microseconds_stays_text() {
        let last = "294247-01-10 04:00:54.775807";
        assert_eq!(read(Kind::Timestamp, last), Some(Value::Timestamp(i64::MAX)));
        let beyond = "294247-01-10 04:00:54.775808";
        let literal = Value::TemporalSpecial(TemporalSpecial::Literal(beyond.into()));
        assert_eq!(read(Kind::Timestamp, beyond), Some(literal));
    }

    #[test]
    fn what_is_not_a_date_or_a_time_is_refused() {
        let wrong: &[(Kind, &[&str])] = &[
            (
                Kind::Date,
                &["", "2023-02-29", "0000-01-01", "2020-13-01", "2020-1-01", "01-02-2020"],
            ),
            (Kind::Date, &["2020-00-10", "2020-01-00", "2020-01-01 AD", "-2020-01-01"]),
            (Kind::Time, &["24:00:01", "infinity", "12:60:00", "12:00", "12:00:00.", "1:00:00"]),
            (Kind::Time, &["12:00:00.1234567", "12:00:00+00"]),
            (Kind::TimeTz, &["12:00:00", "12:00:00+1"]),
            (Kind::Timestamp, &["2020-01-01", "2020-01-01T00:00:00", "2020-01-01 00:00:00+00"]),
            (Kind::TimestampTz, &["2020-01-01 00:00:00", "2020-01-01 00:00:00+00 AD"]),
            (Kind::Interval, &["", "P1Y", "1 year ", "1 week", "@ 1 year", "1 year 2", "01:00"]),
        ];
        for (kind, texts) in wrong {
            for text in *texts {
                assert_eq!(read(*kind, text), None, "{kind:?} {text}");
            }
        }
    }

    #[test]
    fn a_duration_of_mysql_keeps_its_sign_and_its_hours() {
        assert_eq!(printed(&Value::Time(-(838 * 3_600 + 59 * 60 + 59) * 1_000_000)), "-838:59:59");
        assert_eq!(printed(&Value::Time(-1)), "-00:00:00.000001");
    }

    #[test]
    fn null_and_unavailable_are_two_things() {
        assert_eq!(text(&Value::Null), Printed::Null);
        assert_eq!(text(&Value::Unavailable), Printed::Unavailable);
    }

    fn any_value() -> impl Strategy<Value = (Kind, Value)> {
        let day = 0..=MICROS_PER_DAY;
        prop_oneof![
            any::<i64>().prop_map(|number| (Kind::Int, Value::Int(number))),
            any::<u64>().prop_map(|number| (Kind::Uint, Value::Uint(number))),
            any::<f32>().prop_map(|number| (Kind::Float32, Value::Float32(number))),
            any::<f64>().prop_map(|number| (Kind::Float64, Value::Float64(number))),
            any::<bool>().prop_map(|truth| (Kind::Boolean, Value::Boolean(truth))),
            any::<[u8; 16]>().prop_map(|uuid| (Kind::Uuid, Value::Uuid(uuid))),
            any::<Vec<u8>>().prop_map(|bytes| (Kind::Bytes, Value::Bytes(bytes.into()))),
            any::<i32>().prop_map(|days| (Kind::Date, Value::Date(days))),
            any::<i64>().prop_map(|micros| (Kind::Timestamp, Value::Timestamp(micros))),
            any::<i64>().prop_map(|micros| (Kind::TimestampTz, Value::TimestampTz(micros))),
            day.clone().prop_map(|micros| (Kind::Time, Value::Time(micros))),
            (day, -57_599..=57_599).prop_map(|(micros, offset_seconds)| {
                (Kind::TimeTz, Value::TimeTz { micros, offset_seconds })
            }),
            any::<(i32, i32, i64)>().prop_map(|(months, days, micros)| {
                (Kind::Interval, Value::Interval { months, days, micros })
            }),
            "[01]{0,70}".prop_map(|bits| (Kind::Bits, read(Kind::Bits, &bits).expect("bits"))),
            "-?[0-9]{1,40}(\\.[0-9]{1,40})?"
                .prop_map(|text| (Kind::Decimal, Value::Decimal(text.into()))),
            "\\PC*".prop_map(|text| (Kind::Text, Value::text(text))),
        ]
    }

    proptest! {
        #[test]
        fn a_printed_value_reads_back_as_itself((kind, value) in any_value()) {
            let text = printed(&value);
            let back = read(kind, &text);
            prop_assert_eq!(format!("{:?}", back), format!("{:?}", Some(value)), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(
            kind in proptest::sample::select(&KINDS[..]),
            text in prop_oneof![
                any::<Vec<u8>>(),
                "[-+0-9:. a-z]{0,30}( BC)?".prop_map(String::into_bytes),
            ],
        ) {
            let text = Bytes::from(text);
            if let Ok(value) = value_of(kind, &text) {
                prop_assert_eq!(value_of(kind, &Bytes::from(printed(&value))).is_ok(), true);
            }
        }
    }

    const KINDS: [Kind; 18] = [
        Kind::Boolean,
        Kind::Int,
        Kind::Uint,
        Kind::Float32,
        Kind::Float64,
        Kind::Decimal,
        Kind::Text,
        Kind::Bytes,
        Kind::Json,
        Kind::Uuid,
        Kind::Date,
        Kind::Time,
        Kind::TimeTz,
        Kind::Timestamp,
        Kind::TimestampTz,
        Kind::Interval,
        Kind::Bits,
        Kind::Raw,
    ];
}
