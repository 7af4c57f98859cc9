//! How far the scan is: bars on a terminal, a line now and then elsewhere.
//!
//! The scan only counts; this module looks at the counters at its own pace and never holds the scan up. Progress is
//! measured in chunks, because their number is known before the first row; rows and bytes are what came out of them.

mod bars;
mod lines;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dovetail_core::schema::TableName;
use indicatif::MultiProgress;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use bars::Bars;
use lines::Lines;

/// Counters of one table's scan. Whoever reads the table adds.
#[derive(Debug)]
pub struct Table {
    pub table: TableName,
    /// Zero for an empty table.
    pub chunks_planned: u32,
    chunks: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Table {
    pub fn new(table: TableName, chunks_planned: u32) -> Self {
        let (chunks, rows, bytes) = Default::default();
        Self { table, chunks_planned, chunks, rows, bytes }
    }

    pub fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn chunk_done(&self) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }

    pub fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Of text, as the server sent it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
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
        Self {
            chunks_planned: u64::from(table.chunks_planned),
            chunks: table.chunks(),
            rows: table.rows(),
            bytes: table.bytes(),
        }
    }

    fn total(tables: &[Arc<Table>]) -> Self {
        tables.iter().map(|table| Self::of(table)).fold(Self::default(), |sum, table| Self {
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

#[derive(Debug)]
struct Scan {
    tables: Vec<Arc<Table>>,
    began: Instant,
}

/// The scan that is shown, if there is one. The driver says when it starts and ends; beside the driver runs `show`.
#[derive(Debug)]
pub struct Progress {
    display: Display,
    scan: watch::Sender<Option<Arc<Scan>>>,
}

impl Progress {
    pub fn new(display: Display) -> Self {
        Self { display, scan: watch::Sender::new(None) }
    }

    /// Shows these tables from now on, in place of any others.
    pub fn scan_started(&self, tables: &[Arc<Table>]) {
        let scan = Scan { tables: tables.to_vec(), began: Instant::now() };
        self.scan.send_replace(Some(Arc::new(scan)));
    }

    /// States how far the scan came. Without a scan it does nothing, so that every way out may call it.
    pub fn scan_ended(&self) {
        if let Some(scan) = self.scan.send_replace(None) {
            Lines::close(Reading::total(&scan.tables), scan.tables.len(), scan.began.elapsed());
        }
    }

    /// Shows whatever is scanned, for as long as it is polled. Cancel-safe.
    pub async fn show(&self) -> Infallible {
        let mut scans = self.scan.subscribe();
        loop {
            let scan = scans.borrow_and_update().clone();
            match scan {
                Some(scan) => self.show_one(&scan, &mut scans).await,
                None => changed(&mut scans).await,
            }
        }
    }

    /// Until another one takes its place, or none.
    async fn show_one(&self, scan: &Scan, scans: &mut watch::Receiver<Option<Arc<Scan>>>) {
        let (mut bars, every) = match &self.display {
            Display::Bars(terminal) => (Some(Bars::new(terminal)), BARS_EVERY),
            Display::Lines => (None, LINES_EVERY),
        };
        let mut lines = Lines::default();
        let mut pace = interval_at(Instant::now() + every, every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = changed(scans) => return,
                _ = pace.tick() => {}
            }
            let elapsed = scan.began.elapsed();
            match &mut bars {
                Some(bars) => bars.draw(&scan.tables, elapsed),
                None => lines.look(Reading::total(&scan.tables), elapsed),
            }
        }
    }
}

/// Cancel-safe.
async fn changed(scans: &mut watch::Receiver<Option<Arc<Scan>>>) {
    scans.changed().await.expect("`show` borrows the sender");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn readings_add_up_over_tables() {
        let table = |chunks| {
            let name = TableName { namespace: "public".into(), name: "t".into() };
            Arc::new(Table::new(name, chunks))
        };
        let tables = [table(3), table(1), table(0)];
        tables[0].add(10, 100);
        tables[0].chunk_done();
        tables[1].add(5, 50);
        let total = Reading::total(&tables);
        assert_eq!(total, Reading { chunks_planned: 4, chunks: 1, rows: 15, bytes: 150 });
        assert_eq!(total.percent(), 25);
        assert_eq!(total.rows_per_second(Duration::from_millis(500)), 30);
        assert!(Reading::of(&tables[2]).is_done());
        assert_eq!(Reading::of(&tables[2]).percent(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_is_shown_until_it_ends_and_another_may_follow() {
        let mut log = tempfile::tempfile().expect("a file");
        let writer = Arc::new(log.try_clone().expect("a second handle"));
        let subscriber = tracing_subscriber::fmt().with_writer(writer).without_time().json();
        let _guard = tracing::subscriber::set_default(subscriber.finish());

        let progress = Progress::new(Display::Lines);
        let name = TableName { namespace: "public".into(), name: "t".into() };
        let scans = async {
            for chunks in [2, 1] {
                let table = Arc::new(Table::new(name.clone(), chunks));
                progress.scan_started(std::slice::from_ref(&table));
                table.add(3000, 1);
                table.chunk_done();
                tokio::time::sleep(Duration::from_millis(1500)).await;
                progress.scan_ended();
                progress.scan_ended();
            }
        };
        tokio::select! {
            never = progress.show() => match never {},
            () = scans => {}
        }

        let lines = io::Seek::rewind(&mut log).and_then(|()| io::read_to_string(log));
        let fields = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let fields = &line["fields"];
            format!("{} {} {}", fields["message"], fields["percent"], fields["rows_per_second"])
        };
        let lines: Vec<String> = lines.expect("readable").lines().map(fields).collect();
        assert_eq!(
            lines,
            [
                r#""scan under way" 50 3000"#,
                r#""scan left off" 50 2000"#,
                r#""scan read" 100 2000"#
            ]
        );
    }
}
