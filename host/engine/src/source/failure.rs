//! Why a source could not do what it was asked, by consequence.
//!
//! Each kind of database has errors of its own, which know its codes and what to do about them. The driver only needs
//! to know what follows: whether another attempt may do better, and the three cases that the seam has an input for (no
//! pin was taken, a view is of no use, a view is lost).

use std::error::Error as StdError;

use dovetail_core::schema::TableName;

/// Its display and its causes are those of the error that the source made.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It comes again until an operator acts.
    #[error(transparent)]
    Definite(Box<dyn StdError + Send + Sync>),
    /// The world may be better in a moment.
    #[error(transparent)]
    Transient(Box<dyn StdError + Send + Sync>),
}

impl Failure {
    pub(super) fn of(error: impl StdError + Send + Sync + 'static, is_transient: bool) -> Self {
        match is_transient {
            true => Self::Transient(Box::new(error)),
            false => Self::Definite(Box::new(error)),
        }
    }

    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient(_))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The server holds nothing of ours.
    #[error(transparent)]
    NotTaken(Failure),
    /// It may hold something.
    #[error(transparent)]
    Unknown(Failure),
}

impl PinError {
    pub fn into_failure(self) -> Failure {
        let (Self::NotTaken(failure) | Self::Unknown(failure)) = self;
        failure
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Before a row was read: another view is needed.
    #[error("table {table} was changed while the view was opened; another view is needed")]
    Stale { table: TableName },
    #[error(transparent)]
    Failure(#[from] Failure),
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// What was read so far is worth nothing without the rest: the unfinished tables are read again in a later view.
    #[error(transparent)]
    ViewLost(Failure),
    #[error(transparent)]
    Failure(#[from] Failure),
}
