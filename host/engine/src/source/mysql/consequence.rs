//! What the errors of this source mean to the driver.

use super::pin;
use super::scan;
use super::stream;
use super::view;
use crate::source::failure::{Failure, PinError, ScanError, ViewError};

impl From<pin::PinError> for Failure {
    fn from(error: pin::PinError) -> Self {
        let is_transient = error.is_transient();
        Self::of(error, is_transient)
    }
}

impl From<stream::StreamError> for Failure {
    fn from(error: stream::StreamError) -> Self {
        let is_transient = error.is_transient();
        Self::of(error, is_transient)
    }
}

impl From<pin::PinError> for PinError {
    /// The server keeps its log for everybody: nothing is left of a pin that failed.
    fn from(error: pin::PinError) -> Self {
        Self::NotTaken(error.into())
    }
}

impl From<view::ViewError> for ViewError {
    fn from(error: view::ViewError) -> Self {
        match error {
            view::ViewError::Stale { table } => Self::Stale { table },
            view::ViewError::Failure(failure) => Self::Failure(failure.into()),
        }
    }
}

impl From<scan::ScanError> for ScanError {
    fn from(error: scan::ScanError) -> Self {
        match error {
            scan::ScanError::ViewLost(failure) => Self::ViewLost(failure.into()),
            error @ scan::ScanError::Failure(_) => Self::Failure(Failure::of(error, false)),
        }
    }
}
