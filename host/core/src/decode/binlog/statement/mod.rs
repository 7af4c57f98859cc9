//! What a `QUERY` event's statement does to rows and transactions.
//!
//! Under row format a server logs as statements only what cannot be told in rows: the edges of transactions, and DDL.
//! Some DDL removes rows that no row event names: `TRUNCATE`, `DROP`, and what is done to whole partitions. And a session
//! that switched to statement format logs its changes as text, which nobody but the server could turn into rows: those,
//! and every statement that begins with a word that is not known here, are for the caller to stop at.
//!
//! Nothing is parsed further than needed. Where a statement could be two things it is taken for the more harmful.

mod token;

use self::token::{Token, Tokens};
use super::query::Modes;
use super::xid::Xid;
use crate::schema::TableName;

/// What a statement does. Names are resolved against the session's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Begin,
    Commit,
    Rollback,
    /// Undoes a part of the transaction.
    RollbackTo,
    Savepoint,
    /// `None` for a name that cannot be read.
    XaStart(Option<Xid>),
    XaEnd,
    XaPrepare(Option<Xid>),
    XaCommit(Option<Xid>),
    XaRollback(Option<Xid>),
    /// Empties or removes tables; `CREATE OR REPLACE TABLE` too.
    Empty(Vec<TableName>),
    /// Removes all tables of a schema.
    DropSchema(String),
    /// From, to.
    Rename(Vec<(TableName, TableName)>),
    /// Adds or removes rows that are not in the log.
    Unlogged(Vec<TableName>),
    /// Any other change of definitions. `begins` where the rows of the new table follow in the same transaction.
    Ddl {
        begins: bool,
    },
    /// Changes rows by a statement. The table is named where it is one and surely the only one.
    Dml(Option<TableName>),
    /// Changes neither rows nor definitions.
    Nothing,
    /// Begins with this word, which is not known.
    Unknown(String),
}

pub fn classify(text: &str, schema: &str, modes: Modes) -> Statement {
    Parser { tokens: Tokens::new(text, modes), schema }.statement()
}

#[derive(Clone)]
struct Parser<'a> {
    tokens: Tokens<'a>,
    schema: &'a str,
}

impl<'a> Parser<'a> {
    fn statement(mut self) -> Statement {
        let word = match self.tokens.next() {
            None => return Statement::Nothing,
            Some(Token::Word(word)) => word.to_ascii_uppercase(),
            Some(Token::Symbol('(')) => return Statement::Dml(None),
            Some(_) => return Statement::Unknown(String::new()),
        };
        match word.as_str() {
            "BEGIN" if self.accept("NOT") => Statement::Dml(None),
            "BEGIN" => Statement::Begin,
            "START" if self.accept("TRANSACTION") => Statement::Begin,
            "COMMIT" => Statement::Commit,
            "ROLLBACK" => {
                self.accept("WORK");
                if self.accept("TO") { Statement::RollbackTo } else { Statement::Rollback }
            }
            "SAVEPOINT" | "RELEASE" => Statement::Savepoint,
            "XA" => self.xa(),
            "TRUNCATE" => {
                self.accept("TABLE");
                self.name()
                    .map_or_else(|| unreadable("TRUNCATE"), |table| Statement::Empty(vec![table]))
            }
            "DROP" => self.drop(),
            "RENAME" => self.rename(),
            "ALTER" => self.alter(),
            "CREATE" => self.create(),
            "SET" => self.set(),
            "INSERT" | "REPLACE" => {
                for keyword in ["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"] {
                    self.accept(keyword);
                }
                Statement::Dml(self.name())
            }
            "DELETE" => {
                for keyword in ["LOW_PRIORITY", "QUICK", "IGNORE"] {
                    self.accept(keyword);
                }
                let is_single = self.accept("FROM");
                let table = self.name().filter(|_| is_single);
                let is_last = match self.tokens.next() {
                    None => true,
                    Some(token) => token.is("WHERE") || token.is("ORDER") || token.is("LIMIT"),
                };
                Statement::Dml(table.filter(|_| is_last))
            }
            "UPDATE" => {
                for keyword in ["LOW_PRIORITY", "IGNORE"] {
                    self.accept(keyword);
                }
                let table = self.name();
                let is_single = self.accept("SET");
                Statement::Dml(table.filter(|_| is_single))
            }
            "LOAD" | "WITH" | "CALL" | "DO" | "SELECT" | "VALUES" | "TABLE" | "HANDLER"
            | "EXECUTE" | "IMPORT" | "IF" | "CASE" | "WHILE" | "LOOP" | "REPEAT" | "FOR"
            | "DECLARE" => Statement::Dml(None),
            "GRANT" | "REVOKE" => Statement::Ddl { begins: false },
            "ANALYZE" | "OPTIMIZE" | "REPAIR" | "CHECK" | "CHECKSUM" | "CACHE" | "FLUSH"
            | "INSTALL" | "UNINSTALL" | "USE" | "LOCK" | "UNLOCK" | "RESET" | "PURGE" | "KILL"
            | "CHANGE" | "START" | "STOP" | "SHOW" | "DEALLOCATE" | "PREPARE" | "BINLOG"
            | "BACKUP" => {
                if word == "BINLOG" {
                    Statement::Dml(None)
                } else {
                    Statement::Nothing
                }
            }
            _ => Statement::Unknown(word),
        }
    }

    fn xa(mut self) -> Statement {
        let Some(Token::Word(verb)) = self.tokens.next() else { return unreadable("XA") };
        match verb.to_ascii_uppercase().as_str() {
            "START" | "BEGIN" => Statement::XaStart(self.xid()),
            "END" => Statement::XaEnd,
            "PREPARE" => Statement::XaPrepare(self.xid()),
            "COMMIT" => Statement::XaCommit(self.xid()),
            "ROLLBACK" => Statement::XaRollback(self.xid()),
            "RECOVER" => Statement::Nothing,
            _ => unreadable("XA"),
        }
    }

    fn xid(&mut self) -> Option<Xid> {
        let global = self.bytes()?;
        let branch = if self.accept_symbol(',') { self.bytes()? } else { Vec::new() };
        let format = match self.accept_symbol(',') {
            false => 1,
            true => match self.tokens.next()? {
                Token::Word(number) => number.parse().ok()?,
                _ => return None,
            },
        };
        Some(Xid { format, global, branch })
    }

    /// `'text'`, `X'6162'` or `0x6162`.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        match self.tokens.next()? {
            Token::Text(text) => Some(text.as_bytes().to_vec()),
            Token::Word("X" | "x") => match self.tokens.next()? {
                Token::Text(digits) => unhex(&digits),
                _ => None,
            },
            Token::Word(word) => unhex(word.strip_prefix("0x")?),
            _ => None,
        }
    }

    fn drop(mut self) -> Statement {
        let is_temporary = self.accept("TEMPORARY");
        let Some(Token::Word(what)) = self.tokens.next() else { return unreadable("DROP") };
        let what = what.to_ascii_uppercase();
        self.if_exists();
        match what.as_str() {
            "TABLE" | "TABLES" if is_temporary => Statement::Nothing,
            "TABLE" | "TABLES" => {
                let mut tables = Vec::new();
                loop {
                    let Some(table) = self.name() else { return unreadable("DROP") };
                    tables.push(table);
                    if !self.accept_symbol(',') {
                        return Statement::Empty(tables);
                    }
                }
            }
            "DATABASE" | "SCHEMA" => {
                self.identifier().map_or_else(|| unreadable("DROP"), Statement::DropSchema)
            }
            _ => Statement::Ddl { begins: false },
        }
    }

    fn rename(mut self) -> Statement {
        if !self.accept("TABLE") && !self.accept("TABLES") {
            return Statement::Ddl { begins: false };
        }
        self.if_exists();
        let mut pairs = Vec::new();
        loop {
            let Some(from) = self.name() else { return unreadable("RENAME") };
            self.wait();
            let pair = if self.accept("TO") { self.name() } else { None };
            let Some(to) = pair else { return unreadable("RENAME") };
            pairs.push((from, to));
            if !self.accept_symbol(',') {
                return Statement::Rename(pairs);
            }
        }
    }

    fn alter(mut self) -> Statement {
        const DDL: Statement = Statement::Ddl { begins: false };
        self.accept("ONLINE");
        // MariaDB's: rows that a new unique key does not allow are removed.
        let is_ignoring = self.accept("IGNORE");
        if !self.accept("TABLE") {
            return DDL;
        }
        self.if_exists();
        let Some(table) = self.name() else { return unreadable("ALTER") };
        self.wait();
        let mut depth = 0_usize;
        let mut before = None;
        let mut is_unlogged = is_ignoring;
        let mut renamed = None;
        let mut tables = vec![table.clone()];
        while let Some(token) = self.tokens.next() {
            let follows = |words: &[&str]| {
                let before: Option<&Token<'_>> = before.as_ref();
                before.is_some_and(|before| words.iter().any(|word| before.is(word)))
            };
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                ref word if word.is("PARTITION") => {
                    is_unlogged |= follows(&["TRUNCATE", "DROP", "EXCHANGE", "CONVERT"]);
                }
                ref word if word.is("TABLE") => {
                    is_unlogged |= follows(&["CONVERT"]);
                    tables.extend(self.clone().name());
                }
                ref word if word.is("TABLESPACE") => {
                    is_unlogged |= follows(&["DISCARD", "IMPORT"]);
                }
                ref word if word.is("RENAME") => renamed = self.alter_rename().or(renamed),
                _ => {}
            }
            before = Some(token);
        }
        match renamed {
            _ if is_unlogged => Statement::Unlogged(tables),
            Some(to) => Statement::Rename(vec![(table, to)]),
            None => DDL,
        }
    }

    /// `RENAME [TO | AS | =] table`, but of a table only.
    fn alter_rename(&mut self) -> Option<TableName> {
        for what in ["COLUMN", "INDEX", "KEY"] {
            if self.clone().accept(what) {
                return None;
            }
        }
        if !self.accept("TO") && !self.accept("AS") {
            self.accept_symbol('=');
        }
        self.name()
    }

    fn create(mut self) -> Statement {
        const DDL: Statement = Statement::Ddl { begins: false };
        let replaces = self.accept("OR") && self.accept("REPLACE");
        let is_temporary = self.accept("TEMPORARY");
        if !self.accept("TABLE") {
            return DDL;
        }
        self.if_exists();
        let Some(table) = self.name() else { return unreadable("CREATE") };
        if is_temporary {
            return Statement::Nothing;
        }
        let (mut selects, mut begins) = (false, false);
        let mut before_starts = false;
        for token in self.tokens {
            // No expression of a definition holds a query, and as names these words are in quotes.
            selects |= token.is("SELECT");
            begins = before_starts && token.is("TRANSACTION");
            before_starts = token.is("START");
        }
        match (selects, replaces) {
            (true, _) => Statement::Dml(Some(table)),
            (false, true) => Statement::Empty(vec![table]),
            (false, false) => Statement::Ddl { begins },
        }
    }

    /// MariaDB: `SET STATEMENT variable = value, ... FOR statement`.
    fn set(mut self) -> Statement {
        if !self.accept("STATEMENT") {
            return Statement::Nothing;
        }
        let mut depth = 0_usize;
        while let Some(token) = self.tokens.next() {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth = depth.saturating_sub(1),
                ref word if depth == 0 && word.is("FOR") => return self.statement(),
                _ => {}
            }
        }
        unreadable("SET STATEMENT")
    }

    fn if_exists(&mut self) {
        if self.accept("IF") {
            self.accept("NOT");
            self.accept("EXISTS");
        }
    }

    /// MariaDB: `WAIT seconds` or `NOWAIT`.
    fn wait(&mut self) {
        if self.accept("WAIT") {
            self.tokens.next();
        } else {
            self.accept("NOWAIT");
        }
    }

    fn name(&mut self) -> Option<TableName> {
        let first = self.identifier()?;
        if !self.accept_symbol('.') {
            return Some(TableName { namespace: self.schema.to_owned(), name: first });
        }
        let name = self.identifier()?;
        Some(TableName { namespace: first, name })
    }

    fn identifier(&mut self) -> Option<String> {
        match self.tokens.next()? {
            Token::Word(word) => Some(word.to_owned()),
            Token::Name(name) => Some(name.into_owned()),
            _ => None,
        }
    }

    fn accept(&mut self, keyword: &str) -> bool {
        self.accept_if(|token| token.is(keyword))
    }

    fn accept_symbol(&mut self, symbol: char) -> bool {
        self.accept_if(|token| *token == Token::Symbol(symbol))
    }

    fn accept_if(&mut self, is_meant: impl FnOnce(&Token<'a>) -> bool) -> bool {
        let mut ahead = self.tokens.clone();
        let accepts = ahead.next().is_some_and(|token| is_meant(&token));
        if accepts {
            self.tokens = ahead;
        }
        accepts
    }
}

fn unreadable(word: &str) -> Statement {
    Statement::Unknown(word.to_owned())
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let nibbles: Option<Vec<u8>> =
        digits.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    let nibbles = nibbles?;
    let (pairs, rest) = nibbles.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests;
