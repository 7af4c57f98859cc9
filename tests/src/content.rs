//! What tables hold, as text, wherever they are: the two ends of a pipeline compared without its own code.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::Client;

/// One row: the text of every column, by name. `None` is null.
pub type Row = BTreeMap<String, Option<String>>;

/// The rows of one table with how often each is there. Order and keys do not matter.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Content {
    rows: BTreeMap<Row, u64>,
}

impl Content {
    pub fn insert(&mut self, row: Row) {
        *self.rows.entry(row).or_default() += 1;
    }

    /// Takes one such row away; whether there was one.
    pub fn remove(&mut self, row: &Row) -> bool {
        let Some(count) = self.rows.get_mut(row) else { return false };
        *count -= 1;
        if *count == 0 {
            self.rows.remove(row);
        }
        true
    }

    pub fn clear(&mut self) {
        self.rows.clear();
    }

    pub fn len(&self) -> u64 {
        self.rows.values().sum()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Every row with its count.
    pub fn rows(&self) -> impl Iterator<Item = (&Row, u64)> {
        self.rows.iter().map(|(row, count)| (row, *count))
    }

    /// Every row that is not equally often here and there.
    pub fn differences(&self, other: &Self) -> Differences {
        let keys =
            self.rows.keys().chain(other.rows.keys().filter(|row| !self.rows.contains_key(*row)));
        let count = |content: &Self, row| content.rows.get(row).copied().unwrap_or(0);
        let all = keys.map(|row| (row.clone(), count(self, row), count(other, row)));
        Differences { rows: all.filter(|(_, here, there)| here != there).collect() }
    }
}

impl FromIterator<Row> for Content {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Self {
        let mut content = Self::default();
        rows.into_iter().for_each(|row| content.insert(row));
        content
    }
}

/// Rows with their count at the first and at the second end.
#[derive(Debug, PartialEq, Eq)]
pub struct Differences {
    rows: Vec<(Row, u64, u64)>,
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} rows differ", self.rows.len())?;
        for (row, here, there) in self.rows.iter().take(10) {
            let cells = row.iter().map(|(name, text)| match text {
                Some(text) => format!("{name}={}", text.chars().take(40).collect::<String>()),
                None => format!("{name} null"),
            });
            writeln!(f, "  {here} here, {there} there: {}", cells.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

/// Rows of a table of PostgreSQL; `table` as SQL writes it.
pub async fn of_postgres(client: &Client, table: &str) -> Result<Content> {
    let columns = columns(client, table).await?;
    let list: Vec<_> = columns.iter().map(|name| format!("{}::text", quoted(name))).collect();
    let query = format!("SELECT {} FROM {table}", list.join(", "));
    let rows = client.query(&query, &[]).await.with_context(|| format!("read {table}"))?;
    Ok(rows
        .iter()
        .map(|row| {
            columns.iter().enumerate().map(|(at, name)| (name.clone(), row.get(at))).collect()
        })
        .collect())
}

/// Columns that can be captured: generated ones are not in the log.
async fn columns(client: &Client, table: &str) -> Result<Vec<String>> {
    let query = "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass \
                 AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum";
    let rows = client.query(query, &[&table]).await.with_context(|| format!("describe {table}"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Rows of a table of MySQL or MariaDB; `table` is the database and the name, joined by a point.
pub async fn of_mysql(connection: &mut Conn, table: &str) -> Result<Content> {
    let (database, name) = table.split_once('.').context("a table with its database")?;
    let query = "SELECT column_name, data_type LIKE '%binary' OR data_type LIKE '%blob' \
                 FROM information_schema.columns \
                 WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
    let columns: Vec<(String, bool)> = connection.exec(query, (database, name)).await?;
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    // Bytes as the lines have them: a backslash, an x, and digits.
    let printed = |(name, is_binary): &(String, bool)| match is_binary {
        true => format!("CONCAT(0x5c78, LOWER(HEX({})))", quoted(name)),
        false => format!("CAST({} AS CHAR)", quoted(name)),
    };
    let list: Vec<_> = columns.iter().map(printed).collect();
    let (list, database, name) = (list.join(", "), quoted(database), quoted(name));
    let query = format!("SELECT {list} FROM {database}.{name}");
    let rows: Vec<mysql_async::Row> =
        connection.query(&query).await.with_context(|| format!("read {table}"))?;
    let row = |mut row: mysql_async::Row| {
        let cell = |(at, (name, _)): (usize, &(String, bool))| {
            Ok((name.clone(), row.take::<Option<String>, _>(at).context("a cell")?))
        };
        columns.iter().enumerate().map(cell).collect::<Result<Row>>()
    };
    rows.into_iter().map(row).collect()
}

/// Rows of a table of an SQLite file, which an engine may be writing.
pub fn of_sqlite(file: &Path, table: &str) -> Result<Content> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(file, flags).context("open the replica")?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    let table = quoted(table);
    let mut statement = connection.prepare(&format!("SELECT * FROM {table}"))?;
    let columns: Vec<_> = statement.column_names().into_iter().map(str::to_owned).collect();
    let list: Vec<_> =
        columns.iter().map(|name| format!("CAST({} AS TEXT)", quoted(name))).collect();
    statement = connection.prepare(&format!("SELECT {} FROM {table}", list.join(", ")))?;
    let mut rows = statement.query([])?;
    let mut content = Content::default();
    while let Some(row) = rows.next()? {
        let cells = columns.iter().enumerate().map(|(at, name)| Ok((name.clone(), row.get(at)?)));
        content.insert(cells.collect::<Result<_>>()?);
    }
    Ok(content)
}

/// An identifier as both databases write it.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, text: Option<&str>) -> Row {
        [("id".to_owned(), Some(id.to_owned())), ("text".to_owned(), text.map(str::to_owned))]
            .into()
    }

    #[test]
    fn a_row_more_or_less_or_another_value_is_a_difference() {
        let one: Content =
            [row("1", Some("a")), row("1", Some("a")), row("2", None)].into_iter().collect();
        let same: Content =
            [row("2", None), row("1", Some("a")), row("1", Some("a"))].into_iter().collect();
        assert!(one.differences(&same).is_empty());
        for other in [
            vec![row("1", Some("a")), row("2", None)],
            vec![row("1", Some("a")), row("1", Some("a")), row("2", Some(""))],
            vec![row("1", Some("a")), row("1", Some("a")), row("2", None), row("2", None)],
            vec![],
        ] {
            let other: Content = other.into_iter().collect();
            assert!(!one.differences(&other).is_empty());
            assert!(!other.differences(&one).is_empty());
        }
    }
}
