//! What is done to one value, as in the ready-made plugin.

use sha2::{Digest, Sha256};

use crate::dovetail::plugin::types::{Column, Kind, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Hash { salt: String },
    Redact(Option<String>),
    Truncate(usize),
}

fn carries_text(column: &Column) -> bool {
    let type_name = column.type_name.rsplit('.').next().unwrap_or_default();
    column.kind == Kind::Text || (column.kind == Kind::Raw && type_name == "citext")
}

impl Rule {
    pub(crate) fn check(&self, column: &Column) -> Result<(), String> {
        if column.key_ordinal.is_some() {
            return Err("belongs to the key, which cannot be masked".to_owned());
        }
        if *self == Self::Redact(None) || carries_text(column) {
            return Ok(());
        }
        Err(format!(
            "is of type {}, and only text can be hashed, truncated or replaced; use {{\"redact\": null}}",
            column.type_name
        ))
    }

    /// The masked value; `None` where there is nothing to hide.
    pub(crate) fn apply(&self, value: &Value) -> Result<Option<Value>, &'static str> {
        let (wrap, text): (fn(String) -> Value, &str) = match (self, value) {
            (_, Value::Null | Value::Unavailable) => return Ok(None),
            (Self::Redact(None), _) => return Ok(Some(Value::Null)),
            (_, Value::Text(text)) => (Value::Text, text),
            (_, Value::Raw(text)) => (Value::Raw, text),
            _ => return Err("a value that is not text in a column of text"),
        };
        Ok(Some(wrap(match self {
            Self::Hash { salt } => hash(salt, text),
            Self::Redact(replacement) => replacement.clone().unwrap_or_default(),
            Self::Truncate(characters) => text.chars().take(*characters).collect(),
        })))
    }
}

fn hash(salt: &str, text: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(text).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
