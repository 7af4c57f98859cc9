//! Row events as the server's own reader prints them: a second reader of every value.
//!
//! `mariadb-binlog -v` and `mysqlbinlog -v` print each image as lines `###   @2='text'`, with the bytes of the column in
//! its own character set, and with escapes that differ between the two.

use anyhow::{Context as _, Result, bail};

use super::Server;

/// A changed row.
#[derive(Debug, Default)]
pub struct Row {
    /// `database.table`
    pub table: String,
    /// `insert`, `update` or `delete`, as lines have it.
    pub op: &'static str,
    pub before: Option<Vec<Printed>>,
    pub after: Option<Vec<Printed>>,
}

/// A cell, as it was printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    raw: Vec<u8>,
    is_mariadb: bool,
}

impl Server {
    /// The rows of one file of the log, in its order.
    pub fn printed_rows(&self, file: &str) -> Result<Vec<Row>> {
        let printed = self.printed_bytes(file)?;
        let is_mariadb = self.version().is_mariadb();
        let mut rows: Vec<Row> = Vec::new();
        for line in printed.split(|byte| *byte == b'\n') {
            let Some(line) = line.strip_prefix(b"### ") else { continue };
            if let Some(cell) = line.strip_prefix(b"  @") {
                let row = rows.last_mut().context("a cell before any row")?;
                let image = row.after.as_mut().or(row.before.as_mut()).context("no image")?;
                let at = cell.iter().position(|byte| *byte == b'=').context("a cell's number")?;
                let (_, raw) = cell.split_at(at + 1);
                image.push(Printed { raw: raw.to_vec(), is_mariadb });
                continue;
            }
            match (line, rows.last_mut()) {
                (b"WHERE", Some(row)) => row.before = Some(Vec::new()),
                (b"SET", Some(row)) => row.after = Some(Vec::new()),
                _ => rows.push(row(line)?),
            }
        }
        Ok(rows)
    }
}

/// Of a line such as ``INSERT INTO `shop`.`item` ``.
fn row(line: &[u8]) -> Result<Row> {
    let line = String::from_utf8_lossy(line);
    let heads = [("INSERT INTO ", "insert"), ("UPDATE ", "update"), ("DELETE FROM ", "delete")];
    for (head, op) in heads {
        if let Some(table) = line.strip_prefix(head) {
            let table = table.trim_matches('`').replace("`.`", ".");
            return Ok(Row { table, op, before: None, after: None });
        }
    }
    bail!("an unknown line: {line}")
}

impl Printed {
    /// Everything but what stands in quotes is plain.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.raw).trim_end().to_owned()
    }

    /// What stands in quotes; `None` where nothing does.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let quoted = self.raw.strip_prefix(b"'")?.strip_suffix(b"'")?;
        let mut bytes = Vec::with_capacity(quoted.len());
        let mut rest = quoted;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after) {
                (b'\\', [b'x', digits @ ..]) if self.is_escape(digits) => {
                    let (digits, after) = digits.split_at(2);
                    bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
                    rest = after;
                }
                (b'\\', [escaped, after @ ..]) if !self.is_mariadb => {
                    bytes.push(match escaped {
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0C,
                        b'r' => b'\r',
                        same => *same,
                    });
                    rest = after;
                }
                _ => bytes.push(*byte),
            }
        }
        Some(bytes)
    }

    /// MariaDB's reader escapes control characters and nothing else, backslashes not either.
    fn is_escape(&self, digits: &[u8]) -> bool {
        match digits {
            [first, second, ..] => {
                second.is_ascii_hexdigit()
                    && (matches!(first, b'0' | b'1')
                        || !self.is_mariadb && first.is_ascii_hexdigit())
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_quotes_is_what_was_stored() {
        let bytes = |raw: &[u8], is_mariadb| Printed { raw: raw.to_vec(), is_mariadb }.bytes();
        assert_eq!(bytes(br"'a\x00\\\'\n'", false).as_deref(), Some(b"a\0\\'\n".as_slice()));
        assert_eq!(
            bytes(br"'it's a \ and \x0a'", true).as_deref(),
            Some(b"it's a \\ and \n".as_slice())
        );
        assert_eq!(bytes(b"NULL", true), None);
    }
}
