//! Values of every PostgreSQL type, with the text that the server prints for them and the value that we make of it.
//!
//! They stand in `tests/corpus/postgres/*.txt`, one family a file, in series of one type:
//!
//! ```text
//! # comment
//! @type numeric(10,2) | numeric | decimal | key
//! @column "its name"
//! @since 15
//! @needs hstore
//! 1.005 ==> 1.01
//! ```
//!
//! `@type` gives the type as SQL writes it, the name and the kind that a column of it has, and `key` where the values
//! can be a primary key (one at a time: some are equal, such as 1.0 and 1.00). `@column` names the column, which else
//! is `value`; `@since` is the first server version that takes the values, `@needs` an extension.
//!
//! A value is an SQL expression, the server's text (`\N` is null), and, where the value is not that text or the number
//! in it, the value in a notation of its own, which comes from the server's binary form and not from our decoder:
//!
//! | kind | notation |
//! |---|---|
//! | float32, float64, uuid, bytes | hexadecimal digits, of floats those of their bits; `-` is empty |
//! | date; time, timestamp, timestamptz | days; microseconds |
//! | timetz | microseconds, seconds east of UTC |
//! | interval | months, days, microseconds |
//! | bits | length, hexadecimal digits |
//! | all of time | `infinity`, `-infinity`, or `literal` where only the text holds it |
//!
//! Text that would not survive as it is stands in quotes with Rust's escapes; quoted parts may be repeated (`"x"*3000`)
//! and follow one another, and so may hexadecimal digits.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use dovetail_core::schema::Kind;
use dovetail_core::value::{TemporalSpecial, Value};

#[derive(Debug)]
pub struct Corpus {
    /// SQL that creates the types that the series use.
    pub setup: String,
    /// In the order of their files' names.
    pub families: Vec<Family>,
}

#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub series: Vec<Series>,
}

/// Values of one type.
#[derive(Debug)]
pub struct Series {
    pub sql_type: String,
    /// As [`Column::type_name`](dovetail_core::schema::Column::type_name).
    pub type_name: String,
    pub kind: Kind,
    /// Whether each value, unless it is null, can be a primary key.
    pub key: bool,
    pub column: String,
    /// Major version of the server.
    pub since: u32,
    pub extension: Option<String>,
    pub cases: Vec<Case>,
}

#[derive(Debug)]
pub struct Case {
    /// An expression that can be assigned to the type.
    pub sql: String,
    /// What the server prints; `None` is null.
    pub text: Option<String>,
    pub value: Value,
}

impl Corpus {
    /// # Errors
    /// When the files are not there or a line of theirs is not understood.
    pub fn load() -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/postgres");
        let entries = std::fs::read_dir(&directory).context("list the corpus")?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        paths.sort();
        let mut families = Vec::new();
        for path in &paths {
            let text = std::fs::read_to_string(path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let series = parse(&text).with_context(|| format!("read {}", path.display()))?;
            families.push(Family { name, series });
        }
        let setup = std::fs::read_to_string(directory.join("setup.sql"))?;
        Ok(Self { setup, families })
    }

    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.families.iter().flat_map(|family| &family.series)
    }
}

/// Equality bit by bit: NaN is itself, and -0 is not 0.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float32(left), Value::Float32(right)) => left.to_bits() == right.to_bits(),
        (Value::Float64(left), Value::Float64(right)) => left.to_bits() == right.to_bits(),
        _ => left == right,
    }
}

fn parse(text: &str) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        line_of(line, &mut all).with_context(|| format!("line {}", number + 1))?;
    }
    Ok(all)
}

fn line_of(line: &str, all: &mut Vec<Series>) -> Result<()> {
    if let Some(types) = line.strip_prefix("@type ") {
        all.push(series(types)?);
        return Ok(());
    }
    let series = all.last_mut().context("no type is given yet")?;
    if let Some(column) = line.strip_prefix("@column ") {
        series.column = unquote(column)?;
    } else if let Some(since) = line.strip_prefix("@since ") {
        series.since = since.parse()?;
    } else if let Some(extension) = line.strip_prefix("@needs ") {
        series.extension = Some(extension.into());
    } else {
        series.cases.push(case(series.kind, line)?);
    }
    Ok(())
}

fn series(types: &str) -> Result<Series> {
    let mut parts = types.split(" | ");
    let mut part = || parts.next().context("type, name, kind");
    let (sql_type, type_name, kind) = (part()?.into(), part()?.into(), kind(part()?)?);
    let key = match parts.next() {
        None => false,
        Some("key") => true,
        Some(other) => bail!("{other} is not `key`"),
    };
    let column = "value".to_owned();
    let (since, extension, cases) = (14, None, Vec::new());
    Ok(Series { sql_type, type_name, kind, key, column, since, extension, cases })
}

fn kind(name: &str) -> Result<Kind> {
    Ok(match name {
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "uint" => Kind::Uint,
        "float32" => Kind::Float32,
        "float64" => Kind::Float64,
        "decimal" => Kind::Decimal,
        "text" => Kind::Text,
        "bytes" => Kind::Bytes,
        "json" => Kind::Json,
        "uuid" => Kind::Uuid,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "timetz" => Kind::TimeTz,
        "timestamp" => Kind::Timestamp,
        "timestamptz" => Kind::TimestampTz,
        "interval" => Kind::Interval,
        "bits" => Kind::Bits,
        "raw" => Kind::Raw,
        _ => bail!("unknown kind {name}"),
    })
}

fn case(kind: Kind, line: &str) -> Result<Case> {
    let mut parts = line.split(" ==> ");
    let sql = parts.next().unwrap_or_default().to_owned();
    let text = parts.next().context("expression ==> text")?;
    let (notation, rest) = (parts.next(), parts.next());
    ensure!(rest.is_none(), "more than three parts");
    if text == "\\N" {
        return Ok(Case { sql, text: None, value: Value::Null });
    }
    let text = if text.starts_with('"') { unquote(text)? } else { text.into() };
    let value = match notation {
        None => plain(kind, &text)?,
        Some(notation) => noted(kind, &text, notation)?,
    };
    Ok(Case { sql, text: Some(text), value })
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
fn unquote(quoted: &str) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use dovetail_core::decode::print::{Printed, text};
    use dovetail_core::decode::text::value_of;
    use dovetail_core::decode::types;

    use super::*;

    #[test]
    fn the_corpus_holds_hundreds_of_values_of_every_kind() {
        let corpus = Corpus::load().expect("the corpus");
        let cases: usize = corpus.series().map(|series| series.cases.len()).sum();
        assert!(cases >= 220, "{cases} values");
        assert!(corpus.series().all(|series| !series.cases.is_empty()));
        let kinds = [
            "boolean",
            "int",
            "uint",
            "float32",
            "float64",
            "decimal",
            "text",
            "bytes",
            "json",
            "uuid",
            "date",
            "time",
            "timetz",
            "timestamp",
            "timestamptz",
            "interval",
            "bits",
            "raw",
        ];
        for name in kinds {
            let kind = kind(name).expect("a kind");
            assert!(corpus.series().any(|series| series.kind == kind), "no value of kind {name}");
        }
    }

    #[test]
    fn the_servers_text_becomes_the_expected_value() {
        let corpus = Corpus::load().expect("the corpus");
        let mut compared = 0;
        for series in corpus.series() {
            assert_eq!(types::kind(&series.type_name), series.kind, "{}", series.type_name);
            for case in &series.cases {
                let Some(printed) = &case.text else { continue };
                let found = value_of(series.kind, &printed.clone().into_bytes().into())
                    .unwrap_or_else(|error| panic!("{} {}: {error}", series.sql_type, case.sql));
                assert!(
                    same(&found, &case.value),
                    "{} {}: {found:?} instead of {:?}",
                    series.sql_type,
                    case.sql,
                    case.value
                );
                compared += 1;
            }
        }
        assert!(compared >= 220, "{compared} values compared");
    }

    #[test]
    fn the_expected_value_is_printed_as_the_server_prints_it() {
        let corpus = Corpus::load().expect("the corpus");
        for series in corpus.series() {
            for case in &series.cases {
                let expected = match &case.text {
                    Some(text) => Printed::Text(text.as_str().into()),
                    None => Printed::Null,
                };
                assert_eq!(text(&case.value), expected, "{} {}", series.sql_type, case.sql);
            }
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_refused() {
        let wrong = [
            "1 ==> 1",
            "@type int4 | int4",
            "@type int4 | int4 | integer",
            "@type int4 | int4 | int | keys",
            "@type int4 | int4 | int\n1",
            "@type int4 | int4 | int\n1 ==> one",
            "@type date | date | date\n'today' ==> 2024-01-01",
            "@type date | date | date\n'today' ==> 2024-01-01 ==> 1 2",
            "@type text | text | text\n'x' ==> \"x",
            "@type text | text | text\n'x' ==> \"\\q\"",
            "@type bytea | bytea | bytes\n'x' ==> \\x0 ==> 0",
        ];
        for lines in wrong {
            assert!(parse(lines).is_err(), "{lines}");
        }
    }
}
