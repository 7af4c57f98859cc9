//! The tables that the stream has described, and what is known of them.
//!
//! A server describes a table before the rows of every statement, under a number that dies with the server process. Only
//! captured tables are looked at further; the rows of others are passed over unread. What a description leaves out (the
//! key of a table without a primary key, a `uuid` among 16 bytes, everything under minimal metadata) only the catalog
//! knows: a description that is not the latest one of its table therefore goes to the caller as a [`Description`], and
//! comes back by [`Builder::define`](super::transaction::Builder::define). Until then a row of that table is an error.
//!
//! The catalog tells of *now*, the log of the time of the rows. So what both know is taken from the log, and what is taken
//! from the catalog has to fit the log's column: by name where the log has names, otherwise column by column, in number
//! and in the form of every value. A definition that changed in a way that fits (under minimal metadata a column that was
//! renamed, or two of one type that changed places) cannot be told: that is why full metadata is asked for.
//!
//! **Hidden columns.** MariaDB keeps the digest of a unique key over long values in a column of its own, which is in the
//! rows of the log and neither in its catalog nor in the rows of a `SELECT`. It is read over, or the first change after a
//! scan would look like a redefinition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::format::Flavor;
use super::table_map::{ColumnMap, InvalidTableMap, TableMap, name, table_map};
use crate::decode::mysql::{ColumnDefinition, DataType, LogColumn, Misfit, Server, Undefined};
use crate::schema::{Column, Initial, Relation, RelationId, TableName};
use crate::value::Row;

/// A captured table as the log describes it, for the caller to define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub table: TableName,
    pub server: Server,
    map: TableMap,
}

/// What the catalog says of a table now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogTable {
    /// All of them, in their order.
    pub columns: Vec<ColumnDefinition>,
    /// Names of the primary key's columns, or of the first unique key whose columns are all `NOT NULL`; or none.
    pub key: Vec<String>,
    /// What older rows hold in a column, by its name; [`Initial::Unknown`] where nothing is given.
    pub initial: BTreeMap<String, Initial>,
    /// How many columns the server keeps for itself, behind those.
    pub hidden: usize,
}

/// A table under which rows can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub relation: Arc<Relation>,
    /// As the log has them, those included that are not the relation's.
    columns: Vec<ColumnDefinition>,
    /// Indices of those, in order.
    hidden: Vec<usize>,
}

/// Definite: the log and the catalog do not say how to read the table's rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Indefinable {
    #[error("column {column} of {table}: {source}")]
    Column { table: TableName, column: String, source: Undefined },
    #[error("{table}: {source}")]
    Misfit { table: TableName, source: Misfit },
    #[error(
        "{table} has {log} columns in the log and {catalog} in the catalog: it was altered in between; set \
         binlog_row_metadata to FULL, and scan the table again"
    )]
    Width { table: TableName, log: usize, catalog: usize },
    #[error(
        "{table} was versioned by the system when these rows were written: history and current rows are one in the log; \
         scan the table again in a new pipeline"
    )]
    Versioned { table: TableName },
}

impl Description {
    /// Whether the log names the columns, and the primary key if there is one.
    pub fn has_names(&self) -> bool {
        self.map.has_names()
    }

    /// # Errors
    /// When a column cannot be read from what both know.
    pub fn define(&self, catalog: &CatalogTable) -> Result<Definition, Indefinable> {
        let columns = if self.has_names() {
            if self.was_versioned(catalog) {
                return Err(Indefinable::Versioned { table: self.table.clone() });
            }
            let columns = self.map.columns.iter();
            columns.map(|column| self.named(column, catalog)).collect::<Result<Vec<_>, _>>()?
        } else {
            self.unnamed(catalog)?
        };
        let hidden = self.hidden(&columns, catalog);
        let is_visible = |index: &usize| hidden.binary_search(index).is_err();
        let visible: Vec<&ColumnDefinition> = columns
            .iter()
            .enumerate()
            .filter_map(|(index, column)| is_visible(&index).then_some(column))
            .collect();
        let key = self.key(&visible, catalog);
        let described = visible.iter().map(|column| Column {
            name: column.name.clone(),
            type_name: column.type_name(),
            type_modifier: -1,
            kind: column.kind(),
            initial: catalog.initial.get(&column.name).cloned().unwrap_or(Initial::Unknown),
            number: None,
        });
        let id = RelationId::of_name(&self.table);
        let relation = Relation::new(id, self.table.clone(), described.collect(), key);
        Ok(Definition { relation: Arc::new(relation), columns, hidden })
    }

    /// Whether the log has the columns of a versioned table, which the catalog does not know. By the names that the
    /// server gives them; where they have others, and the catalog has them no more, this cannot be told.
    fn was_versioned(&self, catalog: &CatalogTable) -> bool {
        let is_in_log =
            |name| self.map.columns.iter().any(|column| column.name.as_deref() == Some(name));
        let is_in_catalog = |name| catalog.columns.iter().any(|column| column.name == name);
        self.server == Server::MariaDb
            && ["row_start", "row_end"].iter().all(|name| is_in_log(name) && !is_in_catalog(*name))
    }

    /// Indices of the columns that the server keeps for itself.
    fn hidden(&self, columns: &[ColumnDefinition], catalog: &CatalogTable) -> Vec<usize> {
        if self.server != Server::MariaDb {
            return Vec::new();
        }
        if !self.has_names() {
            return (catalog.columns.len()..columns.len()).collect();
        }
        let is_hidden = |column: &ColumnDefinition| {
            let number = column.name.strip_prefix(DIGEST_OF_KEY);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
                && !catalog.columns.iter().any(|known| known.name == column.name)
        };
        let indices = columns.iter().enumerate();
        indices.filter_map(|(index, column)| is_hidden(column).then_some(index)).collect()
    }

    /// From the log, or from the catalog's column of that name where the log's bytes may mean more than it says.
    fn named(
        &self,
        column: &ColumnMap,
        catalog: &CatalogTable,
    ) -> Result<ColumnDefinition, Indefinable> {
        let name = column.name.as_deref().unwrap_or_default();
        let from_log = ColumnDefinition::from_log(name, self.server, &log_column(column));
        let is_certain = match &from_log {
            Ok(ColumnDefinition { data_type, .. }) => {
                let is_bytes =
                    matches!(data_type, DataType::Binary { .. } | DataType::VarBinary { .. });
                self.server == Server::MySql || !is_bytes
            }
            Err(_) => false,
        };
        if !is_certain {
            let in_catalog = catalog.columns.iter().find(|known| known.name == name).cloned();
            let fitting =
                in_catalog.and_then(|known| known.with_layout(column.code, column.metadata).ok());
            if let Some(known) = fitting {
                return Ok(known);
            }
        }
        from_log.map_err(|source| {
            let (table, column) = (self.table.clone(), name.to_owned());
            Indefinable::Column { table, column, source }
        })
    }

    fn unnamed(&self, catalog: &CatalogTable) -> Result<Vec<ColumnDefinition>, Indefinable> {
        let (log, known) = (self.map.columns.len(), catalog.columns.len());
        let (described, hidden) = self.map.columns.split_at_checked(known).unwrap_or_default();
        let fits = hidden.is_empty() || hidden.len() == catalog.hidden;
        if !fits || described.len() != known {
            return Err(Indefinable::Width { table: self.table.clone(), log, catalog: known });
        }
        let columns = described.iter().zip(&catalog.columns);
        let fitted =
            columns.map(|(column, known)| known.clone().with_layout(column.code, column.metadata));
        let fitted: Result<Vec<_>, _> = fitted.collect();
        let mut fitted =
            fitted.map_err(|source| Indefinable::Misfit { table: self.table.clone(), source })?;
        for column in hidden {
            fitted.push(self.named(column, catalog)?);
        }
        Ok(fitted)
    }

    /// The primary key of the log; without one the catalog's key, if the table already had its columns.
    fn key(&self, columns: &[&ColumnDefinition], catalog: &CatalogTable) -> Vec<usize> {
        let index = |name: &String| columns.iter().position(|column| column.name == *name);
        let named = |index: &usize| self.map.columns.get(*index)?.name.as_ref();
        let mut key: Vec<usize> = match &self.map.primary_key {
            Some(key) if self.has_names() => {
                key.iter().filter_map(|(column, _prefix)| index(named(column)?)).collect()
            }
            _ => catalog.key.iter().map(index).collect::<Option<_>>().unwrap_or_default(),
        };
        key.sort_unstable();
        key
    }
}

/// Of the columns in which MariaDB keeps the digests of long unique keys; a number follows.
const DIGEST_OF_KEY: &str = "DB_ROW_HASH_";

impl RelationId {
    /// A binlog's own numbers of tables die with the server process, so a table there goes by its name.
    pub fn of_name(table: &TableName) -> Self {
        let mut digest = xxhash_rust::xxh3::Xxh3::new();
        for part in [&table.namespace, &table.name] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        let [upper, ..] = split(digest.digest());
        Self(upper)
    }
}

/// Upper and lower half.
fn split(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn log_column(column: &ColumnMap) -> LogColumn<'_> {
    let labels = column.labels.as_ref();
    LogColumn {
        code: column.code,
        metadata: column.metadata,
        unsigned: column.unsigned,
        collation: column.collation,
        labels: labels.map(|labels| labels.iter().map(Vec::as_slice).collect()),
        shape: column.geometry,
        dimensions: column.dimensions,
    }
}

/// A defined table, and the description that it was defined by.
#[derive(Debug)]
pub(super) struct Known {
    definition: Definition,
    description: Vec<u8>,
    has_names: bool,
}

impl Known {
    pub(super) fn relation(&self) -> &Arc<Relation> {
        &self.definition.relation
    }

    pub(super) fn columns(&self) -> &[ColumnDefinition] {
        &self.definition.columns
    }

    /// Whether a column's type is one that the log does not tell from plain bytes.
    fn is_by_catalog(&self) -> bool {
        let by_catalog = |column: &ColumnDefinition| {
            matches!(column.data_type, DataType::Uuid | DataType::Inet4 | DataType::Inet6)
        };
        self.definition.columns.iter().any(by_catalog)
    }

    pub(super) fn table(&self) -> String {
        self.relation().table.to_string()
    }

    /// A row of the log without what is hidden.
    pub(super) fn visible(&self, row: Row) -> Row {
        let hidden = &self.definition.hidden;
        if hidden.is_empty() {
            return row;
        }
        let values = row.into_values().into_iter().enumerate();
        let visible = values.filter(|(index, _)| hidden.binary_search(index).is_err());
        Row::new(visible.map(|(_, value)| value).collect())
    }
}

/// What rows refer to by a table's number.
#[derive(Debug, Clone)]
pub(super) enum Mapped {
    /// Not captured.
    Foreign,
    Known(Arc<Known>),
    /// Described, and not defined yet.
    Described(TableName),
}

/// Whoever defines it has mistaken the table, or its columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("definition of {table} without a description in the stream that it answers")]
pub struct NotDescribed {
    pub table: TableName,
}

#[derive(Debug)]
pub(super) struct Tables {
    captured: BTreeSet<TableName>,
    /// The server keeps names of tables in lower case, whatever a statement says.
    folds_names: bool,
    /// By the server's number, up to the end of the statement.
    mapped: BTreeMap<u64, Mapped>,
    known: BTreeMap<TableName, Arc<Known>>,
    /// By name, for what needs no definition.
    relations: BTreeMap<TableName, Arc<Relation>>,
    waiting: Option<Waiting>,
    /// The table of the latest map: the next is mostly of the same.
    latest: Option<Arc<Known>>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    table: TableName,
    width: usize,
    description: Vec<u8>,
    has_names: bool,
}

impl Tables {
    pub(super) fn new(captured: BTreeSet<TableName>, folds_names: bool) -> Self {
        Self {
            captured,
            folds_names,
            mapped: BTreeMap::new(),
            known: BTreeMap::new(),
            relations: BTreeMap::new(),
            waiting: None,
            latest: None,
        }
    }

    /// A captured table that has changed, or was not described before, is for the caller to define.
    pub(super) fn map(
        &mut self,
        number: u64,
        bytes: &[u8],
        flavor: Flavor,
    ) -> Result<Option<Description>, InvalidTableMap> {
        if let Some(known) = self.latest.as_ref().filter(|known| known.description == bytes) {
            self.mapped.insert(number, Mapped::Known(Arc::clone(known)));
            return Ok(None);
        }
        let (schema, table) = name(bytes)?;
        let table = TableName { namespace: schema.to_owned(), name: table.to_owned() };
        if !self.captured.contains(&table) {
            self.mapped.insert(number, Mapped::Foreign);
            return Ok(None);
        }
        if let Some(known) = self.known.get(&table).filter(|known| known.description == bytes) {
            self.mapped.insert(number, Mapped::Known(Arc::clone(known)));
            self.latest = Some(Arc::clone(known));
            return Ok(None);
        }
        let map = table_map(bytes, flavor)?;
        let server = match flavor {
            Flavor::MySql => Server::MySql,
            Flavor::MariaDb => Server::MariaDb,
        };
        self.known.remove(&table);
        self.mapped.insert(number, Mapped::Described(table.clone()));
        self.waiting = Some(Waiting {
            number,
            table: table.clone(),
            width: map.columns.len(),
            description: bytes.to_vec(),
            has_names: map.has_names(),
        });
        Ok(Some(Description { table, server, map }))
    }

    pub(super) fn define(&mut self, definition: Definition) -> Result<(), NotDescribed> {
        let table = definition.relation.table.clone();
        let is_meant = |waiting: &mut Waiting| {
            waiting.table == table
                && waiting.width == definition.columns.len()
                && waiting.width == definition.relation.columns.len() + definition.hidden.len()
        };
        let Some(waiting) = self.waiting.take_if(is_meant) else {
            return Err(NotDescribed { table });
        };
        let Waiting { number, description, has_names, .. } = waiting;
        self.relations.insert(table.clone(), Arc::clone(&definition.relation));
        let known = Arc::new(Known { definition, description, has_names });
        self.mapped.insert(number, Mapped::Known(Arc::clone(&known)));
        self.latest = Some(Arc::clone(&known));
        self.known.insert(table, known);
        Ok(())
    }

    pub(super) fn mapped(&self, number: u64) -> Option<&Mapped> {
        self.mapped.get(&number)
    }

    /// The numbers mean nothing any more.
    pub(super) fn forget_numbers(&mut self) {
        self.mapped.clear();
    }

    /// A definition may have changed without the log's descriptions showing it.
    pub(super) fn forget_unnamed(&mut self) {
        self.known.retain(|_, known| known.has_names && !known.is_by_catalog());
        self.latest = None;
    }

    pub(super) fn know(&mut self, relation: Arc<Relation>) {
        self.relations.insert(relation.table.clone(), relation);
    }

    pub(super) fn relation(&self, table: &TableName) -> Option<&Arc<Relation>> {
        self.relations.get(table)
    }

    /// The captured table of this name, as a statement spells it.
    pub(super) fn captured(&self, table: &TableName) -> Option<TableName> {
        let folded = if self.folds_names {
            TableName { namespace: table.namespace.to_lowercase(), name: table.name.to_lowercase() }
        } else {
            table.clone()
        };
        self.captured.contains(&folded).then_some(folded)
    }

    pub(super) fn captured_in(&self, schema: &str) -> Vec<TableName> {
        let folded = if self.folds_names { schema.to_lowercase() } else { schema.to_owned() };
        self.captured.iter().filter(|table| table.namespace == folded).cloned().collect()
    }
}
