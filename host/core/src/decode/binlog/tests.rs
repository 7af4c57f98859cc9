//! Files that real servers wrote, and what can be done to them.

use bytes::Bytes;
use proptest::prelude::*;

use super::event::{Decoder, Event, InvalidEvent};
use super::format::Flavor;
use super::kind;
use super::payload::Unpacked;
use super::table_map::{TableMap, code, table_map};

/// GTIDs and full metadata; the second file ends in statement format.
pub(super) const MYSQL: [&[u8]; 2] =
    [include_bytes!("golden/mysql-9.7.000001"), include_bytes!("golden/mysql-9.7.000002")];
/// No GTIDs, no checksums, minimal metadata.
pub(super) const MYSQL_MINIMAL: &[u8] = include_bytes!("golden/mysql-9.7-minimal.000001");
pub(super) const MARIADB: [&[u8]; 2] =
    [include_bytes!("golden/mariadb-10.11.000001"), include_bytes!("golden/mariadb-10.11.000002")];
pub(super) const MARIADB_11: [&[u8]; 2] =
    [include_bytes!("golden/mariadb-11.8.000001"), include_bytes!("golden/mariadb-11.8.000002")];
/// One history of the same tables on each server.
pub(super) const COMMON: [(&[u8], Flavor); 3] =
    [(MYSQL[0], Flavor::MySql), (MARIADB[0], Flavor::MariaDb), (MARIADB_11[0], Flavor::MariaDb)];

/// Every file with checksums.
const CHECKSUMMED: [&[u8]; 6] =
    [MYSQL[0], MYSQL[1], MARIADB[0], MARIADB[1], MARIADB_11[0], MARIADB_11[1]];

/// The events of a file.
pub(super) fn events(file: &[u8]) -> Vec<Bytes> {
    let mut events = Vec::new();
    let mut left = file.strip_prefix(b"\xfebin").expect("the magic number of a binlog");
    while !left.is_empty() {
        let size = u32::from_le_bytes(*left[9..].first_chunk().unwrap());
        let (event, behind) = left.split_at(usize::try_from(size).unwrap());
        events.push(Bytes::copy_from_slice(event));
        left = behind;
    }
    events
}

fn table_maps(file: &[u8], flavor: Flavor) -> Vec<TableMap> {
    let mut decoder = Decoder::default();
    let mut maps = Vec::new();
    for event in events(file) {
        if let Event::TableMap { description, .. } = decoder.decode(&event).unwrap().1 {
            maps.push(table_map(description, flavor).unwrap());
        }
    }
    maps
}

#[test]
fn every_event_of_real_files_is_understood() {
    let second = [MYSQL[1], MARIADB[1], MARIADB_11[1]].into_iter();
    let second = second.zip([Flavor::MySql, Flavor::MariaDb, Flavor::MariaDb]);
    let minimal = (MYSQL_MINIMAL, Flavor::MySql);
    for (file, flavor) in COMMON.into_iter().chain(second).chain([minimal]) {
        let mut decoder = Decoder::default();
        for event in events(file) {
            decoder.decode(&event).unwrap();
        }
        assert_eq!(decoder.format().unwrap().flavor, flavor);
    }
}

#[test]
fn a_compressed_transaction_holds_its_events() {
    let mut decoder = Decoder::default();
    let mut kinds = Vec::new();
    for event in events(MYSQL[0]) {
        if let (_, Event::Payload(mut payload)) = decoder.decode(&event).unwrap() {
            while let Unpacked::Event(event) = payload.next().unwrap() {
                kinds.push(decoder.decode_unpacked(&event).unwrap().0.kind);
            }
        }
    }
    let rows = [kind::TABLE_MAP, kind::WRITE_ROWS, kind::TABLE_MAP, kind::UPDATE_ROWS];
    assert_eq!(kinds, [&[kind::QUERY][..], &rows, &[kind::XID]].concat());
}

#[test]
fn all_servers_describe_the_same_table() {
    for (file, flavor) in COMMON {
        let maps = table_maps(file, flavor);
        let wide = maps.iter().find(|map| map.table == "wide").unwrap();
        assert_eq!((wide.schema.as_str(), wide.has_names()), ("d", true));
        assert_eq!(wide.primary_key, Some(vec![(0, 0), (1, 0)]));
        let column = |name: &str| {
            wide.columns.iter().find(|column| column.name.as_deref() == Some(name)).unwrap()
        };
        let unsigned = |name: &str| column(name).unsigned;
        assert_eq!([unsigned("a"), unsigned("b"), unsigned("d")], [true, false, true].map(Some));
        assert_eq!([unsigned("y"), unsigned("f"), unsigned("t")], [Some(true), Some(false), None]);
        assert_eq!((column("e").real_code(), column("e").metadata), (code::ENUM, 0x01F7));
        assert_eq!(column("e").labels, Some(vec![b"x".to_vec(), b"y,z".to_vec()]));
        assert_eq!(column("s").labels, Some(vec![b"p".to_vec(), b"q".to_vec()]));
        assert_eq!((column("t").code, column("t").collation), (code::BLOB, Some(8)));
        assert_eq!((column("bl").code, column("bl").collation), (code::BLOB, Some(63)));
        assert_eq!((column("ch").real_code(), column("ch").metadata), (code::STRING, 0x18EE));
        assert_eq!((column("bi").metadata, column("bi").collation), (0x04FE, Some(63)));
        assert_eq!((column("bt").code, column("bt").metadata), (code::BIT, 0x0101));
        assert_eq!((column("ts").code, column("ts").metadata), (code::TIMESTAMP2, 2));
        assert_eq!((column("ti").code, column("ti").metadata), (code::TIME2, 6));
        assert_eq!((column("geo").code, column("geo").geometry), (code::GEOMETRY, Some(0)));
        let prefixed = maps.iter().find(|map| map.table == "prefixed").unwrap();
        assert_eq!(prefixed.primary_key, Some(vec![(0, 10), (1, 0)]));
    }
    let maps = table_maps(MYSQL[0], Flavor::MySql);
    let special = maps.iter().find(|map| map.table == "special").unwrap();
    assert_eq!((special.columns[1].code, special.columns[1].dimensions), (code::VECTOR, Some(3)));
    assert_eq!(special.columns[2].visible, Some(false));
    for file in [MARIADB[0], MARIADB_11[0]] {
        let maps = table_maps(file, Flavor::MariaDb);
        let special = maps.iter().find(|map| map.table == "special").unwrap();
        assert_eq!(special.columns[4].code, code::BLOB_COMPRESSED);
        assert_eq!(special.columns[5].code, code::VARCHAR_COMPRESSED);
    }
    for map in table_maps(MYSQL_MINIMAL, Flavor::MySql) {
        assert!(!map.has_names());
    }
}

/// Written by MySQL 9.7 for `id int PRIMARY KEY, c blob, v vector(3), n text CHARACTER SET latin1`.
const VECTOR_AMONG_TEXTS: [u8; 52] = [
    0x20, 0x02, 0, 0, 0, 0, 0x01, 0, 0x01, 0x67, 0, 0x01, 0x71, 0, 0x04, 0x03, 0xFC, 0xF2, 0xFC,
    0x03, 0x02, 0x04, 0x02, 0x0E, 0x01, 0x01, 0x00, 0x02, 0x03, 0x3F, 0x02, 0x08, 0x0D, 0x01, 0x03,
    0x04, 0x09, 0x02, 0x69, 0x64, 0x01, 0x63, 0x01, 0x76, 0x01, 0x6E, 0x08, 0x01, 0x00, 0x0C, 0x01,
    0xF0,
];

#[test]
fn a_vector_is_counted_among_the_columns_with_a_collation() {
    let mut decoder = Decoder::default();
    let mut description = events(MYSQL[0])[0].to_vec();
    let algorithm = description.len() - 5;
    description[algorithm] = 0;
    decoder.decode(&description.into()).unwrap();
    let size = u32::try_from(19 + VECTOR_AMONG_TEXTS.len()).unwrap();
    let mut event = [0; 19].to_vec();
    event[4] = kind::TABLE_MAP;
    event[9..13].copy_from_slice(&size.to_le_bytes());
    event.extend(VECTOR_AMONG_TEXTS);
    let event = Bytes::from(event);
    let Ok((_, Event::TableMap { description, .. })) = decoder.decode(&event) else {
        panic!("no description of a table");
    };
    let map = table_map(description, Flavor::MySql).unwrap();
    let collations: Vec<_> = map.columns.iter().map(|column| column.collation).collect();
    assert_eq!(collations, [None, Some(63), Some(63), Some(8)]);
    assert_eq!(map.columns[2].dimensions, Some(3));
}

#[test]
fn what_is_not_known_stops_even_where_it_may_be_ignored() {
    let mut decoder = Decoder::default();
    let all = events(MYSQL[1]);
    decoder.decode(&all[0]).unwrap();
    let mut unknown = all[1].to_vec();
    unknown[4] = 43;
    let end = unknown.len() - 4;
    let mut crc = flate2::Crc::new();
    crc.update(&unknown[..end]);
    unknown[end..].copy_from_slice(&crc.sum().to_le_bytes());
    let error = decoder.decode(&unknown.into()).unwrap_err();
    assert!(matches!(error, InvalidEvent::Unknown { kind: 43, is_ignorable: true }), "{error}");
}

#[test]
fn a_damaged_event_is_not_read() {
    let mut decoder = Decoder::default();
    let all = events(MYSQL[0]);
    decoder.decode(&all[0]).unwrap();
    for event in &all[1..] {
        for place in [19, event.len() / 2, event.len() - 1] {
            let mut damaged = event.to_vec();
            damaged[place] ^= 0x10;
            let may_lack_it = event[4] == kind::ROTATE;
            assert!(may_lack_it || decoder.decode(&damaged.into()).is_err());
        }
    }
}

proptest! {
    /// Without checksums, so that what is mutated reaches the decoders behind them.
    #[test]
    fn no_mutation_makes_a_decoder_panic_or_loop(
        choice in 0..1_800_usize,
        mutations in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        cut in any::<u16>(),
    ) {
        let all = events(CHECKSUMMED[choice % 6]);
        let mut decoder = Decoder::default();
        let mut description = all[0].to_vec();
        let algorithm = description.len() - 5;
        description[algorithm] = 0;
        decoder.decode(&description.into()).unwrap();
        let mut event = all[1 + choice / 6 % (all.len() - 1)].to_vec();
        event.truncate(event.len() - 4);
        for (place, byte) in mutations {
            let length = event.len();
            event[usize::from(place) % length] = byte;
        }
        if cut % 4 == 0 {
            event.truncate(usize::from(cut) % event.len());
        }
        let size = u32::try_from(event.len()).unwrap();
        if let Some(place) = event.get_mut(9..13) {
            place.copy_from_slice(&size.to_le_bytes());
        }
        let event = Bytes::from(event);
        let flavor = decoder.format().unwrap().flavor;
        match decoder.decode(&event) {
            Ok((_, Event::TableMap { description, .. })) => {
                let _ = table_map(description, flavor);
            }
            Ok((_, Event::Payload(mut payload))) => {
                while let Ok(Unpacked::Event(event)) = payload.next() {
                    let _ = decoder.decode_unpacked(&event);
                }
            }
            _ => {}
        }
    }

    /// Rows of one server under the mutated descriptions of another included.
    #[test]
    fn no_mutation_makes_the_stream_panic_or_loop(
        choice in 0..6_usize,
        mutations in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..8),
    ) {
        let mut log = events(CHECKSUMMED[choice]);
        let mut description = log[0].to_vec();
        let algorithm = description.len() - 5;
        description[algorithm] = 0;
        log[0] = description.into();
        for event in &mut log[1..] {
            let mut plain = event[..event.len() - 4].to_vec();
            let size = u32::try_from(plain.len()).unwrap();
            plain[9..13].copy_from_slice(&size.to_le_bytes());
            *event = plain.into();
        }
        for (place, byte) in mutations {
            let place = usize::try_from(place).unwrap();
            let index = 1 + place % (log.len() - 1);
            let mut event = log[index].to_vec();
            let at = place / log.len() % event.len();
            if !(9..17).contains(&at) {
                event[at] = byte;
            }
            log[index] = event.into();
        }
        super::transaction::tests::read_all(&log);
    }
}
