//! The task that writes to the outlets, as the driver sees it.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

use crate::delivery;
use crate::error::Error;
use crate::lanes::DeliveryEnded;

/// How long a failed attempt waits for what is in the lanes. An outlet that hangs longer gets it again anyway.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// The task that writes to the outlets.
pub(super) struct Delivering {
    task: Option<JoinHandle<Result<(), delivery::Error>>>,
    ended: Option<Result<(), Error>>,
}

impl Delivering {
    pub(super) fn new(task: JoinHandle<Result<(), delivery::Error>>) -> Self {
        Self { task: Some(task), ended: None }
    }

    /// Until the task has ended; its result waits for [`Self::end`]. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        if let Some(task) = &mut self.task {
            let result = outcome(task.await);
            self.task = None;
            self.ended = Some(result);
        }
    }

    /// The task's result. What hangs longer than [`DRAIN_MAX`] is left undone: it was not durable, so it comes again.
    pub(super) async fn end(&mut self) -> Result<(), Error> {
        if tokio::time::timeout(DRAIN_MAX, self.ended()).await.is_err() {
            if let Some(task) = self.task.take() {
                task.abort();
            }
            return Err(Error::DrainTimedOut);
        }
        self.ended.take().unwrap_or(Ok(()))
    }
}

fn outcome(result: Result<Result<(), delivery::Error>, JoinError>) -> Result<(), Error> {
    match result {
        Ok(result) => result.map_err(Error::from),
        Err(failure) => match failure.try_into_panic() {
            // A panic is a broken invariant of ours: it ends the process, and never skips a change.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(DeliveryEnded.into()),
        },
    }
}
