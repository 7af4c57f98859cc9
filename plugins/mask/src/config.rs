//! The plugin's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::rule::Rule;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    columns: BTreeMap<String, RawRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum RawRule {
    Hash(RawHash),
    /// A text, or null.
    Redact(Option<String>),
    Truncate(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHash {
    salt: String,
}

/// Columns that share a rule.
#[derive(Debug)]
pub(crate) struct Target {
    /// Glob on `namespace.name`.
    pub(crate) tables: String,
    pub(crate) column: String,
    pub(crate) rule: Rule,
}

#[derive(Debug)]
pub(crate) struct Config {
    /// The more exact target stands first, whatever the order in the file.
    pub(crate) targets: Vec<Target>,
}

/// Shorter ones are guessed together with the value.
const SALT_BYTES_MIN: usize = 8;

impl Config {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let raw: RawConfig = serde_json::from_str(text)
            .map_err(|error| format!("mask: configuration: {}", without_values(&error)))?;
        if raw.columns.is_empty() {
            return Err("mask: configuration: `columns` names none".to_owned());
        }
        let targets = raw.columns.into_iter().map(|(pattern, rule)| target(&pattern, rule));
        let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
        targets.sort_by_key(|target| {
            let stars = target.tables.matches('*').count();
            (stars, usize::MAX - target.tables.len())
        });
        Ok(Self { targets })
    }

    /// The rule for a column of a table: that of the most exact pattern.
    pub(crate) fn rule(&self, table: &str, column: &str) -> Option<&Rule> {
        let fits = |target: &&Target| target.column == column && matches(&target.tables, table);
        self.targets.iter().find(fits).map(|target| &target.rule)
    }
}

/// The parser's message without the text that it quotes, which may be a salt.
fn without_values(error: &serde_json::Error) -> String {
    let place = format!("line {} column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Data => format!(
            "{place}: expected {{\"columns\": {{\"TABLE.COLUMN\": RULE}}}}, where a RULE is \
             {{\"hash\": {{\"salt\": \"...\"}}}}, {{\"redact\": TEXT or null}} or {{\"truncate\": NUMBER}}"
        ),
        _ => format!("{place}: not JSON"),
    }
}

fn target(pattern: &str, rule: RawRule) -> Result<Target, String> {
    let Some((tables, column)) = pattern.rsplit_once('.') else {
        return Err(format!("mask: column {pattern:?}: write it as `schema.table.column`"));
    };
    if tables.is_empty() || column.is_empty() || column.contains('*') {
        return Err(format!(
            "mask: column {pattern:?}: a table (`*` stands for any characters), a dot, a column's whole name"
        ));
    }
    let rule = match rule {
        RawRule::Hash(hash) if hash.salt.len() < SALT_BYTES_MIN => {
            return Err(format!(
                "mask: column {pattern:?}: a salt of less than {SALT_BYTES_MIN} bytes hides nothing"
            ));
        }
        RawRule::Hash(hash) => Rule::Hash { salt: hash.salt },
        RawRule::Redact(text) => Rule::Redact(text),
        RawRule::Truncate(characters) => Rule::Truncate(characters),
    };
    Ok(Target { tables: tables.to_owned(), column: column.to_owned(), rule })
}

/// The host's globs: `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_pattern_wins() {
        let config = Config::parse(
            r#"{"columns": {"*.phone": {"truncate": 4}, "public.users.phone": {"redact": null}}}"#,
        )
        .expect("valid");
        let rule = |table| config.rule(table, "phone").expect("both patterns name it");
        assert_eq!(*rule("public.users"), Rule::Redact(None));
        assert_eq!(*rule("public.customers"), Rule::Truncate(4));
        assert_eq!(config.rule("public.users", "name"), None);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_salt() {
        for wrong in [
            r#"{"columns": {"public.users.email": {"hash": "pepper-pepper"}}}"#,
            r#"{"columns": {"public.users.email": {"hash": {"salt": "pepper"}}}}"#,
            r#"{"columns": {"email": {"truncate": 1}}}"#,
            r#"{"columns": {"public.users.*": {"truncate": 1}}}"#,
            r#"{"columns": {}}"#,
            r#"{"columns": {"a.b": {"shred": 1}}}"#,
            "",
        ] {
            let error = Config::parse(wrong).expect_err(wrong);
            assert!(error.starts_with("mask: "), "{error}");
            assert!(!error.contains("pepper"), "{error}");
        }
    }
}
