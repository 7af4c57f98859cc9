//! The durable state: what is saved stays, and what cannot be trusted is refused.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dovetail::config;
use dovetail::origin::{Kind, Origin, Source};
use dovetail::outlet::{Delivery, Durable, Landed, Outlet};
use dovetail::state::gaps::Fate;
use dovetail::state::{self, Error, Notes, Store};
use dovetail_core::batch::Closing;
use dovetail_core::position::Lsn;
use dovetail_core::schema::{RelationId, TableName};
use dovetail_core::seam::{Fenced, Gap, Loss, Pin, Record, Step};
use tempfile::TempDir;

fn origin() -> Origin {
    let source = Source { kind: Kind::Postgres, system: "7301".into(), database: "shop".into() };
    Origin { pipeline: "test".into(), source }
}

fn table(name: &str) -> TableName {
    TableName { namespace: "public".into(), name: name.into() }
}

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("deep").join("state")
    }

    fn database(&self) -> PathBuf {
        self.state().join("state.db")
    }

    async fn open(&self) -> Store {
        Store::open(&self.state(), &origin()).await.expect("a state that opens")
    }

    async fn refused(&self) -> Error {
        let error = Store::open(&self.state(), &origin()).await.expect_err("a refusal");
        assert!(!error.is_transient(), "{error}");
        error
    }

    fn operate(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.database()).expect("open");
        connection.execute_batch(sql).expect(sql);
    }
}

async fn durable(at: u64) -> Durable<Lsn> {
    let opened = Outlet::open(&config::Outlet::Discard, &origin(), 0).await;
    let closing = Closing::Commit(Lsn::new(at));
    let group = [Delivery { number: 0, records: Vec::new(), closing }].into();
    match opened.expect("open").write(&group).await.expect("written").as_slice() {
        [Landed::Commit(durable)] => *durable,
        other => panic!("{other:?}"),
    }
}

fn every_step() -> Vec<Step> {
    let both = BTreeSet::from([table("a"), table("Odd \"b\"")]);
    let fence = "10:20:10,14".parse().expect("a fence");
    let fenced = Fenced { fence, horizon: Lsn::new(0x1_0000_0090) };
    let scanned = |name, fenced| {
        let (table, relation) = (table(name), RelationId(u32::MAX));
        Step::Scanned { table, relation, fenced }
    };
    vec![
        Step::Intend,
        Step::Forgo,
        Step::Intend,
        Step::Pin(Lsn::new(0x1_0000_0005)),
        Step::Attempt(both.clone()),
        scanned("a", Some(fenced.clone())),
        scanned("Odd \"b\"", None),
        Step::Again(both),
        Step::Skip([(table("c"), RelationId(8))].into()),
        scanned("a", Some(fenced)),
        Step::Finish,
    ]
}

#[tokio::test]
async fn every_step_is_there_after_a_restart() {
    let place = Place::new();
    let mut expected = Record::default();
    assert_eq!(place.open().await.record(), &expected);
    for step in every_step() {
        let mut store = place.open().await;
        assert_eq!(store.record(), &expected);
        let saved = store.save(&step).await.expect("saved");
        assert_eq!(saved.into_inner(), step);
        expected = expected.with(&step);
        assert_eq!(store.record(), &expected);
    }
    assert_eq!(place.open().await.record(), &expected);
    assert_eq!(expected.pin, Pin::At(Lsn::new(0x1_0000_0005)));
}

#[tokio::test]
async fn a_checkpoint_is_saved_from_what_is_durable_and_never_falls() {
    let place = Place::new();
    let mut store = place.open().await;
    let saved = store.save_checkpoint(durable(500).await, None).await.expect("saved");
    assert_eq!(saved.get(), Lsn::new(500));
    store.save_checkpoint(durable(400).await, None).await.expect("saved");
    drop(store);
    assert_eq!(place.open().await.record().checkpoint, Some(Lsn::new(500)));
}

#[tokio::test]
async fn a_checkpoint_without_proof_is_refused() {
    let place = Place::new();
    let mut store = place.open().await;
    let result = store.save(&Step::Checkpoint(Lsn::new(5))).await;
    assert!(matches!(result, Err(Error::Unproven)));
    assert_eq!(store.record().checkpoint, None);
}

#[tokio::test]
async fn the_state_is_read_while_an_engine_writes_it() {
    let place = Place::new();
    assert_eq!(state::read(&place.state()).await.expect("nothing yet"), None);
    let mut store = place.open().await;
    store.save(&Step::Intend).await.expect("saved");
    let content = state::read(&place.state()).await.expect("read").expect("a state");
    assert_eq!(content.origin, origin());
    assert_eq!(content.record, *store.record());
    store.save(&Step::Pin(Lsn::new(9))).await.expect("saved beside a reader");
}

#[tokio::test]
async fn the_directory_is_for_this_user_alone() {
    let place = Place::new();
    drop(place.open().await);
    let mode = std::fs::metadata(place.state()).expect("the directory").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn a_second_engine_is_refused_and_told_of_the_first() {
    let place = Place::new();
    let first = place.open().await;
    let error = place.refused().await;
    assert!(matches!(&error, Error::InUse { process: Some(id), .. } if *id == std::process::id()));
    assert!(error.to_string().contains("state.lock"), "{error}");
    drop(first);
    place.open().await;
}

#[tokio::test]
async fn what_the_source_notes_is_saved_with_the_position_and_stays_until_there_is_more() {
    let place = Place::new();
    let note = |text: &str| Some(text.to_owned());
    let mut store = place.open().await;
    assert_eq!(store.notes(), &Notes::default());
    store.save(&Step::Intend).await.expect("saved");
    store.save_pin(Lsn::binlog(0, 42, 4), note("rung gtid")).await.expect("saved");
    store.save_checkpoint(durable(500).await, note("at 500")).await.expect("saved");
    store.save_checkpoint(durable(400).await, note("behind")).await.expect("saved");
    store.save_checkpoint(durable(600).await, None).await.expect("saved");
    let (pin, checkpoint) = (note("rung gtid"), note("at 500"));
    let expected = Notes { pin, checkpoint, former: None, system: note("7301") };
    assert_eq!(store.notes(), &expected);
    drop(store);
    assert_eq!(place.open().await.notes(), &expected);
    let content = state::read(&place.state()).await.expect("read").expect("a state");
    assert_eq!(content.notes, expected);
    assert_eq!(content.record.pin, Pin::At(Lsn::binlog(0, 42, 4)));
}

/// As an engine that only knew PostgreSQL wrote it.
const VERSION_1: &str = "
CREATE TABLE pipeline (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    system TEXT NOT NULL,
    database TEXT NOT NULL,
    pin TEXT NOT NULL,
    checkpoint TEXT,
    finished INTEGER NOT NULL
);
CREATE TABLE tables (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    scan TEXT NOT NULL CHECK (scan IN ('due', 'done', 'skipped')),
    attempts INTEGER,
    relation INTEGER,
    fence TEXT,
    fence_horizon TEXT,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE outlets (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = 1148613740;
PRAGMA user_version = 1;
INSERT INTO pipeline VALUES (1, 'test', '7301', 'shop', '16/B374D848', '16/B374D900', FALSE);
INSERT INTO tables VALUES
    ('public', 'a', 'done', NULL, 7, '10:20:14', '16/B374D8FF'),
    ('public', 'b', 'due', 2, NULL, NULL, NULL);
INSERT INTO outlets VALUES ('a', 'file');";

#[tokio::test]
async fn a_state_of_version_1_is_read_as_it_is_and_brought_up_when_it_is_opened() {
    let place = Place::new();
    std::fs::create_dir_all(place.state()).expect("created");
    place.operate(VERSION_1);
    let version = || {
        let connection = rusqlite::Connection::open(place.database()).expect("open");
        connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).expect("one")
    };
    let content = state::read(&place.state()).await.expect("read").expect("a state");
    assert_eq!((version(), &content.origin, &content.notes), (1, &origin(), &Notes::default()));
    let record = content.record;
    assert_eq!(content.gaps, []);
    assert_eq!(record.pin, Pin::At("16/B374D848".parse().expect("a position")));
    assert_eq!((record.attempts(&table("a")), record.attempts(&table("b"))), (1, 2));
    assert_eq!(record.checkpoint, Some("16/B374D900".parse().expect("a position")));
    let fenced: Vec<_> = record.tables.values().collect();
    assert!(format!("{fenced:?}").contains("16/B374D8FF"), "{fenced:?}");

    let mut store = place.open().await;
    assert_eq!((version(), store.record(), store.notes()), (3, &record, &Notes::default()));
    store.keep_outlets([("a".to_owned(), "file".to_owned())].into()).await.expect("the same");
    store.save(&Step::Attempt([table("b")].into())).await.expect("saved");
    drop(store);
    let store = place.open().await;
    assert_eq!((version(), store.record().attempts(&table("b"))), (3, 3));
}

const PURGED: Gap = Gap { loss: Loss::Purged, from: Lsn::new(500), to: Some(Lsn::new(900)) };

async fn gaps(place: &Place) -> Vec<state::Gap> {
    state::read(&place.state()).await.expect("read").expect("a state").gaps
}

#[tokio::test]
async fn the_same_gap_is_written_down_once_and_stays() {
    let place = Place::new();
    let mut store = place.open().await;
    let later = Gap { to: Some(Lsn::new(950)), ..PURGED };
    let other = Gap { loss: Loss::Reset, ..PURGED };
    let mut ids = Vec::new();
    for gap in [PURGED, later, other] {
        let tables = vec![table("a"), table("b")];
        ids.push(store.enter_gap(gap, tables, "those are lost".into()).await.expect("saved"));
    }
    assert_eq!(ids, [1, 1, 2]);
    drop(store);
    let gaps = gaps(&place).await;
    assert_eq!(gaps.len(), 2);
    let first = &gaps[0];
    assert_eq!(
        (&*first.loss, &*first.from, first.to.as_deref()),
        ("purged", "0/1F4", Some("0/384"))
    );
    assert_eq!(
        (&*first.reason, &first.tables[..]),
        ("those are lost", &["public.a", "public.b"].map(String::from)[..])
    );
    assert!(first.is_open());
    let connection = rusqlite::Connection::open(place.database()).expect("open");
    for sql in ["UPDATE gaps SET loss = 'none'", "DELETE FROM gaps"] {
        let error = connection.execute(sql, []).expect_err(sql);
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

#[tokio::test]
async fn a_gap_that_was_mended_is_closed_and_comes_again_as_another_one() {
    let place = Place::new();
    let mut store = place.open().await;
    for (id, is_open) in [(1, false), (2, true)] {
        let entered = store.enter_gap(PURGED, Vec::new(), String::new()).await;
        assert_eq!(entered.expect("saved"), id);
        if !is_open {
            store.close_gaps().await.expect("saved");
        }
    }
    let open: Vec<_> = gaps(&place).await.iter().map(state::Gap::is_open).collect();
    assert_eq!(open, [false, true]);
}

#[tokio::test]
async fn a_gap_that_is_accepted_gives_up_what_the_record_says() {
    let place = Place::new();
    let mut store = place.open().await;
    let note = |text: &str| Some(text.to_owned());
    for step in every_step() {
        match step {
            Step::Pin(at) => drop(store.save_pin(at, note("of the pin")).await.expect("saved")),
            step => drop(store.save(&step).await.expect("saved")),
        }
    }
    store.save_checkpoint(durable(1 << 40).await, note("of the checkpoint")).await.expect("saved");
    let record = store.record().clone();
    let accept = async |id| state::accept_gap(&place.state(), "test", id).await;
    assert!(matches!(accept(1).await, Err(Error::InUse { .. })), "an engine runs");
    let id = store.enter_gap(PURGED, Vec::new(), String::new()).await.expect("saved");
    drop(store);
    assert!(matches!(accept(id + 1).await, Err(Error::NotOpen { .. })));
    let other = state::accept_gap(&place.state(), "another", id).await;
    assert!(matches!(other, Err(Error::OtherPipeline { .. })));
    assert_eq!(place.open().await.record(), &record);

    accept(id).await.expect("accepted");
    assert!(matches!(accept(id).await, Err(Error::NotOpen { .. })), "once");
    let mut store = place.open().await;
    assert_eq!(store.record(), &record.given_up());
    let former = note("of the checkpoint");
    assert_eq!(store.notes(), &Notes { former, system: note("7301"), ..Notes::default() });
    let fate = |gaps: Vec<state::Gap>| gaps.into_iter().map(|gap| gap.fate).next();
    let accepted = fate(gaps(&place).await);
    assert!(matches!(accepted, Some(Fate::Accepted { pin: None, .. })), "{accepted:?}");
    store.save_pin(Lsn::new(7), None).await.expect("saved");
    let pinned = fate(gaps(&place).await);
    assert!(
        matches!(&pinned, Some(Fate::Accepted { pin: Some(at), .. }) if at == "0/7"),
        "{pinned:?}"
    );
}

#[tokio::test]
async fn a_newer_state_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    place.operate("PRAGMA user_version = 99");
    assert!(matches!(place.refused().await, Error::Newer { found: 99, .. }));
    assert!(matches!(state::read(&place.state()).await, Err(Error::Newer { .. })));
}

#[tokio::test]
async fn the_state_of_another_pipeline_or_source_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    let pipeline = Origin { pipeline: "other".into(), ..origin() };
    let mut source = origin();
    source.source.database = "other".into();
    let mut kind = origin();
    kind.source.kind = Kind::MySql;
    for other in [pipeline, source, kind] {
        let error = Store::open(&place.state(), &other).await.expect_err("a refusal");
        assert!(matches!(error, Error::OtherOrigin { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_state_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    std::fs::remove_file(place.database()).expect("removed");
    place.operate("CREATE TABLE shopping (item TEXT)");
    assert!(matches!(place.refused().await, Error::Foreign { .. }));
}

async fn damaged(damage: impl FnOnce(&Path)) -> Error {
    let place = Place::new();
    let mut store = place.open().await;
    for step in every_step() {
        store.save(&step).await.expect("saved");
    }
    drop(store);
    damage(&place.database());
    place.refused().await
}

#[tokio::test]
async fn a_damaged_state_is_refused() {
    let garbage = damaged(|path| {
        std::fs::write(path, "no database at all, but long enough for a header".repeat(40))
            .expect("written");
    });
    assert!(matches!(garbage.await, Error::Damaged { .. }));
    let cut = damaged(|path| {
        let bytes = std::fs::read(path).expect("read");
        std::fs::write(path, &bytes[..bytes.len() - 4096]).expect("written");
    });
    assert!(matches!(cut.await, Error::Damaged { .. }));
    for sql in [
        "DROP TABLE tables",
        "DELETE FROM pipeline",
        "UPDATE pipeline SET pin = 'nonsense'",
        "UPDATE pipeline SET checkpoint = 'nonsense'",
        "UPDATE pipeline SET kind = 'nonsense'",
        "UPDATE tables SET scan = 'done', fence = 'nonsense', relation = 1, fence_horizon = '0/0', attempts = NULL",
        "UPDATE tables SET attempts = NULL",
    ] {
        let error = damaged(|path| {
            rusqlite::Connection::open(path).and_then(|it| it.execute_batch(sql)).expect(sql);
        });
        assert!(matches!(error.await, Error::Damaged { .. }), "{sql}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_one_is_refused() {
    let place = Place::new();
    std::fs::create_dir_all(place.state().parent().expect("above")).expect("created");
    std::fs::write(place.state(), "a file").expect("written");
    assert!(matches!(place.refused().await, Error::Directory { .. }));
}

/// Root may write everywhere, so the file is made unwritable for SQLite by what stands in its place.
#[tokio::test]
async fn a_state_that_cannot_be_written_is_refused() {
    let place = Place::new();
    std::fs::create_dir_all(place.database()).expect("a directory where the file should be");
    let error = place.refused().await;
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
}

#[tokio::test]
async fn an_outlet_that_missed_something_is_refused() {
    let place = Place::new();
    let outlets = |names: &[&str]| -> std::collections::BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), "file".to_owned())).collect()
    };
    let mut store = place.open().await;
    store.keep_outlets(outlets(&["a"])).await.expect("nothing went anywhere yet");
    store.keep_outlets(outlets(&["a", "b"])).await.expect("nothing went anywhere yet");
    store.save(&Step::Intend).await.expect("saved");
    store.save(&Step::Pin(Lsn::new(9))).await.expect("saved");
    drop(store);
    let mut store = place.open().await;
    store.keep_outlets(outlets(&["a", "b"])).await.expect("the same");
    let added = store.keep_outlets(outlets(&["a", "b", "c"])).await;
    assert!(matches!(added, Err(Error::NewOutlet { name, .. }) if name == "c"));
    let other = [("a".to_owned(), "sqlite".to_owned())].into();
    assert!(matches!(store.keep_outlets(other).await, Err(Error::NewOutlet { .. })));
    store.keep_outlets(outlets(&["a"])).await.expect("fewer");
    let back = store.keep_outlets(outlets(&["a", "b"])).await;
    assert!(matches!(back, Err(Error::NewOutlet { .. })), "it missed what came meanwhile");
}
