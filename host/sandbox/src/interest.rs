//! What a plugin asked to see, and what of a table that leaves.
//!
//! Least privilege and the main lever on cost at once: what a plugin did not ask for is neither encoded nor handed
//! over, and an event that no interest names does not reach it.

use dovetail_core::change::{Change, Operation};
use dovetail_core::frame::Projection;
use dovetail_core::schema::{Relation, TableName};

/// A plugin's own description of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    pub name: String,
    pub version: String,
    pub interests: Vec<Interest>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interest {
    /// Globs on `namespace.name`.
    pub tables: Vec<String>,
    pub operations: Operations,
    /// `None` is all columns.
    pub columns: Option<Vec<String>>,
    pub before: bool,
}

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations(u8);

impl Operations {
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }

    const fn bit(operation: Operation) -> u8 {
        match operation {
            Operation::Read => 1,
            Operation::Insert => 2,
            Operation::Update => 4,
            Operation::Delete => 8,
            Operation::Truncate => 16,
            Operation::Message => 32,
        }
    }

    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(move |operation| self.contains(*operation))
    }

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn without(self, operation: Operation) -> Self {
        Self(self.0 & !Self::bit(operation))
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().fold(0, |bits, operation| bits | Self::bit(operation)))
    }
}

/// What a plugin gets of one relation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub operations: Operations,
    pub projection: Projection,
}

/// More than a person writes; each costs time for every relation.
const INTERESTS_MAX: usize = 1_000;
const NAMES_MAX: usize = 10_000;
/// Names go into logs and metrics.
const NAME_BYTES_MAX: usize = 64;

impl Descriptor {
    /// Checks what an untrusted `describe` gave.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub(crate) fn check(self) -> Result<Self, &'static str> {
        if !is_label(&self.name) {
            return Err(
                "a name that is not 1 to 64 letters, digits, dots, hyphens, plus signs and underscores",
            );
        }
        if !is_label(&self.version) {
            return Err(
                "a version that is not 1 to 64 letters, digits, dots, hyphens, plus signs and underscores",
            );
        }
        let names = |interest: &Interest| {
            interest.tables.len() + interest.columns.as_ref().map_or(0, Vec::len)
        };
        if self.interests.len() > INTERESTS_MAX
            || self.interests.iter().map(names).sum::<usize>() > NAMES_MAX
        {
            return Err("more than 1,000 interests, or more than 10,000 names in them");
        }
        Ok(self)
    }

    /// Whether the plugin asked for such an event. [`Instance`](crate::Instance) asks by itself; this is for a caller
    /// that wants to know before it has one.
    pub fn wants(&self, change: &Change) -> bool {
        let operation = change.operation();
        self.interests.iter().any(|interest| {
            interest.operations.contains(operation)
                && change.relation().is_none_or(|relation| interest.names(&relation.table))
        })
    }

    pub(crate) fn wants_messages(&self) -> bool {
        self.interests.iter().any(|interest| interest.operations.contains(Operation::Message))
    }

    /// The union of all interests that name the table; `None` where none does.
    pub fn view(&self, relation: &Relation) -> Option<View> {
        let mut view: Option<View> = None;
        for interest in self.interests.iter().filter(|interest| interest.names(&relation.table)) {
            let columns = interest.columns_of(relation);
            let view = view.get_or_insert_with(|| View {
                operations: Operations::default(),
                projection: Projection { columns: Vec::new(), before: false },
            });
            view.operations = view.operations.union(interest.operations);
            view.projection.before |= interest.before;
            view.projection.columns.extend(columns);
        }
        let mut view = view?;
        view.projection.columns.sort_unstable();
        view.projection.columns.dedup();
        Some(view)
    }
}

fn is_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(allowed)
}

impl Interest {
    fn names(&self, table: &TableName) -> bool {
        let name = table.to_string();
        self.tables.iter().any(|glob| matches(glob, &name))
    }

    fn columns_of(&self, relation: &Relation) -> Vec<usize> {
        match &self.columns {
            None => (0..relation.columns.len()).collect(),
            Some(names) => names.iter().filter_map(|name| relation.column_index(name)).collect(),
        }
    }
}

/// Whether the text is the pattern, in which `*` stands for any run of characters. Takes time proportional to the
/// product of the lengths at most: only the last star is ever tried again.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_core::schema::{Column, Initial, Kind, RelationId};

    fn relation() -> Relation {
        let column = |name: &str| Column {
            name: name.into(),
            type_name: "text".into(),
            type_modifier: -1,
            kind: Kind::Text,
            initial: Initial::Null,
            number: None,
        };
        let table = TableName { namespace: "public".into(), name: "users".into() };
        let columns = ["id", "name", "email", "phone"].map(column);
        Relation::new(RelationId(1), table, columns.into(), vec![0])
    }

    fn interest(table: &str, operation: Operation, columns: Option<&[&str]>) -> Interest {
        Interest {
            tables: vec![table.into()],
            operations: [operation].into_iter().collect(),
            columns: columns.map(|names| names.iter().map(|&name| name.into()).collect()),
            before: false,
        }
    }

    fn describe(interests: Vec<Interest>) -> Descriptor {
        Descriptor { name: "test".into(), version: "1".into(), interests }
    }

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "public.users"),
            ("public.*", "public.users"),
            ("*.users", "public.users"),
            ("p*.u*s", "public.users"),
            ("*a*a*", "banana"),
            ("a.b", "a.b"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("public.*", "private.users"),
            ("*.user", "public.users"),
            ("ab*ba", "aba"),
            ("a.b", "a_b"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_table_gets_the_union_of_the_interests_that_name_it() {
        let descriptor = describe(vec![
            interest("*.users", Operation::Insert, Some(&["phone", "nowhere"])),
            interest("public.*", Operation::Update, Some(&["id", "phone"])),
            interest("other.*", Operation::Delete, None),
        ]);
        let view = descriptor.view(&relation()).expect("two interests name it");
        assert_eq!(view.projection.columns, [0, 3]);
        assert!(view.operations.contains(Operation::Insert));
        assert!(view.operations.contains(Operation::Update));
        assert!(!view.operations.contains(Operation::Delete));
    }

    #[test]
    fn a_table_that_no_interest_names_has_no_view() {
        let descriptor = describe(vec![interest("other.*", Operation::Insert, None)]);
        assert_eq!(descriptor.view(&relation()), None);
    }

    #[test]
    fn a_descriptor_whose_name_could_forge_a_log_line_is_refused() {
        let mut descriptor = describe(Vec::new());
        assert!(descriptor.clone().check().is_ok());
        descriptor.name = "a\nb".into();
        assert!(descriptor.check().is_err());
    }
}
