//! What `dovetail plugin inspect` prints about a file.

use std::fmt;
use std::path::Path;

use dovetail_sandbox::{
    Compiler, ComponentLimits, Descriptor, EngineOptions, Form, Grants, Import, Inspection,
    Interest, Limits, Refusal, Sandbox,
};

use super::load::LoadError;
use crate::config::{BATCH_TIMEOUT, MEMORY_BYTES};

/// The report on a file, and why it would be refused.
pub struct Report {
    file: String,
    inspection: Inspection,
}

impl Report {
    /// Nothing is kept: the file is compiled anew.
    ///
    /// # Errors
    /// When there is nothing to report but why.
    pub fn on(file: &Path, config: &str, compiler: Compiler) -> Result<Self, LoadError> {
        let component = ComponentLimits::usual();
        let sandbox = Sandbox::new(EngineOptions { cache_dir: None, component, compiler })?;
        let memory_bytes = usize::try_from(MEMORY_BYTES).unwrap_or(usize::MAX);
        let limits = Limits::around(memory_bytes, BATCH_TIMEOUT, u16::MAX);
        let inspection = sandbox
            .inspect(file, limits, config)
            .map_err(|source| LoadError::File { file: file.to_owned(), source })?;
        Ok(Self { file: file.display().to_string(), inspection })
    }

    /// Why no pipeline would take it, whatever it is granted.
    pub fn refusal(self) -> Option<Refusal> {
        self.inspection.described.err()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inspection { digest, bytes, imports, form, described } = &self.inspection;
        writeln!(f, "file        {}", self.file)?;
        writeln!(f, "size        {bytes} bytes")?;
        writeln!(f, "digest      sha256:{digest}")?;
        match form {
            Ok(Form::Typed) => writeln!(f, "world       transform of dovetail:plugin@0.1.0")?,
            Ok(Form::Packed) => {
                writeln!(f, "world       transform-packed of dovetail:plugin@0.1.0")?
            }
            Err(_) => writeln!(f, "world       none that this host serves")?,
        }
        for (at, (name, import)) in imports.iter().enumerate() {
            let label = if at == 0 { "imports" } else { "" };
            let served = match import {
                Import::Given => "given",
                Import::Empty => "empty: there is nothing behind it",
                Import::Unknown => "unknown: plugins are not given it",
            };
            writeln!(f, "{label:<12}{name} ({served})")?;
        }
        match described {
            Ok(descriptor) => describe(f, descriptor),
            Err(_) => Ok(()),
        }
    }
}

fn describe(f: &mut fmt::Formatter<'_>, descriptor: &Descriptor) -> fmt::Result {
    let Descriptor { name, version, interests } = descriptor;
    writeln!(f, "plugin      {name} {version}")?;
    if interests.is_empty() {
        return writeln!(f, "declares    nothing: no event reaches it");
    }
    for (at, interest) in interests.iter().enumerate() {
        let label = if at == 0 { "declares" } else { "" };
        writeln!(f, "{label:<12}{}", declaration(interest))?;
    }
    writeln!(f, "needs       grants:")?;
    writeln!(f, "              rows:")?;
    for grant in &Grants::needed(descriptor).rows {
        let operations: Vec<&str> =
            grant.operations.iter().map(|operation| operation.name()).collect();
        let columns = grant.columns.as_ref().map_or("all".to_owned(), |columns| list(columns));
        let (tables, operations) = (list(&grant.tables), operations.join(", "));
        writeln!(
            f,
            "                - {{ tables: {tables}, columns: {columns}, operations: [{operations}] }}"
        )?;
    }
    Ok(())
}

fn declaration(interest: &Interest) -> String {
    let operations: Vec<&str> =
        interest.operations.iter().map(|operation| operation.name()).collect();
    let columns = match &interest.columns {
        None => "all columns".to_owned(),
        Some(columns) => format!("columns {}", list(columns)),
    };
    let before = if interest.before { ", and the row before" } else { "" };
    format!("{} of {}: {columns}{before}", operations.join(", "), list(&interest.tables))
}

/// In quotes, and escaped: the names are those of an untrusted file.
fn list(names: &[String]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| serde_json::Value::from(name.as_str()).to_string()).collect();
    format!("[{}]", names.join(", "))
}
