//! A value from PostgreSQL's text form.
//!
//! The text is that of a session with these settings; the scan and the stream have the same, and a row that is not in
//! this form is an error:
//!
//! | setting | value | for |
//! |---|---|---|
//! | `client_encoding` | `UTF8` | all text |
//! | `DateStyle` | `ISO, YMD` | dates and times, also inside arrays and ranges |
//! | `TimeZone` | `UTC` | timestamptz prints its offset as `+00` |
//! | `IntervalStyle` | `postgres` | the server's default; each field has its own sign, so that it reads back exactly |
//! | `extra_float_digits` | `3` | floats that read back exactly |
//! | `bytea_output` | `hex` | bytea |
//! | `lc_monetary` | `C` | money |
//! | `search_path` | `pg_catalog` | names of objects (`regclass`) stand with their schema |
//! | `quote_all_identifiers` | `off` | names of objects |
//!
//! Every text of the right form gives exactly one value, from which [`print`](super::print) gives an equal text again.
//! What no integer of the value holds (the years after 294246 of a timestamp, whose microseconds PostgreSQL counts from
//! 2000) stays text.

use std::ops::Range;

use bytes::Bytes;

use super::temporal;
use crate::schema::Kind;
use crate::value::{TemporalSpecial, Text, Value};

/// The text is not one that a session with the settings above prints. Says nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes of text that are not of kind {kind:?}")]
pub struct InvalidText {
    pub kind: Kind,
    pub length: usize,
}

/// Appends the value of `buffer[field]`. Text values share the buffer.
///
/// # Errors
/// When the text is not of that kind, or the range lies outside the buffer; nothing is appended then.
pub(super) fn push(
    kind: Kind,
    buffer: &Bytes,
    field: Range<usize>,
    values: &mut Vec<Value>,
) -> Result<(), InvalidText> {
    let length = field.len();
    read(kind, buffer, field, values).ok_or(InvalidText { kind, length })
}

/// The value of a text.
///
/// # Errors
/// When the text is not of that kind.
pub fn value_of(kind: Kind, text: &Bytes) -> Result<Value, InvalidText> {
    let invalid = InvalidText { kind, length: text.len() };
    let mut values = Vec::with_capacity(1);
    push(kind, text, 0..text.len(), &mut values)?;
    values.pop().ok_or(invalid)
}

/// Writes each value where it is to stay: handing it from function to function costs more than reading it.
fn read(kind: Kind, buffer: &Bytes, field: Range<usize>, values: &mut Vec<Value>) -> Option<()> {
    let text = buffer.get(field.clone())?;
    let share = || Text::from_utf8(buffer.slice(field.clone())).ok();
    match kind {
        Kind::Boolean => values.push(Value::Boolean(boolean(text)?)),
        Kind::Int => values.push(Value::Int(int(text)?)),
        Kind::Uint => values.push(Value::Uint(uint(text)?)),
        Kind::Float32 => values.push(Value::Float32(ascii(text)?.parse().ok()?)),
        Kind::Float64 => values.push(Value::Float64(ascii(text)?.parse().ok()?)),
        Kind::Decimal if is_decimal(text) => values.push(Value::Decimal(share()?)),
        Kind::Decimal => return None,
        Kind::Text => values.push(Value::Text(share()?)),
        Kind::Json => values.push(Value::Json(share()?)),
        Kind::Raw => values.push(Value::Raw(share()?)),
        Kind::Bytes => values.push(Value::Bytes(bytea(text)?.into())),
        Kind::Uuid => values.push(Value::Uuid(uuid(text)?)),
        Kind::Bits => {
            let length = u32::try_from(text.len()).ok()?;
            values.push(Value::Bits { length, bytes: bits(text)?.into() });
        }
        Kind::Date
        | Kind::Time
        | Kind::TimeTz
        | Kind::Timestamp
        | Kind::TimestampTz
        | Kind::Interval => values.push(match temporal::parse(kind, text)? {
            temporal::Parsed::Value(value) => value,
            temporal::Parsed::OutOfRange => {
                Value::TemporalSpecial(TemporalSpecial::Literal(share()?))
            }
        }),
    }
    Some(())
}

fn ascii(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}

fn boolean(text: &[u8]) -> Option<bool> {
    match text {
        b"t" => Some(true),
        b"f" => Some(false),
        _ => None,
    }
}

/// Up to this many digits cannot overflow a u64, so the loop needs no check.
const SAFE_DIGITS: usize = 19;

fn uint(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    if digits.len() <= SAFE_DIGITS {
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
    } else {
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
    }
    Some(number)
}

fn int(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0_i64.checked_sub_unsigned(uint(digits)?),
        None => i64::try_from(uint(text)?).ok(),
    }
}

/// Digits with at most one point among or before them, and a sign; or a special value.
fn is_decimal(text: &[u8]) -> bool {
    if matches!(text, b"NaN" | b"Infinity" | b"-Infinity") {
        return true;
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut points = 0;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {}
            b'.' => points += 1,
            _ => return false,
        }
    }
    points <= 1 && digits.len() > points
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    Some(hex_digit(high)? << 4 | hex_digit(low)?)
}

fn bytea(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x")?;
    let (pairs, odd) = digits.as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(hex_byte(*high, *low)?);
    }
    Some(bytes)
}

/// 8-4-4-4-12 hexadecimal digits.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let mut uuid = [0; 16];
    let mut bytes = uuid.iter_mut();
    let mut rest = text.as_slice();
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            rest = rest.strip_prefix(b"-")?;
        }
        let (digits, tail) = rest.split_at_checked(length)?;
        for [high, low] in digits.as_chunks::<2>().0 {
            *bytes.next()? = hex_byte(*high, *low)?;
        }
        rest = tail;
    }
    Some(uuid)
}

/// Eight bits a byte, the first in the most significant place.
fn bits(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len().div_ceil(8));
    for eight in text.chunks(8) {
        let mut byte = 0;
        for (place, bit) in eight.iter().enumerate() {
            match bit {
                b'0' => {}
                b'1' => byte |= 0x80 >> place,
                _ => return None,
            }
        }
        bytes.push(byte);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Option<Value> {
        value_of(kind, &Bytes::copy_from_slice(text.as_bytes())).ok()
    }

    #[test]
    fn integers_are_exact_at_their_ends_and_nothing_beyond() {
        for number in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            assert_eq!(read(Kind::Int, &number.to_string()), Some(Value::Int(number)));
        }
        for number in [0, u64::MAX - 1, u64::MAX] {
            assert_eq!(read(Kind::Uint, &number.to_string()), Some(Value::Uint(number)));
        }
        for wrong in ["", "-", "+1", "1.0", " 1", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(read(Kind::Int, wrong), None, "{wrong}");
        }
        for wrong in ["", "-1", "18446744073709551616", "99999999999999999999999"] {
            assert_eq!(read(Kind::Uint, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_decimal_stays_its_text() {
        for text in ["1.0", "1.00", "-0.5", "NaN", "Infinity", "-Infinity", "0"] {
            assert_eq!(read(Kind::Decimal, text), Some(Value::Decimal(text.into())));
        }
        for wrong in ["", "-", ".", "1e5", "1.2.3", "nan", "--1", "-NaN"] {
            assert_eq!(read(Kind::Decimal, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn floats_keep_their_special_values() {
        assert_eq!(read(Kind::Float64, "-0").map(|value| format!("{value:?}")), {
            Some("Float64(-0.0)".to_owned())
        });
        assert!(matches!(read(Kind::Float32, "NaN"), Some(Value::Float32(nan)) if nan.is_nan()));
        assert_eq!(read(Kind::Float32, "-Infinity"), Some(Value::Float32(f32::NEG_INFINITY)));
    }

    #[test]
    fn bits_fill_bytes_from_the_left() {
        let bits = Value::Bits { length: 9, bytes: Bytes::from_static(&[0b1000_0001, 0x80]) };
        assert_eq!(read(Kind::Bits, "100000011"), Some(bits));
        assert_eq!(read(Kind::Bits, ""), Some(Value::Bits { length: 0, bytes: Bytes::new() }));
        assert_eq!(read(Kind::Bits, "012"), None);
    }

    #[test]
    fn text_shares_the_buffer_that_it_was_read_from() {
        let buffer = Bytes::from_static(b"before text after");
        let mut values = Vec::new();
        push(Kind::Text, &buffer, 7..11, &mut values).expect("text");
        let [Value::Text(text)] = values.as_slice() else { panic!("text") };
        assert_eq!(&**text, "text");
        assert_eq!(text.as_bytes().as_ptr(), buffer[7..].as_ptr());
        assert!(push(Kind::Text, &buffer, 7..99, &mut Vec::new()).is_err());
    }

    #[test]
    fn bytes_and_uuids_are_hexadecimal() {
        let bytes = |text: &str| read(Kind::Bytes, text);
        assert_eq!(bytes("\\x00fF"), Some(Value::Bytes(Bytes::from_static(&[0, 255]))));
        assert_eq!(bytes("\\x"), Some(Value::Bytes(Bytes::new())));
        for wrong in ["", "00", "\\x0", "\\x0g"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        assert!(matches!(read(Kind::Uuid, uuid), Some(Value::Uuid([0, 0x11, ..]))));
        assert_eq!(read(Kind::Uuid, "001122334455-6677-8899-aabbccddeeff-"), None);
    }
}
