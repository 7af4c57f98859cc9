//! Positions that are closed where no transaction ends.

use super::*;

fn rotate(file: &str) -> Bytes {
    event(
        super::super::super::kind::ROTATE,
        0,
        &[&4_u64.to_le_bytes()[..], file.as_bytes()].concat(),
    )
}

#[test]
fn an_idle_log_closes_positions_too() {
    use super::super::super::kind::HEARTBEAT;
    let mut builder = builder(&["plain"]);
    let heartbeat = |end: u32| event(HEARTBEAT, end, b"binlog.000001");
    let log = [rotate("binlog.000001"), heartbeat(4), heartbeat(900), heartbeat(900)];
    assert_eq!(commits(&read(&mut builder, &log).unwrap()), [Lsn::binlog(0, 1, 900)]);
    let log = [rotate("binlog.000002"), heartbeat(950)];
    assert_eq!(commits(&read(&mut builder, &log).unwrap()), [Lsn::binlog(0, 2, 4)]);
}

#[test]
fn a_file_that_ends_behind_its_head_is_closed_there() {
    use super::super::super::kind::{
        BINLOG_CHECKPOINT, FORMAT_DESCRIPTION, GTID_LIST, PREVIOUS_GTIDS,
    };
    for file in [MYSQL[0], MYSQL_MINIMAL, MARIADB[0], MARIADB_11[0]] {
        let all = events(file);
        let size = |events: &[Bytes]| u64::try_from(events.iter().map(Bytes::len).sum::<usize>());
        let head = all.iter().take_while(|event| {
            let kinds = [FORMAT_DESCRIPTION, PREVIOUS_GTIDS, GTID_LIST, BINLOG_CHECKPOINT];
            kinds.contains(&event[4])
        });
        let head = &all[..head.count()];
        let out = read(&mut builder(&["plain"]), head).unwrap();
        let end = 4 + size(head).unwrap();
        assert_eq!(commits(&out).last(), Some(&Lsn::binlog(0, 1, end)));
    }
}

#[test]
fn a_heartbeat_inside_a_transaction_closes_nothing() {
    use super::super::super::kind::{HEARTBEAT, XID};
    let mut log = events(MYSQL[0]);
    let commit = log.iter().position(|event| event[4] == XID).unwrap();
    log.truncate(commit);
    log.push(event(HEARTBEAT, 1 << 20, b"binlog.000001"));
    let mut builder = builder(&["plain"]);
    let out = read(&mut builder, &log).unwrap();
    assert!(builder.is_open());
    assert!(commits(&out).iter().all(|closed| closed.offset() < 1 << 20));
}
