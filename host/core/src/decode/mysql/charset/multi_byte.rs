//! Chinese, Japanese and Korean sets.
//!
//! The bytes are cut into characters first, by the set's own rule, so that a code which differs between the server and
//! `encoding_rs` is looked up as a whole.

use encoding_rs::{BIG5, EUC_JP, EUC_KR, Encoding, GB18030, GBK, SHIFT_JIS};

use super::Charset;
use super::runs::{self, Gap, Run};

/// Bytes of the first character.
type Length = fn(&[u8]) -> Option<usize>;

struct Rules {
    encoding: &'static Encoding,
    runs: &'static [Run],
    gaps: &'static [Gap],
    length: Length,
}

fn rules(charset: Charset) -> Option<Rules> {
    let (encoding, runs, gaps, length): (_, _, _, Length) = match charset {
        Charset::Big5 => (BIG5, runs::BIG5_RUNS, runs::BIG5_GAPS, pair),
        Charset::EucKr => (EUC_KR, &[] as &[Run], &[] as &[Gap], pair),
        Charset::Gbk => (GBK, &[], runs::GBK_GAPS, pair),
        Charset::Gb2312 => (GBK, runs::GB2312_RUNS, runs::GB2312_GAPS, pair),
        Charset::Gb18030 => (GB18030, runs::GB18030_RUNS, &[], two_or_four),
        Charset::Sjis => (SHIFT_JIS, runs::SJIS_RUNS, runs::SJIS_GAPS, shifted),
        Charset::Cp932 => (SHIFT_JIS, &[], &[], shifted),
        Charset::Ujis => (EUC_JP, runs::UJIS_RUNS, runs::UJIS_GAPS, packed),
        Charset::EucJpMs => (EUC_JP, runs::EUCJPMS_RUNS, &[], packed),
        _ => return None,
    };
    Some(Rules { encoding, runs, gaps, length })
}

/// `None` for other sets, and for bytes that the server does not convert.
pub(super) fn text(charset: Charset, bytes: &[u8]) -> Option<String> {
    let rules = rules(charset)?;
    let mut text = String::with_capacity(bytes.len() * 2);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if first.is_ascii() {
            text.push(char::from(*first));
            rest = rest.get(1..)?;
            continue;
        }
        let (character, tail) = rest.split_at_checked((rules.length)(rest)?)?;
        rules.push(&mut text, character)?;
        rest = tail;
    }
    Some(text)
}

impl Rules {
    fn push(&self, text: &mut String, bytes: &[u8]) -> Option<()> {
        let code = bytes.iter().fold(0_u32, |code, byte| (code << 8) | u32::from(*byte));
        let behind = self.gaps.partition_point(|(first, _)| *first <= code);
        if let Some((_, last)) = behind.checked_sub(1).and_then(|index| self.gaps.get(index))
            && code <= *last
        {
            return None;
        }
        let behind = self.runs.partition_point(|(first, _, _)| *first <= code);
        if let Some((first, last, character)) =
            behind.checked_sub(1).and_then(|index| self.runs.get(index))
            && code <= *last
        {
            text.push(char::from_u32(character + (code - first))?);
            return Some(());
        }
        let decoded = self.encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
        let mut characters = decoded.chars();
        text.push(characters.next()?);
        // One code is one character; two would be bytes cut wrongly, which the library reads one by one.
        characters.next().is_none().then_some(())
    }
}

/// A lead byte and a second one.
fn pair(bytes: &[u8]) -> Option<usize> {
    (bytes.len() >= 2).then_some(2)
}

/// Half-width katakana stand alone.
fn shifted(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0xa1..=0xdf => Some(1),
        0x80 | 0xa0 | 0xfd.. => None,
        _ => pair(bytes),
    }
}

/// A single shift of three takes two bytes after it.
fn packed(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0x8f => Some(3),
        0x8e | 0xa1..=0xfe => Some(2),
        _ => None,
    }
}

/// A digit in the second place makes it four.
fn two_or_four(bytes: &[u8]) -> Option<usize> {
    Some(if bytes.get(1)?.is_ascii_digit() { 4 } else { 2 })
}
