//! From a [`Document`] to the server's text.

use std::fmt::Write as _;

use super::{Document, Invalid};
use crate::decode::mysql::layout::code;
use crate::decode::mysql::{decimal, temporal};

pub(super) fn document(document: &Document<'_>, text: &mut String) -> Result<(), Invalid> {
    match document {
        Document::Null => text.push_str("null"),
        Document::Boolean(true) => text.push_str("true"),
        Document::Boolean(false) => text.push_str("false"),
        Document::Int(number) => push(text, number),
        Document::Uint(number) => push(text, number),
        Document::Double(number) => double(*number, text),
        Document::String(string) => quoted(string, text),
        Document::Opaque { code, bytes } => opaque(*code, bytes, text)?,
        Document::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                separate(index, text);
                self::document(element, text)?;
            }
            text.push(']');
        }
        Document::Object(members) => {
            text.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                separate(index, text);
                quoted(key, text);
                text.push_str(": ");
                self::document(value, text)?;
            }
            text.push('}');
        }
    }
    Ok(())
}

fn push(text: &mut String, number: impl std::fmt::Display) {
    write!(text, "{number}").expect("a String takes any text");
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push_str(", ");
    }
}

fn quoted(string: &str, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0'..'\u{20}' => {
                write!(text, "\\u{:04x}", u32::from(character)).expect("a String takes any text");
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

/// Digits before the point up to which whole numbers, and zeros behind it up to which small ones, are written out.
const PLACES_MAX: i32 = 15;

/// The shortest digits that read back exactly, written out where that is not long, and always recognizable as a double
/// (`my_gcvt` and `ensure_double_is_written_as_double` of the server).
fn double(number: f64, text: &mut String) {
    let scientific = shortest(number);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|digit| *digit != '.').collect();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Where the point stands among the digits.
    let point = exponent + 1;
    text.push_str(sign);
    if number == 0.0 {
        text.push_str("0.0");
    } else if point <= -PLACES_MAX || (point > PLACES_MAX && point >= count) {
        text.push_str(scientific.strip_prefix('-').unwrap_or(&scientific));
    } else if point <= 0 {
        text.push_str("0.");
        text.extend(std::iter::repeat_n('0', usize::try_from(-point).unwrap_or_default()));
        text.push_str(&digits);
    } else if point >= count {
        text.push_str(&digits);
        text.extend(std::iter::repeat_n('0', usize::try_from(point - count).unwrap_or_default()));
        text.push_str(".0");
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
        text.push_str(whole);
        text.push('.');
        text.push_str(fraction);
    }
}

/// The shortest digits that read back exactly. Where two are equally near, the server takes the even one, and Rust the
/// greater; rounding to so many digits takes the even one too.
fn shortest(number: f64) -> String {
    let shortest = format!("{number:e}");
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let even = format!("{number:.*e}", digits.saturating_sub(1));
    if even.parse() == Ok(number) { even } else { shortest }
}

fn opaque(code: u8, bytes: &[u8], text: &mut String) -> Result<(), Invalid> {
    match code {
        code::DECIMAL => {
            let [precision, scale, number @ ..] = bytes else { return Err(Invalid::Malformed) };
            let length = decimal::length(*precision, *scale).map_err(|_| Invalid::Opaque(code))?;
            if number.len() != length {
                return Err(Invalid::Malformed);
            }
            let number = decimal::text(*precision, *scale, number);
            text.push_str(&number.map_err(|_| Invalid::Malformed)?);
        }
        code::DATE | code::OLD_DATETIME | code::OLD_TIMESTAMP => {
            let (negative, whole, micros) = packed(bytes)?;
            let moment = temporal::packed_moment(whole, micros).map_err(|_| Invalid::Malformed)?;
            if negative || micros > 999_999 {
                return Err(Invalid::Malformed);
            }
            let temporal::Moment { year, month, day, hour, minute, second, micros } = moment;
            write!(text, "\"{year:04}-{month:02}-{day:02}").expect("a String takes any text");
            if code != code::DATE {
                write!(text, " {hour:02}:{minute:02}:{second:02}.{micros:06}")
                    .expect("a String takes any text");
            }
            text.push('"');
        }
        code::OLD_TIME => {
            let (negative, whole, micros) = packed(bytes)?;
            let sign = if negative { "-" } else { "" };
            let (hours, minutes, seconds) =
                ((whole >> 12) & 0x3ff, (whole >> 6) & 0x3f, whole & 0x3f);
            write!(text, "\"{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}\"")
                .expect("a String takes any text");
        }
        _ => {
            write!(text, "\"base64:type{code}:").expect("a String takes any text");
            base64(bytes, text);
            text.push('"');
        }
    }
    Ok(())
}

/// A signed number of eight bytes, little-endian: 24 bits of microseconds under the packed fields. A negative one is
/// negated as a whole.
fn packed(bytes: &[u8]) -> Result<(bool, u64, u32), Invalid> {
    let bytes: [u8; 8] = bytes.try_into().map_err(|_| Invalid::Malformed)?;
    let number = i64::from_le_bytes(bytes);
    let magnitude = number.unsigned_abs();
    let micros = u32::try_from(magnitude & 0xff_ffff).map_err(|_| Invalid::Malformed)?;
    if micros > 999_999 {
        return Err(Invalid::Malformed);
    }
    Ok((number < 0, magnitude >> 24, micros))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The server breaks lines after so many characters, and escapes the break like any other.
const BASE64_LINE: usize = 76;

fn base64(bytes: &[u8], text: &mut String) {
    let mut written = 0;
    for three in bytes.chunks(3) {
        if written > 0 && written % BASE64_LINE == 0 {
            text.push_str("\\n");
        }
        let mut number = 0_u32;
        for index in 0..3 {
            number = (number << 8) | u32::from(three.get(index).copied().unwrap_or_default());
        }
        for index in 0..4 {
            let place = usize::try_from((number >> (18 - 6 * index)) & 0x3f).unwrap_or_default();
            let digit = BASE64.get(place).copied().unwrap_or(b'=');
            text.push(if usize::try_from(index).is_ok_and(|it| it > three.len()) {
                '='
            } else {
                char::from(digit)
            });
        }
        written += 4;
    }
}
