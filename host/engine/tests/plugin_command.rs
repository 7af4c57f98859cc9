//! `dovetail plugin inspect`: what it says of a plugin, and of a file that is none; and that `run` says the same.

#[expect(dead_code, reason = "hostile guests use the rest")]
#[path = "../../sandbox/tests/hostile/guest.rs"]
mod guest;

use std::path::Path;
use std::process::{Command, Output};

fn dovetail(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .output()
        .expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("ended by itself"), text(stdout), text(stderr))
}

fn directory(component: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("plugin.wasm"), component).expect("written");
    directory
}

fn inspect(component: &[u8]) -> (i32, String, String) {
    dovetail(directory(component).path(), &["plugin", "inspect", "plugin.wasm"])
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the test's own text")
}

/// Each with what its sentence says.
fn wrong_files() -> Vec<(Vec<u8>, &'static str)> {
    let mut truncated = guest::honest().build();
    truncated.truncate(truncated.len() / 2);
    let sockets = guest::honest()
        .import("wasi:sockets/instance-network@0.2.6", "instance-network", "(result i32)")
        .init("(drop (call $instance-network))");
    let version =
        r#"(component (instance $i) (export "dovetail:plugin/packed@0.2.0" (instance $i)))"#;
    vec![
        (wat("(module)"), "a core module, not a component: build for `wasm32-wasip2`"),
        (b"fn main() {}\n".to_vec(), "it is text: compile it first"),
        (Vec::new(), "it is empty"),
        (truncated, "not a valid component (cut off, perhaps"),
        (wat("(component)"), "build it against the world `transform` or `transform-packed`"),
        (
            wat(version),
            "built against `dovetail:plugin/packed@0.2.0`; this host serves `dovetail:plugin@0.1.0`",
        ),
        (
            sockets.build(),
            "imports `wasi:sockets/instance-network@0.2.6`, which plugins are not given",
        ),
    ]
}

#[test]
fn a_plugin_is_described_with_what_it_needs() {
    let component = guest::honest()
        .import("wasi:cli/environment@0.2.6", "get-arguments", "(param i32)")
        .init("(call $get-arguments (i32.const 0x400))")
        .build();
    let (code, stdout, stderr) = inspect(&component);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let size = format!("size        {} bytes\n", component.len());
    let operations = "read, insert, update, delete, truncate, message";
    for line in [
        "file        plugin.wasm\n",
        &size,
        "digest      sha256:",
        "world       transform-packed of dovetail:plugin@0.1.0\n",
        "wasi:cli/environment@0.2.6 (empty: there is nothing behind it)\n",
        "plugin      hostile 1\n",
        &format!("declares    {operations} of [\"*\"]: all columns\n"),
        &format!(
            "                - {{ tables: [\"*\"], columns: all, operations: [{operations}] }}\n"
        ),
    ] {
        assert!(stdout.contains(line), "{line}{stdout}");
    }
}

#[test]
fn a_wrong_file_has_one_sentence_that_says_what_to_do() {
    for (component, sentence) in wrong_files() {
        let (code, _, stderr) = inspect(&component);
        assert_eq!(code, 65, "{stderr}");
        assert!(stderr.starts_with("dovetail: plugin.wasm is refused: "), "{stderr}");
        assert!(stderr.contains(sentence), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let (code, _, stderr) = dovetail(directory(b"").path(), &["plugin", "inspect", "no.wasm"]);
    assert_eq!(code, 65);
    assert_eq!(
        stderr,
        "dovetail: no.wasm is refused: read no.wasm: No such file or directory (os error 2)\n"
    );
}

#[test]
fn what_can_be_said_of_a_refused_file_is_said() {
    let (component, _) = wrong_files().pop().expect("the one that imports sockets");
    let (code, stdout, _) = inspect(&component);
    assert_eq!(code, 65);
    let line = "wasi:sockets/instance-network@0.2.6 (unknown: plugins are not given it)\n";
    assert!(stdout.contains(line), "{stdout}");
    assert!(!stdout.contains("declares"), "{stdout}");
}

#[test]
fn a_pipeline_refuses_the_same_files_with_the_same_sentences() {
    for (component, sentence) in wrong_files() {
        let stderr = run(&component, "all");
        assert!(stderr.contains(sentence), "{stderr}");
    }
}

#[test]
fn a_pipeline_refuses_a_plugin_that_asks_for_more_than_it_is_granted() {
    let component = guest::honest().build();
    let stderr = run(&component, "[insert]");
    let lacking =
        "asks for what it is not granted (messages; read, update, delete, truncate of `*`)";
    assert!(stderr.contains(lacking), "{stderr}");
}

/// The error of a pipeline with this plugin, whose source nobody has to be at.
fn run(component: &[u8], operations: &str) -> String {
    let directory = directory(component);
    let configuration = format!(
        "name: shop
source: {{ postgres: {{ url: 'postgresql://me@127.0.0.1:1/shop', tables: [a] }} }}
plugins:
  - name: tried
    file: plugin.wasm
    grants: {{ rows: [{{ tables: ['public.a'], columns: all, operations: {operations} }}] }}
outlets: {{ none: {{ discard: {{}} }} }}
state: state
"
    );
    std::fs::write(directory.path().join("dovetail.yaml"), configuration).expect("written");
    let (code, _, stderr) = dovetail(directory.path(), &["run"]);
    assert_eq!(code, 70, "{stderr}");
    assert!(stderr.contains("plugin tried (plugin.wasm) is refused: "), "{stderr}");
    stderr
}
