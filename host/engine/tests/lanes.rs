//! What goes into the lanes comes out in the order of the log.

use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dovetail::lanes::{Joined, Lanes, Work};
use dovetail::plugins::Plugins;
use dovetail_core::batch::Closing;
use dovetail_core::change::{Change, Event, Xid};
use dovetail_core::lane;
use dovetail_core::outcome::Body;
use dovetail_core::position::{Lsn, Position};
use dovetail_core::schema::{Column, Initial, Kind, Relation, RelationId, TableName};
use dovetail_core::value::{Row, Value};
use dovetail_sandbox::Compiler;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn table() -> Arc<Relation> {
    let id = Column {
        name: "id".into(),
        type_name: "int8".into(),
        type_modifier: -1,
        kind: Kind::Int,
        initial: Initial::Null,
        number: None,
    };
    let name = TableName { namespace: "public".into(), name: "t".into() };
    Arc::new(Relation::new(RelationId(1), name, vec![id], vec![0]))
}

fn event(ordinal: u32, change: Change) -> Event {
    Event {
        position: Position { commit: Lsn::new(100), ordinal },
        commit_time_micros: 0,
        transaction: Some(Xid(7).into()),
        redelivery: false,
        change,
    }
}

fn insert(relation: &Arc<Relation>, ordinal: u32) -> Event {
    let after = Row::new(vec![Value::Int(i64::from(ordinal % 17))]);
    event(ordinal, Change::Insert { relation: relation.clone(), after, moved_from: None })
}

fn start(count: u16) -> (Lanes, Receiver<Work>) {
    let count = NonZeroU16::new(count).expect("lanes");
    let plugins = Plugins::load(&[], &Compiler::InProcess, Path::new("/nonexistent"), 1);
    let plugins = plugins.expect("nothing to load");
    Lanes::start(lane::Lanes::new(count), plugins.chains(count))
}

async fn next(work: &mut Receiver<Work>) -> Option<Joined> {
    match timeout(PATIENCE, work.recv()).await.expect("a batch within the time") {
        Some(Work::Batch(pending)) => Some(pending.join().await.expect("no plugin")),
        Some(Work::Prepare { .. }) => panic!("nothing was prepared"),
        None => None,
    }
}

fn ordinals(joined: &Joined) -> Vec<u32> {
    let ordinal = |body: &Body| match body {
        Body::Event(event) => event.position.ordinal,
        Body::Emission { position, .. } => position.ordinal,
    };
    joined.delivery.records.iter().map(|record| ordinal(&record.body)).collect()
}

#[tokio::test]
async fn batches_come_out_in_the_order_of_the_log() {
    let (mut lanes, mut work) = start(4);
    let relation = table();
    let feed = tokio::spawn(async move {
        for batch in 0..50_u32 {
            let events = (0..100).map(|i| insert(&relation, batch * 100 + i)).collect();
            lanes.dispatch(events, Closing::Open).await.unwrap();
        }
    });
    let mut expected = 0..5_000;
    let mut number = 0;
    while let Some(joined) = next(&mut work).await {
        assert_eq!(joined.delivery.number, number);
        number += 1;
        for ordinal in ordinals(&joined) {
            assert_eq!(Some(ordinal), expected.next());
        }
    }
    assert_eq!(expected.next(), None, "every event came out");
    timeout(PATIENCE, feed).await.expect("the feed ends").unwrap();
}

#[tokio::test]
async fn a_barrier_goes_alone_and_waits_for_what_is_before_it() {
    let (mut lanes, mut work) = start(3);
    let relation = table();
    let truncate = event(2, Change::Truncate { relation: relation.clone() });
    let events = vec![insert(&relation, 1), truncate, insert(&relation, 3)];
    let feed = tokio::spawn(async move {
        lanes.dispatch(events, Closing::Commit(Lsn::new(200))).await.unwrap();
    });

    let before = next(&mut work).await.unwrap();
    assert_eq!((ordinals(&before), before.delivery.closing), (vec![1], Closing::Open));
    tokio::task::yield_now().await;
    assert!(work.try_recv().is_err(), "the barrier waits until what is before it was written");
    drop(before);

    let barrier = next(&mut work).await.unwrap();
    assert_eq!((ordinals(&barrier), barrier.delivery.closing), (vec![2], Closing::Open));
    drop(barrier);
    let after = next(&mut work).await.unwrap();
    assert_eq!(ordinals(&after), [3]);
    assert_eq!(after.delivery.closing, Closing::Commit(Lsn::new(200)));
    timeout(PATIENCE, feed).await.expect("the feed ends").unwrap();
}

#[tokio::test]
async fn dispatching_fails_once_the_delivery_has_ended() {
    let (mut lanes, work) = start(2);
    drop(work);
    let sent = timeout(PATIENCE, lanes.dispatch(vec![insert(&table(), 1)], Closing::Open));
    assert!(sent.await.expect("no hanging").is_err());
}
