//! Compressed transactions that are larger than memory.

use super::*;

/// As [`read`], with compressed transactions given in parts of so many bytes.
fn read_in_parts(log: &[Bytes], length: usize) -> Result<Vec<Out>, (Vec<Out>, Error)> {
    use super::super::super::kind::TRANSACTION_PAYLOAD;
    /// What a first part has at least: the protocol's have 16 MiB.
    const FIRST: usize = 60;
    let mut builder = builder(&["special"]);
    let mut out = Vec::new();
    for event in log {
        if event[4] != TRANSACTION_PAYLOAD {
            out.extend(read(&mut builder, std::slice::from_ref(event))?);
            continue;
        }
        let (first, rest) = (event.slice(..FIRST), event.slice(FIRST..));
        let ends = (length..rest.len()).step_by(length).chain([rest.len()]);
        let rest = ends.scan(0, |start, end| {
            let part = rest.slice(*start..end);
            *start = end;
            Some(part)
        });
        for part in [first].into_iter().chain(rest) {
            if let Err(error) = builder.give_part(&part) {
                return Err((out, error));
            }
            loop {
                let mut appended = Vec::new();
                let step = builder.next(&mut appended).unwrap();
                out.extend(appended.into_iter().map(|event| Out::Change(Box::new(event))));
                match step {
                    Step::Done => break,
                    Step::Table(description) => {
                        let definition = description.define(&CatalogTable::default()).unwrap();
                        builder.define(definition).unwrap();
                    }
                    Step::Commit { closed, end, transaction } => {
                        out.push(Out::Commit { closed, end, transaction });
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(out)
}

#[test]
fn a_compressed_transaction_in_parts_is_the_same() {
    let log = events(MYSQL[0]);
    let whole = format!("{:?}", read(&mut builder(&["special"]), &log).unwrap());
    for length in [1, 3, 4, 17, 100_000] {
        let parts = format!("{:?}", read_in_parts(&log, length).unwrap());
        assert_eq!(parts, whole, "in parts of {length}");
    }
}

#[test]
fn a_damaged_part_is_noticed_before_its_transaction_is_closed() {
    use super::super::super::kind::TRANSACTION_PAYLOAD;
    let mut log = events(MYSQL[0]);
    let at = log.iter().position(|event| event[4] == TRANSACTION_PAYLOAD).unwrap();
    let commits_before = commits(&read(&mut builder(&["special"]), &log[..at]).unwrap());
    let mut damaged = log[at].to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    log[at] = Bytes::from(damaged);
    for length in [1, 2, 100_000] {
        let (out, error) = read_in_parts(&log, length).unwrap_err();
        assert!(matches!(error, Error::Event(InvalidEvent::Frame(_))), "{error}");
        assert_eq!(commits(&out), commits_before, "in parts of {length}");
    }
}

/// As the event would be in a log without checksums.
fn unchecked(event: &Bytes) -> Vec<u8> {
    let size = event.len() - 4;
    let mut event = event[..size].to_vec();
    event[9..13].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
    event
}

/// The format of the log, without checksums.
pub(super) fn unchecked_format() -> Bytes {
    let mut format = events(MYSQL[0])[0].to_vec();
    let algorithm = format.len() - 5;
    format[algorithm] = 0;
    Bytes::from(format)
}

#[test]
fn a_call_stops_in_the_middle_of_a_compressed_transaction_of_many_small_events() {
    use super::super::super::kind::{GTID, TABLE_MAP, TRANSACTION_PAYLOAD, WRITE_ROWS, XID};
    const EVENTS: usize = 2_000;
    let log = events(MYSQL[0]);
    let gtid = log.iter().position(|event| event[4] == GTID && event.len() < 100).unwrap();
    let rows = log.iter().position(|event| event[4] == WRITE_ROWS).unwrap();
    let begin = log[..rows].iter().rposition(|event| event[4] == super::super::super::kind::QUERY);
    assert_eq!(log[rows - 1][4], TABLE_MAP);
    let xid = log.iter().find(|event| event[4] == XID).unwrap();
    let mut inside = unchecked(&log[begin.unwrap()]);
    for _ in 0..EVENTS {
        // Described each time, as by one statement after the other.
        inside.extend(unchecked(&log[rows - 1]));
        inside.extend(unchecked(&log[rows]));
    }
    inside.extend(unchecked(xid));
    let length = u32::try_from(inside.len()).unwrap().to_le_bytes();
    let fields = [&[1, 4, 253][..], &length[..3], &[2, 3, 252, 255, 0, 0]].concat();
    let body = [fields, inside].concat();
    let gtid = Bytes::from(unchecked(&log[gtid]));
    let end = u32::from_le_bytes(*gtid[13..].first_chunk().unwrap());
    let payload = event(TRANSACTION_PAYLOAD, end + 19 + u32::try_from(body.len()).unwrap(), &body);

    let mut builder = builder(&ALL);
    let (mut appended, mut all, mut calls) = (Vec::new(), 0, 0);
    for event in [unchecked_format(), gtid, payload] {
        builder.give(event);
        loop {
            let step = builder.next(&mut appended).unwrap();
            assert!(appended.len() <= 2 * ROWS_AT_ONCE, "{} at once", appended.len());
            all += appended.drain(..).count();
            calls += 1;
            match step {
                Step::Done => break,
                Step::Table(description) => {
                    let definition = description.define(&CatalogTable::default()).unwrap();
                    builder.define(definition).unwrap();
                }
                _ => {}
            }
        }
    }
    assert!(all >= EVENTS && calls > EVENTS / ROWS_AT_ONCE, "{all} in {calls}");
}
