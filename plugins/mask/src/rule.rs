//! What is done to one value.

use dovetail_sdk::{Column, Kind, Value};
use sha2::{Digest, Sha256};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// SHA-256 of salt and text, in hexadecimal: equal values stay equal, and join.
    Hash { salt: String },
    /// A fixed text, or null.
    Redact(Option<String>),
    /// The first so many characters.
    Truncate(usize),
}

/// How a column carries text.
#[derive(Clone, Copy)]
enum Carrier {
    Text,
    /// `citext` and its like have no kind of their own.
    Raw,
}

fn carrier(column: &Column) -> Option<Carrier> {
    let type_name = column.type_name.rsplit('.').next().unwrap_or_default();
    match column.kind {
        Kind::Text => Some(Carrier::Text),
        Kind::Raw if type_name == "citext" => Some(Carrier::Raw),
        _ => None,
    }
}

impl Rule {
    /// Whether the rule can be applied to every value that the column may hold.
    pub(crate) fn check(&self, column: &Column) -> Result<(), String> {
        if column.key_ordinal.is_some() {
            return Err("belongs to the key, which cannot be masked".to_owned());
        }
        if *self == Self::Redact(None) || carrier(column).is_some() {
            return Ok(());
        }
        Err(format!(
            "is of type {}, and only text can be hashed, truncated or replaced; use {{\"redact\": null}}",
            column.type_name
        ))
    }

    /// The masked value; `None` where there is nothing to hide.
    pub(crate) fn apply(&self, value: &Value<'_>) -> Result<Option<Value<'static>>, &'static str> {
        let (carrier, text) = match (self, value) {
            (_, Value::Null | Value::Unavailable) => return Ok(None),
            (Self::Redact(None), _) => return Ok(Some(Value::Null)),
            (_, Value::Text(text)) => (Carrier::Text, text.as_ref()),
            (_, Value::Raw(text)) => (Carrier::Raw, text.as_ref()),
            _ => return Err("a value that is not text in a column of text"),
        };
        let masked = match self {
            Self::Hash { salt } => hash(salt, text),
            Self::Redact(replacement) => replacement.clone().unwrap_or_default(),
            Self::Truncate(characters) => text.chars().take(*characters).collect(),
        };
        Ok(Some(match carrier {
            Carrier::Text => Value::Text(masked.into()),
            Carrier::Raw => Value::Raw(masked.into()),
        }))
    }
}

fn hash(salt: &str, text: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(text).finalize();
    let mut hexadecimal = String::with_capacity(2 * digest.len());
    for byte in digest {
        for half in [byte >> 4, byte & 0xF] {
            hexadecimal.extend(char::from_digit(u32::from(half), 16));
        }
    }
    hexadecimal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: Kind, type_name: &str, key_ordinal: Option<u16>) -> Column {
        Column {
            name: "c".into(),
            type_name: type_name.into(),
            type_modifier: -1,
            kind,
            key_ordinal,
        }
    }

    fn hash_rule() -> Rule {
        Rule::Hash { salt: "pepper-and-salt".into() }
    }

    #[test]
    fn a_hash_is_sha_256_of_salt_and_text() {
        // printf 'pepper-and-saltada@example.org' | sha256sum
        let expected = "08beca285eddf3c613b430e36e8ae007490463bc933624d2bccba60609928994";
        let masked = hash_rule().apply(&Value::text("ada@example.org"));
        assert_eq!(masked, Ok(Some(Value::text(expected))));
    }

    #[test]
    fn truncation_counts_characters_not_bytes() {
        let masked = Rule::Truncate(3).apply(&Value::text("日本語文"));
        assert_eq!(masked, Ok(Some(Value::text("日本語"))));
        assert_eq!(Rule::Truncate(9).apply(&Value::text("ab")), Ok(Some(Value::text("ab"))));
    }

    #[test]
    fn a_redacted_value_is_the_text_or_null() {
        let redact = Rule::Redact(Some("hidden".into()));
        assert_eq!(redact.apply(&Value::text("a")), Ok(Some(Value::text("hidden"))));
        assert_eq!(Rule::Redact(None).apply(&Value::Int(4)), Ok(Some(Value::Null)));
    }

    #[test]
    fn null_and_unavailable_stay_what_they_are() {
        for rule in [hash_rule(), Rule::Redact(None), Rule::Redact(Some("x".into()))] {
            assert_eq!(rule.apply(&Value::Null), Ok(None));
            assert_eq!(rule.apply(&Value::Unavailable), Ok(None));
        }
    }

    #[test]
    fn a_value_that_no_rule_covers_is_an_error_and_never_passes() {
        assert!(hash_rule().apply(&Value::Int(4)).is_err());
        assert!(Rule::Truncate(1).apply(&Value::Json("{}".into())).is_err());
    }

    #[test]
    fn columns_that_cannot_be_masked_are_refused() {
        assert!(hash_rule().check(&column(Kind::Text, "text", None)).is_ok());
        assert!(hash_rule().check(&column(Kind::Raw, "public.citext", None)).is_ok());
        assert!(hash_rule().check(&column(Kind::Raw, "public.mood", None)).is_err());
        assert!(hash_rule().check(&column(Kind::Int, "int4", None)).is_err());
        assert!(Rule::Redact(None).check(&column(Kind::Int, "int4", None)).is_ok());
        assert!(Rule::Redact(None).check(&column(Kind::Int, "int4", Some(0))).is_err());
    }
}
