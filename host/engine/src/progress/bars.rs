//! Progress as bars: the total, and above it the tables that are being read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Reading, Table};

/// A terminal has some twenty lines, and the log wants some of them; the total counts the rest.
const TABLES_SHOWN: usize = 8;

const TEMPLATE: &str = "{prefix:>24!} [{bar:24}] {percent:>3}% {msg}";

#[derive(Debug)]
pub(in crate::progress) struct Bars {
    terminal: MultiProgress,
    total: ProgressBar,
    /// By the table's place in the list.
    shown: BTreeMap<usize, ProgressBar>,
}

fn bar(prefix: String) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("a test draws by this template");
    ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_prefix(prefix)
}

impl Bars {
    pub(in crate::progress) fn new(terminal: &MultiProgress) -> Self {
        let total = terminal.add(bar("scan".to_owned()));
        Self { terminal: terminal.clone(), total, shown: BTreeMap::new() }
    }

    pub(in crate::progress) fn draw(&mut self, tables: &[Arc<Table>], elapsed: Duration) {
        for (index, table) in tables.iter().enumerate() {
            let reading = Reading::of(table);
            if reading.is_done() {
                if let Some(bar) = self.shown.remove(&index) {
                    self.terminal.remove(&bar);
                }
                continue;
            }
            if reading.rows > 0 && self.shown.len() < TABLES_SHOWN {
                self.shown.entry(index).or_insert_with(|| {
                    self.terminal.insert_before(&self.total, bar(table.table.to_string()))
                });
            }
            if let Some(bar) = self.shown.get(&index) {
                set(bar, reading, elapsed);
            }
        }
        set(&self.total, Reading::total(tables), elapsed);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        for bar in self.shown.values().chain([&self.total]) {
            self.terminal.remove(bar);
        }
    }
}

fn set(bar: &ProgressBar, reading: Reading, elapsed: Duration) {
    bar.set_length(reading.chunks_planned);
    bar.set_message(format!(
        "{} rows, {}/s",
        thousands(reading.rows),
        thousands(reading.rows_per_second(elapsed))
    ));
    bar.set_position(reading.chunks);
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_core::schema::TableName;
    use indicatif::ProgressDrawTarget;

    #[test]
    fn only_a_few_tables_that_are_being_read_are_shown() {
        let table = |number: usize| {
            let name = TableName { namespace: "public".into(), name: format!("t{number}") };
            Arc::new(Table::new(name, 2))
        };
        let tables: Vec<Arc<Table>> = (0..1000).map(table).collect();
        let terminal = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut bars = Bars::new(&terminal);
        tables.iter().take(20).for_each(|table| table.add(1, 1));
        bars.draw(&tables, Duration::from_secs(1));
        assert_eq!(bars.shown.len(), TABLES_SHOWN);
        assert_eq!((bars.total.length(), bars.total.position()), (Some(2000), 0));

        for table in tables.iter().take(19) {
            table.chunk_done();
            table.chunk_done();
        }
        bars.draw(&tables, Duration::from_secs(2));
        assert_eq!(bars.shown.keys().collect::<Vec<_>>(), [&19]);
        assert_eq!(bars.total.position(), 38);
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
