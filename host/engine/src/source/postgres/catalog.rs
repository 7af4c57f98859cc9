//! Definitions of tables, as a session sees them.
//!
//! The scan learns a table from here, the stream from its `Relation` messages. Both have to come to the same
//! [`Relation`], with the same version, or the first change after the scan would look like a redefinition. So this
//! follows what pgoutput does: columns in the order of their numbers, without dropped ones, and without generated ones
//! unless the publication sends them (18 and later); a domain by its base type, with the modifier of the column and
//! not of the domain; the key by the replica identity's index, and only where that is the full row or nothing, by the
//! primary key.
//!
//! All of it is plain queries on the catalog's tables, so that a view shows the definitions of its own moment.
//! (Functions like `pg_partition_tree` or `format_type` would show those of now.)

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dovetail_core::decode::types;
use dovetail_core::schema::{Column, Initial, Relation, RelationId, TableName};
use tokio_postgres::{Client, Row};

use super::failure::Failure;

/// A table as one session sees it. Equal if nothing of it was redefined, truncated or rewritten in between.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub relation: Arc<Relation>,
    /// Where its rows are: itself, or the leaves of a partitioned table.
    pub heaps: Vec<Heap>,
}

/// A table with rows of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heap {
    pub id: RelationId,
    pub table: TableName,
    /// `pg_class.relfilenode`: another one after TRUNCATE and whatever else rewrites the table.
    file: u32,
}

#[cfg(test)]
impl Heap {
    pub(super) fn for_test(id: RelationId, table: TableName) -> Self {
        Self { id, table, file: id.0 }
    }
}

/// What the catalog knows of a table that the stream does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Supplement {
    /// Names of the key's columns: of the replica identity, or else of the primary key.
    pub key: Vec<String>,
    /// The columns by name; one that is not here is gone by now.
    pub columns: HashMap<String, Column>,
}

/// Who the server is; stored with the position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Made by initdb; a copy of the cluster has the same.
    pub system: u64,
    pub database: String,
}

/// The given tables, in their order.
///
/// # Errors
/// Definite when one is not there.
pub async fn tables(
    client: &Client,
    names: &[TableName],
    publication: &str,
) -> Result<Vec<Table>, Failure> {
    let classes = classes(client, names).await?;
    let ids: Vec<u32> = classes.iter().map(|class| class.id).collect();
    let mut columns = columns(client, &ids, publication).await?;
    let mut keys = keys(client, &ids).await?;
    let mut leaves = leaves(client, &ids).await?;
    classes
        .into_iter()
        .map(|class| {
            let columns: Vec<Column> = columns.remove(&class.id).unwrap_or_default();
            let key = keys.remove(&class.id).unwrap_or_default();
            let key = indices(&columns, &key).ok_or_else(|| {
                Failure::definite(
                    format!("the key of {} has a column that is not published", class.table),
                    "choose another replica identity for it",
                )
            })?;
            let id = RelationId(class.id);
            let itself = Heap { id, table: class.table.clone(), file: class.file };
            let heaps = match class.partitioned {
                true => leaves.remove(&class.id).unwrap_or_default(),
                false => vec![itself],
            };
            let relation = Arc::new(Relation::new(id, class.table, columns, key));
            Ok(Table { relation, heaps })
        })
        .collect()
}

/// The ids of tables, in their order; `None` where there is none of that name.
///
/// # Errors
/// When the server cannot be asked.
pub async fn relations(
    client: &Client,
    names: &[TableName],
) -> Result<Vec<Option<RelationId>>, Failure> {
    const QUERY: &str = "\
        SELECT c.oid \
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(namespace, name, place) \
        LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) \
            ON n.nspname = wanted.namespace AND c.relname = wanted.name AND c.relkind IN ('r', 'p') \
        ORDER BY wanted.place";
    let what = "read the ids of the tables";
    let namespaces: Vec<&str> = names.iter().map(|table| table.namespace.as_str()).collect();
    let tables: Vec<&str> = names.iter().map(|table| table.name.as_str()).collect();
    let rows = client.query(QUERY, &[&namespaces, &tables]).await;
    let rows = rows.map_err(|error| Failure::sql(what, error))?;
    rows.iter().map(|row| Ok(get::<Option<u32>>(row, 0, what)?.map(RelationId))).collect()
}

/// What the catalog knows *now* of one table. The stream may be behind it: see there for what follows.
pub async fn supplement(
    client: &Client,
    id: RelationId,
    publication: &str,
) -> Result<Supplement, Failure> {
    let key = keys(client, &[id.0]).await?.remove(&id.0).unwrap_or_default();
    let columns = columns(client, &[id.0], publication).await?.remove(&id.0).unwrap_or_default();
    let columns = columns.into_iter().map(|column| (column.name.clone(), column)).collect();
    Ok(Supplement { key, columns })
}

/// Who the server at the other end is, and which database.
pub async fn identity(client: &Client) -> Result<Identity, Failure> {
    const QUERY: &str =
        "SELECT system_identifier, current_database()::text FROM pg_control_system()";
    let what = "read the identity of the server";
    let row = client.query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    let system: i64 = get(&row, 0, what)?;
    Ok(Identity { system: system.cast_unsigned(), database: get(&row, 1, what)? })
}

/// The newest transaction id, by which the stream's ids of 32 bits are extended.
pub async fn newest_transaction(client: &Client) -> Result<u64, Failure> {
    const QUERY: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
    let what = "read the newest transaction id";
    let row = client.query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    let text: String = get(&row, 0, what)?;
    text.parse().map_err(|_| Failure::protocol(what))
}

/// A column of a result. The queries here fix the types, so a mismatch is a server that is not PostgreSQL.
pub(super) fn get<'a, T>(row: &'a Row, column: usize, what: &str) -> Result<T, Failure>
where
    T: tokio_postgres::types::FromSql<'a>,
{
    row.try_get(column).map_err(|error| Failure::sql(what, error))
}

struct Class {
    id: u32,
    table: TableName,
    file: u32,
    partitioned: bool,
}

async fn classes(client: &Client, names: &[TableName]) -> Result<Vec<Class>, Failure> {
    const QUERY: &str = "\
        SELECT c.oid, c.relfilenode, c.relkind = 'p' \
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(namespace, name, place) \
        LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) \
            ON n.nspname = wanted.namespace AND c.relname = wanted.name AND c.relkind IN ('r', 'p') \
        ORDER BY wanted.place";
    let what = "read the definitions of the tables";
    let namespaces: Vec<&str> = names.iter().map(|table| table.namespace.as_str()).collect();
    let tables: Vec<&str> = names.iter().map(|table| table.name.as_str()).collect();
    let rows = client
        .query(QUERY, &[&namespaces, &tables])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    names
        .iter()
        .zip(rows)
        .map(|(table, row)| {
            let Some(id) = get::<Option<u32>>(&row, 0, what)? else {
                return Err(Failure::definite(
                    format!("table {table} does not exist"),
                    "correct its name in the configuration, or create it",
                ));
            };
            let (file, partitioned) = (get(&row, 1, what)?, get(&row, 2, what)?);
            Ok(Class { id, table: table.clone(), file, partitioned })
        })
        .collect()
}

/// The published columns of each table.
async fn columns(
    client: &Client,
    ids: &[u32],
    publication: &str,
) -> Result<BTreeMap<u32, Vec<Column>>, Failure> {
    // `pubgencols` is a column of 18 and later; as JSON its absence is no error.
    const QUERY: &str = "\
        WITH RECURSIVE base(domain, type) AS ( \
            SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd' \
            UNION ALL \
            SELECT base.domain, inner_domain.typbasetype FROM base \
                JOIN pg_type inner_domain ON inner_domain.oid = base.type \
                WHERE inner_domain.typtype = 'd' \
        ), plain(domain, type) AS ( \
            SELECT base.domain, base.type FROM base JOIN pg_type t ON t.oid = base.type \
            WHERE t.typtype <> 'd' \
        ) \
        SELECT a.attrelid, a.attname::text, n.nspname::text, t.typname::text, a.atttypmod, \
            a.atthasmissing, (a.attmissingval::text::text[])[1], \
            a.atthasdef OR a.attidentity <> '' OR declared.typdefaultbin IS NOT NULL, a.attnotnull, a.attnum \
        FROM pg_attribute a \
        JOIN pg_type declared ON declared.oid = a.atttypid \
        LEFT JOIN plain ON plain.domain = a.atttypid \
        JOIN pg_type t ON t.oid = coalesce(plain.type, a.atttypid) \
        JOIN pg_namespace n ON n.oid = t.typnamespace \
        WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped \
            AND (a.attgenerated = '' OR a.attgenerated = 's' AND EXISTS ( \
                SELECT FROM pg_publication p \
                WHERE p.pubname = $2 AND to_jsonb(p) ->> 'pubgencols' = 's')) \
        ORDER BY a.attrelid, a.attnum";
    let what = "read the columns of the tables";
    let rows = client
        .query(QUERY, &[&ids, &publication])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    let mut columns: BTreeMap<u32, Vec<Column>> = BTreeMap::new();
    for row in rows {
        let (namespace, name): (String, String) = (get(&row, 2, what)?, get(&row, 3, what)?);
        let described = types::named(&namespace, &name);
        columns.entry(get(&row, 0, what)?).or_default().push(Column {
            name: get(&row, 1, what)?,
            type_name: described.name,
            type_modifier: get(&row, 4, what)?,
            kind: described.kind,
            initial: initial(
                get(&row, 5, what)?,
                get(&row, 6, what)?,
                get::<bool>(&row, 7, what)? || get::<bool>(&row, 8, what)?,
            ),
            number: get(&row, 9, what)?,
        });
    }
    Ok(columns)
}

/// What the rows hold that are older than a column.
///
/// A constant default is kept in the catalog as the "missing" value and not written to the rows. Any other default, an
/// identity, or a rewrite of the table since, writes them one by one: unknown from here. Nor can a column that is never
/// null have been null in them: a volatile default wrote them and was taken away again, or an UPDATE did, or there were
/// none. (A nullable column whose volatile default was taken away cannot be told from one without a default.)
fn initial(has_missing: bool, missing: Option<String>, written: bool) -> Initial {
    match (has_missing, missing, written) {
        (true, Some(text), _) => Initial::Text(text),
        (_, _, true) => Initial::Unknown,
        (_, _, false) => Initial::Null,
    }
}

/// The columns that identify a row, by name in column order: those of the replica identity, or of the primary key where
/// that is the full row or nothing. As the server chooses the index: a deferrable or invalid one does not count.
async fn keys(client: &Client, ids: &[u32]) -> Result<BTreeMap<u32, Vec<String>>, Failure> {
    const QUERY: &str = "\
        SELECT c.oid, a.attname::text \
        FROM pg_class c \
        JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid AND i.indisunique AND i.indimmediate \
            AND i.indpred IS NULL \
            AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END \
        JOIN pg_attribute a ON a.attrelid = c.oid \
            AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]) \
        WHERE c.oid = ANY($1::oid[]) \
        ORDER BY c.oid, a.attnum";
    let what = "read the keys of the tables";
    let rows = client.query(QUERY, &[&ids]).await.map_err(|error| Failure::sql(what, error))?;
    let mut keys: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for row in rows {
        keys.entry(get(&row, 0, what)?).or_default().push(get(&row, 1, what)?);
    }
    Ok(keys)
}

/// The leaves of partitioned tables, by root.
async fn leaves(client: &Client, ids: &[u32]) -> Result<BTreeMap<u32, Vec<Heap>>, Failure> {
    const QUERY: &str = "\
        WITH RECURSIVE tree(root, id) AS ( \
            SELECT oid, oid FROM pg_class WHERE oid = ANY($1::oid[]) AND relkind = 'p' \
            UNION ALL \
            SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.id \
        ) \
        SELECT tree.root, c.oid, n.nspname::text, c.relname::text, c.relfilenode \
        FROM tree JOIN pg_class c ON c.oid = tree.id JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relkind <> 'p' ORDER BY tree.root, c.oid";
    let what = "read the partitions of the tables";
    let rows = client.query(QUERY, &[&ids]).await.map_err(|error| Failure::sql(what, error))?;
    let mut leaves: BTreeMap<u32, Vec<Heap>> = BTreeMap::new();
    for row in rows {
        leaves.entry(get(&row, 0, what)?).or_default().push(Heap {
            id: RelationId(get(&row, 1, what)?),
            table: TableName { namespace: get(&row, 2, what)?, name: get(&row, 3, what)? },
            file: get(&row, 4, what)?,
        });
    }
    Ok(leaves)
}

/// Where the named columns stand; `None` when one is missing.
pub(super) fn indices(columns: &[Column], names: &[String]) -> Option<Vec<usize>> {
    let index = |name: &String| columns.iter().position(|column| column.name == *name);
    let mut indices: Vec<usize> = names.iter().map(index).collect::<Option<_>>()?;
    indices.sort_unstable();
    Some(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_constant_of_the_catalog_fills_older_rows() {
        assert_eq!(initial(true, Some("5".into()), true), Initial::Text("5".into()));
        assert_eq!(initial(false, None, true), Initial::Unknown);
        assert_eq!(initial(false, None, false), Initial::Null);
    }
}
