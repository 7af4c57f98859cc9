//! The ready-made plugins, as components.

mod support;

use std::sync::Arc;

use dovetail_core::change::{Change, Operation};
use dovetail_core::outcome::{Cell, Outcome};
use dovetail_core::value::{Row, Value};
use dovetail_sandbox::{CallError, Grants, Plugin, Refusal};
use support::{event, guest, inserts, limits, ready_made, refs, sandbox, user, users};

fn load_mask(config: &str) -> Result<Plugin, Refusal> {
    sandbox().load(&ready_made("mask"), limits(), &Grants::all_rows(), config)
}

#[test]
fn mask_patches_the_columns_that_it_names_and_sees_no_others() {
    let config = r#"{"columns": {
        "public.users.email": {"hash": {"salt": "pepper-and-salt"}},
        "*.phone": {"truncate": 3},
        "public.users.notes": {"redact": null}
    }}"#;
    let plugin = load_mask(config).expect("valid");
    let view = plugin.descriptor().view(&users()).expect("names the table");
    assert_eq!(view.projection.columns, [3, 4, 7]);
    assert!(!view.operations.contains(Operation::Delete));

    let mut instance = plugin.instantiate(0, 1).expect("starts");
    let events = inserts(&users(), 3);
    let outcomes = instance.process(1, &refs(&events)).expect("works");
    let [Outcome::Patch(first), _, Outcome::Patch(third)] = outcomes.as_slice() else {
        panic!("{outcomes:?}")
    };
    let [email, phone, notes] = first.as_slice() else { panic!("{first:?}") };
    // printf 'pepper-and-saltada.1@example.org' | sha256sum
    let hash = "98eea15b6f4bdf04527544315c5df291fabff196f19a90a679807f2434b62056";
    assert_eq!(*email, Cell { column: 3, value: Value::text(hash) });
    assert_eq!(*phone, Cell { column: 4, value: Value::text("+44") });
    assert_eq!(*notes, Cell { column: 7, value: Value::Null });
    // The third row's notes are null already.
    assert_eq!(third.len(), 2);
}

/// The twin serves as a measure of what the typed form costs, so it has to do the same work.
#[test]
fn mask_and_its_typed_twin_have_one_meaning() {
    let twin = guest("mask-typed");
    for config in [
        r#"{"columns": {"public.users.email": {"hash": {"salt": "pepper-and-salt"}}, "*.phone": {"truncate": 3}}}"#,
        r#"{"columns": {"public.users.email": {"redact": "hidden"}, "public.users.notes": {"redact": null}}}"#,
        r#"{"columns": {"public.users.id": {"redact": null}}}"#,
        r#"{"columns": {"public.users.balance": {"truncate": 1}}}"#,
    ] {
        let events = inserts(&users(), 20);
        let outcomes =
            [load_mask(config), sandbox().load(&twin, limits(), &Grants::all_rows(), config)].map(
                |plugin| {
                    let mut instance = plugin.expect("valid").instantiate(0, 1).expect("starts");
                    instance.process(1, &refs(&events))
                },
            );
        let [packed, typed] = outcomes;
        assert_eq!(packed, typed, "{config}");
    }
    let refusals = [load_mask("{}"), sandbox().load(&twin, limits(), &Grants::all_rows(), "{}")]
        .map(|refused| refused.expect_err("names no columns").to_string());
    assert_eq!(refusals[0], refusals[1]);
}

#[test]
fn mask_lets_other_tables_and_deletes_by() {
    let config = r#"{"columns": {"public.orders.phone": {"truncate": 3}}}"#;
    let mut instance = load_mask(config).expect("valid").instantiate(0, 1).expect("starts");
    let events = inserts(&users(), 2);
    assert_eq!(instance.process(1, &refs(&events)), Ok(vec![Outcome::Pass, Outcome::Pass]));

    let config = r#"{"columns": {"public.users.phone": {"truncate": 3}}}"#;
    let mut instance = load_mask(config).expect("valid").instantiate(0, 1).expect("starts");
    let relation = users();
    let delete = event(1, Change::Delete { relation, before: user(1), moved: false });
    assert_eq!(instance.process(1, &[&delete]), Ok(vec![Outcome::Pass]));
}

#[test]
fn mask_leaves_what_is_not_there() {
    let config = r#"{"columns": {"*.notes": {"redact": "hidden"}}}"#;
    let mut instance = load_mask(config).expect("valid").instantiate(0, 1).expect("starts");
    let mut values = user(1).into_values();
    values[7] = Value::Unavailable;
    let after = Row::new(values);
    let update = event(1, Change::Update { relation: users(), before: None, after });
    assert_eq!(instance.process(1, &[&update]), Ok(vec![Outcome::Pass]));
}

#[test]
fn mask_refuses_a_column_that_it_cannot_mask_before_its_first_event() {
    for (config, column) in [
        (r#"{"columns": {"public.users.id": {"redact": null}}}"#, "public.users.id"),
        (r#"{"columns": {"public.users.balance": {"truncate": 1}}}"#, "public.users.balance"),
    ] {
        let mut instance = load_mask(config).expect("valid").instantiate(0, 1).expect("starts");
        let events = inserts(&users(), 1);
        match instance.process(1, &refs(&events)) {
            Err(CallError::Fatal(reason)) => assert!(reason.contains(column), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn mask_refuses_a_configuration_that_it_does_not_understand() {
    let refused = load_mask(r#"{"columns": {"public.users.email": "hash"}}"#).expect_err("wrong");
    assert!(matches!(refused, Refusal::Configuration(_)), "{refused}");
}

#[test]
fn a_schema_change_is_announced_before_its_first_event() {
    let config = r#"{"columns": {"*.phone": {"truncate": 3}}}"#;
    let mut instance = load_mask(config).expect("valid").instantiate(0, 1).expect("starts");
    let old = users();
    let mut columns = old.columns.clone();
    columns.remove(2);
    let table = old.table.clone();
    let new = dovetail_core::schema::Relation::new(old.id, table, columns, vec![0]);
    let new = Arc::new(new);
    let mut values = user(2).into_values();
    values.remove(2);
    let after = Row::new(values);
    let change = Change::Insert { relation: Arc::clone(&new), after, moved_from: None };
    let mut events = inserts(&old, 1);
    events.push(event(2, change));
    let outcomes = instance.process(1, &refs(&events)).expect("works");
    let columns: Vec<usize> = outcomes
        .iter()
        .flat_map(|outcome| match outcome {
            Outcome::Patch(cells) => cells.iter().map(|cell| cell.column).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(columns, [4, 3]);
}
