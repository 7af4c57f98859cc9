//! Guests, built from source; and events to hand to them.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use dovetail_core::value::{Row, Text, Value};
use dovetail_sandbox::{
    Compiler, ComponentLimits, EngineOptions, Grants, Limits, Plugin, Refusal, Sandbox,
};

const TARGET: &str = "wasm32-wasip2";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where guests are built; another place than the host's, which a running `cargo test` may hold.
fn target_dir() -> PathBuf {
    std::env::var_os("DOVETAIL_GUESTS_TARGET_DIR")
        .map_or_else(|| root().join("target/guests"), PathBuf::from)
}

/// Builds a workspace of guests, once in a process.
fn build(workspace: &str) {
    let manifest = root().join(workspace).join("Cargo.toml");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--target", TARGET, "--manifest-path"])
        .arg(&manifest)
        .env("CARGO_TARGET_DIR", target_dir())
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs, as it runs this test");
    assert!(
        status.success(),
        "guests do not build; if the target is missing: rustup target add --toolchain 1.95.0 {TARGET}"
    );
}

fn component(file: &str) -> Vec<u8> {
    let path = target_dir().join(TARGET).join("release").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A guest of `tests/guests`.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("tests/guests"));
    component(&format!("guest_{}.wasm", name.replace('-', "_")))
}

/// A plugin of `plugins`.
pub(crate) fn ready_made(name: &str) -> Vec<u8> {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("plugins"));
    component(&format!("dovetail_{}.wasm", name.replace('-', "_")))
}

pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| sandbox_with(None))
}

pub(crate) fn sandbox_with(cache_dir: Option<PathBuf>) -> Sandbox {
    Sandbox::new(options(cache_dir)).expect("the engine's configuration is a constant")
}

pub(crate) fn options(cache_dir: Option<PathBuf>) -> EngineOptions {
    let component = ComponentLimits::usual();
    EngineOptions { cache_dir, component, compiler: Compiler::InProcess }
}

pub(crate) fn limits() -> Limits {
    Limits::around(64 << 20, Duration::from_secs(10), 2)
}

pub(crate) fn load(guest_name: &str, config: &str) -> Plugin {
    try_load(guest_name, limits(), config).expect("guest loads")
}

pub(crate) fn load_granted(guest_name: &str, grants: &Grants, config: &str) -> Plugin {
    sandbox().load(&guest(guest_name), limits(), grants, config).expect("guest loads")
}

pub(crate) fn try_load(guest_name: &str, limits: Limits, config: &str) -> Result<Plugin, Refusal> {
    sandbox().load(&guest(guest_name), limits, &Grants::all_rows(), config)
}

fn column(name: &str, type_name: &str, kind: Kind) -> Column {
    Column {
        name: name.into(),
        type_name: type_name.into(),
        type_modifier: -1,
        kind,
        initial: Initial::Null,
        number: None,
    }
}

/// Eight columns, as a table of users has them.
pub(crate) fn users() -> Arc<Relation> {
    let columns = vec![
        column("id", "int8", Kind::Int),
        column("active", "bool", Kind::Boolean),
        column("name", "text", Kind::Text),
        column("email", "text", Kind::Text),
        column("phone", "varchar", Kind::Text),
        column("balance", "numeric", Kind::Decimal),
        column("created", "timestamptz", Kind::TimestampTz),
        column("notes", "text", Kind::Text),
    ];
    let table = TableName { namespace: "public".into(), name: "users".into() };
    Arc::new(Relation::new(RelationId(16_384), table, columns, vec![0]))
}

pub(crate) fn user(id: i64) -> Row {
    Row::new(vec![
        Value::Int(id),
        Value::Boolean(id % 4 != 0),
        Value::text("Ada Lovelace"),
        Value::text(format!("ada.{id}@example.org").as_str()),
        Value::text("+44 20 7946 0958"),
        Value::Decimal(Text::from("1234.50")),
        Value::TimestampTz(1_700_000_000_000_000 + id),
        if id % 3 == 0 { Value::Null } else { Value::text("wrote the first program") },
    ])
}

pub(crate) fn event(ordinal: u32, change: Change) -> Event {
    Event {
        position: Position { commit: Lsn::new(0x16_B374_D848), ordinal },
        commit_time_micros: 1_764_460_800_000_000,
        transaction: Some(Xid(771).into()),
        redelivery: false,
        change,
    }
}

pub(crate) fn inserts(relation: &Arc<Relation>, count: u32) -> Vec<Event> {
    let insert = |ordinal: u32| {
        let after = user(i64::from(ordinal));
        event(ordinal, Change::Insert { relation: Arc::clone(relation), after, moved_from: None })
    };
    (1..=count).map(insert).collect()
}

pub(crate) fn refs(events: &[Event]) -> Vec<&Event> {
    events.iter().collect()
}
