//! What is not a plugin is refused, in a sentence that its author can act on.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dovetail_sandbox::{EngineOptions, Limits, Refusal, Sandbox};
use support::{guest, inserts, limits, refs, sandbox, try_load, users};

fn refuse(bytes: &[u8]) -> String {
    refuse_with(bytes, limits(), "")
}

fn refuse_with(bytes: &[u8], limits: Limits, config: &str) -> String {
    let refused = sandbox().load(bytes, limits, config);
    refused.map(|plugin| plugin.digest().to_owned()).expect_err("must be refused").to_string()
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the test's own text")
}

#[test]
fn what_is_not_wasm_is_refused_by_what_it_is() {
    assert!(refuse(b"").contains("it is empty"));
    assert!(refuse(b"(component)").contains("it is text: compile it first"));
    assert!(refuse(&[0x7F, b'E', b'L', b'F', 0xFF]).contains("magic number"));
}

#[test]
fn a_core_module_is_refused_with_what_to_do() {
    let reason = refuse(&wat("(module)"));
    assert!(reason.contains("a core module, not a component"), "{reason}");
    assert!(reason.contains("wasm32-wasip2"), "{reason}");
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let whole = guest("identity-packed");
    for length in [4, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1] {
        let reason = refuse(&whole[..length]);
        assert!(reason.len() < 500, "{length}: {reason}");
        assert!(!reason.contains('\n'), "{length}: {reason}");
    }
}

#[test]
fn a_component_of_another_world_is_refused() {
    assert!(refuse(&wat("(component)")).contains("`transform` or `transform-packed`"));
}

#[test]
fn a_component_of_another_version_is_refused_by_that_version() {
    let export =
        r#"(component (instance $i) (export "dovetail:plugin/packed@0.9.0" (instance $i)))"#;
    let reason = refuse(&wat(export));
    assert!(reason.contains("dovetail:plugin/packed@0.9.0"), "{reason}");
    assert!(reason.contains("serves `dovetail:plugin@0.1.0`"), "{reason}");
    let import = r#"(component (import "dovetail:plugin/logging@0.9.0" (instance)))"#;
    assert!(refuse(&wat(import)).contains("dovetail:plugin/logging@0.9.0"));
}

#[test]
fn a_component_that_exports_the_name_without_the_functions_is_refused() {
    let export =
        r#"(component (instance $i) (export "dovetail:plugin/packed@0.1.0" (instance $i)))"#;
    assert!(refuse(&wat(export)).contains("lifecycle"));
}

#[test]
fn an_import_that_is_not_given_is_named() {
    for name in ["wasi:sockets/tcp@0.2.0", "wasi:http/outgoing-handler@0.2.0", "acme:db/query"] {
        let reason = refuse(&wat(&format!(r#"(component (import "{name}" (instance)))"#)));
        assert!(reason.contains(name), "{reason}");
    }
}

#[test]
fn features_that_are_off_are_refused() {
    for module in [
        "(memory i64 1)",
        "(memory 1) (memory 1)",
        "(memory 1 1 shared)",
        "(type (struct (field i32)))",
    ] {
        let reason = refuse(&wat(&format!("(component (core module {module}))")));
        assert!(reason.contains("not a valid component"), "{reason}");
    }
}

#[test]
fn a_component_over_the_size_limit_is_refused_unread() {
    let options = EngineOptions { cache_dir: None, component_bytes: 1_000 };
    let small = Sandbox::new(options).expect("valid");
    let refused = small.load(&guest("identity-packed"), limits(), "");
    assert!(matches!(refused, Err(Refusal::TooBig { limit: 1_000, .. })));
}

#[test]
fn a_component_that_cannot_start_within_its_memory_is_refused() {
    let limits = Limits { memory_bytes: 64 << 10, ..limits() };
    let refused = try_load("identity-packed", limits, "").expect_err("needs a megabyte");
    let Refusal::Describe(error) = refused else { panic!("{refused}") };
    assert!(
        error.to_string().contains("(memory)") || error.to_string().contains(": memory"),
        "{error}"
    );
}

#[test]
fn a_component_of_more_instances_than_allowed_is_refused() {
    let limits = Limits { instances: 1, ..limits() };
    assert!(try_load("identity-packed", limits, "").is_err());
}

#[test]
fn a_plugin_that_refuses_its_configuration_is_quoted() {
    let refused = try_load("misbehaving", limits(), "refuse").expect_err("refuses");
    assert!(refused.to_string().contains("no such setting"), "{refused}");
}

#[test]
fn a_name_that_could_forge_a_log_line_is_refused() {
    let refused = try_load("misbehaving", limits(), "forge a name").expect_err("two lines");
    assert!(matches!(refused, Refusal::Descriptor(_)), "{refused}");
}

#[test]
fn a_missing_file_is_named() {
    let path = Path::new("/nowhere/plugin.wasm");
    let refused = sandbox().load_file(path, limits(), "").expect_err("nothing there");
    assert!(refused.to_string().contains("/nowhere/plugin.wasm"), "{refused}");
}

#[test]
fn a_damaged_entry_of_the_cache_is_compiled_again() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let cache = directory.path().join("compiled");
    let component = guest("identity-packed");
    let load = || {
        let options = EngineOptions { cache_dir: Some(cache.clone()), component_bytes: 1 << 20 };
        let sandbox = Sandbox::new(options).expect("directory of our own");
        let plugin = sandbox.load(&component, limits(), "").expect("loads");
        let mut instance = plugin.instantiate(0, 1).expect("starts");
        let events = inserts(&users(), 3);
        assert_eq!(instance.process(1, &refs(&events)).expect("works").len(), 3);
    };
    let entry = || {
        let mut entries = fs::read_dir(&cache).expect("was made");
        let entry = entries.next().expect("one component").expect("readable").path();
        assert!(entries.next().is_none(), "one component, one entry");
        entry
    };

    load();
    let mode = fs::metadata(&cache).expect("was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let whole = fs::read(entry()).expect("was written");

    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [damaged.as_slice(), &whole[..middle], b"", &[0; 4_096]] {
        fs::write(entry(), bytes).expect("ours");
        load();
        assert!(fs::read(entry()).expect("written again") == whole);
    }
    load();
}

#[test]
fn a_cache_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let options =
        EngineOptions { cache_dir: Some(file.path().to_owned()), component_bytes: 1 << 20 };
    assert!(Sandbox::new(options).is_err());
}
