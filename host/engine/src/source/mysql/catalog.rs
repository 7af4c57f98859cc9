//! Definitions of tables, as the catalog has them.
//!
//! The scan learns a table from here, the stream from table maps in the log. Both have to come to the same [`Relation`], with
//! the same version, or the first change after the scan would look like a redefinition; so both build it from
//! [`ColumnDefinition`]s, and tables are known by name: the server's own numbers of tables end with its process.
//!
//! The catalog is not part of a view: it shows the definitions of now. They are those of the view because the view
//! holds its tables against redefinition from before they are read here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dovetail_core::decode::mysql::{ColumnDefinition, DataType, Server};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use mysql_async::Row;

use super::connection::Session;
use super::failure::Failure;
use super::identifier::quote_table;

/// A table as the catalog has it.
#[derive(Debug, Clone)]
pub struct Table {
    pub relation: Arc<Relation>,
    /// Of the relation's columns, in their order.
    pub definitions: Arc<[ColumnDefinition]>,
    /// The index whose order the rows are read in; `None` where none has every row in an order of its own.
    pub(super) order: Option<Order>,
    /// As the server's statistics have it.
    pub(super) rows_estimate: u64,
    /// Columns that the server keeps for itself: in the rows of the log, and not in those of a `SELECT`.
    pub(super) hidden: usize,
}

/// An index that a table is read along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) index: String,
    /// Indices into the columns, in the index's order.
    pub(super) columns: Vec<usize>,
    /// Of each, `COLLATION_NAME`; `None` for what is not text.
    pub(super) collations: Vec<Option<String>>,
}

/// The given tables, in their order.
///
/// # Errors
/// Definite when one is not there, has a column of an unknown type, or shares its number with another.
pub async fn tables(session: &mut Session, names: &[TableName]) -> Result<Vec<Table>, Failure> {
    let mut tables = Vec::with_capacity(names.len());
    let mut numbers = BTreeSet::new();
    for name in names {
        let table = table(session, name).await?.ok_or_else(|| {
            Failure::definite(
                format!("table {name} does not exist"),
                "correct its name in the configuration, or create it",
            )
        })?;
        if !numbers.insert(table.relation.id) {
            return Err(Failure::definite(
                format!("the name of table {name} has the digest of another captured table's"),
                "capture the two in pipelines of their own",
            ));
        }
        tables.push(table);
    }
    Ok(tables)
}

/// Whether there is a table of that name with rows of its own.
///
/// # Errors
/// When the server cannot be asked.
pub async fn exists(session: &mut Session, name: &TableName) -> Result<bool, Failure> {
    Ok(size(session, name).await?.is_some())
}

/// One table; `None` where there is none of that name that has rows of its own.
///
/// # Errors
/// As [`tables`].
pub async fn table(session: &mut Session, name: &TableName) -> Result<Option<Table>, Failure> {
    let Some(rows_estimate) = size(session, name).await? else { return Ok(None) };
    let described = columns(session, name).await?;
    let keys = keys(session, name).await?;
    let names: Vec<&str> = described.iter().map(|it| it.definition.name.as_str()).collect();
    let position = |column: &String| names.iter().position(|name| name == column);
    let identifying = keys.iter().find(|key| key.is_identifying());
    let mut key: Vec<usize> = identifying
        .map(|key| key.columns.iter().filter_map(position).collect())
        .unwrap_or_default();
    key.sort_unstable();
    let order = keys.iter().filter(|key| key.is_ordering()).find_map(|key| {
        let columns: Vec<usize> = key.columns.iter().map(position).collect::<Option<_>>()?;
        order(&key.name, columns, &described)
    });
    let hidden = match session.version().maria_db {
        true => keys.iter().filter(|key| key.is_of_digests).count(),
        false => 0,
    };
    let columns = described.iter().map(Described::column).collect();
    let relation = Relation::new(RelationId::of_name(name), name.clone(), columns, key);
    let definitions = described.into_iter().map(|it| it.definition).collect();
    Ok(Some(Table { relation: Arc::new(relation), definitions, order, rows_estimate, hidden }))
}

/// An order by which ranges can be asked for. Enumerations are ordered by number and compared as text, so no range of
/// them can be looked up in an index; behind another column it is only a filter.
fn order(index: &str, columns: Vec<usize>, described: &[Described]) -> Option<Order> {
    let of = |column: &usize| described.get(*column);
    let first = of(columns.first()?)?;
    // MariaDB orders these by the value with its blanks, and compares them without.
    let is_disordered = |column: &usize| {
        of(column).is_some_and(|column| {
            let collation = column.collation.as_deref().unwrap_or_default();
            matches!(column.definition.data_type, DataType::Char { .. })
                && collation.contains("nopad")
        })
    };
    if columns.iter().any(is_disordered) {
        return None;
    }
    if matches!(first.definition.data_type, DataType::Enum { .. } | DataType::Set { .. }) {
        return None;
    }
    let collations = columns.iter().map(|column| of(column)?.collation.clone()).collect();
    Some(Order { index: index.to_owned(), columns, collations })
}

/// `TABLE_TYPE` of a MariaDB table whose older rows stay in it.
pub(super) const VERSIONED: &str = "SYSTEM VERSIONED";

/// The estimated number of rows.
async fn size(session: &mut Session, name: &TableName) -> Result<Option<u64>, Failure> {
    const QUERY: &str = "SELECT TABLE_TYPE, TABLE_ROWS FROM information_schema.TABLES \
        WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?";
    let names = (name.namespace.as_str(), name.name.as_str());
    let rows: Vec<(String, Option<u64>)> =
        session.rows_with("read the sizes of the tables", QUERY, names).await?;
    match rows.into_iter().next() {
        Some((kind, rows)) if kind == "BASE TABLE" => Ok(Some(rows.unwrap_or_default())),
        Some((kind, _)) if kind == VERSIONED => Err(versioned(name)),
        _ => Ok(None),
    }
}

/// An update of such a table is logged with a second row of the same key, which is the old one: it would be taken for
/// the newer state.
fn versioned(name: &TableName) -> Failure {
    Failure::definite(
        format!(
            "table {name} is versioned by the system, so the log mixes its history with its rows"
        ),
        "leave it out of the configuration, or take its versioning away: ALTER TABLE ... DROP SYSTEM VERSIONING",
    )
}

struct Described {
    definition: ColumnDefinition,
    collation: Option<String>,
    nullable: bool,
    default: Option<String>,
    /// How the value comes about, in the catalog's words.
    extra: String,
}

async fn columns(session: &mut Session, name: &TableName) -> Result<Vec<Described>, Failure> {
    const QUERY: &str = "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, \
            IS_NULLABLE, COLUMN_DEFAULT, EXTRA \
        FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? \
        ORDER BY ORDINAL_POSITION";
    type Found =
        (String, String, Option<String>, Option<String>, String, Option<String>, Option<String>);
    let what = "read the columns of the tables";
    let names = (name.namespace.as_str(), name.name.as_str());
    let rows: Vec<Found> = session.rows_with(what, QUERY, names).await?;
    let server = if session.version().maria_db { Server::MariaDb } else { Server::MySql };
    rows.into_iter()
        .map(|(column, column_type, charset, collation, nullable, default, extra)| {
            let definition =
                ColumnDefinition::from_catalog(&column, server, &column_type, charset.as_deref())
                    .map_err(|error| Failure::Definite {
                    what: format!("{what}: {name}"),
                    advice: "leave the table out of the configuration, and report the type".into(),
                    source: Some(error.into()),
                })?;
            let nullable = nullable == "YES";
            let extra = extra.unwrap_or_default();
            Ok(Described { definition, collation, nullable, default, extra })
        })
        .collect()
}

impl Described {
    fn column(&self) -> Column {
        Column {
            name: self.definition.name.clone(),
            type_name: self.definition.type_name(),
            type_modifier: -1,
            kind: self.definition.kind(),
            initial: self.initial(),
            number: None,
        }
    }

    /// What rows hold that are older than the column.
    fn initial(&self) -> Initial {
        let written = self.extra.to_ascii_uppercase();
        let computed = ["GENERATED", "AUTO_INCREMENT"].iter().any(|word| written.contains(word));
        let default = self.default.as_deref().filter(|default| *default != "NULL");
        match (default, self.nullable, computed) {
            (None, true, false) => Initial::Null,
            // Of other types the catalog's text is not the value's.
            (Some(text), _, false)
                if matches!(self.definition.kind(), Kind::Int | Kind::Uint)
                    && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) =>
            {
                Initial::Text(text.to_owned())
            }
            _ => Initial::Unknown,
        }
    }
}

/// A unique index.
#[derive(Debug, Default)]
struct Key {
    name: String,
    columns: Vec<String>,
    /// Some part may be null, or is an expression.
    open: bool,
    /// Every part is a whole column.
    whole: bool,
    ascending: bool,
    tree: bool,
    /// MariaDB keeps the digests of its values in a column of its own.
    is_of_digests: bool,
    hidden: bool,
}

impl Key {
    /// Whether it tells rows apart.
    fn is_identifying(&self) -> bool {
        !self.open
    }

    /// Whether the rows can be read along it, each once.
    fn is_ordering(&self) -> bool {
        !self.open && self.whole && self.ascending && self.tree && !self.hidden
    }
}

/// The unique indices in the server's own order: the primary key first, then those that cannot be null.
async fn keys(session: &mut Session, name: &TableName) -> Result<Vec<Key>, Failure> {
    let what = "read the keys of the tables";
    let rows: Vec<Row> =
        session.rows(what, &format!("SHOW INDEX FROM {}", quote_table(name))).await?;
    let mut order = Vec::new();
    let mut keys: BTreeMap<String, Key> = BTreeMap::new();
    for row in &rows {
        let text = |column: &str| row.get_opt::<Option<String>, _>(column)?.ok()?;
        if text("Non_unique").as_deref() != Some("0") {
            continue;
        }
        let Some(index) = text("Key_name") else { continue };
        let key = keys.entry(index.clone()).or_insert_with(|| {
            order.push(index.clone());
            Key { name: index, whole: true, ascending: true, tree: true, ..Key::default() }
        });
        let column = text("Column_name");
        key.open |= column.is_none() || text("Null").as_deref() == Some("YES");
        key.columns.extend(column);
        key.whole &= text("Sub_part").is_none();
        key.ascending &= text("Collation").as_deref() == Some("A");
        key.tree &= text("Index_type").as_deref() == Some("BTREE");
        key.is_of_digests |= text("Index_type").as_deref() == Some("HASH");
        key.hidden |= text("Visible").as_deref() == Some("NO");
        key.hidden |= text("Ignored").as_deref() == Some("YES");
    }
    Ok(order.iter().filter_map(|name| keys.remove(name)).collect())
}
