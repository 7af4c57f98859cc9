//! Progress as log lines: often enough to see that it moves, seldom enough to read the log afterwards.

use std::time::Duration;

use tracing::info;

use super::Reading;
use crate::telemetry::field;

/// A line after this time ...
const SECONDS: Duration = Duration::from_secs(10);
/// ... or after this much of the work, whichever comes first.
const PERCENT: u64 = 10;

/// What the last line said.
#[derive(Debug, Default)]
pub(in crate::progress) struct Lines {
    at: Duration,
    percent: u64,
    rows: u64,
}

impl Lines {
    /// The rows since the last line and the time they took, when a line is due.
    fn due(&mut self, now: Reading, elapsed: Duration) -> Option<(Reading, Duration)> {
        let time = elapsed.saturating_sub(self.at);
        let further = now.percent() / PERCENT > self.percent / PERCENT;
        // The end has a line of its own.
        if now.is_done() || !(further || time >= SECONDS) {
            return None;
        }
        let rows = now.rows.saturating_sub(self.rows);
        *self = Self { at: elapsed, percent: now.percent(), rows: now.rows };
        Some((Reading { rows, ..now }, time))
    }

    pub(in crate::progress) fn look(&mut self, now: Reading, elapsed: Duration) {
        if let Some((since, time)) = self.due(now, elapsed) {
            info!(
                { field::PERCENT } = now.percent(),
                { field::CHUNKS } = now.chunks,
                { field::ROWS } = now.rows,
                { field::BYTES } = now.bytes,
                { field::ROWS_PER_SECOND } = since.rows_per_second(time),
                "scan under way"
            );
        }
    }

    /// The last line, with the mean rate. Of a scan that was given up too: it says how far it came.
    pub(in crate::progress) fn close(total: Reading, tables: usize, elapsed: Duration) {
        let message = if total.is_done() { "scan read" } else { "scan left off" };
        info!(
            { field::PERCENT } = total.percent(),
            { field::TABLES } = tables,
            { field::CHUNKS } = total.chunks,
            { field::ROWS } = total.rows,
            { field::BYTES } = total.bytes,
            { field::ROWS_PER_SECOND } = total.rows_per_second(elapsed),
            "{message}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(chunks: u64) -> Reading {
        Reading { chunks_planned: 100, chunks, rows: chunks * 1000, bytes: 0 }
    }

    /// The seconds at which lines come, for a scan that has done `chunks(second)` of 100.
    fn seconds(length: u64, chunks: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut lines = Lines::default();
        let due =
            |second| lines.due(reading(chunks(second)), Duration::from_secs(second)).is_some();
        let mut due = due;
        (0..=length).filter(|second| due(*second)).collect()
    }

    #[test]
    fn a_quick_scan_has_a_line_every_tenth() {
        assert_eq!(seconds(20, |second| second * 5), [2, 4, 6, 8, 10, 12, 14, 16, 18]);
    }

    #[test]
    fn a_slow_scan_has_a_line_every_ten_seconds() {
        assert_eq!(seconds(35, |second| second / 10), [10, 20, 30]);
    }

    #[test]
    fn the_rate_is_that_since_the_last_line() {
        let mut lines = Lines::default();
        lines.due(reading(50), Duration::from_secs(1)).expect("due");
        let (since, time) = lines.due(reading(60), Duration::from_secs(6)).expect("due");
        assert_eq!(since.rows_per_second(time), 2000);
    }
}
