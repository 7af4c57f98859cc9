//! How the corpus writes values, in a way that our decoders have no part in.
//!
//! | kind | notation |
//! |---|---|
//! | float32, float64, uuid, bytes | hexadecimal digits, of floats those of their bits; `-` is empty |
//! | date; time, timestamp, timestamptz | days; microseconds |
//! | timetz | microseconds, seconds east of UTC |
//! | interval | months, days, microseconds |
//! | bits | length, hexadecimal digits |
//! | decimal | its text, where the server prints it with leading zeros |
//! | all of time | `infinity`, `-infinity`, or `literal` where only the text holds it |
//!
//! Text that would not survive as it is stands in quotes with Rust's escapes; quoted parts may be repeated (`"x"*3000`)
//! and follow one another, and so may hexadecimal digits.

use anyhow::{Context as _, Result, bail, ensure};
use dovetail_core::schema::Kind;
use dovetail_core::value::{TemporalSpecial, Value};

use super::{Case, Dialect};

/// `expression ==> text ==> notation`.
pub(super) fn case(dialect: Dialect, kind: Kind, line: &str) -> Result<Case> {
    let mut parts = line.split(" ==> ");
    let sql = parts.next().unwrap_or_default().to_owned();
    let text = parts.next().context("expression ==> text")?;
    let (notation, rest) = (parts.next(), parts.next());
    ensure!(rest.is_none(), "more than three parts");
    if text == "\\N" {
        return Ok(Case { sql, text: None, written: None, value: Value::Null });
    }
    let text = if text.starts_with('"') { unquote(text)? } else { text.into() };
    let value = match notation {
        None => plain(kind, &text)?,
        Some(notation) => noted(kind, &text, notation)?,
    };
    let written = match dialect {
        Dialect::Postgres => text.clone(),
        Dialect::MySql => written(kind, &text, &value),
    };
    Ok(Case { sql, text: Some(text), written: Some(written), value })
}

/// PostgreSQL's form of a text of MySQL: fractions of seconds end in no zeros, instants have a zone, numbers that were
/// filled with zeros have none. What no calendar has stays as it is.
fn written(kind: Kind, text: &str, value: &Value) -> String {
    match (kind, value) {
        (_, Value::TemporalSpecial(_)) => text.to_owned(),
        (_, Value::Int(number)) => number.to_string(),
        (_, Value::Uint(number)) => number.to_string(),
        (_, Value::Decimal(number)) => number.to_string(),
        (Kind::Time | Kind::Timestamp | Kind::TimestampTz, _) => {
            let shortest = match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.'),
                false => text,
            };
            let zone = if kind == Kind::TimestampTz { "+00" } else { "" };
            format!("{shortest}{zone}")
        }
        _ => text.to_owned(),
    }
}

/// A value that is its text, or the number in it.
fn plain(kind: Kind, text: &str) -> Result<Value> {
    Ok(match kind {
        Kind::Boolean if text == "t" => Value::Boolean(true),
        Kind::Boolean if text == "f" => Value::Boolean(false),
        Kind::Int => Value::Int(text.parse()?),
        Kind::Uint => Value::Uint(text.parse()?),
        Kind::Decimal => Value::Decimal(text.into()),
        Kind::Text => Value::Text(text.into()),
        Kind::Json => Value::Json(text.into()),
        Kind::Raw => Value::Raw(text.into()),
        _ => bail!("the value is missing"),
    })
}

fn noted(kind: Kind, text: &str, notation: &str) -> Result<Value> {
    match notation {
        "infinity" => return Ok(Value::TemporalSpecial(TemporalSpecial::Infinity)),
        "-infinity" => return Ok(Value::TemporalSpecial(TemporalSpecial::NegativeInfinity)),
        "literal" => return Ok(Value::TemporalSpecial(TemporalSpecial::Literal(text.into()))),
        _ => {}
    }
    let mut numbers = notation.split(' ');
    let mut number = || numbers.next().context("a number is missing");
    let value = match kind {
        Kind::Float32 => Value::Float32(f32::from_bits(u32::from_str_radix(number()?, 16)?)),
        Kind::Float64 => Value::Float64(f64::from_bits(u64::from_str_radix(number()?, 16)?)),
        Kind::Uuid => Value::Uuid(u128::from_str_radix(number()?, 16)?.to_be_bytes()),
        Kind::Date => Value::Date(number()?.parse()?),
        Kind::Time => Value::Time(number()?.parse()?),
        Kind::Timestamp => Value::Timestamp(number()?.parse()?),
        Kind::TimestampTz => Value::TimestampTz(number()?.parse()?),
        Kind::TimeTz => {
            Value::TimeTz { micros: number()?.parse()?, offset_seconds: number()?.parse()? }
        }
        Kind::Interval => Value::Interval {
            months: number()?.parse()?,
            days: number()?.parse()?,
            micros: number()?.parse()?,
        },
        Kind::Bits => {
            let length = number()?.parse()?;
            Value::Bits { length, bytes: digits(&mut numbers)?.into() }
        }
        Kind::Decimal => Value::Decimal(number()?.into()),
        Kind::Bytes => Value::Bytes(digits(&mut numbers)?.into()),
        _ => bail!("the value is its text"),
    };
    ensure!(numbers.next().is_none(), "more than the value");
    Ok(value)
}

/// Groups of hexadecimal digits, each of which may be repeated: `00ff ab*300`.
fn digits<'a>(groups: impl Iterator<Item = &'a str>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for group in groups.filter(|group| *group != "-") {
        let (digits, times) = group.split_once('*').unwrap_or((group, "1"));
        ensure!(digits.is_ascii() && digits.len().is_multiple_of(2), "an odd number of digits");
        let pairs = (0..digits.len()).step_by(2);
        let group: Vec<u8> = pairs
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16))
            .collect::<Result<_, _>>()?;
        bytes.extend(group.repeat(times.parse()?));
    }
    Ok(bytes)
}

/// `"x"*3000 "tail"`.
pub(super) fn unquote(quoted: &str) -> Result<String> {
    let mut text = String::new();
    let mut rest = quoted;
    while !rest.is_empty() {
        let inner = rest.strip_prefix('"').context("a quote is missing")?;
        let (part, after) = quoted_part(inner)?;
        let (times, after) = match after.strip_prefix('*') {
            Some(after) => after.split_once(' ').unwrap_or((after, "")),
            None => ("1", after.strip_prefix(' ').unwrap_or(after)),
        };
        text.push_str(&part.repeat(times.parse()?));
        rest = after;
    }
    Ok(text)
}

/// Up to the closing quote, and what stands behind it.
fn quoted_part(inner: &str) -> Result<(String, &str)> {
    let mut part = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Ok((part, characters.as_str())),
            '\\' => match characters.next() {
                Some('n') => part.push('\n'),
                Some('r') => part.push('\r'),
                Some('t') => part.push('\t'),
                Some(same @ ('"' | '\\')) => part.push(same),
                Some('u') => {
                    let code = characters.as_str().strip_prefix('{').context("\\u{...}")?;
                    let (code, after) = code.split_once('}').context("\\u{...}")?;
                    let code = u32::from_str_radix(code, 16)?;
                    part.push(char::from_u32(code).context("no character")?);
                    characters = after.chars();
                }
                _ => bail!("unknown escape"),
            },
            other => part.push(other),
        }
    }
    bail!("the closing quote is missing")
}
