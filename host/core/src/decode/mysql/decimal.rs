//! DECIMAL, from the servers' binary form to the text that they print.
//!
//! The digits before and behind the point are packed apart, nine to four big-endian bytes, with a shorter group at the
//! outer ends. The first bit is the sign, inverted so that the bytes sort as the numbers do; a negative number has all
//! bits inverted. (`decimal2bin` in `strings/decimal.c` of either server describes the form.)

use super::cell::Reason;

const DIGITS_PER_GROUP: u8 = 9;
const GROUP_BYTES: usize = 4;
/// Bytes of a group of so many digits.
const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
/// Nine groups, which is what the servers calculate with. A column has at most 65 digits, but a number inside JSON is
/// stored with the digits of its first group filled up.
const PRECISION_MAX: u8 = 81;

struct Form {
    /// Digits of the short group before the point, and the full groups that follow it.
    short_whole: u8,
    whole_groups: u8,
    fraction_groups: u8,
    short_fraction: u8,
}

impl Form {
    fn new(precision: u8, scale: u8) -> Result<Self, Reason> {
        let whole = precision.checked_sub(scale).ok_or(Reason::Malformed)?;
        if precision > PRECISION_MAX {
            return Err(Reason::Malformed);
        }
        Ok(Self {
            short_whole: whole % DIGITS_PER_GROUP,
            whole_groups: whole / DIGITS_PER_GROUP,
            fraction_groups: scale / DIGITS_PER_GROUP,
            short_fraction: scale % DIGITS_PER_GROUP,
        })
    }

    fn bytes(&self) -> usize {
        let of = |digits: u8| BYTES.get(usize::from(digits)).copied().unwrap_or_default();
        let groups = usize::from(self.whole_groups) + usize::from(self.fraction_groups);
        of(self.short_whole) + of(self.short_fraction) + groups * GROUP_BYTES
    }

    /// The digits of each group, from the left.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let whole = std::iter::once(self.short_whole)
            .chain(std::iter::repeat_n(DIGITS_PER_GROUP, usize::from(self.whole_groups)))
            .map(|digits| Group { digits, in_fraction: false });
        let fraction = std::iter::repeat_n(DIGITS_PER_GROUP, usize::from(self.fraction_groups))
            .chain(std::iter::once(self.short_fraction))
            .map(|digits| Group { digits, in_fraction: true });
        whole.chain(fraction).filter(|group| group.digits > 0)
    }
}

struct Group {
    digits: u8,
    in_fraction: bool,
}

pub(super) fn length(precision: u8, scale: u8) -> Result<usize, Reason> {
    Ok(Form::new(precision, scale)?.bytes())
}

/// The text of a number of exactly [`length`] bytes.
pub(super) fn text(precision: u8, scale: u8, bytes: &[u8]) -> Result<String, Reason> {
    let form = Form::new(precision, scale)?;
    let first = *bytes.first().ok_or(Reason::Short)?;
    let negative = first & 0x80 == 0;
    let mask = if negative { 0xff } else { 0 };
    let mut text = String::with_capacity(usize::from(precision) + 3);
    if negative {
        text.push('-');
    }
    let start = text.len();
    let mut rest = bytes;
    let mut in_fraction = false;
    // The sign's bit is the first of all, whichever group it falls into.
    let mut sign = 0x80;
    for group in form.groups() {
        let size = BYTES.get(usize::from(group.digits)).copied().ok_or(Reason::Malformed)?;
        let (packed, tail) = rest.split_at_checked(size).ok_or(Reason::Short)?;
        rest = tail;
        let mut number = 0_u32;
        for byte in packed {
            number = (number << 8) | u32::from(byte ^ mask ^ sign);
            sign = 0;
        }
        if number >= 10_u32.pow(u32::from(group.digits)) {
            return Err(Reason::Malformed);
        }
        if group.in_fraction && !in_fraction {
            in_fraction = true;
            if text.len() == start {
                text.push('0');
            }
            text.push('.');
        }
        if in_fraction || text.len() > start {
            push_digits(&mut text, number, group.digits);
        } else if number > 0 {
            text.push_str(&number.to_string());
        }
    }
    if text.len() == start {
        text.push('0');
    }
    Ok(text)
}

/// Exactly so many digits, with leading zeros.
fn push_digits(text: &mut String, number: u32, digits: u8) {
    let mut place = 10_u32.pow(u32::from(digits));
    let mut left = number;
    for _ in 0..digits {
        place /= 10;
        let digit = left / place;
        left %= place;
        text.push(char::from(b'0' + u8::try_from(digit).unwrap_or_default()));
    }
}

/// The text without the leading zeros that a ZEROFILL column is printed with; the log knows nothing of them.
pub(super) fn without_padding(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [b'0', rest @ ..] = text {
        if !matches!(rest.first(), Some(b'0'..=b'9')) {
            break;
        }
        text = rest;
    }
    text
}

/// Whether a client got a number of this form: digits with at most one point between them, and a sign.
pub(super) fn is_decimal(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, fraction) = match memchr::memchr(b'.', digits) {
        Some(point) => (digits.get(..point), digits.get(point + 1..)),
        None => (Some(digits), None),
    };
    let all = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    whole.is_some_and(all) && fraction.is_none_or(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_format_s_description_reads_back() {
        // 1234567890.1234 as decimal(14,4), from the comment on decimal2bin.
        let bytes = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        assert_eq!(length(14, 4), Ok(7));
        assert_eq!(text(14, 4, &bytes), Ok("1234567890.1234".into()));
        let negative = bytes.map(|byte| !byte);
        assert_eq!(text(14, 4, &negative), Ok("-1234567890.1234".into()));
    }

    #[test]
    fn zero_has_one_digit_before_the_point_and_the_scale_behind_it() {
        assert_eq!(text(5, 2, &[0x80, 0, 0]), Ok("0.00".into()));
        assert_eq!(text(3, 3, &[0x80, 5]), Ok("0.005".into()));
        assert_eq!(text(10, 0, &[0x80, 0, 0, 0, 0]), Ok("0".into()));
    }

    #[test]
    fn a_group_that_holds_more_than_its_digits_is_refused() {
        assert_eq!(text(2, 0, &[0xff]), Err(Reason::Malformed));
        assert_eq!(text(2, 3, &[0xff]), Err(Reason::Malformed));
        assert_eq!(text(82, 0, &[0xff; 40]), Err(Reason::Malformed));
        assert_eq!(text(5, 2, &[0x80, 0]), Err(Reason::Short));
    }

    #[test]
    fn zerofill_s_zeros_are_taken_away() {
        assert_eq!(without_padding(b"0000012.50"), b"12.50");
        assert_eq!(without_padding(b"00000.50"), b"0.50");
        assert_eq!(without_padding(b"000"), b"0");
        assert!(is_decimal(b"-0.5") && is_decimal(b"7"));
        assert!(
            !is_decimal(b"1.") && !is_decimal(b".5") && !is_decimal(b"1.2.3") && !is_decimal(b"")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_decimal_or_an_error(
            precision in 0_u8..=255, scale in 0_u8..=255, bytes in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            if let Ok(text) = text(precision, scale, &bytes) {
                prop_assert!(is_decimal(text.as_bytes()));
            }
        }
    }
}
