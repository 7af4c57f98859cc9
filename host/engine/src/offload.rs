//! Blocking work, off the threads that answer servers.
//!
//! A file's fsync and an embedded database's commit block their thread for milliseconds. On a thread of the reactor
//! that would hold up keepalive replies of the source, so the value that blocks moves to the blocking pool for the
//! length of one call and comes back with its result: one owner at every moment, no lock.

/// The call that had the value was dropped half way: nobody knows what it did. Open the thing again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an earlier call was abandoned before its end")]
pub struct Abandoned;

#[derive(Debug)]
pub(crate) struct Offload<T>(Option<T>);

impl<T: Send + 'static> Offload<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Lends the value to `work` on the blocking pool.
    ///
    /// Dropped before its end, the work still runs to its end, and the value goes with it: every later call is
    /// `Abandoned`.
    pub(crate) async fn run<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, Abandoned> {
        let mut value = self.0.take().ok_or(Abandoned)?;
        let (value, result) = detached(move || {
            let result = work(&mut value);
            (value, result)
        })
        .await?;
        self.0 = Some(value);
        Ok(result)
    }
}

/// Runs `work` on the blocking pool. Its panic goes on here.
pub(crate) async fn detached<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Abandoned> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(failure) => match failure.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down.
            Err(_) => Err(Abandoned),
        },
    }
}
