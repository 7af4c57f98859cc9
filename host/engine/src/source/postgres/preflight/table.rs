//! The captured tables.

use std::collections::BTreeSet;

use dovetail_core::schema::TableName;

use crate::config::nearest;
use crate::source::postgres::catalog::get;
use crate::source::postgres::connection::Session;
use crate::source::postgres::failure::Failure;
use crate::source::postgres::identifier::{quote, quote_table};

use super::{Finding, partition};

/// What the publication has to know about a table that exists.
#[derive(Debug)]
pub(super) struct Facts {
    pub table: TableName,
    pub kind: Kind,
    /// `relreplident`.
    pub identity: String,
    /// Rows can be told apart in the log: by an index, or as a whole.
    pub identifies: bool,
    /// A leaf of a partitioned table whose rows cannot.
    pub leaf_without_identity: Option<TableName>,
    /// A captured table that it is a partition of.
    pub captured_root: Option<TableName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Partitioned,
    /// Not one that can be captured.
    Other,
}

struct Row {
    facts: Facts,
    kind: String,
    persistence: String,
    heap: bool,
    schema_usage: bool,
    select: bool,
    hidden_rows: bool,
    leaf_without_select: Option<TableName>,
    foreign_leaf: Option<TableName>,
    leaf_with_hidden_rows: Option<TableName>,
    has_primary_key: bool,
    role: String,
}

/// Returns the tables that are there. Those that are `due` will be read.
pub(super) async fn inspect(
    session: &Session,
    names: &[TableName],
    due: &BTreeSet<TableName>,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Facts>, Failure> {
    let rows = read(session, names).await?;
    let mut missing = Vec::new();
    let mut there = Vec::new();
    for (name, row) in names.iter().zip(rows) {
        match row {
            None => missing.push(name),
            Some(row) => {
                judge(&row, due.contains(name), findings);
                if row.facts.kind == Kind::Partitioned {
                    partition::judge(session, name, findings).await?;
                }
                there.push(row.facts);
            }
        }
    }
    if !missing.is_empty() {
        let candidates = candidates(session).await?;
        findings.extend(missing.into_iter().map(|name| not_there(name, &candidates)));
    }
    Ok(there)
}

/// Per name, `None` where there is no such table, view or the like.
async fn read(session: &Session, names: &[TableName]) -> Result<Vec<Option<Row>>, Failure> {
    // An index identifies rows if it is valid, unique, immediate, whole, and the one that the identity names.
    const QUERY: &str = "\
        WITH identifying AS ( \
            SELECT c.oid, c.relreplident = 'f' OR EXISTS ( \
                SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid \
                    AND i.indisunique AND i.indimmediate AND i.indpred IS NULL \
                    AND (c.relreplident = 'd' AND i.indisprimary \
                        OR c.relreplident = 'i' AND i.indisreplident)) AS identifies \
            FROM pg_class c WHERE c.relkind IN ('r', 'p') \
        ), leaf AS ( \
            SELECT root.oid AS root, c.oid, c.relkind, n.nspname::text AS namespace, \
                c.relname::text AS name, identifying.identifies \
            FROM pg_class root CROSS JOIN LATERAL pg_partition_tree(root.oid) tree \
            JOIN pg_class c ON c.oid = tree.relid JOIN pg_namespace n ON n.oid = c.relnamespace \
            LEFT JOIN identifying ON identifying.oid = c.oid \
            WHERE root.relkind = 'p' AND tree.isleaf AND c.relkind <> 'p' \
        ) \
        SELECT c.oid IS NOT NULL, c.relkind::text, c.relpersistence::text, c.relreplident::text, \
            coalesce((SELECT amname = 'heap' FROM pg_am WHERE pg_am.oid = c.relam), true), \
            has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'), \
            c.relkind IN ('r', 'p') AND row_security_active(c.oid), \
            coalesce(identifying.identifies, false), \
            (SELECT ARRAY[namespace, name] FROM leaf \
                WHERE root = c.oid AND NOT has_table_privilege(leaf.oid, 'SELECT') LIMIT 1), \
            (SELECT ARRAY[namespace, name] FROM leaf \
                WHERE root = c.oid AND relkind <> 'r' LIMIT 1), \
            (SELECT ARRAY[namespace, name] FROM leaf \
                WHERE root = c.oid AND relkind = 'r' AND NOT identifies LIMIT 1), \
            (SELECT ARRAY[namespace, name] FROM leaf \
                WHERE root = c.oid AND relkind = 'r' AND row_security_active(leaf.oid) LIMIT 1), \
            (SELECT ARRAY[captured.namespace, captured.name] \
                FROM pg_partition_ancestors(c.oid) ancestor \
                JOIN pg_class a ON a.oid = ancestor.relid \
                JOIN pg_namespace an ON an.oid = a.relnamespace \
                JOIN unnest($1::text[], $2::text[]) captured(namespace, name) \
                    ON captured.namespace = an.nspname AND captured.name = a.relname \
                WHERE a.oid <> c.oid LIMIT 1), \
            EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), \
            current_user::text \
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(namespace, name, place) \
        LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) \
            ON n.nspname = wanted.namespace AND c.relname = wanted.name \
            AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') \
        LEFT JOIN identifying ON identifying.oid = c.oid \
        ORDER BY wanted.place";
    let what = "look at the tables";
    let namespaces: Vec<&str> = names.iter().map(|table| table.namespace.as_str()).collect();
    let tables: Vec<&str> = names.iter().map(|table| table.name.as_str()).collect();
    let rows = session
        .client()
        .query(QUERY, &[&namespaces, &tables])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    let leaf = |row: &tokio_postgres::Row, column| -> Result<Option<TableName>, Failure> {
        let names: Option<Vec<String>> = get(row, column, what)?;
        Ok(names.and_then(|names| {
            let [namespace, name] = <[String; 2]>::try_from(names).ok()?;
            Some(TableName { namespace, name })
        }))
    };
    names
        .iter()
        .zip(&rows)
        .map(|(table, row)| {
            if !get::<bool>(row, 0, what)? {
                return Ok(None);
            }
            let kind: String = get(row, 1, what)?;
            let facts = Facts {
                table: table.clone(),
                kind: match kind.as_str() {
                    "r" => Kind::Plain,
                    "p" => Kind::Partitioned,
                    _ => Kind::Other,
                },
                identity: get(row, 3, what)?,
                identifies: get(row, 8, what)?,
                leaf_without_identity: leaf(row, 11)?,
                captured_root: leaf(row, 13)?,
            };
            Ok(Some(Row {
                facts,
                kind,
                persistence: get(row, 2, what)?,
                heap: get(row, 4, what)?,
                schema_usage: get(row, 5, what)?,
                select: get(row, 6, what)?,
                hidden_rows: get(row, 7, what)?,
                leaf_without_select: leaf(row, 9)?,
                foreign_leaf: leaf(row, 10)?,
                leaf_with_hidden_rows: leaf(row, 12)?,
                has_primary_key: get(row, 14, what)?,
                role: get(row, 15, what)?,
            }))
        })
        .collect()
}

fn judge(row: &Row, due: bool, findings: &mut Vec<Finding>) {
    let table = &row.facts.table;
    if row.facts.kind == Kind::Other {
        let kind = match row.kind.as_str() {
            "v" => "a view",
            "m" => "a materialized view",
            "f" => "a foreign table",
            _ => "a sequence",
        };
        findings.push(Finding::error(
            format!("{table} is {kind}"),
            "the log only holds changes of tables; capture the tables behind it",
        ));
        return;
    }
    match row.persistence.as_str() {
        "p" => {}
        "u" => findings.push(
            Finding::error(format!("table {table} is unlogged"), "its changes are not in the log")
                .fix(format!("ALTER TABLE {} SET LOGGED", quote_table(table))),
        ),
        _ => findings.push(Finding::error(
            format!("table {table} is temporary"),
            "its changes are not in the log",
        )),
    }
    if !row.heap {
        findings.push(Finding::error(
            format!("table {table} is not stored as a heap"),
            "only the built-in table access method can be scanned in chunks",
        ));
    }
    if let Some(leaf) = &row.foreign_leaf {
        findings.push(Finding::error(
            format!("table {table} has the foreign table {leaf} as a partition"),
            "the changes of a foreign table are not in this server's log",
        ));
    }
    if let Some(root) = &row.facts.captured_root {
        findings.push(Finding::error(
            format!("table {table} is a partition of {root}, which is captured too"),
            "its changes come under the name of the root, and its rows would be scanned twice; take one of them out of the configuration",
        ));
    }
    // The stream is the publication's affair: a role may lose SELECT once the scan is done.
    if due {
        privileges(row, findings);
    }
    if row.facts.identity == "f" {
        let key = match row.has_primary_key {
            true => "rows are still told apart by its primary key",
            false => "it has no primary key, so rows are told apart as a whole",
        };
        findings.push(Finding::note(
            format!("table {table} has REPLICA IDENTITY FULL"),
            format!("{key}; every update and delete writes the whole old row into the log"),
        ));
    }
}

fn privileges(row: &Row, findings: &mut Vec<Finding>) {
    let (table, role) = (&row.facts.table, quote(&row.role));
    if !row.schema_usage {
        findings.push(
            Finding::error(
                format!("role {} may not use schema {}", row.role, table.namespace),
                "the scan reads the tables in it",
            )
            .fix(format!("GRANT USAGE ON SCHEMA {} TO {role}", quote(&table.namespace))),
        );
    }
    let unreadable = (!row.select).then_some(table).or(row.leaf_without_select.as_ref());
    if let Some(unreadable) = unreadable {
        findings.push(
            Finding::error(
                format!("role {} may not read table {unreadable}", row.role),
                "the scan needs SELECT on every table, and on every partition",
            )
            .fix(format!("GRANT SELECT ON {} TO {role}", quote_table(unreadable))),
        );
    }
    let hiding = row.hidden_rows.then_some(table).or(row.leaf_with_hidden_rows.as_ref());
    if let Some(hiding) = hiding {
        findings.push(
            Finding::error(
                format!("row security hides rows of table {hiding} from role {}", row.role),
                "the scan has to see every row",
            )
            .fix(format!("ALTER ROLE {role} BYPASSRLS")),
        );
    }
}

async fn candidates(session: &Session) -> Result<Vec<TableName>, Failure> {
    /// As many names as are compared in a moment; where there are more, a hint less is no loss.
    const QUERY: &str = "\
        SELECT n.nspname::text, c.relname::text \
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
            AND n.nspname NOT LIKE 'pg\\_%' LIMIT 10000";
    let what = "look for tables with a similar name";
    let rows =
        session.client().query(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    rows.iter()
        .map(|row| Ok(TableName { namespace: get(row, 0, what)?, name: get(row, 1, what)? }))
        .collect()
}

fn not_there(name: &TableName, candidates: &[TableName]) -> Finding {
    let same_letters = |other: &&TableName| other.name.eq_ignore_ascii_case(&name.name);
    let texts: Vec<String> = candidates.iter().map(TableName::to_string).collect();
    let similar =
        candidates.iter().find(same_letters).map(TableName::to_string).or_else(|| {
            nearest(&name.to_string(), texts.iter().map(String::as_str)).map(Into::into)
        });
    let detail = match similar {
        Some(similar) => format!("did you mean {similar}? Names are compared with their case"),
        None => "create it, or take it out of the configuration".into(),
    };
    Finding::error(format!("table {name} does not exist"), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(namespace: &str, name: &str) -> TableName {
        TableName { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn a_missing_table_is_told_with_the_one_that_was_meant() {
        let there = [table("public", "Orders"), table("public", "customers")];
        let detail = |name: &str| not_there(&table("public", name), &there).detail;
        assert!(detail("orders").contains("public.Orders"));
        assert!(detail("custmers").contains("public.customers"));
        assert!(!detail("elephants").contains("did you mean"));
    }
}
