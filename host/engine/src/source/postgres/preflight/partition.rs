//! The partitions of a captured table.
//!
//! The stream sends a partition's change under the name, the columns and the replica identity of the root
//! (`publish_via_partition_root`), but what the log holds of the old row was chosen by the partition's own identity. So
//! both have to be the same, or an old row comes with nulls in the place of its key, or of everything but its key.
//! `ALTER TABLE ... REPLICA IDENTITY` of a root does not reach its partitions, so this is easily got wrong.

use dovetail_core::schema::TableName;

use crate::source::postgres::catalog::get;
use crate::source::postgres::connection::Session;
use crate::source::postgres::failure::Failure;
use crate::source::postgres::identifier::{quote, quote_table};

use super::Finding;

/// By what the log tells rows apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    /// `relreplident`.
    mode: String,
    /// Columns of the index that the mode names; none where it names none.
    columns: Vec<String>,
}

impl Identity {
    /// An index by another name is none other.
    fn is_like(&self, other: &Self) -> bool {
        (self.mode == "f") == (other.mode == "f") && self.columns == other.columns
    }
}

struct Leaf {
    table: TableName,
    identity: Identity,
    /// An index of it that has the columns of the root's identity.
    index: Option<String>,
}

/// Says what is to be said of one partitioned table.
pub(super) async fn judge(
    session: &Session,
    root: &TableName,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    findings.push(maintenance(root));
    let (identity, leaves) = read(session, root).await?;
    let other = leaves.iter().filter(|leaf| !leaf.identity.is_like(&identity));
    findings.extend(other.map(|leaf| differs(root, &identity, leaf)));
    Ok(())
}

fn maintenance(root: &TableName) -> Finding {
    Finding::warning(
        format!("maintenance of single partitions of table {root} is not in the stream"),
        "TRUNCATE, DETACH or DROP of a partition leaves its rows in the outlets, and ATTACH of one that has rows brings none; \
         use DELETE and INSERT instead, or scan again afterwards (snapshot.mode: always)",
    )
}

fn differs(root: &TableName, identity: &Identity, leaf: &Leaf) -> Finding {
    let finding = Finding::error(
        format!("partition {} has another replica identity than its root {root}", leaf.table),
        "the stream describes its old rows by the root, so their keys would be lost, or values garbled",
    );
    let (leaf_name, root_name) = (quote_table(&leaf.table), quote_table(root));
    match (identity.mode.as_str(), &leaf.index) {
        ("f", _) => finding.fix(format!("ALTER TABLE {leaf_name} REPLICA IDENTITY FULL")),
        ("d", Some(_)) => finding.fix(format!("ALTER TABLE {leaf_name} REPLICA IDENTITY DEFAULT")),
        ("i", Some(index)) => finding.fix(format!(
            "ALTER TABLE {leaf_name} REPLICA IDENTITY USING INDEX {}",
            quote(index)
        )),
        // The root has none that a partition could share.
        _ => finding.fix(format!(
            "ALTER TABLE {root_name} REPLICA IDENTITY FULL; ALTER TABLE {leaf_name} REPLICA IDENTITY FULL"
        )),
    }
}

/// The identity of the root, and its leaves.
async fn read(session: &Session, root: &TableName) -> Result<(Identity, Vec<Leaf>), Failure> {
    const QUERY: &str = "\
        WITH usable AS ( \
            SELECT i.*, (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a \
                WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])) \
                AS columns \
            FROM pg_index i \
            WHERE i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL \
                AND i.indexprs IS NULL \
        ), root AS ( \
            SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
            WHERE n.nspname = $1 AND c.relname = $2 \
        ), member AS ( \
            SELECT c.oid, c.oid = root.oid AS is_root, n.nspname::text AS namespace, \
                c.relname::text AS name, c.relreplident::text AS mode, \
                coalesce((SELECT columns FROM usable WHERE indrelid = c.oid AND ( \
                    c.relreplident = 'd' AND indisprimary \
                    OR c.relreplident = 'i' AND indisreplident)), '{}') AS columns \
            FROM root CROSS JOIN LATERAL pg_partition_tree(root.oid) tree \
            JOIN pg_class c ON c.oid = tree.relid JOIN pg_namespace n ON n.oid = c.relnamespace \
            WHERE c.oid = root.oid OR tree.isleaf AND c.relkind = 'r' \
        ) \
        SELECT member.is_root, member.namespace, member.name, member.mode, member.columns, \
            (SELECT min(index.relname::text) FROM usable JOIN pg_class index ON index.oid = indexrelid \
                WHERE indrelid = member.oid AND usable.columns = head.columns \
                    AND (head.mode <> 'd' OR indisprimary)) \
        FROM member CROSS JOIN member head WHERE head.is_root \
        ORDER BY member.is_root DESC, member.namespace, member.name";
    let what = "look at the partitions";
    let rows = session
        .client()
        .query(QUERY, &[&root.namespace, &root.name])
        .await
        .map_err(|error| Failure::sql(what, error))?;
    let mut identity = Identity { mode: "n".into(), columns: Vec::new() };
    let mut leaves = Vec::new();
    for row in &rows {
        let read = Identity { mode: get(row, 3, what)?, columns: get(row, 4, what)? };
        if get::<bool>(row, 0, what)? {
            identity = read;
            continue;
        }
        leaves.push(Leaf {
            table: TableName { namespace: get(row, 1, what)?, name: get(row, 2, what)? },
            identity: read,
            index: get(row, 5, what)?,
        });
    }
    Ok((identity, leaves))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(mode: &str, columns: &[&str]) -> Identity {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        Identity { mode: mode.into(), columns }
    }

    #[test]
    fn what_counts_is_the_full_row_or_the_columns() {
        let keyed = identity("d", &["id"]);
        assert!(keyed.is_like(&identity("i", &["id"])));
        assert!(!keyed.is_like(&identity("i", &["code"])));
        assert!(!keyed.is_like(&identity("f", &[])));
        assert!(!identity("n", &[]).is_like(&identity("f", &[])));
        assert!(identity("f", &[]).is_like(&identity("f", &[])));
    }

    #[test]
    fn the_fix_gives_the_leaf_what_the_root_has() {
        let table = |name: &str| TableName { namespace: "public".into(), name: name.into() };
        let fix = |root: Identity, index: Option<&str>| {
            let identity = identity("n", &[]);
            let leaf = Leaf { table: table("leaf"), identity, index: index.map(Into::into) };
            differs(&table("root"), &root, &leaf).fix_sql.expect("a fix")
        };
        let leaf = "ALTER TABLE \"public\".\"leaf\" REPLICA IDENTITY";
        assert_eq!(fix(identity("f", &[]), None), format!("{leaf} FULL"));
        assert_eq!(fix(identity("d", &["id"]), Some("p")), format!("{leaf} DEFAULT"));
        let by_index = fix(identity("i", &["code"]), Some("leaf_code_key"));
        assert_eq!(by_index, format!("{leaf} USING INDEX \"leaf_code_key\""));
        assert!(fix(identity("n", &[]), None).contains("\"root\" REPLICA IDENTITY FULL"));
    }
}
