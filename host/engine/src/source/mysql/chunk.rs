//! The chunks of a table: how its rows are cut along an index, and the statements that read them.
//!
//! A chunk is a range of an index, from behind one row's key up to another's, found by walking the index and not by
//! dividing numbers: a hole in the keys costs nothing, and any type that an index can order will do. The database makes
//! every comparison, because only it knows the order (collations, padding, the parts of a uuid). A boundary is what the
//! database answered, handed back as it came: text in its own character set and bytes.
//!
//! `(a, b) > (x, y)` is written out, `a > x OR (a = x AND b > y)`: for the written form the servers look up both ranges in
//! the index; for the row constructor some walk the whole of it.
//!
//! **Numbers.** The seam wants the number of chunks before the first one; the boundaries are found one after the other,
//! a little ahead of the workers. So the number is an estimate, rather too large: where the index ends earlier, the
//! chunks that are left are empty; where the table is larger than the estimate, the last chunk has no end and is long.
//! Nothing of the ranges depends on the estimate being right.

use std::fmt::Write as _;

use dovetail_core::decode::mysql::DataType;
use dovetail_core::schema::Relation;
use mysql_async::Value;

use super::catalog::{Order, Table};
use super::identifier::{quote, quote_table};

/// Sampled statistics are often off by half.
const MORE_THAN_ESTIMATED: u64 = 2;
/// As many say nothing that fewer would not; each costs a boundary's lookup.
const CHUNKS_MAX: u64 = 1_000_000;

/// A row's place in the index: its values of the index's columns.
pub(super) type Key = Vec<Value>;

/// How many chunks a table is cut into.
pub(super) fn count(table: &Table, chunk_rows: u32) -> u32 {
    if table.order.is_none() {
        return 1;
    }
    let rows = table.rows_estimate.saturating_mul(MORE_THAN_ESTIMATED);
    let chunks = rows.div_ceil(u64::from(chunk_rows.max(1))).clamp(1, CHUNKS_MAX);
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

/// Statements along one table's index.
#[derive(Debug)]
pub(super) struct Statements {
    columns: String,
    table: String,
    along: Option<Along>,
}

#[derive(Debug)]
struct Along {
    /// `FORCE INDEX (...)`
    hint: String,
    parts: Vec<Part>,
}

/// A column of the index.
#[derive(Debug)]
struct Part {
    column: String,
    /// What is selected, so that the answer can be handed back.
    selected: String,
    /// The place of a value that is handed back, in the column's own terms.
    bound: String,
    /// The place takes its bytes as hexadecimal digits.
    by_digits: bool,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let relation: &Relation = &table.relation;
        let columns: Vec<String> =
            relation.columns.iter().map(|column| quote(&column.name)).collect();
        let along = table.order.as_ref().and_then(|order| Along::new(table, order));
        Self { columns: columns.join(", "), table: quote_table(&relation.table), along }
    }

    /// How many columns a key has; 0 where the table is read in one pass.
    pub(super) fn key_columns(&self) -> usize {
        self.along.as_ref().map_or(0, |along| along.parts.len())
    }

    /// The key of the row that is so many rows behind `after`. `None` where there is no order.
    pub(super) fn boundary(&self, after: Option<&Key>, rows: u32) -> Option<(String, Vec<Value>)> {
        let along = self.along.as_ref()?;
        let (condition, values) = along.condition(after, None);
        let skipped = rows.saturating_sub(1);
        let (keys, hint, ordered) = (along.selected(), &along.hint, along.ordered());
        let statement = format!(
            "SELECT {keys} FROM {} {hint}{condition} ORDER BY {ordered} LIMIT 1 OFFSET {skipped}",
            self.table
        );
        Some((statement, values))
    }

    /// The rows behind `after` up to and with `end`, which ends the chunk.
    pub(super) fn range(&self, after: Option<&Key>, end: &Key) -> (String, Vec<Value>) {
        let Some(along) = &self.along else { return self.whole() };
        let (condition, values) = along.condition(after, Some(end));
        let (columns, table, hint) = (&self.columns, &self.table, &along.hint);
        (format!("SELECT {columns} FROM {table} {hint}{condition}"), values)
    }

    /// The next rows behind `after`, each followed by its key.
    pub(super) fn page(&self, after: Option<&Key>, rows: u32) -> (String, Vec<Value>) {
        let Some(along) = &self.along else { return self.whole() };
        let (condition, values) = along.condition(after, None);
        let (columns, table, hint) = (&self.columns, &self.table, &along.hint);
        let (keys, ordered) = (along.selected(), along.ordered());
        let statement = format!(
            "SELECT {columns}, {keys} FROM {table} {hint}{condition} ORDER BY {ordered} LIMIT {rows}"
        );
        (statement, values)
    }

    /// Every row in one pass.
    fn whole(&self) -> (String, Vec<Value>) {
        (format!("SELECT {} FROM {}", self.columns, self.table), Vec::new())
    }
}

impl Along {
    fn new(table: &Table, order: &Order) -> Option<Self> {
        let part = |(column, collation): (&usize, &Option<String>)| {
            let definition = table.definitions.get(*column)?;
            let name = quote(&definition.name);
            let (selected, bound) = terms(&name, &definition.data_type, collation.as_deref())?;
            let by_digits = bound.contains(DIGITS);
            Some(Part { column: name, selected, bound, by_digits })
        };
        let parts = order.columns.iter().zip(&order.collations).map(part);
        let hint = format!("FORCE INDEX ({})", quote(&order.index));
        Some(Self { hint, parts: parts.collect::<Option<_>>()? })
    }

    fn selected(&self) -> String {
        let selected: Vec<&str> = self.parts.iter().map(|part| part.selected.as_str()).collect();
        selected.join(", ")
    }

    fn ordered(&self) -> String {
        let columns: Vec<&str> = self.parts.iter().map(|part| part.column.as_str()).collect();
        columns.join(", ")
    }

    /// With its values, in the order of their places.
    fn condition(&self, after: Option<&Key>, end: Option<&Key>) -> (String, Vec<Value>) {
        let mut text = String::new();
        let mut values = Vec::new();
        for (key, last) in [(after, ">"), (end, "<=")] {
            let Some(key) = key else { continue };
            text.push_str(if text.is_empty() { " WHERE (" } else { " AND (" });
            self.beyond(key, last, &mut text, &mut values);
            text.push(')');
        }
        (text, values)
    }

    /// Rows on one side of a key: `a > x OR (a = x AND b > y)`, and `a < x OR (a = x AND b <= y)` for the other.
    fn beyond(&self, key: &Key, last: &str, text: &mut String, values: &mut Vec<Value>) {
        let strict = if last == ">" { ">" } else { "<" };
        for depth in 0..self.parts.len() {
            if depth > 0 {
                text.push_str(" OR (");
            }
            let parts = self.parts.iter().zip(key).take(depth + 1);
            for (index, (part, value)) in parts.enumerate() {
                let comparison = match index {
                    _ if index < depth => "=",
                    _ if index + 1 == self.parts.len() => last,
                    _ => strict,
                };
                let and = if index > 0 { " AND " } else { "" };
                let Part { column, bound, .. } = part;
                write!(text, "{and}{column} {comparison} {bound}")
                    .expect("a string takes everything");
                values.push(part.value(value));
            }
            if depth > 0 {
                text.push(')');
            }
        }
    }
}

impl Part {
    /// What is bound for a value of the key.
    fn value(&self, value: &Value) -> Value {
        match value {
            Value::Bytes(bytes) if self.by_digits => {
                let mut digits = String::with_capacity(bytes.len() * 2);
                for byte in bytes {
                    write!(digits, "{byte:02x}").expect("a string takes everything");
                }
                Value::Bytes(digits.into_bytes())
            }
            other => other.clone(),
        }
    }
}

/// Load-bearing: see the module's text.
const DIGITS: &str = "UNHEX(?)";

/// How a column's value is asked for and handed back; `None` where that cannot be done without changing it.
fn terms(column: &str, data_type: &DataType, collation: Option<&str>) -> Option<(String, String)> {
    let same = |bound: String| Some((column.to_owned(), bound));
    match data_type {
        DataType::Integer { .. }
        | DataType::Year
        | DataType::Float { .. }
        | DataType::Double { .. }
        | DataType::Date
        | DataType::DateTime { .. }
        | DataType::Timestamp { .. }
        | DataType::Time { .. } => same("?".into()),
        // By number, as they are ordered.
        DataType::Bit { .. } | DataType::Enum { .. } | DataType::Set { .. } => {
            Some((format!("{column} + 0"), "?".into()))
        }
        // As text it would be compared as a floating-point number.
        DataType::Decimal { precision, scale, .. } => {
            same(format!("CAST(? AS DECIMAL({precision}, {scale}))"))
        }
        DataType::Char { charset, .. }
        | DataType::VarChar { charset, .. }
        | DataType::Text { charset, .. } => {
            let name = charset.name();
            let collation = collation?;
            same(format!("CONVERT({DIGITS} USING {name}) COLLATE {collation}"))
        }
        DataType::Binary { .. } | DataType::VarBinary { .. } | DataType::Blob(_) => {
            same(DIGITS.into())
        }
        DataType::Uuid => same("CAST(? AS UUID)".into()),
        DataType::Inet4 => same("CAST(? AS INET4)".into()),
        DataType::Inet6 => same("CAST(? AS INET6)".into()),
        DataType::Json | DataType::Geometry(_) | DataType::Vector { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dovetail_core::decode::mysql::{ColumnDefinition, Server};
    use dovetail_core::schema::{Column, Initial, RelationId, TableName};

    use super::*;

    fn table(key: &[(&str, &str)]) -> Table {
        let definition = |(name, column_type): &(&str, &str)| {
            let text = column_type.starts_with("varchar");
            let charset = text.then_some("latin1");
            ColumnDefinition::from_catalog(name, Server::MySql, column_type, charset)
                .expect("a known type")
        };
        let definitions: Vec<ColumnDefinition> = key.iter().map(definition).collect();
        let columns = definitions.iter().map(|definition| Column {
            name: definition.name.clone(),
            type_name: definition.type_name(),
            type_modifier: -1,
            kind: definition.kind(),
            initial: Initial::Null,
            number: None,
        });
        let name = TableName { namespace: "shop".into(), name: "t".into() };
        let relation = Relation::new(RelationId(1), name, columns.collect(), Vec::new());
        let collations = key
            .iter()
            .map(|(_, column_type)| {
                column_type.starts_with("varchar").then(|| "latin1_swedish_ci".to_owned())
            })
            .collect();
        let order = (!key.is_empty()).then(|| Order {
            index: "PRIMARY".into(),
            columns: (0..key.len()).collect(),
            collations,
        });
        Table {
            relation: Arc::new(relation),
            definitions: definitions.into(),
            order,
            rows_estimate: 1_000,
            hidden: 0,
        }
    }

    #[test]
    fn a_range_of_a_composite_key_is_written_out() {
        let statements = Statements::new(&table(&[("a", "int"), ("b", "decimal(9,2)")]));
        let key = |a: i64, b: &str| vec![Value::Int(a), Value::Bytes(b.into())];
        let (text, values) = statements.range(Some(&key(1, "2.00")), &key(3, "4.00"));
        let decimal = "CAST(? AS DECIMAL(9, 2))";
        let expected = format!(
            "SELECT `a`, `b` FROM `shop`.`t` FORCE INDEX (`PRIMARY`) \
             WHERE (`a` > ? OR (`a` = ? AND `b` > {decimal})) \
             AND (`a` < ? OR (`a` = ? AND `b` <= {decimal}))"
        );
        assert_eq!(text, expected);
        let bound: Vec<Value> = [key(1, ""), key(1, "2.00"), key(3, ""), key(3, "4.00")].concat();
        let bound: Vec<Value> =
            bound.into_iter().filter(|value| *value != Value::Bytes(Vec::new())).collect();
        assert_eq!(values, bound);
    }

    #[test]
    fn text_is_handed_back_in_its_own_character_set() {
        let statements = Statements::new(&table(&[("name", "varchar(9)")]));
        let (text, _) = statements.boundary(None, 100).expect("there is an order");
        assert_eq!(
            text,
            "SELECT `name` FROM `shop`.`t` FORCE INDEX (`PRIMARY`) ORDER BY `name` LIMIT 1 OFFSET 99"
        );
        let key = vec![Value::Bytes(b"\xe4x".to_vec())];
        let (text, values) = statements.page(Some(&key), 7);
        assert_eq!(values, [Value::Bytes(b"e478".to_vec())]);
        assert_eq!(
            text,
            "SELECT `name`, `name` FROM `shop`.`t` FORCE INDEX (`PRIMARY`) WHERE \
             (`name` > CONVERT(UNHEX(?) USING latin1) COLLATE latin1_swedish_ci) \
             ORDER BY `name` LIMIT 7"
        );
    }

    #[test]
    fn a_table_without_an_order_is_read_in_one_pass() {
        let table = table(&[]);
        assert_eq!(count(&table, 1), 1);
        let statements = Statements::new(&table);
        assert_eq!(statements.boundary(None, 10), None);
        assert!(!statements.page(None, 10).0.contains("LIMIT"));
    }

    #[test]
    fn there_are_more_chunks_than_the_estimate_asks_for() {
        let keyed = table(&[("a", "int")]);
        assert_eq!(count(&keyed, 100), 20);
        assert_eq!(count(&Table { rows_estimate: 0, ..keyed.clone() }, 100), 1);
        let huge = Table { rows_estimate: u64::MAX, ..keyed };
        assert_eq!(u64::from(count(&huge, 1)), CHUNKS_MAX);
    }
}
