//! The publication: which tables the server sends, and what of them.
//!
//! It has to send whole rows of every captured table for every kind of change: a column list, a row filter or a missing
//! operation would make the stream say less than the scan did. Partitioned tables have to be sent under their own name
//! (`publish_via_partition_root`), which is the one that the scan uses too.

use std::collections::BTreeSet;

use dovetail_core::schema::TableName;

use crate::config;
use crate::source::postgres::catalog::get;
use crate::source::postgres::connection::Session;
use crate::source::postgres::failure::Failure;
use crate::source::postgres::identifier::{quote, quote_table};

use super::Finding;
use super::table::{self, Kind};

/// What was done to the publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// It covered the tables already.
    Unchanged,
    Created,
    /// These tables were added.
    Extended(Vec<TableName>),
}

struct Publication {
    all_operations: bool,
    via_root: bool,
    /// What of each captured table is sent.
    coverage: Vec<Coverage>,
}

struct Coverage {
    covered: bool,
    /// A column list or a row filter.
    partial: bool,
    /// The published table under whose name it is sent.
    sent_as: Option<TableName>,
}

pub(super) async fn inspect(
    session: &Session,
    source: &config::Postgres,
    tables: &[table::Facts],
    continuing: Option<&BTreeSet<TableName>>,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let names: Vec<TableName> = tables.iter().map(|facts| facts.table.clone()).collect();
    match read(session, &source.publication, &names).await? {
        Some(publication) => judge(source, &publication, tables, continuing, findings),
        None if continuing.is_some() => findings.push(gone(&source.publication)),
        None => {
            let capturable = tables.iter().filter(|facts| facts.kind != Kind::Other);
            let missing: Vec<&table::Facts> = capturable.collect();
            let title = format!("publication {} does not exist", source.publication);
            let names: Vec<&TableName> = missing.iter().map(|facts| &facts.table).collect();
            absent(source, title, &missing, create(&source.publication, &names), findings);
        }
    }
    Ok(())
}

async fn read(
    session: &Session,
    name: &str,
    tables: &[TableName],
) -> Result<Option<Publication>, Failure> {
    const PUBLICATION: &str = "\
        SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot \
        FROM pg_publication WHERE pubname = $1";
    // Column lists and filters came with 15; as JSON their absence in 14 is no error.
    const COVERAGE: &str = "\
        SELECT EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = $1 \
                AND p.schemaname = wanted.namespace AND p.tablename = wanted.name), \
            EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid \
                WHERE p.pubname = $1 AND r.prrelid = c.oid \
                AND (to_jsonb(r) ->> 'prattrs' IS NOT NULL OR to_jsonb(r) ->> 'prqual' IS NOT NULL)), \
            (SELECT ARRAY[p.schemaname::text, p.tablename::text] \
                FROM pg_partition_ancestors(c.oid) ancestor \
                JOIN pg_class a ON a.oid = ancestor.relid AND a.oid <> c.oid \
                JOIN pg_namespace an ON an.oid = a.relnamespace \
                JOIN pg_publication_tables p ON p.pubname = $1 \
                    AND p.schemaname = an.nspname AND p.tablename = a.relname \
                JOIN pg_publication via ON via.pubname = p.pubname AND via.pubviaroot LIMIT 1) \
        FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS wanted(namespace, name, place) \
        LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) \
            ON n.nspname = wanted.namespace AND c.relname = wanted.name \
        ORDER BY wanted.place";
    let what = "look at the publication";
    let failed = |error| Failure::sql(what, error);
    let client = session.client();
    let Some(row) = client.query_opt(PUBLICATION, &[&name]).await.map_err(failed)? else {
        return Ok(None);
    };
    let namespaces: Vec<&str> = tables.iter().map(|table| table.namespace.as_str()).collect();
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let rows = client.query(COVERAGE, &[&name, &namespaces, &names]).await.map_err(failed)?;
    let coverage = rows
        .iter()
        .map(|row| {
            let root: Option<Vec<String>> = get(row, 2, what)?;
            let sent_as = root.and_then(|names| {
                let [namespace, name] = <[String; 2]>::try_from(names).ok()?;
                Some(TableName { namespace, name })
            });
            Ok(Coverage { covered: get(row, 0, what)?, partial: get(row, 1, what)?, sent_as })
        })
        .collect::<Result<_, Failure>>()?;
    let (all_operations, via_root) = (get(&row, 0, what)?, get(&row, 1, what)?);
    Ok(Some(Publication { all_operations, via_root, coverage }))
}

fn judge(
    source: &config::Postgres,
    publication: &Publication,
    tables: &[table::Facts],
    continuing: Option<&BTreeSet<TableName>>,
    findings: &mut Vec<Finding>,
) {
    let name = quote(&source.publication);
    if !publication.all_operations {
        findings.push(
            Finding::error(
                format!("publication {} leaves out some kinds of changes", source.publication),
                "what it does not publish would be missing in the outlet",
            )
            .fix(format!(
                "ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
            )),
        );
    }
    if !publication.via_root && tables.iter().any(|facts| facts.kind == Kind::Partitioned) {
        findings.push(
            Finding::error(
                format!(
                    "publication {} sends partitions under their own names",
                    source.publication
                ),
                "the scan and the stream of a partitioned table have to name the same table",
            )
            .fix(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true)")),
        );
    }
    let capturable = tables.iter().zip(&publication.coverage);
    let capturable = capturable.filter(|(facts, _)| facts.kind != Kind::Other);
    let mut missing = Vec::new();
    for (facts, coverage) in capturable {
        if !coverage.covered && continuing.is_some_and(|it| it.contains(&facts.table)) {
            findings.push(left_out(&source.publication, &facts.table));
        } else if let Some(root) = &coverage.sent_as {
            if facts.captured_root.is_none() {
                findings.push(sent_as(&source.publication, &facts.table, root));
            }
        } else if !coverage.covered {
            missing.push(facts);
        } else if let Some(finding) = without_identity(facts) {
            findings.push(finding);
        }
        if coverage.partial {
            findings.push(partial(&source.publication, &facts.table));
        }
    }
    if !missing.is_empty() {
        let names: Vec<&TableName> = missing.iter().map(|facts| &facts.table).collect();
        let list: Vec<String> = names.iter().map(ToString::to_string).collect();
        let title = format!("publication {} lacks {}", source.publication, list.join(", "));
        absent(source, title, &missing, extend(&source.publication, &names), findings);
    }
}

/// The server gives no changes from before a publication was made, so making it again would hide a gap.
fn gone(publication: &str) -> Finding {
    Finding::error(
        format!("publication {publication} is gone"),
        "changes since then are lost; remove the state directory and the slot, and start anew to copy the tables again",
    )
}

/// As [`gone`], for one table that is not scanned again.
fn left_out(publication: &str, table: &TableName) -> Finding {
    Finding::error(
        format!("publication {publication} does not send table {table} any more"),
        "changes of it since then are lost; take it out of `tables`, run until caught up, and put it back: it is \
         scanned again then",
    )
}

fn sent_as(publication: &str, table: &TableName, root: &TableName) -> Finding {
    Finding::error(
        format!(
            "publication {publication} sends the changes of table {table} under the name of {root}"
        ),
        format!(
            "they would be missing in the outlet; capture {root} instead, or use a publication without it"
        ),
    )
}

fn partial(publication: &str, table: &TableName) -> Finding {
    let (name, table_name) = (quote(publication), quote_table(table));
    Finding::error(
        format!("publication {publication} sends only a part of table {table}"),
        "a column list or a row filter would make the stream differ from the scan; leave columns and rows out by a plugin",
    )
    .fix(format!(
        "ALTER PUBLICATION {name} DROP TABLE {table_name}; ALTER PUBLICATION {name} ADD TABLE {table_name}"
    ))
}

/// For tables that are not (yet) published: what the engine will do, or what the operator has to.
fn absent(
    source: &config::Postgres,
    title: String,
    missing: &[&table::Facts],
    sql: String,
    findings: &mut Vec<Finding>,
) {
    if !source.create_publication {
        let detail = "create it, or allow the engine to (create_publication: true)";
        findings.push(Finding::error(title, detail).fix(sql));
        return;
    }
    let harmful: Vec<&TableName> = missing.iter().filter_map(|facts| unidentified(facts)).collect();
    if harmful.is_empty() {
        findings.push(Finding::note(title, format!("the engine will run: {sql}")));
    }
    findings.extend(harmful.into_iter().map(|table| {
        Finding::error(
            format!("the engine does not publish table {table}: it has no replica identity"),
            "once it is published, the application's UPDATE and DELETE on it fail; give it one, or publish it yourself",
        )
        .fix(format!("ALTER TABLE {} REPLICA IDENTITY FULL", quote_table(table)))
    }));
}

/// The table, or the first leaf of it, whose rows cannot be told apart in the log.
fn unidentified(facts: &table::Facts) -> Option<&TableName> {
    match (&facts.leaf_without_identity, facts.identifies) {
        (Some(leaf), _) => Some(leaf),
        (None, false) => Some(&facts.table),
        (None, true) => None,
    }
}

fn without_identity(facts: &table::Facts) -> Option<Finding> {
    let table = unidentified(facts)?;
    Some(
        Finding::warning(
            format!("table {table} is published without a replica identity"),
            "the application's UPDATE and DELETE on it fail",
        )
        .fix(format!("ALTER TABLE {} REPLICA IDENTITY FULL", quote_table(table))),
    )
}

fn list(tables: &[&TableName]) -> String {
    tables.iter().map(|table| quote_table(table)).collect::<Vec<_>>().join(", ")
}

fn create(publication: &str, tables: &[&TableName]) -> String {
    let (name, tables) = (quote(publication), list(tables));
    format!("CREATE PUBLICATION {name} FOR TABLE {tables} WITH (publish_via_partition_root = true)")
}

fn extend(publication: &str, tables: &[&TableName]) -> String {
    format!("ALTER PUBLICATION {} ADD TABLE {}", quote(publication), list(tables))
}

/// Creates the publication, or adds the tables that it lacks; only where the configuration allows it, and after
/// [`inspect`](super::inspect) found no error. Before the slot: what is published later than the pin has a gap.
///
/// # Errors
/// Definite where this role may not: it has to own the tables, and to have CREATE on the database for a new one.
/// Definite, too, where a table is still not sent under its own name afterwards. Transient where the publication lost tables since it was inspected.
pub async fn prepare(
    session: &Session,
    source: &config::Postgres,
    continuing: Option<&BTreeSet<TableName>>,
) -> Result<Prepared, Failure> {
    if !source.create_publication {
        return Ok(Prepared::Unchanged);
    }
    let publication = read(session, &source.publication, &source.tables).await?;
    let (sql, prepared) = match publication {
        None if continuing.is_some() => return Err(changed(&source.publication)),
        None => {
            let tables: Vec<&TableName> = source.tables.iter().collect();
            (create(&source.publication, &tables), Prepared::Created)
        }
        Some(publication) => {
            let coverage = source.tables.iter().zip(&publication.coverage);
            let missing: Vec<&TableName> = coverage
                .filter_map(|(table, coverage)| (!coverage.covered).then_some(table))
                .collect();
            if missing.is_empty() {
                return Ok(Prepared::Unchanged);
            }
            if missing.iter().any(|table| continuing.is_some_and(|it| it.contains(*table))) {
                return Err(changed(&source.publication));
            }
            let added = missing.iter().map(|table| (*table).clone()).collect();
            (extend(&source.publication, &missing), Prepared::Extended(added))
        }
    };
    let what = format!("prepare publication {}", source.publication);
    let client = session.client();
    client.batch_execute(&sql).await.map_err(|error| Failure::sql(what.clone(), error))?;
    let published = read(session, &source.publication, &source.tables).await?;
    let coverage = published.map(|publication| publication.coverage).unwrap_or_default();
    let unsent = |(_, coverage): &(_, &Coverage)| !coverage.covered || coverage.sent_as.is_some();
    match source.tables.iter().zip(&coverage).find(unsent) {
        None if coverage.len() == source.tables.len() => Ok(prepared),
        missing => Err(Failure::definite(
            match missing {
                Some((table, _)) => format!("{what}: table {table} is not sent under its own name"),
                None => format!("{what}: it is gone again"),
            },
            "see what `dovetail check` says, and mend the publication",
        )),
    }
}

fn changed(publication: &str) -> Failure {
    let what = format!("prepare publication {publication}");
    Failure::transient(what, "it was changed at this moment, and is looked at again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(identifies: bool, leaf: Option<&str>) -> table::Facts {
        let name = |name: &str| TableName { namespace: "public".into(), name: name.into() };
        table::Facts {
            table: name("t"),
            kind: Kind::Plain,
            identity: "d".into(),
            identifies,
            leaf_without_identity: leaf.map(name),
            captured_root: None,
        }
    }

    #[test]
    fn a_table_or_leaf_without_identity_is_never_harmless() {
        assert!(without_identity(&facts(true, None)).is_none());
        assert!(without_identity(&facts(false, None)).is_some());
        let finding = without_identity(&facts(true, Some("leaf"))).expect("the leaf");
        assert!(finding.fix_sql.expect("a fix").contains("\"leaf\""));
    }

    #[test]
    fn statements_quote_every_name() {
        let table = TableName { namespace: "a b".into(), name: "T".into() };
        assert_eq!(extend("P", &[&table]), "ALTER PUBLICATION \"P\" ADD TABLE \"a b\".\"T\"");
    }
}
