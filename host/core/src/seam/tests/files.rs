//! Sources whose log is a series of files: pins without a view, and what becomes of the log.

use super::*;
use crate::change::TransactionId;
use crate::gtid::mysql::GtidSet;

fn binlog(number: u32, offset: u64) -> Lsn {
    Lsn::binlog(0, number, offset)
}

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn gtids(intervals: &str) -> GtidSet {
    format!("{UUID}:{intervals}").parse().unwrap()
}

fn files(continuity: Continuity) -> Start {
    let first = binlog(1, 4);
    Start { log: Log::Files { first, continuity }, log_end: binlog(9, 900), ..start(&["a"]) }
}

fn pinned_in_binlog() -> Record {
    Record::default().with(&Step::Intend).with(&Step::Pin(binlog(3, 4)))
}

/// Done in a view with a fence, whose horizon the checkpoint has not reached.
fn fenced_in_binlog() -> Record {
    let fenced = Fenced { fence: Fence::Gtids(gtids("1-9")), horizon: binlog(3, 900) };
    pinned_in_binlog()
        .with(&Step::Attempt(tables(&["a"])))
        .with(&scanned("a", Some(fenced)))
        .with(&Step::Checkpoint(binlog(3, 500)))
}

#[test]
fn a_pin_without_a_view_is_a_lower_bound_and_the_first_view_is_a_later_one() {
    let mut seam = Seam::new(Record::default());
    assert_eq!(seam.apply(Input::Start(files(Continuity::Same))), save(Step::Intend));
    assert_eq!(seam.apply(Input::Saved(Step::Intend)), vec![Action::TakePin]);
    let pin = Step::Pin(binlog(3, 4));
    assert_eq!(seam.apply(Input::Pinned { at: binlog(3, 4), view: false }), save(pin.clone()));
    let from = binlog(3, 4);
    assert_eq!(seam.apply(Input::Saved(pin)), vec![Action::Settle { before: from }]);
    let settled = Input::Settled { mark: Mark::Gtids(gtids("1-7")) };
    assert_eq!(seam.apply(settled.clone()), vec![Action::OpenView(View::Later)]);
    let opened = |intervals| {
        let fence = Fence::Gtids(gtids(intervals));
        Input::LaterViewOpened { fence, horizon: binlog(3, 900) }
    };
    assert_eq!(seam.apply(opened("1-6")), vec![Action::Settle { before: from }], "7 is not in it");
    seam.apply(settled);
    let attempt = Step::Attempt(tables(&["a"]));
    assert_eq!(seam.apply(opened("1-9")), save(attempt.clone()));
    let scan = Action::Scan(vec![due("a", false, 0)]);
    assert_eq!(seam.apply(Input::Saved(attempt)), vec![scan], "nothing was read before");
    seam.apply(planned("a", 1));
    let fenced = Fenced { fence: Fence::Gtids(gtids("1-9")), horizon: binlog(3, 900) };
    let scanned = scanned("a", Some(fenced));
    assert_eq!(seam.apply(chunk(0)), save(scanned.clone()));
    let again_before = from;
    assert_eq!(seam.apply(Input::Saved(scanned)), vec![Action::Stream { from, again_before }]);
    let judge = |number: u64| {
        let gtid = format!("{UUID}:{number}").parse().unwrap();
        seam.judge(RELATION, &TransactionId::Gtid(gtid), binlog(3, 100))
    };
    assert_eq!((judge(9), judge(10)), (Verdict::Drop, Verdict::Emit));
}

#[test]
fn what_a_lower_bound_leaves_open_is_repeated_up_to_the_horizon() {
    let fence = Fence::Gtids(gtids("1-9")).at_least();
    let fenced = Fenced { fence, horizon: binlog(3, 900) };
    let record =
        pinned_in_binlog().with(&Step::Attempt(tables(&["a"]))).with(&scanned("a", Some(fenced)));
    let seam = Seam::new(record);
    let judge = |relation, number: u64, offset| {
        let gtid = format!("{UUID}:{number}").parse().unwrap();
        seam.judge(relation, &TransactionId::Gtid(gtid), binlog(3, offset))
    };
    assert_eq!(judge(RELATION, 9, 500), Verdict::Drop);
    assert_eq!(judge(RELATION, 10, 600), Verdict::Repeat, "the view may show it");
    assert_eq!(judge(RELATION, 11, 900), Verdict::Emit, "it was not in the log yet");
    assert_eq!(judge(RelationId(8), 10, 600), Verdict::Emit);
}

#[test]
fn files_leave_nothing_behind_that_would_have_to_be_dropped() {
    let intended = Record::default().with(&Step::Intend);
    let mut seam = Seam::new(intended);
    assert_eq!(seam.apply(Input::Start(files(Continuity::Same))), vec![Action::TakePin]);
}

#[test]
fn a_fence_and_a_mark_of_different_kinds_stop_the_pipeline() {
    let mut seam = Seam::new(pinned_in_binlog());
    seam.apply(Input::Start(files(Continuity::Same)));
    seam.apply(Input::Settled { mark: Mark::Log(binlog(3, 4)) });
    let fence = Fence::Gtids(gtids("1-9"));
    let out = seam.apply(Input::LaterViewOpened { fence, horizon: binlog(3, 900) });
    assert!(matches!(out[..], [Action::Refuse(Refusal::OutOfOrder { .. })]), "{out:?}");
}

#[test]
fn a_log_of_files_that_does_not_go_on_is_refused_each_with_its_own_reason() {
    let record = || fenced_in_binlog().with(&Step::Finish);
    let from = binlog(3, 500);
    let first = |first, continuity| Start {
        log: Log::Files { first, continuity },
        ..files(Continuity::Same)
    };
    let to = binlog(4, 4);
    let purged = Refusal::LogPurged { from, to };
    let cases = [
        (first(to, Continuity::Same), purged.clone()),
        (first(to, Continuity::Purged), purged.clone()),
        (files(Continuity::Reset), Refusal::LogReset { from }),
        (files(Continuity::Behind), Refusal::ServerLacks { position: from }),
        (files(Continuity::Diverged), Refusal::ServerDiverged { position: from }),
        (
            Start { log_end: binlog(3, 499), ..files(Continuity::Same) },
            Refusal::ServerBehind { position: from, log_end: binlog(3, 499) },
        ),
    ];
    for (start, expected) in cases {
        assert_eq!(refusal(record(), start), expected);
    }
    assert_eq!(purged.gap(), Some(Gap { loss: Loss::Purged, from, to: Some(to) }));
    let edge = first(from, Continuity::Same);
    let again_before = binlog(9, 900);
    let streaming = vec![Action::Stream { from, again_before }];
    assert_eq!(Seam::new(record()).apply(Input::Start(edge)), streaming, "nothing is missing");
}

/// A server that took over: its positions are of another epoch.
fn elsewhere() -> Start {
    let log = Log::Files { first: Lsn::binlog(1, 7, 4), continuity: Continuity::Elsewhere };
    Start { log, log_end: Lsn::binlog(1, 8, 100), ..files(Continuity::Same) }
}

#[test]
fn at_another_server_the_stream_goes_on_from_the_record_and_not_from_the_outlet() {
    let ahead = Start { outlet: Recorded::At(binlog(3, 700)), ..elsewhere() };
    let mut seam = Seam::new(fenced_in_binlog().with(&Step::Finish));
    let (from, again_before) = (binlog(3, 500), Lsn::binlog(1, 8, 100));
    assert_eq!(seam.apply(Input::Start(ahead)), vec![Action::Stream { from, again_before }]);
}

#[test]
fn a_table_whose_fence_is_of_another_servers_log_is_scanned_again() {
    let mut seam = Seam::new(fenced_in_binlog());
    let again = Step::Again(tables(&["a"]));
    assert_eq!(seam.apply(Input::Start(elsewhere())), save(again.clone()));
    let before = Lsn::binlog(1, 8, 100);
    assert_eq!(seam.apply(Input::Saved(again)), vec![Action::Settle { before }]);
    let behind = fenced_in_binlog().with(&Step::Checkpoint(binlog(3, 900)));
    let out = Seam::new(behind).apply(Input::Start(elsewhere()));
    assert!(matches!(out[..], [Action::Stream { .. }, _]), "its horizon was passed: {out:?}");
    let never = Start { mode: Mode::Never, ..elsewhere() };
    let expected = Refusal::ScanUnfinished { tables: tables(&["a"]) };
    assert_eq!(refusal(fenced_in_binlog(), never), expected);
}
