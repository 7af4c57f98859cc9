//! How a command ends: a code for programs, one paragraph for people.

use std::fmt;
use std::process::ExitCode;

/// What the caller of the program may conclude. The numbers are those of `sysexits.h` and of shells for signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Done,
    /// The command line is wrong.
    Usage,
    /// The configuration is wrong.
    Configuration,
    /// It fails again until an operator acts.
    Definite,
    /// The world's fault: the same command may succeed later.
    Transient,
    Interrupted,
    Terminated,
}

impl Code {
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 64,
            Self::Configuration => 65,
            Self::Definite => 70,
            Self::Transient => 75,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// What is true of every failure of this kind, after what the errors themselves advise.
    fn closing(self) -> Option<&'static str> {
        match self {
            Self::Transient => {
                Some("Nothing is lost: the same command goes on where this one ended.")
            }
            _ => None,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// Why a command failed, with the code it ends with. `Display` is the paragraph.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    cause: anyhow::Error,
    advice: Option<String>,
}

impl Failure {
    pub fn new(code: Code, cause: impl Into<anyhow::Error>) -> Self {
        Self { code, cause: cause.into(), advice: None }
    }

    pub fn usage(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Usage, cause)
    }

    pub fn configuration(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Configuration, cause)
    }

    pub fn definite(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Definite, cause)
    }

    pub fn transient(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Transient, cause)
    }

    /// Adds what to do, as a sentence that stands behind the causes.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Failure {
    /// What happened, then its causes, then what to do. A cause that the error before it repeats is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = String::new();
        for cause in self.cause.chain() {
            let text = cause.to_string();
            if before.contains(&text) {
                continue;
            }
            let joint = if before.is_empty() { "" } else { ": " };
            write!(f, "{joint}{text}")?;
            before = text;
        }
        for sentence in [self.advice.as_deref(), self.code.closing()].into_iter().flatten() {
            let end = if before.ends_with(['.', '!', '?']) { "" } else { "." };
            write!(f, "{end} {sentence}")?;
            before = sentence.to_owned();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failure_is_one_paragraph_of_what_happened_why_and_what_to_do() {
        let cause = anyhow!("connection refused").context("connect to 127.0.0.1:5432");
        let cause = cause.context("open the source");
        let failure = Failure::transient(cause).advise("Check that the server runs");
        assert_eq!(
            failure.to_string(),
            "open the source: connect to 127.0.0.1:5432: connection refused. Check that the server runs. \
             Nothing is lost: the same command goes on where this one ended."
        );
    }

    #[test]
    fn a_repeated_cause_is_left_out() {
        let cause = anyhow!("disk full").context("write: disk full").context("save");
        assert_eq!(Failure::definite(cause).to_string(), "save: write: disk full");
    }
}
