//! A plugin's `grants`. What is not written is not granted; everything is said by a word (`all`) or by name.

use dovetail_core::change::Operation;
use dovetail_sandbox::{Grant, Grants};

use super::field::{Field, Reader};
use super::tree::Content;

pub(in crate::config) fn check(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Grants> {
    let mut section =
        field.section(reader, "{digest: ..., rows: ..., clock: ..., randomness: ...}")?;
    // What is wrong with it is noted, and then nothing of the file counts.
    let expected = "a digest: sha256: and 64 digits of 0-9 and a-f";
    let field = section.optional("digest");
    let digest = field.and_then(|field| field.parsed(reader, expected, digest));
    let rows = match section.optional("rows") {
        Some(field) => rows(&field, reader),
        None => Some(Vec::new()),
    };
    let mut given = |key| match section.optional(key) {
        Some(field) => field.boolean(reader),
        None => Some(false),
    };
    let (clock, randomness) = (given("clock"), given("randomness"));
    section.finish(reader);
    Some(Grants { digest, rows: rows?, clock: clock?, randomness: randomness? })
}

/// As `dovetail plugin inspect` prints it.
fn digest(text: &str) -> Option<String> {
    let digits = text.strip_prefix("sha256:")?;
    let hexadecimal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (digits.len() == 64 && digits.chars().all(hexadecimal)).then(|| digits.to_owned())
}

fn rows(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Vec<Grant>> {
    let items = field.list(reader, "a list of grants")?;
    let grants: Vec<_> = items.iter().map(|item| grant(item, reader)).collect();
    grants.into_iter().collect()
}

fn grant(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Grant> {
    let mut section = field.section(reader, "{tables: ..., columns: ..., operations: ...}")?;
    let expected = "a list of tables, such as [public.users]; `*` stands for any run of characters";
    let tables = section.required(reader, "tables", expected);
    let tables = tables.and_then(|field| names(&field, reader, expected, "a table or a pattern"));
    let expected = "`all`, or a list of columns";
    let columns = section.required(reader, "columns", expected);
    let columns = columns.and_then(|field| {
        Some(if is_all(&field) { None } else { Some(names(&field, reader, expected, "a column")?) })
    });
    let expected = "`all`, or a list of operations";
    let operations = section.required(reader, "operations", expected).and_then(|field| {
        if is_all(&field) {
            return Some(Operation::ALL.into_iter().collect());
        }
        let choices = Operation::ALL.map(|operation| (operation.name(), operation));
        let items = field.list(reader, expected)?;
        let operations: Vec<_> = items.iter().map(|item| item.choice(reader, &choices)).collect();
        operations.into_iter().collect()
    });
    section.finish(reader);
    Some(Grant { tables: tables?, columns: columns?, operations: operations? })
}

fn is_all(field: &Field<'_>) -> bool {
    matches!(field.content(), Content::Scalar(scalar) if scalar.written == "all")
}

fn names(
    field: &Field<'_>,
    reader: &mut Reader<'_>,
    expected: &str,
    one: &str,
) -> Option<Vec<String>> {
    let items = field.list(reader, expected)?;
    let names: Vec<_> = items.iter().map(|item| item.text(reader, one)).collect();
    names.into_iter().collect()
}
