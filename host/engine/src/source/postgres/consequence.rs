//! What the errors of this source mean to the driver.

use super::failure;
use super::scan;
use super::slot::CreateError;
use super::stream::StreamError;
use super::view;
use crate::source::failure::{Failure, PinError, ScanError, ViewError};

impl From<failure::Failure> for Failure {
    fn from(error: failure::Failure) -> Self {
        let is_transient = error.is_transient();
        Self::of(error, is_transient)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let is_transient = error.is_transient();
        Self::of(error, is_transient)
    }
}

impl From<CreateError> for PinError {
    fn from(error: CreateError) -> Self {
        match error.left_nothing() {
            true => Self::NotTaken(error.into()),
            false => Self::Unknown(error.into()),
        }
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

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        let is_transient = error.is_transient();
        Self::of(error, is_transient)
    }
}
