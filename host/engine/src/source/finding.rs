//! What a look at a source found, before anything is touched.

use std::fmt;

use tracing::{info, warn};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The pipeline cannot run.
    Error,
    /// It can, but something else may suffer.
    Warning,
    Note,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub title: String,
    pub detail: String,
    /// What an operator can run, as a role that may.
    pub fix_sql: Option<String>,
}

impl Finding {
    pub(crate) fn error(title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            title: title.into(),
            detail: detail.into(),
            fix_sql: None,
        }
    }

    pub(crate) fn warning(title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(title, detail) }
    }

    pub(crate) fn note(title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(title, detail) }
    }

    pub(crate) fn fix(self, sql: impl Into<String>) -> Self {
        Self { fix_sql: Some(sql.into()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}; {}", self.title, self.detail)?;
        match &self.fix_sql {
            Some(sql) => write!(f, "\n    {}", sql.replace('\n', "\n    ")),
            None => Ok(()),
        }
    }
}

/// Logs what was found, and keeps what stops the pipeline.
pub fn sort(findings: Vec<Finding>) -> Vec<Finding> {
    let mut errors = Vec::new();
    for finding in findings {
        match finding.severity {
            Severity::Error => errors.push(finding),
            Severity::Warning => warn!(%finding, "preflight"),
            Severity::Note => info!(%finding, "preflight"),
        }
    }
    errors
}
