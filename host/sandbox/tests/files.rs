//! What lies on a disk: files of components, and what is kept of compiled ones.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dovetail_sandbox::{ComponentLimits, EngineOptions, Grants, Refusal, Sandbox};
use support::{guest, inserts, limits, options, refs, sandbox, users};

fn refuse(bytes: &[u8]) -> String {
    sandbox()
        .load(bytes, limits(), &Grants::all_rows(), "")
        .expect_err("must be refused")
        .to_string()
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
fn a_component_over_the_size_limit_is_refused_unread() {
    let component = ComponentLimits { bytes: 1_000, ..ComponentLimits::usual() };
    let options = EngineOptions { component, ..options(None) };
    let small = Sandbox::new(options).expect("valid");
    let refused = small.load(&guest("identity-packed"), limits(), &Grants::all_rows(), "");
    assert!(matches!(refused, Err(Refusal::TooBig { limit: 1_000, .. })));
}

#[test]
fn a_missing_file_is_named() {
    let path = Path::new("/nowhere/plugin.wasm");
    let refused =
        sandbox().load_file(path, limits(), &Grants::all_rows(), "").expect_err("nothing there");
    assert!(refused.to_string().contains("/nowhere/plugin.wasm"), "{refused}");
}

#[test]
fn a_sparse_file_of_gigabytes_is_refused_unread() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    file.as_file().set_len(4 << 30).expect("costs no space");
    let refused =
        sandbox().load_file(file.path(), limits(), &Grants::all_rows(), "").expect_err("too big");
    assert!(matches!(refused, Refusal::TooBig { found: 0x1_0000_0000, .. }), "{refused}");
}

/// Opening a pipe would wait for its writer, and a device might never end.
#[test]
fn what_is_no_file_is_not_opened() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let pipe = directory.path().join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    for path in [directory.path(), &pipe, Path::new("/dev/zero")] {
        let refused =
            sandbox().load_file(path, limits(), &Grants::all_rows(), "").expect_err("no file");
        assert!(refused.to_string().ends_with("is not a file"), "{refused}");
    }
}

#[test]
fn what_is_granted_to_one_component_is_not_granted_to_another() {
    let digest = |name| {
        let plugin = sandbox().load(&guest(name), limits(), &Grants::all_rows(), "");
        plugin.expect("loads").digest().to_owned()
    };
    let grants = Grants { digest: Some(digest("identity-packed")), ..Grants::all_rows() };
    let load = |name| sandbox().load(&guest(name), limits(), &grants, "");
    load("identity-packed").expect("is the one");
    let refused = load("identity-typed").expect_err("is another").to_string();
    let found = format!("has the digest sha256:{}, and", digest("identity-typed"));
    assert!(refused.starts_with(&found), "{refused}");
}

#[test]
fn a_damaged_entry_of_the_cache_is_compiled_again() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let cache = directory.path().join("compiled");
    let component = guest("identity-packed");
    let load = || {
        let sandbox = Sandbox::new(options(Some(cache.clone()))).expect("directory of our own");
        let plugin = sandbox.load(&component, limits(), &Grants::all_rows(), "").expect("loads");
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
    assert!(Sandbox::new(options(Some(file.path().to_owned()))).is_err());
}
