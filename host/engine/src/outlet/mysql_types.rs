//! The names of types that a source of MySQL or MariaDB gives its columns.
//!
//! They are the server's spelling without display widths and character sets: `int unsigned`, `varchar(40)`,
//! `decimal(10,2)`, `enum('a','it''s')`.

/// A name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::outlet) struct TypeName<'a> {
    pub(in crate::outlet) word: &'a str,
    pub(in crate::outlet) numbers: Vec<u32>,
    /// Of an `enum` or a `set`, in their order.
    pub(in crate::outlet) labels: Vec<String>,
    pub(in crate::outlet) unsigned: bool,
}

impl<'a> TypeName<'a> {
    /// `None` for what is no such name.
    pub(in crate::outlet) fn parse(name: &'a str) -> Option<Self> {
        let (name, unsigned) = match name.strip_suffix(" unsigned") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (word, list) = match name.split_once('(') {
            Some((word, list)) => (word, list.strip_suffix(')')?),
            None => (name, ""),
        };
        if word.is_empty() || !word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
            return None;
        }
        let mut parsed = Self { word, numbers: Vec::new(), labels: Vec::new(), unsigned };
        if list.starts_with('\'') {
            parsed.labels = labels(list)?;
        } else if !list.is_empty() {
            let numbers = list.split(',').map(|number| number.parse().ok());
            parsed.numbers = numbers.collect::<Option<_>>()?;
        }
        Some(parsed)
    }

    pub(in crate::outlet) fn number(&self, index: usize) -> Option<u32> {
        self.numbers.get(index).copied()
    }

    /// Whether every value of the other type is one of this type, and written alike: what a table at an outlet follows
    /// without its rows being written again.
    pub(in crate::outlet) fn widens(&self, other: &TypeName<'_>) -> bool {
        const INTEGERS: [&str; 5] = ["tinyint", "smallint", "mediumint", "int", "bigint"];
        let rank = |name: &TypeName<'_>| INTEGERS.iter().position(|word| *word == name.word);
        if let (Some(is), Some(was)) = (rank(self), rank(other)) {
            // An unsigned one needs a wider signed one.
            return match (self.unsigned, other.unsigned) {
                (true, true) | (false, false) => is >= was,
                (false, true) => is > was,
                (true, false) => false,
            };
        }
        if (self.word, self.unsigned) != (other.word, other.unsigned) {
            return false;
        }
        match self.word {
            "char" | "varchar" | "varbinary" => self.number(0) >= other.number(0),
            "time" | "datetime" | "timestamp" => self.number(0) >= other.number(0),
            "decimal" => self.number(1) == other.number(1) && self.number(0) >= other.number(0),
            "enum" | "set" => self.labels.starts_with(&other.labels),
            _ => self == other,
        }
    }
}

/// Of `'a','it''s'`.
fn labels(list: &str) -> Option<Vec<String>> {
    let mut labels = Vec::new();
    let mut characters = list.chars().peekable();
    loop {
        if characters.next()? != '\'' {
            return None;
        }
        let mut label = String::new();
        loop {
            match characters.next()? {
                '\'' if characters.next_if_eq(&'\'').is_some() => label.push('\''),
                '\'' => break,
                '\\' => label.push(match characters.next()? {
                    '0' => '\0',
                    'n' => '\n',
                    'r' => '\r',
                    other => other,
                }),
                other => label.push(other),
            }
        }
        labels.push(label);
        match characters.next() {
            Some(',') => {}
            Some(_) => return None,
            None => return Some(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> TypeName<'_> {
        TypeName::parse(name).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn a_name_is_taken_apart() {
        assert_eq!(parsed("bigint unsigned").word, "bigint");
        assert!(parsed("decimal(10,2) unsigned").unsigned);
        assert_eq!(parsed("decimal(10,2)").numbers, [10, 2]);
        assert_eq!(
            parsed("enum('a','it''s','b,c','back\\\\',')')").labels,
            ["a", "it's", "b,c", "back\\", ")"]
        );
        for wrong in [
            "",
            "Int",
            "int; DROP",
            "varchar(x)",
            "enum('a'",
            "enum('a',)",
            "varchar(4",
            "int signed",
        ] {
            assert_eq!(TypeName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_type_widens_where_no_value_changes() {
        for (is, was) in [
            ("bigint", "int"),
            ("bigint", "int unsigned"),
            ("int unsigned", "smallint unsigned"),
            ("varchar(80)", "varchar(40)"),
            ("decimal(14,2)", "decimal(10,2)"),
            ("datetime(6)", "datetime"),
            ("enum('a','b')", "enum('a')"),
        ] {
            assert!(parsed(is).widens(&parsed(was)), "{was} to {is}");
            assert!(!parsed(was).widens(&parsed(is)), "{is} to {was}");
        }
        for (is, was) in [
            ("int unsigned", "int"),
            ("int", "int unsigned"),
            ("decimal(14,3)", "decimal(10,2)"),
            ("binary(4)", "binary(2)"),
            ("enum('b','a')", "enum('a')"),
            ("text", "varchar(40)"),
        ] {
            assert!(!parsed(is).widens(&parsed(was)), "{was} to {is}");
        }
    }
}
