//! Each invariant: the smallest history that breaks it, and the nearest one that does not.
//!
//! All start from one run. Before the pin at 15, transaction 1 inserts a. Then 2 updates a and inserts b, and 3 deletes
//! b. The engine scans a, streams 2 and 3, and saves and acknowledges after each.

use std::collections::BTreeMap;

use dovetail_core::position::{Lsn, Position};

use super::history::{
    AtRest, Delivered, History, Image, Life, Observation, Operation, RowKey, Rows, Transaction,
    Write,
};
use super::{Invariant, judge};

fn row(key: &str) -> RowKey {
    RowKey::new("t", key)
}

fn image(version: u64) -> Image {
    Image::of_version(version)
}

fn commit(id: u64) -> Lsn {
    Lsn::new(id * 10)
}

fn transaction(id: u64, writes: Vec<Write>) -> Transaction {
    Transaction { id, commit: Some(commit(id)), writes }
}

fn read(key: &str, version: u64) -> Observation {
    Observation::Delivered(Delivered {
        position: Position { commit: Lsn::new(15), ordinal: 0 },
        transaction: None,
        row: row(key),
        operation: Operation::Read,
        image: Some(image(version)),
        redelivery: false,
    })
}

fn change(id: u64, operation: Operation, key: &str, version: Option<u64>) -> Observation {
    Observation::Delivered(Delivered {
        position: Position { commit: commit(id), ordinal: 1 },
        transaction: Some(id),
        row: row(key),
        operation,
        image: version.map(image),
        redelivery: false,
    })
}

fn again(mut observation: Observation) -> Observation {
    match &mut observation {
        Observation::Delivered(delivered) => delivered.redelivery = true,
        Observation::Truncated { redelivery, .. } => *redelivery = true,
        _ => {}
    }
    observation
}

fn truncated(transaction: Option<u64>) -> Observation {
    Observation::Truncated { table: "t".into(), transaction, redelivery: false }
}

fn update_a() -> Observation {
    change(2, Operation::Update, "a", Some(2))
}

fn insert_b() -> Observation {
    change(2, Operation::Insert, "b", Some(1))
}

fn delete_b() -> Observation {
    change(3, Operation::Delete, "b", None)
}

fn saved(lsn: u64) -> Observation {
    Observation::Saved(Lsn::new(lsn))
}

fn spooled(lsn: u64) -> Observation {
    Observation::Spooled(Lsn::new(lsn))
}

fn acknowledged(lsn: u64) -> Observation {
    Observation::Acknowledged(Lsn::new(lsn))
}

fn life(resumed_from: Option<u64>, observations: Vec<Observation>) -> Life {
    Life { resumed_from: resumed_from.map(Lsn::new), observations }
}

fn run(lives: Vec<Life>) -> History {
    History {
        transactions: vec![
            transaction(1, vec![Write::Insert(row("a"), image(1))]),
            transaction(
                2,
                vec![Write::Update(row("a"), image(2)), Write::Insert(row("b"), image(1))],
            ),
            transaction(3, vec![Write::Delete(row("b"))]),
        ],
        rolled_back: vec![(row("a"), image(99))],
        pin: Some(Lsn::new(15)),
        added: BTreeMap::new(),
        lives,
        at_rest: None,
    }
}

fn at_rest(mut history: History) -> History {
    let source = [(row("a"), image(2))].into_iter().collect();
    history.at_rest = Some(AtRest { source: Some(source), outlet: None });
    history
}

fn one_life(observations: Vec<Observation>) -> History {
    run(vec![life(None, observations)])
}

#[track_caller]
fn assert_clean(history: &History) {
    let found: Vec<_> = judge(history).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[track_caller]
fn assert_breaks(invariant: Invariant, history: &History) {
    let found = judge(history);
    let text: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.first().map(|it| it.invariant), Some(invariant), "{text:#?}");
}

fn everything() -> Vec<Observation> {
    vec![
        read("a", 1),
        update_a(),
        insert_b(),
        saved(21),
        acknowledged(21),
        delete_b(),
        saved(31),
        acknowledged(31),
    ]
}

#[test]
fn a_run_as_it_should_be_breaks_nothing() {
    assert_clean(&at_rest(one_life(everything())));
}

#[test]
fn i1_a_change_that_never_comes_is_lost() {
    let lost = vec![read("a", 1), insert_b(), delete_b()];
    assert_breaks(Invariant::NoLoss, &at_rest(one_life(lost)));
    let in_the_scan = vec![read("a", 2), insert_b(), delete_b()];
    assert_clean(&at_rest(one_life(in_the_scan)));
}

#[test]
fn i1_a_key_that_no_scan_shows_may_have_come_and_gone_before_it() {
    let before_the_view = vec![read("a", 2)];
    assert_clean(&at_rest(one_life(before_the_view)));
    let inserted_and_never_deleted = vec![read("a", 2), insert_b()];
    assert_breaks(Invariant::NoLoss, &at_rest(one_life(inserted_and_never_deleted)));
}

#[test]
fn i2_a_change_that_the_scan_held_goes_back() {
    let twice = vec![read("a", 2), update_a()];
    assert_breaks(Invariant::NoGoingBack, &one_life(twice));
    let once = vec![read("a", 1), update_a()];
    assert_clean(&one_life(once));
}

#[test]
fn i2_a_scanned_row_older_than_what_was_delivered_goes_back() {
    let older = vec![update_a(), truncated(None), again(read("a", 1))];
    assert_breaks(Invariant::NoGoingBack, &one_life(older));
    let newer = vec![update_a(), truncated(None), again(read("a", 2))];
    assert_clean(&one_life(newer));
}

#[test]
fn i2_a_row_is_scanned_once_unless_its_table_was_emptied() {
    assert_breaks(Invariant::NoGoingBack, &one_life(vec![read("a", 1), read("a", 1)]));
    assert_clean(&one_life(vec![read("a", 1), truncated(None), read("a", 1)]));
}

#[test]
fn i2_only_a_flagged_suffix_since_the_checkpoint_may_repeat() {
    let first = || life(None, vec![read("a", 1), update_a(), insert_b(), saved(21), delete_b()]);
    let unflagged = run(vec![first(), life(Some(21), vec![delete_b()])]);
    assert_breaks(Invariant::NoGoingBack, &unflagged);
    let flagged = run(vec![first(), life(Some(21), vec![again(delete_b())])]);
    assert_clean(&flagged);
    let before_the_checkpoint = run(vec![first(), life(Some(21), vec![again(update_a())])]);
    assert_breaks(Invariant::NoGoingBack, &before_the_checkpoint);
}

#[test]
fn i2_nothing_repeats_within_one_life() {
    let twice = vec![read("a", 1), update_a(), insert_b(), again(update_a())];
    assert_breaks(Invariant::NoGoingBack, &one_life(twice));
    let reordered = vec![read("a", 2), delete_b(), insert_b()];
    assert_breaks(Invariant::NoGoingBack, &one_life(reordered));
}

#[test]
fn i3_what_was_never_committed_is_an_invention() {
    let rolled_back = change(2, Operation::Update, "a", Some(99));
    assert_breaks(Invariant::NoInvention, &one_life(vec![rolled_back]));
    assert_breaks(Invariant::NoInvention, &one_life(vec![read("a", 99)]));
    let other_operation = change(2, Operation::Insert, "a", Some(2));
    assert_breaks(Invariant::NoInvention, &one_life(vec![other_operation]));
    let other_transaction = change(3, Operation::Update, "a", Some(2));
    assert_breaks(Invariant::NoInvention, &one_life(vec![other_transaction]));
    assert_breaks(Invariant::NoInvention, &one_life(vec![truncated(Some(3))]));
    let mut elsewhere = update_a();
    if let Observation::Delivered(delivered) = &mut elsewhere {
        delivered.position.commit = commit(3);
    }
    assert_breaks(Invariant::NoInvention, &one_life(vec![elsewhere]));
    assert_clean(&one_life(vec![update_a()]));
}

#[test]
fn i4_the_outlet_ends_as_the_source() {
    let mut history = at_rest(one_life(everything()));
    let rest = history.at_rest.as_mut().unwrap();
    rest.outlet = Some([(row("a"), image(2)), (row("b"), image(1))].into_iter().collect());
    assert_breaks(Invariant::Convergence, &history);
    let rest = history.at_rest.as_mut().unwrap();
    rest.outlet = Some([(row("a"), image(2))].into_iter().collect());
    assert_clean(&history);
}

#[test]
fn i4_sees_the_ghost_that_a_scan_left() {
    let ghost = vec![read("a", 1), read("b", 1), saved(15)];
    let with_barrier = vec![read("a", 1), read("b", 1), truncated(None), again(read("a", 2))];
    let mut history = at_rest(one_life(ghost));
    history.transactions.truncate(2);
    history.transactions[1].writes = vec![Write::Insert(row("b"), image(1))];
    history.at_rest.as_mut().unwrap().source = Some([(row("a"), image(1))].into_iter().collect());
    history.transactions.push(transaction(3, vec![Write::Delete(row("b"))]));
    assert!(judge(&history).iter().any(|it| it.invariant == Invariant::Convergence));
    assert_clean(&at_rest(one_life(with_barrier)));
}

#[test]
fn i5_no_checkpoint_splits_a_transaction() {
    assert_breaks(Invariant::Atomicity, &one_life(vec![read("a", 1), update_a(), saved(21)]));
    assert_clean(&one_life(vec![read("a", 1), update_a(), saved(20)]));
}

#[test]
fn i5_a_transactional_outlet_shows_whole_transactions() {
    let half = vec![read("a", 1), update_a(), Observation::Shown];
    assert_breaks(Invariant::Atomicity, &one_life(half));
    let whole = vec![read("a", 1), update_a(), insert_b(), Observation::Shown];
    assert_clean(&one_life(whole));
}

#[test]
fn i6_saved_is_what_was_delivered() {
    assert_breaks(Invariant::DurabilityOrder, &one_life(vec![read("a", 1), saved(21)]));
    let covered_by_the_scan = vec![read("a", 2), insert_b(), saved(21)];
    assert_clean(&one_life(covered_by_the_scan));
}

#[test]
fn i6_acknowledged_is_what_was_saved() {
    let ahead = vec![read("a", 1), update_a(), insert_b(), acknowledged(21), saved(21)];
    assert_breaks(Invariant::DurabilityOrder, &one_life(ahead));
    let behind = vec![read("a", 1), update_a(), insert_b(), saved(21), acknowledged(20)];
    assert_clean(&one_life(behind));
}

#[test]
fn i6_where_there_is_a_spool_acknowledged_is_what_it_holds() {
    let ahead = vec![spooled(15), acknowledged(21), spooled(21)];
    assert_breaks(Invariant::DurabilityOrder, &one_life(ahead));
    let saved_is_not_enough =
        vec![spooled(15), read("a", 1), update_a(), insert_b(), saved(21), acknowledged(21)];
    assert_breaks(Invariant::DurabilityOrder, &one_life(saved_is_not_enough));
    let before_anything_is_saved = vec![spooled(15), spooled(31), acknowledged(31), read("a", 1)];
    assert_clean(&one_life(before_anything_is_saved));
}

#[test]
fn i6_neither_falls_not_even_over_a_crash() {
    let first =
        || life(None, vec![read("a", 1), update_a(), insert_b(), saved(21), acknowledged(21)]);
    let fallen = run(vec![first(), life(Some(21), vec![saved(16)])]);
    assert_breaks(Invariant::DurabilityOrder, &fallen);
    let taken_back = run(vec![first(), life(Some(21), vec![acknowledged(16)])]);
    assert_breaks(Invariant::DurabilityOrder, &taken_back);
    assert_clean(&run(vec![first(), life(Some(21), vec![saved(21), acknowledged(21)])]));
}

#[test]
fn i7_nothing_follows_a_refusal_or_the_loss_of_the_log() {
    let after = vec![read("a", 1), Observation::Refused, update_a()];
    assert_breaks(Invariant::HonestStop, &one_life(after));
    assert_clean(&one_life(vec![read("a", 1), update_a(), Observation::Refused]));
    let lost = || life(None, vec![read("a", 1), Observation::LogLost]);
    let went_on = run(vec![lost(), life(Some(15), vec![delete_b()])]);
    assert_breaks(Invariant::HonestStop, &went_on);
    assert_clean(&run(vec![lost(), life(Some(15), vec![Observation::Refused])]));
}

#[test]
fn a_moved_key_and_a_truncate_are_followed() {
    let mut history = one_life(vec![
        read("a", 1),
        change(2, Operation::Delete, "a", None),
        change(2, Operation::Insert, "c", Some(1)),
        saved(21),
        truncated(Some(3)),
        saved(31),
    ]);
    let moved = Write::Move { from: row("a"), to: row("c"), image: image(1) };
    history.transactions[1].writes = vec![moved];
    history.transactions[2].writes = vec![Write::Truncate("t".into())];
    history.at_rest = Some(AtRest { source: Some(Rows::new()), outlet: None });
    assert_clean(&history);
    history.lives[0].observations.remove(4);
    assert_breaks(Invariant::DurabilityOrder, &history);
    history.lives[0].observations.remove(4);
    assert_breaks(Invariant::NoLoss, &history);
}

#[test]
fn without_commit_positions_the_keys_alone_are_judged() {
    let mut history = at_rest(one_life(everything()));
    for transaction in &mut history.transactions {
        transaction.commit = None;
    }
    history.pin = None;
    assert_clean(&history);
    history.lives[0].observations.remove(1);
    assert!(judge(&history).iter().any(|it| it.invariant == Invariant::NoLoss));
}
