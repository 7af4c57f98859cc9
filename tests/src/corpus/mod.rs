//! Values of every type of the sources, with the text that the server prints for them and the value that we make of it.
//!
//! They stand in `tests/corpus/postgres/*.txt` and `tests/corpus/mysql/*.txt`, one family a file, in series of one type:
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
//! is `value`. Of PostgreSQL, `@since` is the first server version that takes the values, `@needs` an extension; of
//! MySQL and MariaDB, `@on` names the servers that do, where not all three give the same.
//!
//! A value is an SQL expression, the server's text (`\N` is null), and, where the value is not that text or the number
//! in it, the value in the [`notation`] of its kind. The files of MySQL were written by running the expressions on the
//! three servers; the notations were then made of the texts, and of the bits of floats, by a program that has nothing
//! of ours, and both were looked at.

mod notation;
mod subject;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use dovetail_core::schema::Kind;
use dovetail_core::value::Value;

use self::notation::{case, unquote};
pub use self::subject::{Fate, Said, Shape, Subject};
use crate::mysql;

/// Whose SQL and whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Postgres,
    MySql,
}

#[derive(Debug)]
pub struct Corpus {
    pub dialect: Dialect,
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
    /// Major version of PostgreSQL.
    pub since: u32,
    /// Servers of MySQL's kind.
    pub on: Vec<mysql::Version>,
    pub extension: Option<String>,
    pub cases: Vec<Case>,
}

#[derive(Debug)]
pub struct Case {
    /// An expression that can be assigned to the type.
    pub sql: String,
    /// What the server prints; `None` is null.
    pub text: Option<String>,
    /// What the outlets write: PostgreSQL's text form.
    pub written: Option<String>,
    pub value: Value,
}

impl Corpus {
    /// # Errors
    /// When the files are not there or a line of theirs is not understood.
    pub fn load(dialect: Dialect) -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(match dialect {
            Dialect::Postgres => "corpus/postgres",
            Dialect::MySql => "corpus/mysql",
        });
        let entries = std::fs::read_dir(&directory).context("list the corpus")?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        paths.sort();
        let mut families = Vec::new();
        for path in &paths {
            let text = std::fs::read_to_string(path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let series =
                parse(dialect, &text).with_context(|| format!("read {}", path.display()))?;
            families.push(Family { name, series });
        }
        let setup = match dialect {
            Dialect::Postgres => std::fs::read_to_string(directory.join("setup.sql"))?,
            Dialect::MySql => String::new(),
        };
        Ok(Self { dialect, setup, families })
    }

    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.families.iter().flat_map(|family| &family.series)
    }

    /// The series that a server of MySQL's kind can have.
    pub fn on(&self, version: mysql::Version) -> Vec<&Series> {
        self.series().filter(|series| series.on.contains(&version)).collect()
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

fn parse(dialect: Dialect, text: &str) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        line_of(dialect, line, &mut all).with_context(|| format!("line {}", number + 1))?;
    }
    Ok(all)
}

fn line_of(dialect: Dialect, line: &str, all: &mut Vec<Series>) -> Result<()> {
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
    } else if let Some(servers) = line.strip_prefix("@on ") {
        series.on = servers.split(' ').map(str::parse).collect::<Result<_>>()?;
    } else {
        series.cases.push(case(dialect, series.kind, line)?);
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
    let (since, on, extension, cases) = (14, mysql::Version::ALL.into(), None, Vec::new());
    Ok(Series { sql_type, type_name, kind, key, column, since, on, extension, cases })
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

#[cfg(test)]
mod tests {
    use dovetail_core::decode::mysql::{ColumnDefinition, Server};
    use dovetail_core::decode::print::{Printed, text};
    use dovetail_core::decode::text::value_of;
    use dovetail_core::decode::types;

    use super::*;

    #[test]
    fn the_corpus_holds_hundreds_of_values_of_every_kind() {
        let corpus = Corpus::load(Dialect::Postgres).expect("the corpus");
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
        let corpus = Corpus::load(Dialect::Postgres).expect("the corpus");
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
    fn the_expected_value_is_printed_as_the_outlets_write_it() {
        for dialect in [Dialect::Postgres, Dialect::MySql] {
            let corpus = Corpus::load(dialect).expect("the corpus");
            for series in corpus.series() {
                for case in &series.cases {
                    // MySQL's texts of floats have fewer digits, and other exponents.
                    let is_float = matches!(series.kind, Kind::Float32 | Kind::Float64);
                    if dialect == Dialect::MySql && is_float {
                        continue;
                    }
                    let expected = match &case.written {
                        Some(text) => Printed::Text(text.as_str().into()),
                        None => Printed::Null,
                    };
                    assert_eq!(text(&case.value), expected, "{} {}", series.sql_type, case.sql);
                }
            }
        }
    }

    #[test]
    fn each_server_of_mysqls_kind_has_hundreds_of_values_under_types_that_we_know() {
        let corpus = Corpus::load(Dialect::MySql).expect("the corpus");
        for version in mysql::Version::ALL {
            let server = if version.is_mariadb() { Server::MariaDb } else { Server::MySql };
            let series = corpus.on(version);
            let cases: usize = series.iter().map(|series| series.cases.len()).sum();
            assert!(cases >= 500, "{version}: {cases} values");
            for series in series {
                let name = &series.type_name;
                let defined = ColumnDefinition::from_catalog("c", server, name, Some("utf8mb4"))
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(defined.type_name(), *name);
                assert_eq!(defined.kind(), series.kind, "{name}");
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
            "@type int | int | int\n@on mysql-5",
        ];
        for lines in wrong {
            assert!(parse(Dialect::Postgres, lines).is_err(), "{lines}");
        }
    }
}
