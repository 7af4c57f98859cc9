//! The `source` section for MySQL and MariaDB.
//!
//! Tables are named as in SQL, `shop.cities`, with backticks around odd names. Nothing is folded: whether letters of
//! another case name the same table is the server's affair, and the preflight compares.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use dovetail_core::schema::TableName;

use super::field::{Field, Reader};
use super::{MySql, MySqlKind, PinChoice, Rung, quantity, server, source};

/// As for PostgreSQL: ordinary transactions end well within a minute.
const PIN_TIMEOUT: Duration = Duration::from_secs(60);
/// A server with as many statements under way is busy on any common machine; the scan is one more for each worker.
const THREADS_RUNNING_MAX: u32 = 50;
/// The servers' own limit, in characters.
const IDENTIFIER_CHARS_MAX: usize = 64;

const CHOICES: [(&str, PinChoice); 6] = [
    ("auto", PinChoice::Auto),
    ("snapshot", PinChoice::Rung(Rung::Snapshot)),
    ("gtid", PinChoice::Rung(Rung::Gtid)),
    ("log_status", PinChoice::Rung(Rung::LogStatus)),
    ("lock", PinChoice::Rung(Rung::Lock)),
    ("own_row", PinChoice::Rung(Rung::OwnRow)),
];

/// Reads `source.mysql` or `source.mariadb`.
pub(in crate::config) fn check(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
    kind: MySqlKind,
) -> Option<MySql> {
    let mut section = field.section(reader, "how to reach the server, and its tables")?;
    let server = server::check_mysql(&mut section, reader, directory);
    let expected = "a list of tables, such as [shop.cities]";
    let tables = section
        .required(reader, "tables", expected)
        .and_then(|field| source::tables(&field, reader, expected, parse));
    let server_id = match section.optional("server_id") {
        Some(field) => {
            let expected = "a server id from 1 to 4294967295 that no other replica has";
            field.parsed(reader, expected, |text| text.parse().ok().map(Some))
        }
        None => Some(None::<NonZeroU32>),
    };
    let place = section.place;
    let pin = match section.optional("pin") {
        Some(field) => field.choice(reader, &CHOICES),
        None => Some(PinChoice::Auto),
    };
    let own_table = match section.optional("own_table") {
        Some(field) => source::one_table(&field, reader, parse).map(Some),
        None => Some(None),
    };
    let pin_timeout = match section.optional("pin_timeout") {
        Some(field) => field.parsed(reader, "a duration such as 60s, at least 1s", |text| {
            quantity::duration(text).filter(|duration| *duration >= Duration::from_secs(1))
        }),
        None => Some(PIN_TIMEOUT),
    };
    let threads_running_max = match section.optional("threads_running_max") {
        Some(field) => field.parsed(reader, "a number of statements, at least 2", |text| {
            text.parse().ok().filter(|number| *number >= 2)
        }),
        None => Some(THREADS_RUNNING_MAX),
    };
    let ignore_cascades = match section.optional("ignore_cascades") {
        Some(field) => field.boolean(reader),
        None => Some(false),
    };
    let path = section.path.clone();
    section.finish(reader);
    let (pin, own_table) = (pin?, own_table?);
    if pin == PinChoice::Rung(Rung::OwnRow) && own_table.is_none() {
        let text = "`pin: own_row` needs `own_table`, the table that the row is written to";
        reader.report(place, &path, text);
        return None;
    }
    Some(MySql {
        kind,
        server: server?,
        tables: tables?,
        server_id: server_id?,
        pin,
        own_table,
        pin_timeout: pin_timeout?,
        threads_running_max: threads_running_max?,
        ignore_cascades: ignore_cascades?,
    })
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidName {
    #[error("is not a table's name, expected `database.table`, with backticks around odd names")]
    Form,
    #[error("names a pattern; name each table by itself")]
    Pattern,
    #[error("has a name of more than {IDENTIFIER_CHARS_MAX} characters")]
    Long,
    #[error("is one of the server's own tables")]
    System,
}

fn parse(text: &str) -> Result<TableName, String> {
    name(text).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<TableName, InvalidName> {
    let (namespace, rest) = identifier(text)?;
    let rest = rest.strip_prefix('.').ok_or(InvalidName::Form)?;
    let (name, rest) = identifier(rest)?;
    if !rest.is_empty() {
        return Err(InvalidName::Form);
    }
    let system = ["mysql", "information_schema", "performance_schema", "sys"];
    if system.iter().any(|system| namespace.eq_ignore_ascii_case(system)) {
        return Err(InvalidName::System);
    }
    Ok(TableName { namespace, name })
}

/// One name from the front, and what follows it.
fn identifier(text: &str) -> Result<(String, &str), InvalidName> {
    let (name, rest) = match text.strip_prefix('`') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (name, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
            plain(name)?;
            (name.to_owned(), rest)
        }
    };
    match name.chars().count() {
        0 => Err(InvalidName::Form),
        1..=IDENTIFIER_CHARS_MAX => Ok((name, rest)),
        _ => Err(InvalidName::Long),
    }
}

/// Up to the closing backtick; two backticks are one.
fn unquote(text: &str) -> Result<(String, &str), InvalidName> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('`').ok_or(InvalidName::Form)?;
        name.push_str(before);
        match after.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None if name.contains('\0') => return Err(InvalidName::Form),
            None => return Ok((name, after)),
        }
    }
}

fn plain(name: &str) -> Result<(), InvalidName> {
    if name.contains(['*', '%', '?']) {
        return Err(InvalidName::Pattern);
    }
    let sound = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii() && !c.is_whitespace()
    };
    if name.is_empty() || !name.chars().all(sound) {
        return Err(InvalidName::Form);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_server_reads_them() {
        for (text, namespace, name_of_table) in [
            ("shop.cities", "shop", "cities"),
            ("Shop.Cities", "Shop", "Cities"),
            ("`odd.db`.`a``b c`", "odd.db", "a`b c"),
            ("人口.都市", "人口", "都市"),
        ] {
            let expected = TableName { namespace: namespace.into(), name: name_of_table.into() };
            assert_eq!(name(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        let long = format!("shop.{}", "a".repeat(65));
        for (text, error) in [
            ("cities", InvalidName::Form),
            ("shop.cities.x", InvalidName::Form),
            ("shop.", InvalidName::Form),
            ("shop.`cities", InvalidName::Form),
            ("shop.two words", InvalidName::Form),
            ("shop.*", InvalidName::Pattern),
            ("MySQL.user", InvalidName::System),
            (long.as_str(), InvalidName::Long),
        ] {
            assert_eq!(name(text), Err(error), "{text}");
        }
    }
}
