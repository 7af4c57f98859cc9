//! What is written comes out again, out of memory and out of files; and what is damaged does not.

use std::sync::Arc;

use dovetail_core::change::{Change, Event};
use dovetail_core::position::Position;
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId};
use dovetail_core::value::{Row, Value};
use proptest::prelude::*;
use tempfile::TempDir;

use super::shared::Fresh;
use super::*;
use crate::config::AtLimit;
use crate::source::Item;
use dovetail_core::batch::Closing;

const OWNER: Owner = Owner(7);

fn table(name: &str) -> TableName {
    TableName { namespace: "public".into(), name: name.into() }
}

fn relation(name: &str) -> Arc<Relation> {
    let column = Column {
        name: "id".into(),
        type_name: "int8".into(),
        type_modifier: -1,
        kind: Kind::Int,
        initial: Initial::Null,
        number: Some(1),
    };
    let id = RelationId(name.bytes().map(u32::from).sum());
    Arc::new(Relation::new(id, table(name), vec![column], vec![0]))
}

fn event(relation: &Arc<Relation>, commit: u64, value: i64) -> Event {
    Event {
        position: Position { commit: Lsn::new(commit), ordinal: 1 },
        commit_time_micros: 0,
        transaction: None,
        redelivery: false,
        change: Change::Insert {
            relation: Arc::clone(relation),
            after: Row::new(vec![Value::Int(value)]),
            moved_from: None,
        },
    }
}

fn batch(name: &str, commit: u64, closing: Closing) -> Item {
    let relation = relation(name);
    Item::Batch { events: vec![event(&relation, commit, 1)], closing }
}

fn closed(commit: u64) -> Closing {
    Closing::Commit(Lsn::new(commit))
}

/// A spool without a source: what the intake does with its parts.
struct Bench {
    directory: TempDir,
    shared: Arc<Shared>,
    writer: Writer,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = config::Spool { limit: 1 << 40, at_limit: AtLimit::Wait };
        let shared = Arc::new(Shared::new(directory.path().to_owned(), settings));
        let mark = Mark { position: Lsn::new(10), last_event: None, note: Some("pin".into()) };
        let writer = Writer::create(directory.path().to_owned(), OWNER, 1, mark).expect("begun");
        shared.begun(&writer);
        Self { directory, shared, writer }
    }

    fn append(&mut self, item: Item) {
        let written = self.writer.append(&item).expect("appended");
        self.shared.appended(written, Fresh::Item(item), self.writer.closed());
    }

    fn mark(&mut self) {
        if let Some(position) = self.writer.unmarked() {
            let note = Some(position.to_string());
            let (written, mark, _) = self.writer.mark(note).expect("marked");
            self.shared.appended(written, Fresh::Mark(mark), position);
        }
    }

    fn follow(&mut self) {
        self.mark();
        self.writer.follow().expect("followed");
        self.shared.begun(&self.writer);
    }

    fn cursor(&self, from: u64) -> Cursor {
        Cursor::new(Arc::clone(&self.shared), Lsn::new(from), &[table("a"), table("b")])
    }

    /// What a new life finds.
    fn reopened(&self) -> Result<Option<Left>, Error> {
        find(self.directory.path(), OWNER)
    }

    fn path(&self, number: u64) -> PathBuf {
        segment::path(self.directory.path(), number)
    }
}

/// Commits of the events, in their order, up to this one.
async fn commits(cursor: &mut Cursor, last: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        if let Next::Item(Item::Batch { events, .. }) = cursor.next().await.expect("an entry") {
            seen.extend(events.iter().map(|event| event.position.commit.offset()));
        }
    }
    seen
}

#[tokio::test]
async fn a_cursor_reads_from_a_position_on_and_names_what_the_source_noted() {
    let mut bench = Bench::new();
    for commit in [20, 30, 40] {
        bench.append(batch("a", commit, closed(commit + 1)));
        bench.mark();
    }
    let mut cursor = bench.cursor(31);
    assert_eq!(commits(&mut cursor, 40).await, [40]);
    let Next::Noted(at, note) = cursor.next().await.expect("a note") else { panic!("an item") };
    assert_eq!((at, note.as_str()), (Lsn::new(41), "0/29"));
}

#[tokio::test]
async fn a_table_of_an_earlier_configuration_is_left_out() {
    let mut bench = Bench::new();
    bench.append(batch("removed", 20, closed(21)));
    bench.append(batch("a", 30, closed(31)));
    assert_eq!(commits(&mut bench.cursor(10), 30).await, [30]);
}

#[tokio::test]
async fn what_is_released_is_removed_and_reading_goes_on() {
    let mut bench = Bench::new();
    let mut cursor = bench.cursor(10);
    for commit in [20, 30, 40] {
        bench.append(batch("a", commit, closed(commit + 1)));
        bench.follow();
    }
    assert_eq!(commits(&mut cursor, 20).await, [20]);
    assert!(bench.shared.release(Lsn::new(20)).is_empty(), "its transaction is not before 20");
    assert_eq!(bench.shared.release(Lsn::new(21)), [bench.path(1)]);
    assert_eq!(commits(&mut cursor, 40).await, [30, 40]);
    assert_eq!(bench.shared.span(), Some((Lsn::new(21), Lsn::new(41))));
}

#[test]
fn a_torn_end_is_cut_off_at_the_last_mark_wherever_it_is_torn() {
    let mut bench = Bench::new();
    bench.append(batch("a", 20, closed(21)));
    bench.mark();
    let first = bench.writer.location().offset;
    bench.append(batch("a", 30, closed(31)));
    bench.append(batch("b", 40, Closing::Open));
    assert_eq!(bench.writer.unmarked(), None, "no mark inside a transaction");
    bench.append(batch("b", 40, closed(41)));
    bench.mark();
    let whole = std::fs::read(bench.path(1)).expect("read");
    for length in 0..whole.len() {
        std::fs::write(bench.path(1), &whole[..length]).expect("written");
        let left = bench.reopened().expect("not damaged").map(|left| left.last.mark.position);
        let beginning = segment::HEADER_BYTES as usize + 40;
        match left {
            Some(position) if length as u64 >= first => assert_eq!(position, Lsn::new(21)),
            Some(position) => assert_eq!(position, Lsn::new(10), "at {length}"),
            None => assert!(length < beginning, "at {length}"),
        }
    }
    std::fs::write(bench.path(1), &whole).expect("written");
    let left = bench.reopened().expect("whole").expect("there");
    assert_eq!((left.last.mark.position, left.last.bytes), (Lsn::new(41), whole.len() as u64));
    let resumed = Writer::resume(bench.directory.path().to_owned(), &left.last).expect("resumed");
    assert_eq!(resumed.last_event(), Some(Lsn::new(40)));
}

#[test]
fn a_new_segment_without_a_whole_mark_is_passed_over_and_no_older_one_is() {
    let mut bench = Bench::new();
    bench.append(batch("a", 20, closed(21)));
    bench.follow();
    let torn = std::fs::read(bench.path(2)).expect("read");
    std::fs::write(bench.path(2), &torn[..torn.len() - 1]).expect("written");
    let left = bench.reopened().expect("a crash does that").expect("the older one");
    assert_eq!(left.last.mark.position, Lsn::new(21));
    assert_eq!(left.torn, [bench.path(2)]);
    std::fs::write(bench.path(1), &torn[..10]).expect("written");
    assert!(matches!(bench.reopened(), Err(Error::Damaged { .. })), "it had been synced");
}

#[test]
fn what_is_of_another_pin_is_nothing() {
    let bench = Bench::new();
    assert!(find(bench.directory.path(), Owner(8)).expect("readable").is_none());
    assert!(bench.reopened().expect("readable").is_some());
}

#[test]
fn a_segment_of_another_version_is_refused_and_not_taken_for_a_torn_one() {
    let bench = Bench::new();
    let mut bytes = std::fs::read(bench.path(1)).expect("read");
    bytes[7] = b'2';
    std::fs::write(bench.path(1), &bytes).expect("written");
    let error = bench.reopened().map(|left| left.is_some()).expect_err("refused");
    assert!(error.to_string().contains("another version"), "{error}");
}

#[test]
fn a_missing_segment_is_damage() {
    let mut bench = Bench::new();
    for commit in [20, 30, 40] {
        bench.append(batch("a", commit, closed(commit + 1)));
        bench.follow();
    }
    std::fs::remove_file(bench.path(2)).expect("removed");
    let error = bench.reopened().map(|left| left.is_some()).expect_err("refused");
    assert!(error.to_string().contains("a segment is missing"), "{error}");
}

#[tokio::test]
async fn a_segment_that_is_cut_between_two_entries_is_damage() {
    let mut bench = Bench::new();
    bench.append(batch("a", 20, closed(21)));
    bench.mark();
    let cut = bench.writer.location().offset;
    bench.append(batch("a", 30, closed(31)));
    bench.follow();
    let file = std::fs::File::options().write(true).open(bench.path(1)).expect("open");
    file.set_len(cut).expect("cut");
    let left = bench.reopened().expect("each part is whole").expect("there");
    let shared = Arc::new(Shared::new(bench.directory.path().to_owned(), bench.shared.settings()));
    shared.found(&left);
    let mut cursor = Cursor::new(shared, Lsn::new(10), &[table("a")]);
    assert_eq!(commits(&mut cursor, 20).await, [20]);
    let error = loop {
        match cursor.next().await {
            Ok(Next::Noted(..)) => {}
            Ok(Next::Item(item)) => panic!("{item:?}"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("its end is gone"), "{error}");
}

#[derive(Debug, Clone)]
enum Operation {
    Append {
        table: bool,
        closed: bool,
    },
    Mark,
    Follow,
    Read(usize),
    /// A cursor that begins again, without what is in memory.
    Forget,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (any::<bool>(), prop::bool::weighted(0.7))
            .prop_map(|(table, closed)| Operation::Append { table, closed }),
        2 => Just(Operation::Mark),
        1 => Just(Operation::Follow),
        3 => (0..6usize).prop_map(Operation::Read),
        1 => Just(Operation::Forget),
    ]
}

proptest! {
    /// However writing, segments and reading are interleaved, and wherever entries come from.
    #[test]
    fn a_cursor_gives_every_entry_once_and_in_order(operations in prop::collection::vec(operation(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut bench = Bench::new();
            let mut cursor = bench.cursor(10);
            let (mut commit, mut written, mut read) = (20, Vec::new(), Vec::new());
            let mut open = false;
            for operation in operations {
                match operation {
                    Operation::Append { table, closed: is_closed } => {
                        let closing = if is_closed { closed(commit + 1) } else { Closing::Open };
                        bench.append(batch(if table { "a" } else { "b" }, commit, closing));
                        written.push(commit);
                        open = !is_closed;
                        commit += if is_closed { 10 } else { 0 };
                    }
                    Operation::Mark => bench.mark(),
                    Operation::Follow if !open => bench.follow(),
                    Operation::Follow => {}
                    Operation::Read(count) => {
                        for _ in 0..count.min(written.len() - read.len()) {
                            read.push(next(&mut cursor).await);
                        }
                    }
                    Operation::Forget => {
                        cursor = bench.cursor(10);
                        bench.shared.forget();
                        for _ in 0..read.len() {
                            next(&mut cursor).await;
                        }
                    }
                }
            }
            while read.len() < written.len() {
                read.push(next(&mut cursor).await);
            }
            assert_eq!(read, written);
        });
    }
}

async fn next(cursor: &mut Cursor) -> u64 {
    loop {
        if let Next::Item(Item::Batch { events, .. }) = cursor.next().await.expect("an entry") {
            return events[0].position.commit.offset();
        }
    }
}
