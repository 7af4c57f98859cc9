//! What an operator lets a plugin see, beside what it asks for.
//!
//! A plugin sees what it declares *and* is granted; without grants, nothing. What stands outside is neither decoded for it nor
//! announced to it, whatever its code does, because the host takes what it hands over from here.
//!
//! - What a plugin declares by name (a table, a column, an operation) has to be granted, or the plugin is refused, with the
//!   difference: a plugin that needs a column and silently does without would be wrong in production.
//! - What it declares by a star, or as all columns, is as much as there is for it: a plugin for any table is granted the
//!   tables that an operator chose. A star that is granted nothing at all is refused too.
//!
//! As with interests, a table gets the union of the grants that name it.

use dovetail_core::change::Operation;
use dovetail_core::schema::Relation;

use crate::interest::{Descriptor, Interest, Operations, View, matches};

/// Everything one plugin is granted. Without any, a guest sees no event, its clock is the commit time of its batch, and its
/// random numbers are seeded by its position.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// SHA-256, in hexadecimal, of the only component that is granted anything; `None` is whatever the file holds.
    pub digest: Option<String>,
    pub rows: Vec<Grant>,
    /// The real time. What depends on it is not the same when a batch is called again.
    pub clock: bool,
    /// Random numbers of the operating system; as with the clock.
    pub randomness: bool,
}

/// Some columns of some tables, in some operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Globs on `namespace.name`.
    pub tables: Vec<String>,
    /// `None` is all columns.
    pub columns: Option<Vec<String>>,
    pub operations: Operations,
}

/// How many differences are named; a plugin may ask for thousands.
const NAMED_MAX: usize = 5;

impl Grants {
    /// All rows, whole; no clock, no randomness.
    pub fn all_rows() -> Self {
        let operations = Operation::ALL.into_iter().collect();
        let grant = Grant { tables: vec!["*".into()], columns: None, operations };
        Self { rows: vec![grant], ..Self::default() }
    }

    /// The least that lets a plugin have what it declares.
    pub fn needed(descriptor: &Descriptor) -> Self {
        let grant = |interest: &Interest| Grant {
            tables: interest.tables.clone(),
            columns: interest.columns.clone(),
            operations: interest.operations,
        };
        Self { rows: descriptor.interests.iter().map(grant).collect(), ..Self::default() }
    }

    /// What a plugin declares beyond its grants, as a list for people; `None` where it is granted everything.
    pub fn lacking(&self, descriptor: &Descriptor) -> Option<String> {
        let mut lacking: Vec<String> = Vec::new();
        for interest in &descriptor.interests {
            self.compare(interest, &mut lacking);
        }
        lacking.dedup();
        if lacking.is_empty() {
            return None;
        }
        let more = lacking.len().saturating_sub(NAMED_MAX);
        lacking.truncate(NAMED_MAX);
        let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(lacking.join("; ") + &rest)
    }

    fn compare(&self, interest: &Interest, lacking: &mut Vec<String>) {
        let messages = interest.operations.contains(Operation::Message);
        if messages && !self.messages() {
            lacking.push("messages".into());
        }
        let rows = interest.operations.without(Operation::Message);
        if rows == Operations::default() {
            return;
        }
        for table in &interest.tables {
            let granted = self.on(|glob| meet(glob, table));
            let Some((operations, columns)) = granted else {
                lacking.push(format!("table `{table}`"));
                continue;
            };
            let names = rows.iter().filter(|operation| !operations.contains(*operation));
            let names: Vec<&str> = names.map(Operation::name).collect();
            if !names.is_empty() {
                lacking.push(format!("{} of `{table}`", names.join(", ")));
            }
            let (Some(wanted), Some(columns)) = (&interest.columns, &columns) else { continue };
            let missing: Vec<String> = wanted
                .iter()
                .filter(|column| !columns.contains(&column.as_str()))
                .map(|column| format!("`{column}`"))
                .collect();
            if !missing.is_empty() {
                lacking.push(format!("column {} of `{table}`", missing.join(", ")));
            }
        }
    }

    /// What is left of a view.
    pub(crate) fn restrict(&self, relation: &Relation, view: View) -> Option<View> {
        let name = relation.table.to_string();
        let (operations, columns) = self.on(|glob| matches(glob, &name))?;
        let mut view = View { operations: view.operations.intersection(operations), ..view };
        if let Some(columns) = columns {
            let granted = |index: &usize| {
                let column = relation.columns.get(*index);
                column.is_some_and(|column| columns.contains(&&*column.name))
            };
            view.projection.columns.retain(granted);
        }
        Some(view)
    }

    pub(crate) fn messages(&self) -> bool {
        self.rows.iter().any(|grant| grant.operations.contains(Operation::Message))
    }

    /// The union of the grants one of whose tables is such; the columns are `None` where all are granted.
    fn on(&self, such: impl Fn(&str) -> bool) -> Option<(Operations, Option<Vec<&str>>)> {
        let mut union: Option<(Operations, Option<Vec<&str>>)> = None;
        for grant in self.rows.iter().filter(|grant| grant.tables.iter().any(|glob| such(glob))) {
            let (operations, columns) =
                union.get_or_insert((Operations::default(), Some(Vec::new())));
            *operations = operations.union(grant.operations);
            match (&grant.columns, &mut *columns) {
                (Some(names), Some(columns)) => columns.extend(names.iter().map(String::as_str)),
                _ => *columns = None,
            }
        }
        union
    }
}

/// Whether some text matches both patterns. A table without a star is met only by a grant that matches it.
fn meet(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Whether the rests behind `i` characters of the one and `j` of the other meet; row by row from the end.
    let mut below = vec![false; other.len() + 1];
    for i in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for j in (0..=other.len()).rev() {
            let at = |row: &[bool], j: usize| row.get(j).copied().unwrap_or(false);
            let (a, b) = (one.get(i), other.get(j));
            let met = match (a, b) {
                (None, None) => true,
                (Some('*'), Some('*')) => at(&below, j) || at(&row, j + 1),
                (Some('*'), _) => at(&below, j) || (b.is_some() && at(&row, j + 1)),
                (_, Some('*')) => at(&row, j + 1) || (a.is_some() && at(&below, j)),
                (Some(a), Some(b)) => a == b && at(&below, j + 1),
                _ => false,
            };
            if let Some(place) = row.get_mut(j) {
                *place = met;
            }
        }
        below = row;
    }
    below.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_core::schema::{Column, Initial, Kind, RelationId, TableName};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    fn grant(table: &str, columns: Option<&[&str]>, operations: &[Operation]) -> Grants {
        let operations = operations.iter().copied().collect();
        let grant = Grant { tables: names(&[table]), columns: columns.map(names), operations };
        Grants { rows: vec![grant], ..Grants::default() }
    }

    fn asks(table: &str, columns: Option<&[&str]>, operations: &[Operation]) -> Descriptor {
        let interest = Interest {
            tables: names(&[table]),
            operations: operations.iter().copied().collect(),
            columns: columns.map(names),
            before: true,
        };
        Descriptor { name: "test".into(), version: "1".into(), interests: vec![interest] }
    }

    const INSERT: &[Operation] = &[Operation::Insert];

    #[test]
    fn patterns_meet_where_some_text_matches_both() {
        for (one, other) in
            [("public.*", "*.users"), ("a", "a"), ("*", ""), ("*", "*"), ("a*c", "*b*"), ("", "**")]
        {
            assert!(meet(one, other) && meet(other, one), "{one} {other}");
        }
        for (one, other) in
            [("public.*", "private.*"), ("a", "b"), ("a*", "b*"), ("*a", "*b"), ("", "a")]
        {
            assert!(!meet(one, other) && !meet(other, one), "{one} {other}");
        }
    }

    #[test]
    fn what_is_named_and_not_granted_is_the_difference() {
        let grants = grant("public.users", Some(&["id", "email"]), INSERT);
        assert_eq!(grants.lacking(&asks("public.users", Some(&["email"]), INSERT)), None);
        for (descriptor, expected) in [
            (asks("public.orders", None, INSERT), "table `public.orders`"),
            (
                asks("public.users", Some(&["email", "phone"]), INSERT),
                "column `phone` of `public.users`",
            ),
            (
                asks("public.users", None, &[Operation::Insert, Operation::Delete]),
                "delete of `public.users`",
            ),
            (asks("nowhere.*", None, INSERT), "table `nowhere.*`"),
            (asks("*", None, &[Operation::Message]), "messages"),
        ] {
            assert_eq!(grants.lacking(&descriptor).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_star_is_as_much_as_there_is() {
        let grants = grant("public.users", Some(&["id"]), INSERT);
        for table in ["*", "public.*", "*.users"] {
            assert_eq!(grants.lacking(&asks(table, None, INSERT)), None, "{table}");
        }
    }

    #[test]
    fn without_grants_everything_is_lacking() {
        assert!(Grants::default().lacking(&asks("*", None, INSERT)).is_some());
        let asked = asks("*", Some(&["a"]), &Operation::ALL);
        assert_eq!(Grants::needed(&asked).lacking(&asked), None);
    }

    #[test]
    fn a_long_difference_is_cut_short() {
        let mut asked = asks("a.b", None, INSERT);
        asked.interests[0].tables = (0..1_000).map(|number| format!("a.t{number}")).collect();
        let lacking = Grants::default().lacking(&asked).expect("all of them");
        assert!(lacking.ends_with("table `a.t4`; and 995 more"), "{lacking}");
    }

    #[test]
    fn a_view_is_what_was_asked_for_and_granted() {
        let column = |name: &str| Column {
            name: name.into(),
            type_name: "text".into(),
            type_modifier: -1,
            kind: Kind::Text,
            initial: Initial::Null,
            number: None,
        };
        let table = TableName { namespace: "public".into(), name: "users".into() };
        let columns = ["id", "name", "email"].map(column).into();
        let relation = Relation::new(RelationId(1), table, columns, vec![0]);
        let view = asks("*", None, &Operation::ALL).view(&relation).expect("asks for all");
        let grants = grant("public.*", Some(&["email", "id"]), INSERT);
        let left = grants.restrict(&relation, view.clone()).expect("is granted");
        assert_eq!(left.projection.columns, [0, 2]);
        assert!(left.operations.contains(Operation::Insert));
        assert!(!left.operations.contains(Operation::Update));
        assert_eq!(grant("other.*", None, INSERT).restrict(&relation, view), None);
    }
}
