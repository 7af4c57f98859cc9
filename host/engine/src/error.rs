//! Why a pipeline stopped, by consequence.

use std::fmt::Write as _;

use dovetail_core::position::Lsn;
use dovetail_core::seam::Refusal;

use crate::lanes::DeliveryEnded;
use crate::source::failure::{Failure, ScanError, ViewError};
use crate::source::finding::Finding;
use crate::{delivery, outlet, plugins, spool, state};

/// Everything that ends an attempt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the source is not ready:{}", list(.0))]
    NotReady(Vec<Finding>),
    #[error(transparent)]
    Source(#[from] Failure),
    #[error("pin a position")]
    Pin(#[source] Failure),
    #[error("open a view")]
    View(#[from] ViewError),
    #[error("scan tables")]
    Scan(#[from] ScanError),
    #[error("stream the log")]
    Stream(#[source] Failure),
    #[error("open outlet {name}")]
    Outlet {
        name: String,
        #[source]
        source: outlet::Error,
    },
    #[error("deliver")]
    Delivery(#[from] delivery::Error),
    #[error(transparent)]
    DeliveryEnded(#[from] DeliveryEnded),
    /// By a signal, while waiting for somebody else. Nothing failed.
    #[error("stopped")]
    Stopped,
    #[error(
        "the outlets did not take what was under way in time; it is delivered again at the next start"
    )]
    DrainTimedOut,
    #[error("keep the state")]
    State(#[from] state::Error),
    #[error(
        "`spool: off` would leave behind what the spool holds up to {spooled}, and the source need not have kept: take \
         `spool: off` away, let the outlets catch up while nothing is written, and stop; or begin anew"
    )]
    SpoolLeft { spooled: Lsn },
    #[error("keep the log")]
    Spool(#[from] spool::Error),
    #[error("load plugins")]
    Plugins(#[from] plugins::LoadError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// In the ledger, under this number.
    #[error(
        "there is a gap; if it cannot be mended, `dovetail run --accept-gap {id}` gives up what is missing and copies the \
         tables again (`dovetail gaps` shows it)"
    )]
    Gap { id: i64, source: Refusal },
    /// A defect of ours: stopping is safe.
    #[error(
        "no outlet proved that {position} is durable: this is a defect of dovetail, please report it"
    )]
    UnprovenCheckpoint { position: Lsn },
}

impl Error {
    /// Whether another attempt may do better without anybody's help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Source(failure) | Self::Pin(failure) | Self::Stream(failure) => {
                failure.is_transient()
            }
            Self::View(ViewError::Stale { .. }) | Self::Scan(ScanError::ViewLost(_)) => true,
            Self::View(ViewError::Failure(failure)) | Self::Scan(ScanError::Failure(failure)) => {
                failure.is_transient()
            }
            Self::Outlet { source, .. } => source.is_transient(),
            Self::Delivery(error) => error.is_transient(),
            Self::DrainTimedOut | Self::DeliveryEnded(_) => true,
            Self::State(error) => error.is_transient(),
            Self::Spool(error) => error.is_transient(),
            Self::NotReady(_)
            | Self::SpoolLeft { .. }
            | Self::Plugins(_)
            | Self::Refused(_)
            | Self::Gap { .. }
            | Self::Stopped
            | Self::UnprovenCheckpoint { .. } => false,
        }
    }

    /// The error with its causes, as one line of a log.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            // Writing to a string cannot fail.
            _ = write!(text, ": {error}");
            cause = error.source();
        }
        text
    }
}

fn list(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        _ = write!(text, "\n  {finding}");
    }
    text
}
