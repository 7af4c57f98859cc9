//! Every code of every set against real servers. `vectors/charsets.tsv` holds, of each set, how many codes MySQL 9.7,
//! MariaDB 10.11 and MariaDB 11.8 convert to exactly one character, and a digest of all of them in order.

use xxhash_rust::xxh3::Xxh3;

use super::*;

const CONVERTED: &str = include_str!("../vectors/charsets.tsv");

/// All that could be a code: of one byte, of two, and of the longer forms that some sets have.
fn codes(charset: Charset) -> Vec<Vec<u8>> {
    let mut codes: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    if charset.bytes_per_character() == 1 {
        return codes;
    }
    let pairs = || (0x80..=u8::MAX).flat_map(|lead| (0..=u8::MAX).map(move |last| [lead, last]));
    codes.extend(pairs().map(|pair| pair.to_vec()));
    if matches!(charset, Charset::Ujis | Charset::EucJpMs) {
        codes.extend(pairs().map(|[second, third]| vec![0x8f, second, third]));
    }
    if charset == Charset::Gb18030 {
        let halves =
            || (0x81..=0xfe_u8).flat_map(|lead| (b'0'..=b'9').map(move |last| [lead, last]));
        codes.extend(
            halves().flat_map(|first| halves().map(move |second| [first, second].concat())),
        );
    }
    codes
}

fn converted(charset: Charset) -> (usize, String) {
    let (mut count, mut digest) = (0, Xxh3::new());
    for code in codes(charset) {
        let hex: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        let Ok(text) = charset.text(code.into()) else { continue };
        let mut characters = text.chars();
        let (Some(character), None) = (characters.next(), characters.next()) else { continue };
        count += 1;
        digest.update(format!("{hex}:{:x}\n", u32::from(character)).as_bytes());
    }
    (count, format!("{:016x}", digest.digest()))
}

#[test]
fn every_code_becomes_the_character_that_the_servers_make_of_it() {
    let mut sets = 0;
    for line in CONVERTED.lines() {
        let [name, count, digest] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let charset = Charset::named(name).unwrap();
        let expected = (count.parse().unwrap(), digest.to_owned());
        assert_eq!(converted(charset), expected, "{name}");
        sets += 1;
    }
    assert_eq!(sets, 34);
}

#[test]
fn unicode_sets_take_whole_characters_only() {
    let text = |charset: Charset, bytes: &[u8]| {
        charset.text(Bytes::copy_from_slice(bytes)).map(|text| text.to_string())
    };
    assert_eq!(text(Charset::Ucs2, &[0, 0x61, 0x65, 0xe5]), Ok("a日".into()));
    assert_eq!(text(Charset::Utf16, &[0xd8, 0x3d, 0xde, 0]), Ok("😀".into()));
    assert_eq!(text(Charset::Utf16Le, &[0x3d, 0xd8, 0, 0xde]), Ok("😀".into()));
    assert_eq!(text(Charset::Utf32, &[0, 1, 0xf6, 0]), Ok("😀".into()));
    for (charset, bytes) in [
        (Charset::Ucs2, [0xd8, 0x3d].as_slice()),
        (Charset::Ucs2, &[0]),
        (Charset::Utf16, &[0xd8, 0x3d]),
        (Charset::Utf32, &[0, 0x11, 0, 0]),
        (Charset::Utf32, &[0, 0, 0]),
        (Charset::Utf8Mb4, &[0xff]),
        (Charset::Ascii, &[0x80]),
        (Charset::Hebrew, &[0xff]),
    ] {
        assert_eq!(text(charset, bytes), Err(NotText { charset }));
    }
}

#[test]
fn a_set_s_name_and_collation_lead_to_it() {
    for (name, charset) in NAMES.iter().filter(|(name, _)| *name != "utf8") {
        assert_eq!(Charset::named(name), Ok(*charset));
        assert_eq!(charset.name(), *name);
    }
    for (collation, charset) in [
        (8, Charset::Latin1),
        (33, Charset::Utf8Mb3),
        (45, Charset::Utf8Mb4),
        (63, Charset::Binary),
        (248, Charset::Gb18030),
        (255, Charset::Utf8Mb4),
        (2_304, Charset::Utf8Mb4),
    ] {
        assert_eq!(Charset::of_collation(collation), Ok(charset));
    }
    for unknown in [0, 17, 100, 127, 324, 3_272, u32::MAX] {
        assert_eq!(Charset::of_collation(unknown), Err(Unsupported::Collation(unknown)));
    }
}
