//! How far the scan is: bars on a terminal, a line now and then elsewhere.
//!
//! The scan only counts; this module looks at the counters at its own pace and never holds the scan up. Progress is
//! measured in chunks, because their number is known before the first row; rows and bytes are what came out of them.

mod bars;
mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dovetail_core::schema::TableName;
use indicatif::MultiProgress;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use bars::Bars;
use lines::Lines;

/// Counters of one table's scan; whoever reads it adds, `show` looks.
#[derive(Debug, Default)]
pub struct Counters {
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    /// Chunks that are done.
    pub chunks: AtomicU64,
}

impl Counters {
    pub fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn chunk_done(&self) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }
}

/// One table of a scan.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: TableName,
    /// Chunks that were planned; zero for an empty table.
    pub chunks: u32,
    pub counters: Arc<Counters>,
}

/// What the counters said at one moment, of one table or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reading {
    chunks_planned: u64,
    chunks: u64,
    rows: u64,
    bytes: u64,
}

impl Reading {
    fn of(table: &Table) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            chunks_planned: u64::from(table.chunks),
            chunks: load(&table.counters.chunks),
            rows: load(&table.counters.rows),
            bytes: load(&table.counters.bytes),
        }
    }

    fn total(tables: &[Table]) -> Self {
        tables.iter().map(Self::of).fold(Self::default(), |sum, table| Self {
            chunks_planned: sum.chunks_planned.saturating_add(table.chunks_planned),
            chunks: sum.chunks.saturating_add(table.chunks),
            rows: sum.rows.saturating_add(table.rows),
            bytes: sum.bytes.saturating_add(table.bytes),
        })
    }

    fn is_done(&self) -> bool {
        self.chunks >= self.chunks_planned
    }

    fn percent(&self) -> u64 {
        self.chunks.saturating_mul(100).checked_div(self.chunks_planned).unwrap_or(100).min(100)
    }

    fn rows_per_second(&self, elapsed: Duration) -> u64 {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        self.rows.saturating_mul(1000) / elapsed_ms
    }
}

/// Where progress is shown; chosen once for a process. Clones share the terminal.
#[derive(Debug, Clone)]
pub enum Display {
    /// Standard error is a terminal of our own.
    Bars(MultiProgress),
    Lines,
}

impl Display {
    pub fn bars() -> Self {
        Self::Bars(MultiProgress::new())
    }

    /// Writes to standard error with the bars out of the way.
    pub fn between<T>(&self, write: impl FnOnce() -> T) -> T {
        match self {
            Self::Bars(bars) => bars.suspend(write),
            Self::Lines => write(),
        }
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Bars(_))
    }
}

/// Redraws fast enough to look alive; costs a few system calls each time.
const BARS_EVERY: Duration = Duration::from_millis(200);
/// How often `Lines` is asked whether a line is due.
const LINES_EVERY: Duration = Duration::from_secs(1);

/// Shows the scan until it is `over`, then takes the bars away and states the total. Cancel-safe: dropped, it only
/// leaves off showing.
pub async fn show(display: Display, tables: Vec<Table>, over: CancellationToken) {
    let began = Instant::now();
    let mut pace = interval(if display.is_terminal() { BARS_EVERY } else { LINES_EVERY });
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut lines = Lines::default();
    let mut bars = match &display {
        Display::Bars(terminal) => Some(Bars::new(terminal)),
        Display::Lines => None,
    };
    while over.run_until_cancelled(pace.tick()).await.is_some() {
        let elapsed = began.elapsed();
        match &mut bars {
            Some(bars) => bars.draw(&tables, elapsed),
            None => lines.look(Reading::total(&tables), elapsed),
        }
    }
    drop(bars);
    Lines::close(Reading::total(&tables), tables.len(), began.elapsed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_add_up_over_tables() {
        let table = |chunks| Table {
            name: TableName { namespace: "public".into(), name: "t".into() },
            chunks,
            counters: Arc::default(),
        };
        let tables = [table(3), table(1), table(0)];
        tables[0].counters.add(10, 100);
        tables[0].counters.chunk_done();
        tables[1].counters.add(5, 50);
        let total = Reading::total(&tables);
        assert_eq!(total, Reading { chunks_planned: 4, chunks: 1, rows: 15, bytes: 150 });
        assert_eq!(total.percent(), 25);
        assert_eq!(total.rows_per_second(Duration::from_millis(500)), 30);
        assert!(Reading::of(&tables[2]).is_done());
        assert_eq!(Reading::of(&tables[2]).percent(), 100);
    }
}
