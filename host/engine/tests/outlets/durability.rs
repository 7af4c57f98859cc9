//! What landed, and what a repetition does.

use std::sync::Arc;

use dovetail::outlet::{Landed, Outlet};
use dovetail_core::batch::Closing;
use dovetail_core::change::Change;
use dovetail_core::position::Lsn;
use dovetail_core::seam::Recorded;

use crate::subject::{Place, Subject, write};
use crate::text::texts;
use crate::world::*;

fn commits(landed: &[Landed]) -> Vec<Lsn> {
    let commit = |landed: &Landed| match landed {
        Landed::Commit(lsn) => Some(lsn.get()),
        Landed::Chunk(_) => None,
    };
    landed.iter().filter_map(commit).collect()
}

#[tokio::test]
async fn chunks_and_commits_land_in_their_order() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let landed = write(
            &mut outlet,
            [
                chunk(&people, [row(1, "ada", "a")]),
                transaction(200, [insert(&people, row(2, "bob", "b"))]),
                transaction(300, []),
            ],
        )
        .await;
        assert!(matches!(landed.first(), Some(Landed::Chunk(id)) if id.get() == chunk_id(&people)));
        assert_eq!(commits(&landed), [Lsn::new(201), Lsn::new(301)], "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_checkpoint_is_recorded_with_its_rows_and_survives() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        assert_eq!(outlet.recorded(), Recorded::Empty);
        write(&mut outlet, [transaction(200, [insert(&people, row(1, "ada", "a"))])]).await;
        assert_eq!(outlet.recorded(), Recorded::At(Lsn::new(201)));
        // An idle database's checkpoint moves without rows.
        write(&mut outlet, [transaction(900, [])]).await;
        outlet.close().await.expect("closed");
        assert_eq!(
            subject.open().await.recorded(),
            Recorded::At(Lsn::new(901)),
            "{:?}",
            subject.place
        );
    }
}

#[tokio::test]
async fn half_a_transaction_is_never_visible_and_lands_with_its_commit() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let first = part(300, 1, [insert(&people, row(2, "half", "-"))], Closing::Open);
        let landed =
            write(&mut outlet, [transaction(200, [insert(&people, row(1, "whole", "-"))]), first])
                .await;
        assert_eq!(commits(&landed), [Lsn::new(201)], "{:?}", subject.place);
        assert_eq!(
            subject.rows(&people).await,
            texts([row(1, "whole", "-")]),
            "{:?}",
            subject.place
        );
        let second = part(300, 2, [insert(&people, row(3, "half", "-"))], Closing::Open);
        assert!(write(&mut outlet, [second]).await.is_empty());
        assert_eq!(
            subject.rows(&people).await,
            texts([row(1, "whole", "-")]),
            "{:?}",
            subject.place
        );
        let third =
            part(300, 3, [update(&people, row(1, "more", "~"))], Closing::Commit(Lsn::new(301)));
        assert_eq!(commits(&write(&mut outlet, [third]).await), [Lsn::new(301)]);
        let expected = texts([row(1, "more", "-"), row(2, "half", "-"), row(3, "half", "-")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn half_a_transaction_is_gone_after_a_crash_and_comes_again_whole() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let changes = || [insert(&people, row(1, "ada", "a")), insert(&people, row(2, "bob", "b"))];
        let [first, _] = changes();
        write(&mut outlet, [part(300, 1, [first], Closing::Open)]).await;
        drop(outlet);
        let mut outlet = subject.open().await;
        assert_eq!(outlet.recorded(), Recorded::Empty);
        write(&mut outlet, [transaction(300, changes())]).await;
        let expected = texts([row(1, "ada", "a"), row(2, "bob", "b")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_key_change_may_be_cut_by_a_batch_but_not_by_a_crash() {
    for subject in Subject::transactional().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "large")])]).await;
        let [leaves, arrives] = move_row(&people, key_only(1), row(2, "ada", "~"));
        write(&mut outlet, [part(200, 1, [leaves], Closing::Open)]).await;
        let closing = Closing::Commit(Lsn::new(201));
        write(&mut outlet, [part(200, 2, [arrives], closing)]).await;
        let expected = texts([row(2, "ada", "large")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

/// The state lost the race: the outlet committed, the engine died, the source sends it all again.
#[tokio::test]
async fn a_repetition_from_before_the_recorded_checkpoint_has_no_effect() {
    for subject in Subject::transactional().await {
        let (people, log) = (people(), keyless());
        let history = || {
            let moved = move_row(&people, key_only(1), row(5, "ada", "~"));
            [
                transaction(
                    200,
                    [insert(&log, row(1, "once", "-")), update(&people, row(1, "ada", "~"))],
                ),
                transaction(300, moved),
                transaction(400, [truncate(&log), insert(&log, row(2, "after", "-"))]),
            ]
        };
        let mut outlet = subject.open_with(&people).await;
        outlet.prepare(&log, true).await.expect("ready");
        write(&mut outlet, [chunk(&people, [row(1, "a", "large")])]).await;
        write(&mut outlet, history()).await;
        drop(outlet);
        let mut outlet = subject.open().await;
        assert_eq!(outlet.recorded(), Recorded::At(Lsn::new(401)));
        let next = transaction(500, [insert(&log, row(3, "new", "-"))]);
        let landed = write(&mut outlet, history().into_iter().chain([next])).await;
        let all = [201, 301, 401, 501].map(Lsn::new);
        assert_eq!(commits(&landed), all, "what is durable lands, also when it is passed over");
        assert_eq!(
            subject.rows(&people).await,
            texts([row(5, "ada", "large")]),
            "{:?}",
            subject.place
        );
        let expected = texts([row(2, "after", "-"), row(3, "new", "-")]);
        assert_eq!(subject.rows(&log).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_scan_that_is_repeated_behind_its_barrier_leaves_no_ghost() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        write(&mut outlet, [chunk(&people, [row(1, "ada", "a"), row(2, "gone", "g")])]).await;
        write(&mut outlet, [transaction(200, [])]).await;
        drop(outlet);
        let mut outlet = subject.open().await;
        outlet.prepare(&people, false).await.expect("a table of ours may hold rows");
        // Its rows carry the pin, which lies before the recorded checkpoint, and count all the same.
        write(&mut outlet, [barrier(&people), chunk(&people, [row(1, "ada l.", "a")])]).await;
        assert_eq!(
            subject.rows(&people).await,
            texts([row(1, "ada l.", "a")]),
            "{:?}",
            subject.place
        );
    }
}

#[tokio::test]
async fn records_that_are_routed_elsewhere_are_passed_over() {
    for subject in Subject::all().await {
        let people = people();
        let mut outlet = subject.open_with(&people).await;
        let mut delivery = transaction(200, [1, 2, 3].map(|id| insert(&people, row(id, "x", "y"))));
        for (record, route) in delivery.records.iter_mut().zip([vec![0], vec![1], vec![1, 0]]) {
            record.route = Some(route);
        }
        write(&mut outlet, [delivery]).await;
        let expected = texts([row(1, "x", "y"), row(3, "x", "y")]);
        assert_eq!(subject.rows(&people).await, expected, "{:?}", subject.place);
    }
}

#[tokio::test]
async fn a_line_that_a_crash_tore_is_cut_off_and_the_file_goes_on() {
    let subject = Subject::new(Place::File).await;
    let people = people();
    let mut outlet = subject.open_with(&people).await;
    write(&mut outlet, [transaction(200, [insert(&people, row(1, "ada", "a"))])]).await;
    drop(outlet);
    let whole = std::fs::read(subject.path()).expect("the file");
    let torn = [&whole[..], &whole[..whole.len() / 2]].concat();
    std::fs::write(subject.path(), torn).expect("the file");
    let mut outlet = subject.open().await;
    write(&mut outlet, [transaction(200, [insert(&people, row(1, "ada", "a"))])]).await;
    assert_eq!(subject.lines().len(), 2, "the whole line and its repetition");
}

#[tokio::test]
async fn the_id_of_a_change_is_the_same_when_it_comes_again() {
    let subject = Subject::new(Place::File).await;
    let people = people();
    let mut outlet = subject.open_with(&people).await;
    let deliveries = |redelivery: bool| {
        let scan = chunk(&people, [row(1, "ada", "a"), row(2, "bob", "b")]);
        let mut stream = transaction(200, move_row(&people, key_only(1), row(3, "ada", "~")));
        for record in &mut stream.records {
            let dovetail_core::outcome::Body::Event(event) = &mut record.body else { continue };
            event.redelivery = redelivery;
        }
        [scan, stream]
    };
    write(&mut outlet, deliveries(false)).await;
    write(&mut outlet, deliveries(true)).await;
    let lines = subject.lines();
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().expect("an id")).collect();
    assert_eq!(ids[..4], ids[4..]);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(ids[2], "7301:shop:0/C8+1");
    assert_eq!(lines[6]["redelivery"], true);
    assert_eq!(lines[2].get("redelivery"), None);
}

#[tokio::test]
async fn a_message_is_a_line_and_no_row() {
    for subject in Subject::all().await {
        let message = Change::Message {
            prefix: "audit \"log\"".into(),
            content: bytes::Bytes::from_static(b"\x00\xff"),
            transactional: true,
        };
        let mut outlet = subject.open().await;
        assert_eq!(commits(&write(&mut outlet, [transaction(200, [message])]).await).len(), 1);
        if subject.place == Place::File {
            let line = subject.lines().pop().expect("a line");
            assert_eq!(line["op"], "message");
            assert_eq!(line["prefix"], "audit \"log\"");
            assert_eq!(line["content"], "\\x00ff");
        }
    }
}

#[tokio::test]
async fn the_discarding_outlet_says_that_everything_is_done() {
    let config = dovetail::config::Outlet::Discard;
    let mut outlet = Outlet::open(&config, &crate::subject::origin(), 0).await.expect("open");
    let people = people();
    outlet.prepare(&people, true).await.expect("ready");
    let group: Arc<[_]> = [transaction(200, [insert(&people, row(1, "x", "y"))])].into();
    assert_eq!(commits(&outlet.write(&group).await.expect("written")), [Lsn::new(201)]);
}
