//! The machine, one rule at a time. What orders of steps can do is the explorer's part.

mod files;
mod spool;

use std::collections::BTreeSet;

use super::*;
use crate::batch::ChunkId;
use crate::change::Xid;
use crate::fence::{Fence, Mark};
use crate::position::Lsn;
use crate::schema::{RelationId, TableName};

const RELATION: RelationId = RelationId(7);

fn lsn(offset: u64) -> Lsn {
    Lsn::new(offset)
}

fn table(name: &str) -> TableName {
    TableName { namespace: "public".into(), name: name.into() }
}

fn tables(names: &[&str]) -> BTreeSet<TableName> {
    names.iter().map(|name| table(name)).collect()
}

fn start(names: &[&str]) -> Start {
    Start {
        tables: names.iter().map(|name| (table(name), Some(RELATION))).collect(),
        mode: Mode::Initial,
        log: Log::Slot(Slot::Present { confirmed: lsn(50), streamed: false }),
        outlet: Recorded::Unkept,
        spool: Spool::Off,
        log_end: lsn(1000),
    }
}

fn fresh(names: &[&str]) -> Start {
    Start { log: Log::Slot(Slot::Absent), ..start(names) }
}

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

fn due(name: &str, again: bool, first_chunk: u32) -> Due {
    Due { table: table(name), again, first_chunk }
}

fn chunk(number: u32) -> Input {
    Input::ChunkDurable(ChunkId { table: RELATION, number })
}

fn planned(name: &str, count: u32) -> Input {
    Input::ChunksPlanned { table: table(name), relation: RELATION, count }
}

fn scanned(name: &str, fenced: Option<Fenced>) -> Step {
    Step::Scanned { table: table(name), relation: RELATION, fenced }
}

fn save(step: Step) -> Vec<Action> {
    vec![Action::Save(step)]
}

fn pinned() -> Record {
    Record::default().with(&Step::Intend).with(&Step::Pin(lsn(50)))
}

fn attempted() -> Record {
    pinned().with(&Step::Attempt(tables(&["a"])))
}

fn done() -> Record {
    attempted().with(&scanned("a", None))
}

/// With a fence that holds transactions below 20, but not 14.
fn done_later() -> Record {
    let fenced = Fenced { fence: fence("14:20:14"), horizon: lsn(90) };
    attempted().with(&scanned("a", Some(fenced)))
}

fn stream(from: u64, again_before: u64) -> Action {
    Action::Stream { from: lsn(from), again_before: lsn(again_before) }
}

fn settled(xid: u64) -> Input {
    Input::Settled { mark: Mark::Xid(Xid(xid)) }
}

fn settle() -> Action {
    Action::Settle { before: lsn(1000) }
}

fn judge(seam: &Seam, relation: RelationId, xid: u64) -> Verdict {
    seam.judge(relation, &Xid(xid).into(), lsn(70))
}

#[track_caller]
fn refusal(record: Record, start: Start) -> Refusal {
    match Seam::new(record).apply(Input::Start(start)).as_slice() {
        [Action::Refuse(refusal)] => refusal.clone(),
        actions => panic!("{actions:?}"),
    }
}

#[test]
fn a_first_life_saves_each_step_before_the_next_is_taken() {
    let mut seam = Seam::new(Record::default());
    assert_eq!(seam.apply(Input::Start(fresh(&["a"]))), save(Step::Intend));
    assert_eq!(seam.apply(Input::Saved(Step::Intend)), vec![Action::TakePin]);
    let created = seam.apply(Input::Pinned { at: lsn(50), view: true });
    assert_eq!(created, save(Step::Pin(lsn(50))));
    let opened = seam.apply(Input::Saved(Step::Pin(lsn(50))));
    assert_eq!(opened, vec![Action::OpenView(View::Pinned)]);
    let attempt = Step::Attempt(tables(&["a"]));
    assert_eq!(seam.apply(Input::PinnedViewOpened), save(attempt.clone()));
    let scan = seam.apply(Input::Saved(attempt));
    assert_eq!(scan, vec![Action::Scan(vec![due("a", false, 0)])]);
    assert_eq!(seam.apply(planned("a", 2)), vec![]);
    assert_eq!(seam.apply(chunk(1)), vec![]);
    let scanned = scanned("a", None);
    assert_eq!(seam.apply(chunk(0)), save(scanned.clone()));
    let streaming = seam.apply(Input::Saved(scanned));
    assert_eq!(streaming, vec![stream(50, 50), Action::Save(Step::Finish)]);
    assert_eq!(seam.apply(Input::Saved(Step::Finish)), vec![]);
    assert_eq!(seam.apply(Input::CommitDurable(lsn(60))), save(Step::Checkpoint(lsn(60))));
    let saved = seam.apply(Input::Saved(Step::Checkpoint(lsn(60))));
    assert_eq!(saved, vec![Action::Release(lsn(60))]);
    assert!(seam.record().finished);
}

#[test]
fn a_slot_that_was_never_pinned_is_dropped_and_made_again() {
    let intended = Record::default().with(&Step::Intend);
    let mut seam = Seam::new(intended.clone());
    assert_eq!(seam.apply(Input::Start(start(&["a"]))), vec![Action::DropPin]);
    assert_eq!(seam.apply(Input::PinDropped), vec![Action::TakePin]);
    let mut seam = Seam::new(intended);
    assert_eq!(seam.apply(Input::Start(fresh(&["a"]))), vec![Action::TakePin]);
    assert_eq!(seam.apply(Input::ViewLost), vec![Action::DropPin], "it may have been made");
}

#[test]
fn a_slot_that_was_not_created_leaves_no_intent() {
    let mut seam = Seam::new(Record::default());
    seam.apply(Input::Start(fresh(&["a"])));
    seam.apply(Input::Saved(Step::Intend));
    assert_eq!(seam.apply(Input::NotPinned), save(Step::Forgo));
    assert_eq!(seam.apply(Input::Saved(Step::Forgo)), vec![]);
    assert_eq!(seam.record(), &Record::default());
    assert_eq!(refusal(seam.record().clone(), start(&["a"])), Refusal::SlotTaken);
    assert_eq!(pinned().with(&Step::Forgo), pinned(), "a pin stays");
}

#[test]
fn a_slot_that_somebody_streams_from_is_not_dropped_for_an_intent() {
    let intended = || Record::default().with(&Step::Intend);
    for slot in [Slot::Present { confirmed: lsn(50), streamed: true }, Slot::Lost] {
        let taken = Start { log: Log::Slot(slot), ..start(&["a"]) };
        assert_eq!(refusal(intended(), taken), Refusal::SlotTaken);
    }
}

#[test]
fn after_a_crash_only_what_is_not_done_is_scanned_behind_a_barrier_in_a_later_view() {
    let record = pinned().with(&Step::Attempt(tables(&["a", "b"]))).with(&scanned("b", None));
    let mut seam = Seam::new(record);
    assert_eq!(seam.apply(Input::Start(start(&["a", "b"]))), vec![settle()]);
    let settled = seam.apply(settled(12));
    assert_eq!(settled, vec![Action::OpenView(View::Later)]);
    let later = Input::LaterViewOpened { fence: fence("14:20:14"), horizon: lsn(90) };
    let attempt = Step::Attempt(tables(&["a"]));
    assert_eq!(seam.apply(later), save(attempt.clone()));
    let scan = seam.apply(Input::Saved(attempt));
    let barrier = Action::Truncate(tables(&["a"]));
    assert_eq!(scan, vec![barrier, Action::Scan(vec![due("a", true, 0)])]);
    let fenced = Fenced { fence: fence("14:20:14"), horizon: lsn(90) };
    let scanned = scanned("a", Some(fenced));
    assert_eq!(seam.apply(planned("a", 0)), save(scanned.clone()), "an empty table is done too");
    assert_eq!(seam.apply(Input::Saved(scanned)), vec![stream(50, 1000)]);
}

#[test]
fn a_view_that_may_lack_a_transaction_before_the_position_is_not_used() {
    let mut seam = Seam::new(attempted());
    seam.apply(Input::Start(start(&["a"])));
    seam.apply(settled(15));
    let later = Input::LaterViewOpened { fence: fence("14:20:14"), horizon: lsn(90) };
    assert_eq!(seam.apply(later), vec![settle()]);
}

#[test]
fn a_change_is_dropped_exactly_if_its_tables_scan_holds_it() {
    let mut seam = Seam::new(done_later());
    assert_eq!(seam.apply(Input::Start(start(&["a"]))), vec![stream(50, 1000)]);
    assert_eq!(judge(&seam, RELATION, 13), Verdict::Drop);
    assert_eq!(judge(&seam, RELATION, 14), Verdict::Emit);
    assert_eq!(judge(&seam, RELATION, 19), Verdict::Drop);
    assert_eq!(judge(&seam, RELATION, 20), Verdict::Emit);
    assert_eq!(judge(&seam, RelationId(8), 13), Verdict::Emit);
}

#[test]
fn a_fence_retires_at_its_horizon_and_with_the_last_one_the_hand_over_ends() {
    let mut seam = Seam::new(done_later());
    seam.apply(Input::Start(start(&["a"])));
    seam.apply(Input::CommitDurable(lsn(89)));
    let before = seam.apply(Input::Saved(Step::Checkpoint(lsn(89))));
    assert_eq!(before, vec![Action::Release(lsn(89))]);
    assert_eq!(judge(&seam, RELATION, 13), Verdict::Drop);
    seam.apply(Input::CommitDurable(lsn(90)));
    let at = seam.apply(Input::Saved(Step::Checkpoint(lsn(90))));
    assert_eq!(at, vec![Action::Release(lsn(90)), Action::Save(Step::Finish)]);
    assert!(seam.fences().is_empty());
}

#[test]
fn checkpoints_are_saved_one_at_a_time_and_never_fall() {
    let mut seam = Seam::new(done().with(&Step::Finish));
    seam.apply(Input::Start(start(&["a"])));
    assert_eq!(seam.apply(Input::CommitDurable(lsn(60))), save(Step::Checkpoint(lsn(60))));
    assert_eq!(seam.apply(Input::CommitDurable(lsn(70))), vec![]);
    assert_eq!(seam.apply(Input::CommitDurable(lsn(65))), vec![]);
    let saved = seam.apply(Input::Saved(Step::Checkpoint(lsn(60))));
    let next = Action::Save(Step::Checkpoint(lsn(70)));
    assert_eq!(saved, vec![Action::Release(lsn(60)), next]);
    seam.apply(Input::Saved(Step::Checkpoint(lsn(70))));
    assert_eq!(seam.apply(Input::CommitDurable(lsn(70))), vec![]);
}

#[test]
fn the_stream_goes_on_from_the_outlets_position_where_that_is_ahead() {
    let record = done().with(&Step::Finish).with(&Step::Checkpoint(lsn(60)));
    let ahead = Start { outlet: Recorded::At(lsn(70)), ..start(&["a"]) };
    let actions = Seam::new(record).apply(Input::Start(ahead));
    assert_eq!(actions, vec![stream(70, 1000), Action::Save(Step::Checkpoint(lsn(70)))]);
}

#[test]
fn a_lost_view_is_as_a_crash_without_the_crash() {
    let mut seam = Seam::new(Record::default());
    seam.apply(Input::Start(fresh(&["a", "b"])));
    seam.apply(Input::Saved(Step::Intend));
    seam.apply(Input::Pinned { at: lsn(50), view: true });
    seam.apply(Input::Saved(Step::Pin(lsn(50))));
    seam.apply(Input::PinnedViewOpened);
    seam.apply(Input::Saved(Step::Attempt(tables(&["a", "b"]))));
    seam.apply(planned("a", 1));
    let saving = seam.apply(chunk(0));
    let before = lsn(50);
    let lost = seam.apply(Input::ViewLost);
    assert_eq!(lost, vec![Action::Settle { before }], "a is being saved, b is not done");
    let scanned = scanned("a", None);
    assert_eq!(saving, save(scanned.clone()));
    assert_eq!(seam.apply(Input::Saved(scanned)), vec![]);
    seam.apply(settled(1));
    let later = Input::LaterViewOpened { fence: fence("14:20:14"), horizon: lsn(90) };
    assert_eq!(seam.apply(later), save(Step::Attempt(tables(&["b"]))));
}

#[test]
fn chunks_of_a_second_scan_in_one_life_have_numbers_of_their_own() {
    let mut seam = Seam::new(attempted());
    seam.apply(Input::Start(start(&["a"])));
    let open = |seam: &mut Seam| {
        seam.apply(settled(1));
        let later = Input::LaterViewOpened { fence: fence("14:20:14"), horizon: lsn(90) };
        seam.apply(later);
        seam.apply(Input::Saved(Step::Attempt(tables(&["a"]))))
    };
    open(&mut seam);
    seam.apply(planned("a", 3));
    seam.apply(Input::ViewLost);
    assert_eq!(open(&mut seam).last(), Some(&Action::Scan(vec![due("a", true, 3)])));
    seam.apply(planned("a", 1));
    assert_eq!(seam.apply(chunk(0)), vec![], "late news of the first scan");
    assert!(!seam.apply(chunk(3)).is_empty());
}

#[test]
fn mode_always_scans_what_is_done_again() {
    let always = Start { mode: Mode::Always, ..start(&["a"]) };
    let mut seam = Seam::new(done_later().with(&Step::Checkpoint(lsn(60))));
    let again = Step::Again(tables(&["a"]));
    assert_eq!(seam.apply(Input::Start(always)), save(again.clone()));
    assert_eq!(seam.apply(Input::Saved(again)), vec![settle()]);
}

#[test]
fn mode_never_scans_nothing_but_leaves_nothing_half_copied() {
    let never = Start { mode: Mode::Never, ..start(&["a"]) };
    let mut seam = Seam::new(pinned());
    let skip = Step::Skip([(table("a"), RELATION)].into());
    assert_eq!(seam.apply(Input::Start(never.clone())), save(skip.clone()));
    let streaming = vec![stream(50, 1000), Action::Save(Step::Finish)];
    assert_eq!(seam.apply(Input::Saved(skip)), streaming);
    let unfinished = Refusal::ScanUnfinished { tables: tables(&["a"]) };
    assert_eq!(refusal(attempted(), never), unfinished);
}

#[test]
fn what_was_skipped_is_scanned_behind_a_barrier_once_the_mode_scans() {
    let skipped = pinned().with(&Step::Skip([(table("a"), RELATION)].into())).with(&Step::Finish);
    let never = Start { mode: Mode::Never, ..start(&["a"]) };
    let actions = Seam::new(skipped.clone()).apply(Input::Start(never));
    assert_eq!(actions, vec![stream(50, 1000)], "in mode never it stays so");
    let mut seam = Seam::new(skipped);
    assert_eq!(seam.apply(Input::Start(start(&["a"]))), vec![settle()]);
    seam.apply(settled(12));
    let later = Input::LaterViewOpened { fence: fence("14:20:14"), horizon: lsn(90) };
    let attempt = Step::Attempt(tables(&["a"]));
    assert_eq!(seam.apply(later), save(attempt.clone()));
    let barrier = Action::Truncate(tables(&["a"]));
    let scan = Action::Scan(vec![due("a", true, 0)]);
    assert_eq!(seam.apply(Input::Saved(attempt)), vec![barrier, scan]);
}

#[test]
fn a_table_that_has_taken_the_name_of_one_that_is_done_is_refused() {
    let skipped = pinned().with(&Step::Skip([(table("a"), RELATION)].into()));
    let replaced = Refusal::Replaced { tables: tables(&["a"]) };
    for record in [done(), done_later().with(&Step::Finish), skipped] {
        for (now, mode) in [
            (Some(RelationId(8)), Mode::Initial),
            (Some(RelationId(8)), Mode::Always),
            (None, Mode::Never),
        ] {
            let start = Start { tables: [(table("a"), now)].into(), mode, ..start(&[]) };
            assert_eq!(refusal(record.clone(), start), replaced);
        }
        let mut seam = Seam::new(record);
        let out = seam.apply(Input::Start(start(&[])));
        assert_eq!(out, save(Step::Again(tables(&["a"]))), "it may be taken out");
    }
    let now = Start { tables: [(table("a"), Some(RelationId(8)))].into(), ..start(&[]) };
    let actions = Seam::new(done().with(&Step::Again(tables(&["a"])))).apply(Input::Start(now));
    assert_eq!(actions, vec![settle()], "and put back");
}

#[test]
fn a_table_that_is_no_longer_wanted_is_not_done_any_more() {
    let mut seam = Seam::new(done().with(&Step::Finish));
    let again = Step::Again(tables(&["a"]));
    assert_eq!(seam.apply(Input::Start(start(&[]))), save(again.clone()));
    let streaming = vec![stream(50, 1000), Action::Save(Step::Finish)];
    assert_eq!(seam.apply(Input::Saved(again)), streaming);
}

#[test]
fn positions_out_of_order_are_refused_each_with_its_own_reason() {
    let saved = || done().with(&Step::Checkpoint(lsn(60)));
    let with = |slot, outlet| Start { log: Log::Slot(slot), outlet, ..start(&["a"]) };
    let present = Slot::Present { confirmed: lsn(60), streamed: false };
    let cases = [
        (Record::default(), with(present, Recorded::Unkept), Refusal::SlotTaken),
        (
            Record::default(),
            with(Slot::Absent, Recorded::At(lsn(60))),
            Refusal::StateMissing { recorded: lsn(60) },
        ),
        (saved(), with(Slot::Absent, Recorded::Unkept), Refusal::SlotMissing { from: lsn(60) }),
        (saved(), with(Slot::Lost, Recorded::Unkept), Refusal::SlotLost { from: lsn(60) }),
        (
            saved(),
            with(Slot::Present { confirmed: lsn(61), streamed: false }, Recorded::Unkept),
            Refusal::SlotAhead { from: lsn(60), to: lsn(61) },
        ),
        (
            saved(),
            with(Slot::Forked { at: lsn(55) }, Recorded::Unkept),
            Refusal::ServerForked { position: lsn(60), fork: lsn(55) },
        ),
        (
            saved(),
            with(present, Recorded::At(lsn(59))),
            Refusal::OutletBehind { recorded: Some(lsn(59)), saved: lsn(60) },
        ),
        (
            saved(),
            with(present, Recorded::Empty),
            Refusal::OutletBehind { recorded: None, saved: lsn(60) },
        ),
        (
            saved(),
            Start { log_end: lsn(59), ..with(present, Recorded::Unkept) },
            Refusal::ServerBehind { position: lsn(60), log_end: lsn(59) },
        ),
    ];
    for (record, start, expected) in cases {
        assert_eq!(refusal(record, start), expected);
    }
    let in_order = with(present, Recorded::At(lsn(60)));
    let actions = Seam::new(saved()).apply(Input::Start(in_order));
    assert_eq!(actions.first(), Some(&stream(60, 1000)));
}

#[test]
fn behind_a_gap_that_was_accepted_everything_begins_anew_behind_a_barrier() {
    let given_up = || done().with(&Step::Checkpoint(lsn(60))).given_up();
    let slots = [
        Slot::Lost,
        Slot::Present { confirmed: lsn(61), streamed: true },
        Slot::Forked { at: lsn(55) },
    ];
    for slot in slots {
        let mut seam = Seam::new(given_up());
        let start = Start { log: Log::Slot(slot), log_end: lsn(30), ..start(&["a"]) };
        assert_eq!(seam.apply(Input::Start(start)), vec![Action::DropPin]);
        assert_eq!(seam.apply(Input::PinDropped), vec![Action::TakePin]);
        // Before the old one: the server was restored.
        let pinned = Input::Pinned { at: lsn(20), view: true };
        assert_eq!(seam.apply(pinned), save(Step::Pin(lsn(20))));
        let open = vec![Action::OpenView(View::Pinned)];
        assert_eq!(seam.apply(Input::Saved(Step::Pin(lsn(20)))), open);
        let attempt = Step::Attempt(tables(&["a"]));
        assert_eq!(seam.apply(Input::PinnedViewOpened), save(attempt.clone()));
        let due = Due { table: table("a"), again: true, first_chunk: 0 };
        let scan = vec![Action::Truncate(tables(&["a"])), Action::Scan(vec![due])];
        assert_eq!(seam.apply(Input::Saved(attempt)), scan);
    }
}

#[test]
fn nothing_follows_a_refusal() {
    let mut seam = Seam::new(done());
    seam.apply(Input::Start(start(&["a"])));
    let refused = seam.apply(Input::Pinned { at: lsn(99), view: true });
    let input = "pinned";
    let expected = Refusal::OutOfOrder { input, state: "streaming" };
    assert_eq!(refused, vec![Action::Refuse(expected)]);
    assert_eq!(seam.apply(Input::CommitDurable(lsn(60))), vec![]);
}
