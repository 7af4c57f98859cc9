//! Names in SQL text. The only place that quotes one; values are bound, or quoted by [`literal`] where the protocol
//! has no parameters (replication commands, COPY).

use dovetail_core::schema::TableName;
use postgres_protocol::escape::{escape_identifier, escape_literal};

pub fn quote(name: &str) -> String {
    escape_identifier(name)
}

/// A table with its schema, quoted.
pub fn quote_table(table: &TableName) -> String {
    format!("{}.{}", quote(&table.namespace), quote(&table.name))
}

pub(crate) fn literal(text: &str) -> String {
    // The library puts a blank before an escape string, which would not be one token with what stands before it.
    escape_literal(text).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let table = TableName { namespace: "Odd \"schema\"".into(), name: "t; drop".into() };
        assert_eq!(quote_table(&table), "\"Odd \"\"schema\"\"\".\"t; drop\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
