use super::*;
use crate::change::Operation;
use crate::decode::pgoutput::Identity;
use crate::schema::TableName;
use crate::value::{Row, Value};

const TABLE: u32 = 7;
const COMMIT: u64 = 0x1000;
const END: u64 = 0x1030;
const REFERENCE: Xid = Xid(5 << 32 | 100);

fn payload(parts: &[&[u8]]) -> Bytes {
    Bytes::from(parts.concat())
}

fn begin() -> Bytes {
    payload(&[b"B", &COMMIT.to_be_bytes(), &1_i64.to_be_bytes(), &101_u32.to_be_bytes()])
}

fn commit() -> Bytes {
    payload(&[b"C\0", &COMMIT.to_be_bytes(), &END.to_be_bytes(), &[0; 8]])
}

/// `id int4, amount numeric, note text`, of which those in `identity` are marked.
fn described(identity: u8, marked: [u8; 3]) -> Bytes {
    let column = |mark: u8, name: &[u8], id: u32| {
        [&[mark], name, &[0], &id.to_be_bytes(), &(-1_i32).to_be_bytes()].concat()
    };
    payload(&[
        b"R",
        &TABLE.to_be_bytes(),
        b"public\0t\0",
        &[identity, 0, 3],
        &column(marked[0], b"id", 23),
        &column(marked[1], b"amount", 1700),
        &column(marked[2], b"note", 25),
    ])
}

/// `-` is null, `~` is unchanged.
fn tuple(mark: &[u8], fields: [&str; 3]) -> Vec<u8> {
    let mut bytes = [mark, &[0, 3]].concat();
    for field in fields {
        match field {
            "-" => bytes.push(b'n'),
            "~" => bytes.push(b'u'),
            text => {
                let length = u32::try_from(text.len()).expect("short");
                bytes.extend([b"t", length.to_be_bytes().as_slice(), text.as_bytes()].concat());
            }
        }
    }
    bytes
}

fn change(tag: &[u8], tuples: &[Vec<u8>]) -> Bytes {
    payload(&[tag, &TABLE.to_be_bytes(), &tuples.concat()])
}

fn row(fields: [&str; 3]) -> Row {
    let value = |(index, field): (usize, &str)| match (field, index) {
        ("-", _) => Value::Null,
        ("~", _) => Value::Unavailable,
        (text, 0) => Value::Int(text.parse().expect("an integer")),
        (text, 1) => Value::Decimal(text.into()),
        (text, _) => Value::text(text),
    };
    Row::new(fields.into_iter().enumerate().map(value).collect())
}

/// A stream in the middle of a transaction, its table described and defined.
struct Stream {
    builder: Builder,
    relation: Arc<Relation>,
    events: Vec<Event>,
}

impl Stream {
    fn open(identity: u8, marked: [u8; 3], primary_key: &[&str]) -> Self {
        let mut builder = Builder::new(REFERENCE);
        let mut events = Vec::new();
        builder.apply(&begin(), 0, &mut events).expect("begin");
        let step = builder.apply(&described(identity, marked), 0, &mut events).expect("relation");
        let Step::Relation(raw) = step else { panic!("a relation: {step:?}") };
        let primary_key: Vec<String> = primary_key.iter().map(|name| (*name).into()).collect();
        let relation = Arc::new(raw.relation(&primary_key).expect("its key is there"));
        builder.define(relation.clone()).expect("it was described");
        Self { builder, relation, events }
    }

    fn keyed() -> Self {
        Self::open(b'd', [1, 0, 0], &[])
    }

    fn full() -> Self {
        Self::open(b'f', [1, 1, 1], &["id"])
    }

    fn apply(&mut self, payload: &Bytes) -> Result<Step, Error> {
        self.builder.apply(payload, 77, &mut self.events)
    }

    /// The changes of one message.
    fn changes(&mut self, payload: &Bytes) -> Vec<Change> {
        let before = self.events.len();
        assert_eq!(self.apply(payload).expect("understood"), Step::Open);
        self.events.drain(before..).map(|event| event.change).collect()
    }

    fn update(&self, before: Option<[&str; 3]>, after: [&str; 3]) -> Change {
        let relation = self.relation.clone();
        Change::Update { relation, before: before.map(row), after: row(after) }
    }

    fn moved(&self, before: [&str; 3], after: [&str; 3]) -> [Change; 2] {
        let (relation, before) = (self.relation.clone(), row(before));
        let moved_from = Some(before.clone());
        [
            Change::Delete { relation: relation.clone(), before, moved: true },
            Change::Insert { relation, after: row(after), moved_from },
        ]
    }
}

#[test]
fn a_transaction_has_one_commit_and_ordinals_from_one() {
    let mut stream = Stream::keyed();
    for id in ["1", "2"] {
        let insert = change(b"I", &[tuple(b"N", [id, "1.50", "-"])]);
        assert_eq!(stream.apply(&insert).expect("insert"), Step::Open);
    }
    assert!(stream.builder.is_open());
    assert_eq!(stream.apply(&commit()).expect("commit"), Step::Commit(Lsn::new(END)));
    assert!(!stream.builder.is_open());

    let positions: Vec<_> = stream.events.iter().map(|event| event.position).collect();
    let position = |ordinal| Position { commit: Lsn::new(COMMIT), ordinal };
    assert_eq!(positions, [position(1), position(2)]);
    let event = &stream.events[0];
    assert_eq!(event.transaction, Some(Xid(5 << 32 | 101).into()));
    assert_eq!(event.commit_time_micros, 946_684_800_000_001);
    assert_eq!(event.change.after(), Some(&row(["1", "1.50", "-"])));
}

#[test]
fn what_an_old_key_does_not_hold_is_unavailable_and_not_null() {
    let mut stream = Stream::keyed();
    let delete = change(b"D", &[tuple(b"K", ["1", "-", "-"])]);
    let before = row(["1", "~", "~"]);
    let relation = stream.relation.clone();
    assert_eq!(stream.changes(&delete), [Change::Delete { relation, before, moved: false }]);
}

#[test]
fn a_null_in_a_full_old_row_stays_null() {
    let mut stream = Stream::full();
    let delete = change(b"D", &[tuple(b"O", ["1", "-", "x"])]);
    let before = row(["1", "-", "x"]);
    let relation = stream.relation.clone();
    assert_eq!(stream.changes(&delete), [Change::Delete { relation, before, moved: false }]);
}

#[test]
fn an_update_without_an_old_row_keeps_unchanged_values_unavailable() {
    let mut stream = Stream::keyed();
    let update = change(b"U", &[tuple(b"N", ["1", "2", "~"])]);
    assert_eq!(stream.changes(&update), [stream.update(None, ["1", "2", "~"])]);
}

#[test]
fn the_only_full_copy_of_an_unchanged_value_is_kept() {
    let mut stream = Stream::full();
    let update = change(b"U", &[tuple(b"O", ["1", "1", "long"]), tuple(b"N", ["1", "2", "~"])]);
    let expected = stream.update(Some(["1", "1", "long"]), ["1", "2", "long"]);
    assert_eq!(stream.changes(&update), [expected]);

    let mut stream = Stream::full();
    let update = change(b"U", &[tuple(b"O", ["1", "1", "long"]), tuple(b"N", ["2", "1", "~"])]);
    let expected = stream.moved(["1", "1", "long"], ["2", "1", "long"]);
    assert_eq!(stream.changes(&update), expected);
}

/// A leaf that only logs its key, under a root with `REPLICA IDENTITY FULL`.
#[test]
fn a_null_of_an_old_row_does_not_take_the_place_of_an_unchanged_value() {
    let mut stream = Stream::full();
    let update = change(b"U", &[tuple(b"O", ["1", "-", "-"]), tuple(b"N", ["2", "9", "~"])]);
    let expected = stream.moved(["1", "-", "-"], ["2", "9", "~"]);
    assert_eq!(stream.changes(&update), expected);
}

/// A leaf that logs another index than the key of its root.
#[test]
fn an_old_row_with_a_null_for_its_key_stops_the_stream() {
    for marked in [[1, 0, 0], [1, 1, 0]] {
        let old = || tuple(b"K", ["-", "1.5", "-"]);
        let delete = change(b"D", &[old()]);
        let stopped = Stream::open(b'd', marked, &[]).apply(&delete);
        assert!(matches!(stopped, Err(Error::NoKey { .. })), "{stopped:?}");
        let update = change(b"U", &[old(), tuple(b"N", ["2", "9", "x"])]);
        let stopped = Stream::open(b'd', marked, &[]).apply(&update);
        assert!(matches!(stopped, Err(Error::NoKey { .. })), "{stopped:?}");
    }
}

#[test]
fn a_key_change_is_a_delete_and_an_insert_side_by_side() {
    let mut stream = Stream::keyed();
    let update = change(b"U", &[tuple(b"K", ["1", "-", "-"]), tuple(b"N", ["2", "9", "~"])]);
    let expected = stream.moved(["1", "~", "~"], ["2", "9", "~"]);
    assert_eq!(stream.changes(&update), expected);
    stream.apply(&update).expect("update");
    let ordinals: Vec<_> = stream.events.iter().map(|event| event.position.ordinal).collect();
    assert_eq!(ordinals, [3, 4]);
}

#[test]
fn another_spelling_of_the_same_key_is_no_move_but_the_old_one_is_told() {
    let mut stream = Stream::open(b'i', [0, 1, 0], &[]);
    let update = change(b"U", &[tuple(b"K", ["-", "1.0", "-"]), tuple(b"N", ["1", "1.00", "x"])]);
    let expected = stream.update(Some(["~", "1.0", "~"]), ["1", "1.00", "x"]);
    assert_eq!(stream.changes(&update), [expected]);
}

#[test]
fn a_key_of_several_columns_is_kept_in_column_order() {
    let stream = Stream::open(b'f', [1, 1, 1], &["note", "id"]);
    assert_eq!(stream.relation.key, [0, 2]);
}

#[test]
fn a_table_without_a_key_is_updated_with_its_old_row() {
    let mut stream = Stream::open(b'f', [1, 1, 1], &[]);
    let update = change(b"U", &[tuple(b"O", ["1", "1", "a"]), tuple(b"N", ["2", "1", "a"])]);
    let expected = stream.update(Some(["1", "1", "a"]), ["2", "1", "a"]);
    assert_eq!(stream.changes(&update), [expected]);
}

#[test]
fn a_change_without_its_key_stops_the_stream() {
    let mut stream = Stream::keyed();
    let update = change(b"U", &[tuple(b"N", ["~", "2", "x"])]);
    assert!(matches!(stream.apply(&update), Err(Error::NoKey { .. })));
}

#[test]
fn a_table_described_again_waits_for_its_definition() {
    let mut stream = Stream::keyed();
    let insert = change(b"I", &[tuple(b"N", ["1", "1", "x"])]);
    stream.apply(&insert).expect("defined");
    let step = stream.apply(&described(b'f', [1, 1, 1])).expect("described");
    let Step::Relation(raw) = step else { panic!("a relation: {step:?}") };
    assert_eq!(raw.identity, Identity::Full);
    let undescribed = InvalidRow::Undescribed(RelationId(TABLE));
    assert!(matches!(stream.apply(&insert), Err(Error::Row(error)) if error == undescribed));
    stream.builder.define(stream.relation.clone()).expect("it was described");
    stream.apply(&insert).expect("defined again");
    assert!(stream.builder.define(stream.relation.clone()).is_err(), "it answers nothing");
}

#[test]
fn a_key_column_that_the_described_table_lacks_is_not_guessed() {
    let mut builder = Builder::new(REFERENCE);
    let step = builder.apply(&described(b'n', [0, 0, 0]), 0, &mut Vec::new());
    let Ok(Step::Relation(raw)) = step else { panic!("a relation") };
    assert!(raw.needs_primary_key());
    assert!(raw.relation(&["gone".into()]).is_err());
    assert!(raw.relation(&[]).is_ok_and(|relation| !relation.has_key()));
}

#[test]
fn types_are_named_by_the_stream_or_built_in() {
    let mut builder = Builder::new(REFERENCE);
    let mut apply = |payload: &Bytes| builder.apply(payload, 0, &mut Vec::new());
    let columns = payload(&[
        b"R\0\0\0\x08shop\0t\0d\0\x02",
        b"\x01id\0\0\0\x40\0\xFF\xFF\xFF\xFF",
        b"\0mood\0\0\0\x40\x01\xFF\xFF\xFF\xFF",
    ]);
    apply(&payload(&[b"Y\0\0\x40\0\0int4\0"])).expect("a domain over int4");
    let unknown = UnknownType { table: "shop.t".into(), column: "mood".into(), id: 0x4001 };
    assert!(matches!(apply(&columns), Err(Error::Type(error)) if error == unknown));

    apply(&payload(&[b"Y\0\0\x40\x01shop\0mood\0"])).expect("an enum");
    let Ok(Step::Relation(raw)) = apply(&columns) else { panic!("a relation") };
    let names: Vec<_> = raw.columns.iter().map(|column| column.type_name.as_str()).collect();
    assert_eq!(names, ["int4", "shop.mood"]);
    assert_eq!(raw.table, TableName { namespace: "shop".into(), name: "t".into() });
}

#[test]
fn a_truncate_of_several_tables_is_one_barrier_each() {
    let mut stream = Stream::keyed();
    let both = payload(&[b"T\0\0\0\x02\x01", &TABLE.to_be_bytes(), &TABLE.to_be_bytes()]);
    let relation = stream.relation.clone();
    let truncate = Change::Truncate { relation };
    assert_eq!(stream.changes(&both), [truncate.clone(), truncate]);
}

fn message(transactional: u8, end: u64) -> Bytes {
    payload(&[&[b'M', transactional], &end.to_be_bytes(), b"prefix\0\0\0\0\x02hi"])
}

#[test]
fn a_transactional_message_has_its_place_among_the_changes() {
    let mut stream = Stream::keyed();
    stream.apply(&message(1, 0x900)).expect("a message");
    let event = &stream.events[0];
    assert_eq!(event.position, Position { commit: Lsn::new(COMMIT), ordinal: 1 });
    assert_eq!(event.change.operation(), Operation::Message);
    assert!(event.transaction.is_some());
}

#[test]
fn a_message_outside_stands_before_the_commit_that_follows_it_and_closes_before_it() {
    // Given a transaction whose commit record starts where the message's record ends.
    let mut builder = Builder::new(REFERENCE);
    let mut events = Vec::new();
    let step = builder.apply(&message(0, COMMIT), 77, &mut events).expect("a message");
    let commit = Lsn::new(COMMIT);
    // A stream that begins here gets that transaction again.
    assert_eq!(step, Step::Commit(commit));
    let position = events[0].position;
    assert!(position.commit < commit);
    assert!(position < Position { commit, ordinal: 1 });
    assert_eq!((events[0].transaction, events[0].commit_time_micros), (None, 77));
}

#[test]
fn messages_out_of_their_order_are_refused() {
    let insert = change(b"I", &[tuple(b"N", ["1", "1", "x"])]);
    let other = payload(&[b"C\0", &9_u64.to_be_bytes(), &END.to_be_bytes(), &[0; 8]]);
    let mut stream = Stream::keyed();
    assert!(matches!(stream.apply(&begin()), Err(Error::Inside { .. })));
    assert!(matches!(stream.apply(&message(0, 1)), Err(Error::Inside { .. })));
    assert!(matches!(stream.apply(&other), Err(Error::OtherCommit { .. })));
    stream.apply(&commit()).expect("commit");
    assert!(matches!(stream.apply(&commit()), Err(Error::Outside { .. })));
    assert!(matches!(stream.apply(&insert), Err(Error::Outside { .. })));
    assert!(matches!(stream.apply(&message(1, 1)), Err(Error::Outside { .. })));
}

#[test]
fn a_row_of_another_width_is_refused() {
    let mut stream = Stream::keyed();
    let narrow = change(b"I", &[b"N\0\x01n".to_vec()]);
    let width = InvalidRow::Width { table: "public.t".into(), expected: 3, found: 1 };
    assert!(matches!(stream.apply(&narrow), Err(Error::Row(error)) if error == width));
}

#[test]
fn an_epoch_passes_while_the_stream_goes_on() {
    let mut builder = Builder::new(Xid(u64::from(u32::MAX)));
    let mut events = Vec::new();
    for (id, full) in [(u32::MAX, 0xFFFF_FFFF_u64), (5, 1 << 32 | 5), (1 << 31, 3 << 31)] {
        let begin = payload(&[b"B", &COMMIT.to_be_bytes(), &[0; 8], &id.to_be_bytes()]);
        builder.apply(&begin, 0, &mut events).expect("begin");
        builder.apply(&message(1, 1), 0, &mut events).expect("a message");
        builder.apply(&commit(), 0, &mut events).expect("commit");
        let latest = events.last().and_then(|event| event.transaction);
        assert_eq!(latest, Some(Xid(full).into()));
    }
}
