//! Names of tables as `psql` takes them: `cities`, `public.cities`, `public."Odd.Name"`.
//!
//! SQL folds a name without quotes to lower case. A file that says `public.Cities` means one of two tables, so upper case needs
//! quotes here.

use dovetail_core::schema::TableName;

/// PostgreSQL's `NAMEDATALEN` less its terminator; longer names are cut by the server, so two could become one.
pub(in crate::config) const IDENTIFIER_BYTES_MAX: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::config) enum InvalidName {
    #[error("is not a table's name, expected `schema.table`, with double quotes around odd names")]
    Form,
    #[error("names a pattern; name each table by itself")]
    Pattern,
    #[error("names a database as well; the tables of one pipeline are in one database")]
    Database,
    #[error(
        "has upper case letters, which SQL folds to lower case; put the name in double quotes if they are meant"
    )]
    UpperCase,
    #[error("has a name of more than {IDENTIFIER_BYTES_MAX} bytes, which the server would cut")]
    Long,
    #[error("is one of the server's own tables")]
    System,
}

pub(in crate::config) fn parse(text: &str) -> Result<TableName, InvalidName> {
    let (first, rest) = identifier(text)?;
    let (namespace, name) = match rest.strip_prefix('.') {
        None if rest.is_empty() => ("public".to_owned(), first),
        None => return Err(InvalidName::Form),
        Some(rest) => match identifier(rest)? {
            (second, "") => (first, second),
            (_, rest) if rest.starts_with('.') => return Err(InvalidName::Database),
            _ => return Err(InvalidName::Form),
        },
    };
    if namespace == "information_schema" || namespace.starts_with("pg_") {
        return Err(InvalidName::System);
    }
    Ok(TableName { namespace, name })
}

/// One name from the front, and what follows it.
fn identifier(text: &str) -> Result<(String, &str), InvalidName> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (name, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
            plain(name)?;
            (name.to_owned(), rest)
        }
    };
    match name.len() {
        0 => Err(InvalidName::Form),
        1..=IDENTIFIER_BYTES_MAX => Ok((name, rest)),
        _ => Err(InvalidName::Long),
    }
}

/// Up to the closing quote; two quotes are one.
fn unquote(text: &str) -> Result<(String, &str), InvalidName> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or(InvalidName::Form)?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
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
    let starts = |c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii();
    let goes_on = |c: char| starts(c) || c == '$' || c.is_ascii_digit();
    if !name.starts_with(starts)
        || !name.chars().all(goes_on)
        || name.chars().any(char::is_whitespace)
    {
        return Err(InvalidName::Form);
    }
    if name.contains(|c: char| c.is_ascii_uppercase()) {
        return Err(InvalidName::UpperCase);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_psql_reads_them() {
        for (text, namespace, name) in [
            ("cities", "public", "cities"),
            ("shop.order_lines2", "shop", "order_lines2"),
            ("public.\"Weird.Name\"", "public", "Weird.Name"),
            ("\"A\"\"b\".\"c d\"", "A\"b", "c d"),
            ("人口.都市", "人口", "都市"),
        ] {
            let expected = TableName { namespace: namespace.into(), name: name.into() };
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_that_could_mean_another_table_are_refused() {
        let long = "a".repeat(64);
        for (text, error) in [
            ("public.Cities", InvalidName::UpperCase),
            ("public.*", InvalidName::Pattern),
            ("shop.public.cities", InvalidName::Database),
            ("public.", InvalidName::Form),
            ("public.\"cities", InvalidName::Form),
            ("public.\"cities\"x", InvalidName::Form),
            ("public.two words", InvalidName::Form),
            ("public.a\u{a0}b", InvalidName::Form),
            ("1st", InvalidName::Form),
            ("\"\"", InvalidName::Form),
            ("pg_catalog.pg_class", InvalidName::System),
            (long.as_str(), InvalidName::Long),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
