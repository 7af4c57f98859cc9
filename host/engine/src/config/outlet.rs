//! The `outlets` section and the `deliver` list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::field::{Field, Reader, Section};
use super::problem::{alternatives, nearest};
use super::table::IDENTIFIER_BYTES_MAX;
use super::{Outlet, Source, server};

const KINDS: &str = "one of stdout, file, sqlite, postgres, mysql, mariadb or discard";
const KIND_NAMES: [&str; 7] =
    ["stdout", "file", "sqlite", "postgres", "mysql", "mariadb", "discard"];

/// `source` keeps an outlet from writing into the tables that it is fed from.
pub(in crate::config) fn check(
    root: &mut Section<'_>,
    reader: &mut Reader<'_>,
    source: Option<&Source>,
    directory: &Path,
) -> Option<BTreeMap<String, Outlet>> {
    let expected = "outlets by name, such as `replica: {sqlite: {path: replica.db}}`";
    let field = root.required(reader, "outlets", expected)?;
    let section = field.section(reader, expected)?;
    if section.named().next().is_none() {
        field.wrong(reader, format!("is empty, expected {expected}"));
        return None;
    }
    let mut outlets = BTreeMap::new();
    let mut sound = true;
    for (name, field) in section.named() {
        let checked = named(name, &field, reader, directory);
        let Some(outlet) = checked else {
            sound = false;
            continue;
        };
        let shared = outlets.iter().find(|(_, other)| same_place(&outlet, other));
        if let Some((other, _)) = shared {
            field.wrong(reader, format!("writes to the same place as `{other}`"));
            sound = false;
        }
        if source.is_some_and(|source| feeds_itself(&outlet, source)) {
            let text = "would write into the captured tables themselves; give a `schema` of its own, \
                        or another database";
            field.wrong(reader, text);
            sound = false;
        }
        outlets.insert(name.to_owned(), outlet);
    }
    sound.then_some(outlets)
}

fn named(
    name: &str,
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<Outlet> {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let sound = !name.is_empty() && name.len() <= 64 && name.chars().all(letters);
    if !sound {
        field.wrong(reader, "is not an outlet's name, expected 1 to 64 letters, digits, _ and -");
    }
    let section = field.section(reader, KINDS)?;
    let mut kinds = section.named();
    let (Some((kind, field)), None) = (kinds.next(), kinds.next()) else {
        field.wrong(reader, format!("needs exactly one kind, expected {KINDS}"));
        return None;
    };
    let outlet = one(kind, &field, reader, directory)?;
    sound.then_some(outlet)
}

fn one(kind: &str, field: &Field<'_>, reader: &mut Reader<'_>, directory: &Path) -> Option<Outlet> {
    if !KIND_NAMES.contains(&kind) {
        field.wrong(reader, format!("is no kind of outlet, expected {KINDS}"));
        return None;
    }
    let mut section = field.section(reader, "the outlet's keys, such as {}")?;
    let outlet = match kind {
        "stdout" => Some(Outlet::Stdout),
        "file" => path(&mut section, reader, directory).map(|path| Outlet::File { path }),
        "sqlite" => path(&mut section, reader, directory).map(|path| Outlet::Sqlite { path }),
        "postgres" => postgres(&mut section, reader, directory),
        // One protocol; which of the two it is, the server says.
        "mysql" | "mariadb" => server::check_mysql_database(&mut section, reader, directory)
            .map(|(server, database)| Outlet::MySql { server, database }),
        _ => Some(Outlet::Discard),
    };
    section.finish(reader);
    outlet
}

fn path(section: &mut Section<'_>, reader: &mut Reader<'_>, directory: &Path) -> Option<PathBuf> {
    let field = section.required(reader, "path", "a file")?;
    Some(directory.join(field.text(reader, "a file")?))
}

fn postgres(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<Outlet> {
    let server = server::check(section, reader, directory);
    let schema = match section.optional("schema") {
        Some(field) => {
            let expected = "a schema's name of at most 63 bytes";
            Some(field.parsed(reader, expected, |text| {
                let sound = text.len() <= IDENTIFIER_BYTES_MAX && !text.contains('\0');
                sound.then(|| text.to_owned())
            })?)
        }
        None => None,
    };
    Some(Outlet::Postgres { server: server?, schema })
}

fn same_place(one: &Outlet, other: &Outlet) -> bool {
    match (one, other) {
        (Outlet::Stdout, Outlet::Stdout) => true,
        (
            Outlet::File { path: one } | Outlet::Sqlite { path: one },
            Outlet::File { path: other } | Outlet::Sqlite { path: other },
        ) => one == other,
        (
            Outlet::Postgres { server: one, schema },
            Outlet::Postgres { server: other, schema: other_schema },
        ) => one.same_database(other) && schema == other_schema,
        (
            Outlet::MySql { server: one, database },
            Outlet::MySql { server: other, database: other_database },
        ) => one.is_same(other) && database == other_database,
        _ => false,
    }
}

fn feeds_itself(outlet: &Outlet, source: &Source) -> bool {
    let captured = |name: &String| source.tables().iter().any(|table| table.namespace == *name);
    match (outlet, source) {
        (Outlet::Postgres { server, schema }, Source::Postgres(source)) => {
            server.same_database(&source.server) && schema.as_ref().is_none_or(captured)
        }
        (Outlet::MySql { server, database }, Source::MySql(source)) => {
            server.is_same(&source.server) && captured(database)
        }
        _ => false,
    }
}

/// The outlets that changes go to, in order. Without the key: the one that there is.
pub(in crate::config) fn deliver(
    root: &mut Section<'_>,
    reader: &mut Reader<'_>,
    outlets: Option<&BTreeMap<String, Outlet>>,
) -> Option<Vec<String>> {
    let expected = "a list of outlets' names";
    let Some(field) = root.optional("deliver") else {
        let outlets = outlets?;
        if outlets.len() > 1 {
            let names = alternatives(outlets.keys().map(String::as_str));
            let text =
                format!("missing, because there are several outlets: expected a list of {names}");
            reader.report(root.place, "deliver", text);
            return None;
        }
        return Some(outlets.keys().cloned().collect());
    };
    let items = field.list(reader, expected)?;
    if items.is_empty() {
        field.wrong(reader, format!("is empty, expected {expected}"));
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    let mut sound = true;
    for item in items {
        let Some(name) = item.text(reader, "an outlet's name") else {
            sound = false;
            continue;
        };
        let problem = if names.contains(&name) {
            Some("stands twice".to_owned())
        } else {
            outlets
                .filter(|outlets| !outlets.contains_key(&name))
                .map(|outlets| unknown(&item, reader, outlets))
        };
        if let Some(text) = problem {
            item.wrong(reader, text);
            sound = false;
        } else {
            names.push(name);
        }
    }
    sound.then_some(names)
}

fn unknown(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    outlets: &BTreeMap<String, Outlet>,
) -> String {
    let names = || outlets.keys().map(String::as_str);
    let written =
        field.scalar(reader, "an outlet's name").map_or("", |scalar| scalar.written.as_str());
    match nearest(written, names()) {
        Some(name) => format!("`{written}` is not an outlet; did you mean `{name}`?"),
        None => format!("`{written}` is not an outlet, expected {}", alternatives(names())),
    }
}
