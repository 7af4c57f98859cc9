//! What was not written by an encoder.

use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Entries of every kind, with every case in them.
fn samples() -> Vec<Vec<u8>> {
    encode(&vectors::entries())
}

/// Reads the entries in front of it, then this one.
fn decode_last(before: &[Vec<u8>], entry: &[u8]) -> Result<Entry, Malformed> {
    let mut decoder = Decoder::new();
    for entry in before {
        decoder.decode(entry).unwrap();
    }
    decoder.decode(entry)
}

fn refused(value: &impl Serialize) -> Malformed {
    Decoder::new().decode(&by_hand(value)).expect_err("it is not an entry")
}

/// The definition of `orders`, and a batch that closes nothing, with one change of it.
fn batch_of(change: &impl Serialize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let definition = encode(&[Entry::Relation(orders(Initial::Null))]);
    let value = definition.first().unwrap().get(1..).unwrap();
    let run = (0, 0, 5, 0, None::<u8>);
    let batch = by_hand(&(tag::BATCH, (1,), (xxh3_64(value),), (run, change)));
    (definition, batch)
}

fn refused_change(change: &impl Serialize) -> Malformed {
    let (definition, batch) = batch_of(change);
    decode_last(&definition, &batch).expect_err("it is not a change")
}

#[test]
fn an_entry_is_complete_or_refused() {
    let samples = samples();
    for (index, entry) in samples.iter().enumerate() {
        let (before, _) = samples.split_at(index);
        for length in 0..entry.len() {
            let cut = decode_last(before, &entry[..length]);
            assert_eq!(cut, Err(Malformed::Truncated), "entry {index} at {length}");
        }
        let longer = [&entry[..], &[0]].concat();
        assert_eq!(decode_last(before, &longer), Err(Malformed::Surplus));
    }
}

proptest! {
    #[test]
    fn damaged_bytes_do_not_panic(
        mutations in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..8),
    ) {
        let samples = samples();
        let mut decoder = Decoder::new();
        for entry in &samples {
            let mut damaged = entry.clone();
            for (place, byte) in &mutations {
                let place = *place as usize % damaged.len();
                // The version would end it at once.
                if let Some(place) = damaged.get_mut(place.max(1)) {
                    *place = *byte;
                }
            }
            let _ = decoder.decode(&damaged);
            prop_assert!(decoder.decode(entry).is_ok());
        }
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Decoder::new().decode(&bytes);
        let behind_version = [&[VERSION], &bytes[..]].concat();
        let _ = Decoder::new().decode(&behind_version);
    }
}

#[test]
fn a_later_version_says_what_to_do() {
    let error = Decoder::new().decode(&[2, 0xC0]).unwrap_err();
    assert_eq!(error, Malformed::Version(2));
    assert_eq!(
        error.to_string(),
        "entry in version 2 of the format, and only 1 is known: it was written by a newer dovetail, start that one"
    );
}

#[test]
fn a_length_is_not_believed() {
    let prefixes = [
        // Tables, and changes.
        by_hand(&(tag::BATCH, (1,), [0; 0], [0; 0])),
        // Columns, and key.
        by_hand(&(tag::RELATION, 1, 1, "", "", [0; 0], [0; 0])),
    ];
    for entry in prefixes {
        for (place, _) in entry.iter().enumerate().filter(|(_, byte)| **byte == 0x90) {
            let claimed = [&entry[..place], &[0xDD, 0xFF, 0xFF, 0xFF, 0xFF]].concat();
            assert_eq!(Decoder::new().decode(&claimed), Err(Malformed::Truncated));
        }
    }
    // A name, and a note of 4 GiB.
    for head in [by_hand(&(tag::RELATION, 1, 1)), by_hand(&(tag::MARK, 1, 1, None::<u8>))] {
        let mut claimed = head;
        claimed[1] += 5 - 3;
        claimed.extend([0xDB, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(Decoder::new().decode(&claimed), Err(Malformed::Truncated));
    }
    // A row, which is the last of a batch.
    let (definition, mut batch) = batch_of(&(1, 1, false, 0, [0; 0]));
    assert_eq!(batch.pop(), Some(0x90));
    batch.extend([0xDD, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert_eq!(decode_last(&definition, &batch), Err(Malformed::Truncated));
}

#[test]
fn an_unknown_kind_is_named() {
    let unknown = |what| Malformed::Tag { what, tag: 99 };
    assert_eq!(refused(&(99,)), unknown("entry"));
    assert_eq!(refused(&(tag::BATCH, (99,), [0; 0], [0; 0])), unknown("closing"));
    let run = (0, 0, 5, 0, (99, 1));
    assert_eq!(refused(&(tag::BATCH, (1,), [0; 0], (run,))), unknown("transaction"));
    let column = |kind: u8, initial: u8| ("a", "text", -1, kind, (initial,), None::<i16>);
    let relation = |column| (tag::RELATION, 1, 1, "public", "t", (column,), [0; 0]);
    assert_eq!(refused(&relation(column(99, 2))), unknown("kind of column"));
    assert_eq!(refused(&relation(column(7, 99))), unknown("initial value"));
    assert_eq!(refused_change(&(99, 1, false)), unknown("change"));
    assert_eq!(refused_change(&(1, 1, false, 0, (99,))), unknown("value"));
}

#[test]
fn a_change_by_hand_is_one() {
    let (definition, batch) = batch_of(&(1, 0, false, 0, (8, "secret")));
    let event = read(&orders(Initial::Null), Value::text("secret"));
    let event = Event { commit_time_micros: 0, ..event };
    let batch_read = Entry::Batch { events: vec![event], closing: Closing::Open };
    assert_eq!(decode_last(&definition, &batch), Ok(batch_read));
}

#[test]
fn a_row_has_a_value_for_each_column() {
    let row = Malformed::Row { table: "public.orders".into(), columns: 1 };
    assert_eq!(refused_change(&(1, 1, false, 0, [0; 0])), row);
    assert_eq!(refused_change(&(1, 1, false, 0, (0, 0))), row);
    assert_eq!(refused_change(&(3, 1, false, 0, (0, 0), (0,))), row);
    assert_eq!(refused_change(&(3, 1, false, 0, (0,), (0, 0))), row);
    assert_eq!(row.to_string(), "row of public.orders that has not a value for each of 1 columns");
}

#[test]
fn what_refers_to_nothing_is_refused() {
    assert_eq!(refused(&(tag::BATCH, (1,), (7,), [0; 0])), Malformed::NotDescribed(7));
    assert_eq!(refused_change(&(5, 1, false, 1)), Malformed::Form);
    let outside_a_run = (5, 1, false, 0);
    assert_eq!(refused(&(tag::BATCH, (1,), [0; 0], (outside_a_run,))), Malformed::Form);
    let key = Malformed::Key { table: "public.t".into() };
    assert_eq!(refused(&(tag::RELATION, 1, 1, "public", "t", [0; 0], (0,))), key);
}

#[test]
fn another_form_is_refused_without_its_content() {
    for wrong in [
        // Text for a number, bytes for text, text that is a number, a number too large, a uuid too short.
        refused_change(&(1, 1, false, 0, (3, "secret"))),
        refused_change(&(1, 1, false, 0, (8, 424_242))),
        refused_change(&(1, 1, false, 0, (12, 424_242_424_242_i64))),
        refused_change(&(1, 1, false, 0, (11, "secret"))),
        refused_change(&(1, 1, false, 0, (2, 424_242))),
        refused_change(&(1, 1, "secret", 0, (0,))),
        refused_change(&(1, 1, false, 0, "secret")),
        // Elements that nobody asked for.
        refused_change(&(5, 1, false, 0, "secret")),
        refused(&"secret"),
    ] {
        assert_eq!(wrong, Malformed::Form);
        assert_eq!(wrong.to_string(), "entry that has not the form of version 1");
    }
}

#[test]
fn bytes_are_no_array_of_numbers() {
    let column = ("a", "text", -1, 7, None::<u8>, None::<i16>);
    let mut relation = by_hand(&(tag::RELATION, 1, 1, "public", "t", (column,), (0,)));
    assert!(Decoder::new().decode(&relation).is_ok());
    relation.truncate(relation.len() - 2);
    relation.extend([0xC4, 1, 0]);
    assert_eq!(Decoder::new().decode(&relation), Err(Malformed::Form));
}
