//! The `plugins` section.
//!
//! A plugin's own `config` is handed on as JSON. Plain scalars there follow YAML 1.2's core schema (`yes` is a text, `1`
//! a number), except that a value with a variable in it is always a text, whatever the environment holds.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use dovetail_sandbox::Grants;
use serde_json::{Map, Number, Value};

use super::field::{Field, Reader, Section};
use super::tree::{Content, Scalar};
use super::{OnFailure, Plugin, grant, quantity};

/// Holds Rust and C guests with their working set many times over; JavaScript and Python need 256 MiB.
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;
/// A 32-bit guest can address no more, and needs a page to start with.
const MEMORY_BOUNDS: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 30;
/// A batch of 512 events takes well below a millisecond; a thousand times that is a loop.
pub(crate) const BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// The sandbox looks at its clock every 10 ms.
const BATCH_TIMEOUT_BOUNDS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

pub(in crate::config) fn check(
    root: &mut Section<'_>,
    reader: &mut Reader<'_>,
    directory: &Path,
) -> Option<Vec<Plugin>> {
    let Some(field) = root.optional("plugins") else {
        return Some(Vec::new());
    };
    let items = field.list(reader, "a list of plugins")?;
    let mut plugins = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut sound = true;
    for item in items {
        let Some(plugin) = one(&item, reader, directory) else {
            sound = false;
            continue;
        };
        match seen.insert(plugin.name.clone(), item.place().line) {
            Some(line) => {
                let text = format!("the plugin's name stands twice, first in line {line}");
                item.wrong(reader, text);
                sound = false;
            }
            None => plugins.push(plugin),
        }
    }
    sound.then_some(plugins)
}

fn one(field: &Field<'_>, reader: &mut Reader<'_>, directory: &Path) -> Option<Plugin> {
    let mut section = field.section(reader, "a plugin: {name: ..., file: ...}")?;
    let name = section.required(reader, "name", "a name of its own").and_then(|field| {
        let expected = "a plugin's name: 1 to 64 of a-z, 0-9, _ and -";
        field.parsed(reader, expected, |text| {
            let letters =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
            (text.len() <= 64 && text.chars().all(letters)).then(|| text.to_owned())
        })
    });
    let expected = "the file of a WebAssembly component";
    let file = section
        .required(reader, "file", expected)
        .and_then(|field| field.text(reader, expected))
        .map(|file| directory.join(file));
    let config = match section.optional("config") {
        Some(field) => json(&field, reader).map(|value| value.to_string()),
        None => Some("{}".to_owned()),
    };
    let on_failure = match section.optional("on_failure") {
        Some(field) => {
            field.choice(reader, &[("halt", OnFailure::Halt), ("skip", OnFailure::Skip)])
        }
        None => Some(OnFailure::Halt),
    };
    let limits = match section.optional("limits") {
        Some(field) => limits(&field, reader),
        None => Some((MEMORY_BYTES, BATCH_TIMEOUT)),
    };
    let grants = match section.optional("grants") {
        Some(field) => grant::check(&field, reader),
        None => Some(Grants::default()),
    };
    section.finish(reader);
    let (memory_bytes_max, batch_timeout) = limits?;
    Some(Plugin {
        name: name?,
        file: file?,
        config: config?,
        grants: grants?,
        on_failure: on_failure?,
        memory_bytes_max,
        batch_timeout,
    })
}

fn limits(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<(u64, Duration)> {
    let mut section = field.section(reader, "limits: {memory: 64MiB, batch_timeout: 1s}")?;
    let memory = match section.optional("memory") {
        Some(field) => field.parsed(reader, "a size from 64KiB to 4GiB", |text| {
            quantity::size(text).filter(|size| MEMORY_BOUNDS.contains(size))
        }),
        None => Some(MEMORY_BYTES),
    };
    let timeout = match section.optional("batch_timeout") {
        Some(field) => field.parsed(reader, "a duration from 10ms to 1h", |text| {
            quantity::duration(text).filter(|duration| BATCH_TIMEOUT_BOUNDS.contains(duration))
        }),
        None => Some(BATCH_TIMEOUT),
    };
    section.finish(reader);
    Some((memory?, timeout?))
}

fn json(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Value> {
    match field.content() {
        Content::Refused => None,
        Content::Scalar(scalar) => json_scalar(field, scalar, reader),
        Content::List(_) => {
            let items = field.list(reader, "a list")?;
            let values: Vec<_> = items.iter().map(|item| json(item, reader)).collect();
            values.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
        }
        Content::Map(_) => {
            let section = field.section(reader, "a map")?;
            let entries: Vec<_> = section
                .named()
                .map(|(key, value)| Some((key.to_owned(), json(&value, reader)?)))
                .collect();
            entries.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
        }
    }
}

fn json_scalar(field: &Field<'_>, scalar: &Scalar, reader: &mut Reader<'_>) -> Option<Value> {
    let written = scalar.written.as_str();
    if !scalar.plain || written.contains("${") {
        return field.secret(reader, "a value").map(Value::String);
    }
    if scalar.is_null() {
        return Some(Value::Null);
    }
    match written {
        "true" | "True" | "TRUE" => Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => Some(Value::Bool(false)),
        _ if is_number(written) => {
            let number = number(written);
            if number.is_none() {
                let text = format!("`{written}` has no exact number in JSON; put it in quotes");
                field.wrong(reader, text);
            }
            number.map(Value::Number)
        }
        _ => Some(Value::String(written.to_owned())),
    }
}

/// The core schema's integers and floats: `-1`, `0x1F`, `0o17`, `1.5e3`, `.inf`.
fn is_number(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("0x") {
        return !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return !digits.is_empty() && digits.chars().all(|c| ('0'..='7').contains(&c));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok()
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().map(Number::from);
    }
    if text.contains(['.', 'e', 'E']) {
        return text
            .parse()
            .ok()
            .filter(|float: &f64| float.is_finite())
            .and_then(Number::from_f64);
    }
    let unsigned = text.parse::<u64>().ok().map(Number::from);
    unsigned.or_else(|| text.parse::<i64>().ok().map(Number::from))
}
