//! The labels of an ENUM or a SET, in their order.

use std::sync::Arc;

use crate::value::Text;

/// Shared, because every row's value may be one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels(Arc<[Text]>);

impl Labels {
    pub fn new(labels: Vec<Text>) -> Self {
        Self(labels.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Text> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The text of an ENUM's number. 0 is the error value, which the server prints as an empty text.
    pub(super) fn of_enum(&self, number: u64) -> Option<Text> {
        let Some(index) = number.checked_sub(1) else { return Some(Text::default()) };
        self.0.get(usize::try_from(index).ok()?).cloned()
    }

    /// The texts of a SET's members, joined by commas (no label holds one); `None` for a bit without a label.
    pub(super) fn of_set(&self, members: u64) -> Option<Text> {
        if let Some(index) = members.checked_ilog2().filter(|_| members.is_power_of_two()) {
            return self.0.get(usize::try_from(index).ok()?).cloned();
        }
        let mut joined = String::new();
        let mut left = members;
        while left != 0 {
            let index = usize::try_from(left.trailing_zeros()).ok()?;
            if !joined.is_empty() || left != members {
                joined.push(',');
            }
            joined.push_str(self.0.get(index)?);
            left &= left - 1;
        }
        Some(joined.into())
    }
}

/// A label as the catalog spells it inside `enum(...)`.
pub(super) fn quoted(label: &str) -> String {
    let mut quoted = String::with_capacity(label.len() + 2);
    quoted.push('\'');
    for character in label.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// The labels of `('a','it''s')`; `None` for another form.
pub(super) fn unquoted(list: &str) -> Option<Labels> {
    let mut labels = Vec::new();
    let mut rest = list.strip_prefix('(')?;
    loop {
        let (label, tail) = one_unquoted(rest.strip_prefix('\'')?)?;
        labels.push(label.into());
        match tail.strip_prefix(',') {
            Some(tail) => rest = tail,
            None => return (tail == ")").then(|| Labels::new(labels)),
        }
    }
}

/// Reads up to the closing quote; gives what is behind it as well.
fn one_unquoted(text: &str) -> Option<(String, &str)> {
    let mut label = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '\'' => match characters.as_str().strip_prefix('\'') {
                Some(tail) => {
                    label.push('\'');
                    characters = tail.chars();
                }
                None => return Some((label, characters.as_str())),
            },
            '\\' => label.push(match characters.next()? {
                '0' => '\0',
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            }),
            other => label.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(texts: &[&str]) -> Labels {
        Labels::new(texts.iter().map(|text| Text::from(*text)).collect())
    }

    #[test]
    fn an_enum_counts_from_one_and_zero_is_its_error_value() {
        let labels = labels(&["a", "b"]);
        assert_eq!(labels.of_enum(0), Some("".into()));
        assert_eq!(labels.of_enum(2), Some("b".into()));
        assert_eq!(labels.of_enum(3), None);
    }

    #[test]
    fn a_set_joins_its_members_even_where_one_is_empty() {
        let labels = labels(&["", "b", "c"]);
        assert_eq!(labels.of_set(0), Some("".into()));
        assert_eq!(labels.of_set(0b001), Some("".into()));
        assert_eq!(labels.of_set(0b011), Some(",b".into()));
        assert_eq!(labels.of_set(0b110), Some("b,c".into()));
        assert_eq!(labels.of_set(0b1000), None);
        assert_eq!(labels.of_set(0b1001), None);
    }

    #[test]
    fn labels_read_back_what_was_quoted() {
        let all = ["it's", "back\\slash", "a,b", "", "nul\0", "line\n\r", "日本", "')"];
        let list = all.iter().map(|label| quoted(label)).collect::<Vec<_>>().join(",");
        assert_eq!(unquoted(&format!("({list})")), Some(labels(&all)));
        for wrong in ["", "('a'", "('a',)", "(a)", "('a''", "('\\x')", "('a') x"] {
            assert_eq!(unquoted(wrong), None, "{wrong}");
        }
    }
}
