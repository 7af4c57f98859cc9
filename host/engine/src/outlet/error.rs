//! How an outlet fails, by what has to happen next.

use crate::offload::Abandoned;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// After any of these the outlet has forgotten what did not land (an open tail of earlier groups included): it is
/// opened again, and everything after the last [`Landed`](super::Landed) is delivered again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Repeating it fails again: somebody has to act. `remedy` says how.
    #[error("{what}; {remedy}")]
    Definite { what: String, remedy: String, source: Option<Cause> },
    /// The world's fault. Nothing was applied; the chain holds, and the same goes through later.
    #[error("{what}")]
    Transient { what: String, source: Option<Cause> },
    /// Perhaps applied: the reply was lost. A transactional outlet that is opened again knows by its recorded
    /// checkpoint; any other gets a repetition, flagged as a redelivery.
    #[error("{what}, and whether it was applied is unknown")]
    Unknown { what: String, source: Option<Cause> },
}

impl Error {
    /// Whether the same goes through later without anybody's help. An unknown outcome does: it is found out.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Definite { .. })
    }

    pub(in crate::outlet) fn definite(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Definite { what: what.into(), remedy: remedy.into(), source: None }
    }

    pub(in crate::outlet) fn definite_because(
        what: impl Into<String>,
        remedy: impl Into<String>,
        source: impl Into<Cause>,
    ) -> Self {
        Self::Definite { what: what.into(), remedy: remedy.into(), source: Some(source.into()) }
    }

    pub(in crate::outlet) fn transient(what: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Transient { what: what.into(), source: Some(source.into()) }
    }

    pub(in crate::outlet) fn unknown(what: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Unknown { what: what.into(), source: Some(source.into()) }
    }
}

impl From<Abandoned> for Error {
    fn from(abandoned: Abandoned) -> Self {
        Self::unknown("write to the outlet", abandoned)
    }
}
