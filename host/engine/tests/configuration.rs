//! What an operator reads when a configuration is wrong, word for word, and that no secret is among it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail::config::{
    Environment, OnFailure, Outlet, Pipeline, Postgres, Secret, SnapshotMode, Source, SslMode,
};
use dovetail_core::change::Operation;
use dovetail_sandbox::{Grant, Grants};
use proptest::prelude::*;

const QUICKSTART: &str = r#"
name: quickstart
source:
  postgres:
    url: "postgresql://dovetail@127.0.0.1:5432/shop"
    password: "${PGPASSWORD}"
    tables: [public.cities, 'public."Weird.Name"']
snapshot: { mode: initial, workers: 3 }
plugins:
  - name: mask
    file: mask.wasm
    config: { columns: { "public.users.email": { hash: { salt: "${SALT}" } } }, keep: [1, 2.5, 010, yes, ~] }
    grants: { rows: [{ tables: [public.users], columns: [email], operations: [read, insert] }], clock: true }
    limits: { memory: 32MiB }
outlets:
  replica: { sqlite: { path: replica.db } }
  out: { stdout: }
deliver: [replica]
state: ./state
"#;

fn environment() -> Environment {
    [("PGPASSWORD", "p: [w"), ("SALT", "5")].into_iter().collect()
}

fn check(text: &str) -> Result<Pipeline, String> {
    Pipeline::check(Path::new("pipes/shop.yaml"), text, &environment())
        .map_err(|problems| problems.to_string())
}

/// The problems of the quickstart with one text replaced.
fn wrong(replaced: &str, with: &str) -> String {
    assert!(QUICKSTART.contains(replaced), "{replaced}");
    check(&QUICKSTART.replacen(replaced, with, 1)).expect_err(with)
}

#[test]
fn a_grant_says_everything_by_name_or_by_the_word_all() {
    for (replaced, with, expected) in [
        (
            ", operations: [read, insert]",
            "",
            "plugins[0].grants.rows[0].operations: missing, expected `all`, or a list",
        ),
        (
            "columns: [email]",
            "columns: email",
            "plugins[0].grants.rows[0].columns: is a single value, expected `all`",
        ),
        ("[read, insert]", "[reed]", "`reed` is not read, insert"),
        ("clock: true", "clock: real", "plugins[0].grants.clock: `real` is not true or false"),
        (
            "clock: true",
            "digest: sha256:abc",
            "plugins[0].grants.digest: `sha256:abc` is not a digest: sha256: and 64",
        ),
        ("clock: true", "sockets: true", "plugins[0].grants.sockets: unknown key"),
    ] {
        let problems = wrong(replaced, with);
        assert!(problems.contains(expected), "{problems}");
    }
    let all = QUICKSTART.replace("[read, insert]", "all").replace("[email]", "all");
    let pipeline = check(&all).expect("sound");
    let Grant { columns, operations, .. } = &pipeline.plugins[0].grants.rows[0];
    assert_eq!((columns, operations), (&None, &Operation::ALL.into_iter().collect()));
}

#[test]
fn a_sound_file_is_read_with_its_defaults() {
    let pipeline = check(QUICKSTART).expect("sound");
    let Source::Postgres(source) = &pipeline.source else { panic!("another source") };
    assert_eq!(source.server.password, Some(Secret::new("p: [w".into())));
    assert_eq!((source.server.tls.mode, source.server.port), (SslMode::Prefer, 5432));
    assert_eq!(source.tables[1].name, "Weird.Name");
    assert_eq!(
        (source.slot.as_str(), source.publication.as_str()),
        ("dovetail_quickstart", "dovetail_quickstart")
    );
    assert_eq!((source.create_publication, source.pin_timeout), (false, Duration::from_secs(60)));
    assert_eq!(pipeline.snapshot.mode, SnapshotMode::Initial);
    assert_eq!((pipeline.snapshot.workers.get(), pipeline.lanes.get()), (3, 2));
    assert_eq!(pipeline.deliver, ["replica"]);
    assert_eq!(pipeline.state, PathBuf::from("pipes/./state"));
    let Outlet::Sqlite { path } = &pipeline.outlets["replica"] else { panic!("a replica") };
    assert_eq!(path, Path::new("pipes/replica.db"));
    let plugin = &pipeline.plugins[0];
    assert_eq!((plugin.memory_bytes_max, plugin.on_failure), (32 << 20, OnFailure::Halt));
    let grant = Grant {
        tables: vec!["public.users".into()],
        columns: Some(vec!["email".into()]),
        operations: [Operation::Read, Operation::Insert].into_iter().collect(),
    };
    assert_eq!(plugin.grants, Grants { rows: vec![grant], clock: true, ..Grants::default() });
    assert_eq!(
        plugin.config,
        r#"{"columns":{"public.users.email":{"hash":{"salt":"5"}}},"keep":[1,2.5,10,"yes",null]}"#
    );
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = r#"
nam: Shop
source:
  postgres:
    host: db.example.org
    database: shop
    sslmode: verify_full
    tabels: [public.cities]
    tables: [public.cities, cities, public.Orders, "*"]
    pin_timeout: 60
snapshot: { mode: initail, workers: 0 }
lanes: many
plugins:
  - file: mask.wasm
    on_failure: stop
    limits: { memory: 64 }
outlets:
  replica: { sqlite: { file: x } }
  copy: { sqlite: { path: y }, file: { path: y } }
deliver: [replica]
state: "${STATE}"
"#;
    let expected = "\
pipes/shop.yaml:2:1: nam: unknown key; did you mean `name`?
pipes/shop.yaml:2:1: name: missing, expected a name for the pipeline: 1 to 40 of a-z, 0-9 and _
pipes/shop.yaml:4:3: source.postgres.user: missing, expected a name, or `url` in place of the single keys
pipes/shop.yaml:7:14: source.postgres.sslmode: `verify_full` is not disable, prefer, require, verify-ca or verify-full; did you mean `verify-full`?
pipes/shop.yaml:8:5: source.postgres.tabels: unknown key; did you mean `tables`?
pipes/shop.yaml:9:29: source.postgres.tables[1]: the table stands twice, first in line 9
pipes/shop.yaml:9:37: source.postgres.tables[2]: `public.Orders` has upper case letters, which SQL folds to lower case; put the name in double quotes if they are meant
pipes/shop.yaml:9:52: source.postgres.tables[3]: `*` names a pattern; name each table by itself
pipes/shop.yaml:10:18: source.postgres.pin_timeout: `60` is not a duration such as 60s, at least 1s
pipes/shop.yaml:11:19: snapshot.mode: `initail` is not initial, always or never; did you mean `initial`?
pipes/shop.yaml:11:37: snapshot.workers: `0` is not a whole number from 1 to 256
pipes/shop.yaml:12:8: lanes: `many` is not a whole number from 1 to 256
pipes/shop.yaml:14:5: plugins[0].name: missing, expected a name of its own
pipes/shop.yaml:15:17: plugins[0].on_failure: `stop` is not halt or skip
pipes/shop.yaml:16:23: plugins[0].limits.memory: `64` is not a size from 64KiB to 4GiB
pipes/shop.yaml:18:14: outlets.replica.sqlite.path: missing, expected a file
pipes/shop.yaml:18:24: outlets.replica.sqlite.file: unknown key; expected path
pipes/shop.yaml:19:3: outlets.copy: needs exactly one kind, expected one of stdout, file, sqlite, postgres, mysql, mariadb or discard
pipes/shop.yaml:21:8: state: the environment variable STATE is not set";
    assert_eq!(check(text).expect_err("wrong in many ways"), expected);
}

#[test]
fn single_problems_say_what_is_expected() {
    for (replaced, with, expected) in [
        (
            "deliver: [replica]\n",
            "",
            "2:1: deliver: missing, because there are several outlets: expected a list of out or replica",
        ),
        (
            "deliver: [replica]",
            "deliver: [replcia]",
            "18:11: deliver[0]: `replcia` is not an outlet; did you mean `replica`?",
        ),
        (
            "deliver: [replica]",
            "deliver: []",
            "18:1: deliver: is empty, expected a list of outlets' names",
        ),
        ("deliver: [replica]", "deliver: [out, out]", "18:16: deliver[1]: stands twice"),
        (
            "sqlite:",
            "sqllite:",
            "16:14: outlets.replica.sqllite: is no kind of outlet, expected one of stdout, file, sqlite, postgres, mysql, mariadb or discard",
        ),
        (
            "{ stdout: }",
            "{ sqlite: { path: replica.db } }",
            "17:3: outlets.out: writes to the same place as `replica`",
        ),
        (
            "{ stdout: }",
            "{ postgres: { url: 'postgresql://x@127.0.0.1/shop' } }",
            "17:3: outlets.out: would write into the captured tables themselves; give a `schema` of its own, or another database",
        ),
        (
            "postgresql://dovetail@127.0.0.1:5432/shop",
            "postgresql://dovetail:x@127.0.0.1/shop",
            "4:3: source.postgres.password: stands in `url` as well; give one of them",
        ),
        (
            "postgresql://dovetail@127.0.0.1:5432/shop",
            "postgresql://dovetail:hunter2@127.0.0.1/shop?x=hunter2",
            "5:10: source.postgres.url: the URL has a parameter that is not understood, expected sslmode or sslrootcert",
        ),
        (
            "postgresql://dovetail@127.0.0.1:5432/shop",
            "127.0.0.1",
            "5:10: source.postgres.url: is not a URL of the form postgresql://USER@HOST:PORT/DATABASE",
        ),
        (
            "postgresql://dovetail@127.0.0.1:5432/shop",
            "postgresql://dovetail@%2Ftmp/shop",
            "5:10: source.postgres: the host is a directory of sockets, expected a host's name or address",
        ),
        (
            "    tables:",
            "    host: db\n    tables:",
            "7:11: source.postgres.host: stands beside `url`, which has it already; give one of them",
        ),
        (
            "    tables:",
            "    sslmode: allow\n    tables:",
            "7:14: source.postgres.sslmode: `allow` is not supported, because it tries without TLS first; expected prefer or require",
        ),
        (
            "\"${PGPASSWORD}\"",
            "[a]",
            "6:5: source.postgres.password: is a list, expected a password",
        ),
        (
            "\"${PGPASSWORD}\"",
            "\"${PGPASWORD}\"",
            "6:15: source.postgres.password: the environment variable PGPASWORD is not set",
        ),
        (
            "\"${PGPASSWORD}\"",
            "\"${PGPASSWORD:-x}\"",
            "6:15: source.postgres.password: a `${` without the form ${NAME}; write `$${` for the two characters themselves",
        ),
        (
            "[1, 2.5,",
            "[1, .nan,",
            "12:91: plugins[0].config.keep[1]: `.nan` has no exact number in JSON; put it in quotes",
        ),
        (
            "  postgres:",
            "  mysql: {}\n  postgres:",
            "3:1: source: names more than one database; a pipeline has one source",
        ),
        (
            "name: quickstart\n",
            "name: quickstart\nname: x\n",
            "3:1: name: the key stands twice, first in line 2",
        ),
        (
            "state: ./state",
            "state: \"\"",
            "19:8: state: is empty, expected a directory for the state, such as ./state",
        ),
    ] {
        assert_eq!(wrong(replaced, with), format!("pipes/shop.yaml:{expected}"), "{with}");
    }
}

#[test]
fn an_empty_or_unreadable_file_is_said_to_be_one() {
    assert_eq!(
        check("# nothing\n").expect_err("empty"),
        "pipes/shop.yaml:1:1: the file is empty, expected a pipeline"
    );
    assert_eq!(
        check("- a\n").expect_err("a list"),
        "pipes/shop.yaml:1:1: is a list, expected a map with the keys name, source, outlets and state"
    );
    let text = check("name: [\n").expect_err("not YAML");
    assert!(text.starts_with("pipes/shop.yaml:1:7: the file is not valid YAML: "), "{text}");
}

#[test]
fn a_whole_url_may_come_from_the_environment() {
    let text = QUICKSTART
        .replace("postgresql://dovetail@127.0.0.1:5432/shop", "${URL}")
        .replace("    password: \"${PGPASSWORD}\"\n", "");
    let url = "postgres://me:a%40b@db.example.org/shop?sslrootcert=ca.pem";
    let environment = [("URL", url), ("SALT", "")].into_iter().collect();
    let pipeline = Pipeline::check(Path::new("shop.yaml"), &text, &environment).expect("sound");
    let Source::Postgres(Postgres { server, .. }) = pipeline.source else {
        panic!("another source")
    };
    assert_eq!(server.password, Some(Secret::new("a@b".into())));
    assert_eq!(server.tls.mode, SslMode::VerifyFull);
    assert_eq!(server.tls.root_certificates, Some(PathBuf::from("ca.pem")));
}

#[test]
fn nothing_that_prints_a_pipeline_prints_its_secrets() {
    let pipeline = check(QUICKSTART).expect("sound");
    let text = format!("{pipeline:?}");
    for secret in ["p: [w", "salt"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn the_configurations_in_the_readmes_are_sound() {
    let variables = ["PGPASSWORD", "SALT", "COPY_PASSWORD", "SHOP_PASSWORD"];
    let environment = variables.map(|name| (name, "x")).into_iter().collect();
    for readme in [include_str!("../README.md"), include_str!("../../../README.md")] {
        let (_, rest) = readme.split_once("```yaml\n").expect("a configuration");
        let (text, _) = rest.split_once("```").expect("its end");
        let checked = Pipeline::check(Path::new("README.md"), text, &environment);
        checked.map_err(|problems| problems.to_string()).expect("sound");
    }
}

/// Values that break a parser, with a middle that no message has by itself.
fn secret() -> impl Strategy<Value = String> {
    ("[\"'\\[{:#@/?%&=$ \\n,.*]{0,6}", "[\"'\\[{:#@/?%&=$ \\n,.*]{0,6}")
        .prop_map(|(before, after)| format!("{before}S3cr3t{after}"))
}

proptest! {
    /// Wherever a variable stands in a file, and whatever it holds, no problem quotes it.
    #[test]
    fn no_problem_holds_a_value_from_the_environment(
        secret in secret(),
        place in 0..VALUES.len(),
        inside in any::<bool>(),
    ) {
        let variable = if inside { "x${SECRET}y" } else { "${SECRET}" };
        let (replaced, with) = VALUES[place];
        let text = QUICKSTART.replacen(replaced, &with.replace("@", variable), 1);
        prop_assert!(text.contains(variable));
        let environment =
            [("PGPASSWORD", "p"), ("SALT", "s"), ("SECRET", secret.as_str())].into_iter().collect();
        if let Err(problems) = Pipeline::check(Path::new("shop.yaml"), &text, &environment) {
            prop_assert!(!problems.to_string().contains("S3cr3t"), "{}", problems);
            prop_assert!(!format!("{problems:?}").contains("S3cr3t"), "{:?}", problems);
        }
    }
}

const VALUES: [(&str, &str); 16] = [
    ("name: quickstart", "name: \"@\""),
    ("\"postgresql://dovetail@127.0.0.1:5432/shop\"", "\"@\""),
    ("postgresql://dovetail@127.0.0.1:5432/shop", "postgresql://u:@/shop"),
    ("127.0.0.1:5432/shop\"", "127.0.0.1:5432/shop?@\""),
    ("127.0.0.1:5432/shop\"", "127.0.0.1:5432/shop?sslmode=@\""),
    ("127.0.0.1:5432", "127.0.0.1:@"),
    ("public.cities", "\"@\""),
    ("mode: initial", "mode: \"@\""),
    ("workers: 3", "workers: \"@\""),
    ("name: mask", "name: \"@\""),
    ("32MiB", "\"@\""),
    ("keep: [1", "keep: [@"),
    ("[replica]", "[\"@\"]"),
    ("path: replica.db", "paht: \"@\""),
    ("    tables:", "    slot: \"@\"\n    tables:"),
    ("state: ./state", "state: { \"a\": \"@\" }"),
];
