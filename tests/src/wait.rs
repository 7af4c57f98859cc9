//! Waiting for a condition, the only way in which tests wait.
//!
//! A test that sleeps for "long enough" fails on a busy machine and wastes time on an idle one. Here every wait polls
//! what it waits for and, at its limit, says what that was.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks: short against everything that tests wait for, long against the cost of a look.
const INTERVAL: Duration = Duration::from_millis(20);

/// For whatever should take a moment; only a machine that hangs gets near it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `look` until it finds something. An error ends the wait at once.
pub async fn until<T>(
    what: impl AsRef<str>,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if start.elapsed() > limit {
            bail!("waited {} s in vain for: {}", limit.as_secs(), what.as_ref());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// [`until`] for code without a runtime.
pub fn until_blocking<T>(
    what: impl AsRef<str>,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > limit {
            bail!("waited {} s in vain for: {}", limit.as_secs(), what.as_ref());
        }
        std::thread::sleep(INTERVAL);
    }
}
