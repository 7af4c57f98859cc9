//! The program from outside: what it prints where, and with what code it ends.

use std::path::Path;
use std::process::{Command, Output};

use dovetail::origin::{Kind, Origin, Source};
use dovetail::state::Store;
use dovetail_core::position::Lsn;
use dovetail_core::seam::Step;

fn dovetail(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("SECRET", "S3cr3t")
        .output()
        .expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("ended by itself"), text(stdout), text(stderr))
}

fn directory(configuration: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dovetail.yaml");
    std::fs::write(file, configuration).expect("written");
    directory
}

const SOUND: &str = "\
name: shop
source: { postgres: { url: 'postgresql://me:${SECRET}@localhost/shop', tables: [a] } }
outlets: { none: { discard: {} } }
state: state
";

#[test]
fn help_and_version_are_no_failures() {
    let directory = directory(SOUND);
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"], &["status", "-h"]] {
        let (code, stdout, stderr) = dovetail(directory.path(), arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(stdout.contains("dovetail"), "{stdout}");
    }
}

#[test]
fn wrong_usage_has_a_code_of_its_own() {
    let directory = directory(SOUND);
    for arguments in [
        &[][..],
        &["fly"],
        &["run", "--until-the-end"],
        &["check", "a.yaml", "--config", "b.yaml"],
        &["status", "--format", "xml"],
        &["status", "--log-level", "dovetail=loud"],
    ] {
        let (code, stdout, stderr) = dovetail(directory.path(), arguments);
        assert_eq!((code, stdout.as_str()), (64, ""), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn every_command_refuses_a_wrong_configuration() {
    let directory = directory(&SOUND.replace("tables: [a]", "tables: [A, B]"));
    for command in ["check", "run", "status"] {
        let (code, stdout, stderr) = dovetail(directory.path(), &[command]);
        assert_eq!((code, stdout.as_str()), (65, ""), "{command}: {stderr}");
        assert!(stderr.starts_with("dovetail: 2 problems in the configuration:\n"), "{stderr}");
        assert!(
            stderr.contains("\ndovetail.yaml:2:81: source.postgres.tables[0]: `A` "),
            "{stderr}"
        );
    }
}

#[test]
fn a_missing_file_is_named_with_its_cause() {
    let directory = directory(SOUND);
    for arguments in
        [&["run", "no.yaml"][..], &["run", "--config", "no.yaml"], &["run", "-c", "no.yaml"]]
    {
        let (code, _, stderr) = dovetail(directory.path(), arguments);
        assert_eq!(code, 65, "{stderr}");
        assert_eq!(
            stderr,
            "dovetail: read the configuration no.yaml: No such file or directory (os error 2)\n"
        );
    }
}

#[test]
fn status_of_a_pipeline_that_never_ran_is_all_due() {
    let directory = directory(SOUND);
    let (code, stdout, stderr) = dovetail(directory.path(), &["status", "--format", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let status: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(status["pipeline"], "shop");
    assert_eq!(status["tables"][0]["scan"], "due");
    assert!(!directory.path().join("state").exists(), "status makes no state");
}

#[tokio::test]
async fn status_reads_the_state_while_its_writer_holds_it() {
    let directory = directory(SOUND);
    let source = Source { kind: Kind::Postgres, system: "7000".into(), database: "shop".into() };
    let origin = Origin { pipeline: "shop".into(), source };
    let mut store = Store::open(&directory.path().join("state"), &origin).await.expect("opened");
    for step in [Step::Intend, Step::Pin(Lsn::new(0x16_B374_D848))] {
        store.save(&step).await.expect("saved");
    }
    let (code, stdout, stderr) = dovetail(directory.path(), &["status"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("source      database shop of system 7000\n"), "{stdout}");
    assert!(stdout.contains("pin         16/B374D848\n"), "{stdout}");

    std::fs::write(directory.path().join("dovetail.yaml"), SOUND.replace("shop\n", "other\n"))
        .expect("written");
    let (code, stdout, stderr) = dovetail(directory.path(), &["status"]);
    assert_eq!((code, stdout.as_str()), (70, ""));
    assert_eq!(
        stderr,
        "dovetail: the state in state belongs to pipeline shop. \
         Give each pipeline a state directory of its own\n"
    );
}

#[test]
fn a_failure_is_a_line_of_a_json_log() {
    let directory = directory(SOUND);
    let arguments = ["run", "no.yaml", "--log-format", "json"];
    let (code, stdout, stderr) = dovetail(directory.path(), &arguments);
    assert_eq!((code, stdout.as_str()), (65, ""));
    let line: serde_json::Value = serde_json::from_str(&stderr).expect("one line of JSON");
    assert_eq!(line["level"], "ERROR");
    assert_eq!(line["message"], "stopped");
    assert_eq!(line["exit_code"], 65);
    assert!(line["error"].as_str().expect("a text").contains("no.yaml"), "{line}");
}
