//! How long to wait before the next attempt.
//!
//! Pure: the caller brings the random number and does the waiting. Delays double from attempt to attempt up to a limit
//! and are spread over the upper half of their range, so that many engines that lost one server do not come back at the
//! same instant. Progress resets it: a connection that worked for a while starts again with the short delay.

use std::time::Duration;

/// The first delay: a restarting server needs about this long; half of it would only knock twice as often.
const FIRST: Duration = Duration::from_millis(250);
/// The longest delay: an operator who repaired something waits no longer than this for the engine to notice.
const LONGEST: Duration = Duration::from_secs(30);

/// The delays between the attempts of one task.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The next delay. `spread` is a random number; any distribution over all of `u32` will do.
    pub fn next(&mut self, spread: u32) -> Duration {
        let full = FIRST.saturating_mul(1 << self.attempts.min(16)).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        let half = full / 2;
        half + half.mul_f64(f64::from(spread) / f64::from(u32::MAX))
    }

    /// Attempts since the last progress.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Something worked: the next failure is a first one again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_keep_their_spread() {
        let (mut shortest, mut longest) = (Backoff::default(), Backoff::default());
        let mut expected = FIRST;
        for _ in 0..40 {
            assert_eq!(shortest.next(0), expected / 2);
            assert_eq!(longest.next(u32::MAX), expected);
            expected = (expected * 2).min(LONGEST);
        }
    }

    #[test]
    fn progress_resets_the_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.next(7);
        }
        backoff.reset();
        assert_eq!((backoff.attempts(), backoff.next(0)), (0, FIRST / 2));
    }
}
