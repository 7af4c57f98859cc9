//! A spool between the reader and the lanes: what is read from the server is not what is streamed.

use super::*;

fn spooled(from: u64, to: u64) -> Spool {
    Spool::Holds { from: lsn(from), to: lsn(to) }
}

/// The slot has been told that everything before `confirmed` is kept here.
fn kept(spool: Spool, confirmed: u64) -> Start {
    let log = Log::Slot(Slot::Present { confirmed: lsn(confirmed), streamed: true });
    Start { log, spool, ..start(&["a"]) }
}

fn read(from: u64, anew: bool) -> Action {
    Action::Read { from: lsn(from), anew }
}

#[test]
fn the_log_is_read_from_the_saved_pin_on_while_tables_are_scanned() {
    let mut seam = Seam::new(Record::default());
    seam.apply(Input::Start(Start { spool: Spool::Empty, ..fresh(&["a"]) }));
    seam.apply(Input::Saved(Step::Intend));
    let created = seam.apply(Input::Pinned { at: lsn(50), view: true });
    assert_eq!(created, save(Step::Pin(lsn(50))), "not before the pin is saved");
    let opened = seam.apply(Input::Saved(Step::Pin(lsn(50))));
    assert_eq!(opened, vec![read(50, true), Action::OpenView(View::Pinned)]);
    assert_eq!(seam.apply(Input::ViewLost), vec![Action::Settle { before: lsn(50) }], "once");
}

#[test]
fn a_restart_reads_on_behind_what_the_spool_holds_and_streams_from_the_checkpoint() {
    let mut seam = Seam::new(done().with(&Step::Checkpoint(lsn(60))).with(&Step::Finish));
    let out = seam.apply(Input::Start(kept(spooled(55, 80), 80)));
    assert_eq!(out, vec![read(80, false), stream(60, 1000)]);
    let mut left_over = Seam::new(attempted());
    let out = left_over.apply(Input::Start(kept(spooled(50, 80), 80)));
    assert_eq!(out, vec![read(80, false), settle()], "the pin has not moved");
}

#[test]
fn what_the_server_need_not_keep_is_lost_with_the_spool() {
    let record = || done().with(&Step::Checkpoint(lsn(60)));
    let ahead = Refusal::SlotAhead { from: lsn(60), to: lsn(80) };
    for spool in [Spool::Off, Spool::Empty, spooled(61, 80), spooled(40, 59)] {
        assert_eq!(refusal(record(), kept(spool, 80)), ahead, "{spool:?}");
    }
    let gap = Refusal::SlotAhead { from: lsn(80), to: lsn(81) };
    assert_eq!(refusal(record(), kept(spooled(60, 80), 81)), gap);
    let behind = Start { log_end: lsn(79), ..kept(spooled(60, 80), 80) };
    let restored = Refusal::ServerBehind { position: lsn(80), log_end: lsn(79) };
    assert_eq!(refusal(record(), behind), restored, "it would count other bytes as those");
}

#[test]
fn an_outlet_that_is_ahead_of_the_spool_needs_nothing_of_it() {
    let record = done().with(&Step::Checkpoint(lsn(60))).with(&Step::Finish);
    let outlet = Recorded::At(lsn(90));
    let mut seam = Seam::new(record.clone());
    let out = seam.apply(Input::Start(Start { outlet, ..kept(spooled(55, 80), 70) }));
    let checkpoint = Action::Save(Step::Checkpoint(lsn(90)));
    assert_eq!(out, vec![read(90, true), stream(90, 1000), checkpoint.clone()]);
    let mut inside = Seam::new(record);
    let out = inside.apply(Input::Start(Start { outlet, ..kept(spooled(55, 95), 70) }));
    assert_eq!(out, vec![read(95, false), stream(90, 1000), checkpoint]);
}

#[test]
fn a_reader_that_is_at_work_goes_on_whatever_the_server_shows() {
    let record = || done().with(&Step::Checkpoint(lsn(60))).with(&Step::Finish);
    // The server was told of more since the spool was looked at; or it was looked at first, and has more by now.
    for (confirmed, log_end) in [(85, 1000), (70, 75)] {
        let start =
            Start { log_end: lsn(log_end), ..kept(Spool::Growing { from: lsn(55) }, confirmed) };
        let out = Seam::new(record()).apply(Input::Start(start));
        assert_eq!(out, vec![stream(60, log_end)], "it is not asked to read");
    }
    let start = kept(Spool::Growing { from: lsn(61) }, 60);
    let out = Seam::new(record()).apply(Input::Start(start));
    assert_eq!(out, vec![read(60, true), stream(60, 1000)], "of no use");
}

#[test]
fn what_was_read_for_another_pin_is_of_no_use() {
    let mut seam = Seam::new(Record::default());
    seam.apply(Input::Start(Start { spool: spooled(40, 80), ..fresh(&["a"]) }));
    seam.apply(Input::Saved(Step::Intend));
    seam.apply(Input::Pinned { at: lsn(50), view: true });
    let opened = seam.apply(Input::Saved(Step::Pin(lsn(50))));
    assert_eq!(opened, vec![read(50, true), Action::OpenView(View::Pinned)]);
}

#[test]
fn at_another_server_the_outlets_position_counts_if_the_spool_has_it() {
    let (old, new) = (|offset| Lsn::binlog(0, 3, offset), Lsn::binlog(1, 7, 4));
    let log = Log::Files { first: new, continuity: Continuity::Elsewhere };
    let outlet = Recorded::At(old(700));
    let log_end = Lsn::binlog(1, 8, 100);
    let start = |to| {
        let spool = Spool::Holds { from: old(400), to: old(to) };
        Start { log, outlet, spool, log_end, ..start(&["a"]) }
    };
    let record = Record::default().with(&Step::Intend).with(&Step::Pin(old(4)));
    let record = record.with(&Step::Attempt(tables(&["a"]))).with(&scanned("a", None));
    let record = record.with(&Step::Checkpoint(old(500))).with(&Step::Finish);
    let first_two = |to| Seam::new(record.clone()).apply(Input::Start(start(to)))[..2].to_vec();
    let (from, again_before) = (old(700), log_end);
    let streaming = Action::Stream { from, again_before };
    let reading = Action::Read { from: old(800), anew: false };
    assert_eq!(first_two(800), vec![reading, streaming], "in the log that it is of");
    let from = old(500);
    let streaming = Action::Stream { from, again_before };
    // The spool lacks what lies between, and nothing says where that is in the other log.
    let reading = Action::Read { from: old(600), anew: false };
    assert_eq!(first_two(600), vec![reading, streaming]);
}
