//! The `source` section.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use dovetail_core::schema::TableName;

use super::field::{Field, Reader, Section};
use super::table::{self, IDENTIFIER_BYTES_MAX};
use super::{MySqlKind, Postgres, Source, mysql, quantity, server};

/// A commit that hangs for a synchronous standby, or a prepared transaction that somebody forgot, would otherwise hold the
/// start for ever; ordinary transactions end well within a minute.
const PIN_TIMEOUT: Duration = Duration::from_secs(60);

pub(in crate::config) fn check(
    root: &mut Section<'_>,
    reader: &mut Reader<'_>,
    pipeline: Option<&str>,
    directory: &Path,
) -> Option<Source> {
    let expected = "`postgres: {...}`, `mysql: {...}` or `mariadb: {...}`";
    let field = root.required(reader, "source", expected)?;
    let mut source = field.section(reader, expected)?;
    let kinds = ["postgres", "mysql", "mariadb"];
    let named: Vec<(&str, Field<'_>)> =
        kinds.iter().filter_map(|kind| Some((*kind, source.optional(kind)?))).collect();
    let place = (source.place, source.path.clone());
    source.finish(reader);
    match named.as_slice() {
        [("mysql", field)] => {
            mysql::check(field, reader, directory, MySqlKind::MySql).map(Source::MySql)
        }
        [("mariadb", field)] => {
            mysql::check(field, reader, directory, MySqlKind::MariaDb).map(Source::MySql)
        }
        [(_, field)] => postgres(field, reader, pipeline, directory).map(Source::Postgres),
        [] => {
            reader.report(
                place.0,
                &place.1,
                format!("names no kind of database, expected {expected}"),
            );
            None
        }
        _ => {
            reader.report(
                place.0,
                &place.1,
                "names more than one database; a pipeline has one source",
            );
            None
        }
    }
}

fn postgres(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    pipeline: Option<&str>,
    directory: &Path,
) -> Option<Postgres> {
    let mut section = field.section(reader, "how to reach the server, and its tables")?;

    let server = server::check(&mut section, reader, directory);
    let expected = "a list of tables, such as [public.cities]";
    let tables = section
        .required(reader, "tables", expected)
        .and_then(|field| tables(&field, reader, expected, postgres_table));
    let slot = own_name(&mut section, reader, "slot", pipeline, slot_name);
    let publication = own_name(&mut section, reader, "publication", pipeline, publication_name);
    let create_publication = match section.optional("create_publication") {
        Some(field) => field.boolean(reader),
        None => Some(false),
    };
    let pin_timeout = match section.optional("pin_timeout") {
        Some(field) => field.parsed(reader, "a duration such as 60s, at least 1s", |text| {
            quantity::duration(text).filter(|duration| *duration >= Duration::from_secs(1))
        }),
        None => Some(PIN_TIMEOUT),
    };
    section.finish(reader);
    Some(Postgres {
        server: server?,
        tables: tables?,
        slot: slot?,
        publication: publication?,
        create_publication: create_publication?,
        pin_timeout: pin_timeout?,
    })
}

/// How a kind of database writes the name of a table; the error goes on from the name.
type Parse = fn(&str) -> Result<TableName, String>;

fn postgres_table(text: &str) -> Result<TableName, String> {
    table::parse(text).map_err(|error| error.to_string())
}

pub(in crate::config) fn tables(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    expected: &str,
    parse: Parse,
) -> Option<Vec<TableName>> {
    let items = field.list(reader, expected)?;
    if items.is_empty() {
        field.wrong(reader, format!("is empty, expected {expected}"));
        return None;
    }
    let mut tables = Vec::new();
    let mut seen: HashMap<TableName, usize> = HashMap::new();
    let mut sound = true;
    for item in items {
        match one_table(&item, reader, parse) {
            None => sound = false,
            Some(table) => match seen.get(&table) {
                Some(line) => {
                    item.wrong(reader, format!("the table stands twice, first in line {line}"));
                    sound = false;
                }
                None => {
                    seen.insert(table.clone(), item.place().line);
                    tables.push(table);
                }
            },
        }
    }
    sound.then_some(tables)
}

pub(in crate::config) fn one_table(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    parse: Parse,
) -> Option<TableName> {
    let expected = "a table's name";
    let text = field.text(reader, expected)?;
    match parse(&text) {
        Ok(table) => Some(table),
        Err(error) => {
            let written = &field.scalar(reader, expected)?.written;
            field.wrong(reader, format!("`{written}` {error}"));
            None
        }
    }
}

/// A name at the server that is made from the pipeline's where the file gives none.
fn own_name(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    key: &'static str,
    pipeline: Option<&str>,
    check: fn(&Field<'_>, &mut Reader<'_>) -> Option<String>,
) -> Option<String> {
    match section.optional(key) {
        Some(field) => check(&field, reader),
        None => pipeline.map(|name| format!("dovetail_{name}")),
    }
}

/// The server's own rule for slots.
fn slot_name(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<String> {
    let expected = "a slot's name: 1 to 63 of a-z, 0-9 and _";
    field.parsed(reader, expected, |text| {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let sound = text.len() <= IDENTIFIER_BYTES_MAX && text.chars().all(letters);
        sound.then(|| text.to_owned())
    })
}

fn publication_name(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<String> {
    let expected = "a publication's name of at most 63 bytes";
    field.parsed(reader, expected, |text| {
        let sound = text.len() <= IDENTIFIER_BYTES_MAX && !text.contains('\0');
        sound.then(|| text.to_owned())
    })
}
