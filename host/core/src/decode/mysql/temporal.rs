//! Dates and times, from the forms of the log and from what a client got.
//!
//! Both halves end in the same two functions, [`Moment::date_time`] and [`duration`], so that a value of the scan
//! equals the same value of the stream. What the calendar does not have (`0000-00-00`, `2020-00-00`, and 31 February
//! where `ALLOW_INVALID_DATES` let it in) stays the server's text.
//!
//! A TIME is a duration of up to 838:59:59 with a sign, not a time of day.

use super::cell::Reason;
use crate::decode::temporal::{MICROS_PER_DAY, MICROS_PER_SECOND, days_from_civil};
use crate::value::{TemporalSpecial, Value};

/// Calendar fields, as stored: any of them may be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moment {
    pub(super) year: u32,
    pub(super) month: u32,
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    pub(super) second: u32,
    pub(super) micros: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Zone {
    /// DATETIME
    None,
    /// TIMESTAMP: the fields are of UTC.
    Utc,
}

impl Moment {
    /// Fields that no column of either server can hold, not even as an invalid date.
    fn is_storable(&self) -> bool {
        self.year <= 9_999
            && self.month <= 12
            && self.day <= 31
            && self.hour <= 23
            && self.minute <= 59
            && self.second <= 59
            && self.micros < 1_000_000
    }

    /// Days since 1970-01-01; `None` for what the calendar does not have. A year 0 is what the servers take for a year
    /// that is not known; whoever counts years from 1 would read one before Christ in its days.
    fn days(&self) -> Option<i64> {
        let days_in_month = match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if self.year.is_multiple_of(4)
                && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400)) =>
            {
                29
            }
            2 => 28,
            _ => return None,
        };
        if self.year == 0 || self.day == 0 || self.day > days_in_month {
            return None;
        }
        let (year, month, day) = (self.year.into(), self.month.into(), self.day.into());
        Some(days_from_civil(year, month, day))
    }

    pub(super) fn date(self) -> Result<Value, Reason> {
        if !self.is_storable() {
            return Err(Reason::Malformed);
        }
        match self.days().and_then(|days| i32::try_from(days).ok()) {
            Some(days) => Ok(Value::Date(days)),
            None => Ok(literal(self.print_date())),
        }
    }

    /// `fraction`: the digits that the column prints.
    pub(super) fn date_time(self, zone: Zone, fraction: u8) -> Result<Value, Reason> {
        if !self.is_storable() {
            return Err(Reason::Malformed);
        }
        let Some(days) = self.days() else {
            let Self { hour, minute, second, micros, .. } = self;
            let mut text = format!("{} {hour:02}:{minute:02}:{second:02}", self.print_date());
            push_fraction(&mut text, micros, fraction);
            return Ok(literal(text));
        };
        let seconds = i64::from(self.hour * 3_600 + self.minute * 60 + self.second);
        let micros = days * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + i64::from(self.micros);
        Ok(match zone {
            Zone::None => Value::Timestamp(micros),
            Zone::Utc => Value::TimestampTz(micros),
        })
    }

    fn print_date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn literal(text: String) -> Value {
    Value::TemporalSpecial(TemporalSpecial::Literal(text.into()))
}

/// Appends a point and so many digits.
pub(super) fn push_fraction(text: &mut String, micros: u32, digits: u8) {
    if digits > 0 {
        let all = format!("{micros:06}");
        text.push('.');
        text.push_str(all.get(..usize::from(digits)).unwrap_or(&all));
    }
}

pub(super) fn duration(
    negative: bool,
    hours: u32,
    minutes: u32,
    seconds: u32,
    micros: u32,
) -> Result<Value, Reason> {
    if hours > 838 || minutes > 59 || seconds > 59 || micros > 999_999 {
        return Err(Reason::Malformed);
    }
    let seconds = i64::from(hours * 3_600 + minutes * 60 + seconds);
    let micros = seconds * MICROS_PER_SECOND + i64::from(micros);
    Ok(Value::Time(if negative { -micros } else { micros }))
}

/// Bytes that hold so many digits of a fraction.
pub(super) fn fraction_bytes(fraction: u8) -> usize {
    usize::from(fraction.div_ceil(2))
}

/// What a fraction of that many bytes counts: hundredths, ten-thousandths or millionths.
fn micros_per_unit(bytes: usize) -> u64 {
    match bytes {
        1 => 10_000,
        2 => 100,
        _ => 1,
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn split(bytes: &[u8], whole: usize) -> Result<(&[u8], u32), Reason> {
    let (whole, fraction) = bytes.split_at_checked(whole).ok_or(Reason::Short)?;
    let micros = big_endian(fraction) * micros_per_unit(fraction.len());
    Ok((whole, u32::try_from(micros).map_err(|_| Reason::Malformed)?))
}

/// Three bytes, little-endian: five bits of day, four of month, then the year.
pub(super) fn date(bytes: &[u8]) -> Result<Value, Reason> {
    let number = u32::try_from(little_endian(bytes)).map_err(|_| Reason::Malformed)?;
    let moment = Moment {
        year: number >> 9,
        month: (number >> 5) & 0xf,
        day: number & 0x1f,
        ..Moment::default()
    };
    moment.date()
}

/// Five bytes: the sign, then year * 13 + month (17 bits), day (5), hour (5), minute (6), second (6); then the
/// fraction.
pub(super) fn date_time(bytes: &[u8], fraction: u8) -> Result<Value, Reason> {
    let (whole, micros) = split(bytes, 5)?;
    let whole = big_endian(whole).checked_sub(1 << 39).ok_or(Reason::Malformed)?;
    packed_moment(whole, micros)?.date_time(Zone::None, fraction)
}

/// The fields of a packed date and time; also inside JSON.
pub(super) fn packed_moment(whole: u64, micros: u32) -> Result<Moment, Reason> {
    let bits = |shift: u32, width: u32| {
        u32::try_from((whole >> shift) & ((1 << width) - 1)).map_err(|_| Reason::Malformed)
    };
    let months = bits(22, 18)?;
    Ok(Moment {
        year: months / 13,
        month: months % 13,
        day: bits(17, 5)?,
        hour: bits(12, 5)?,
        minute: bits(6, 6)?,
        second: bits(0, 6)?,
        micros,
    })
}

/// Four bytes of seconds since the epoch, then the fraction. MariaDB counts up to 2106, so the seconds have no sign; 0
/// is the zero date, not the epoch, on both servers.
pub(super) fn timestamp(bytes: &[u8], fraction: u8) -> Result<Value, Reason> {
    let (seconds, micros) = split(bytes, 4)?;
    instant(big_endian(seconds), micros, fraction)
}

fn instant(seconds: u64, micros: u32, fraction: u8) -> Result<Value, Reason> {
    if seconds == 0 && micros == 0 {
        return Moment::default().date_time(Zone::Utc, fraction);
    }
    if micros > 999_999 {
        return Err(Reason::Malformed);
    }
    let seconds = i64::try_from(seconds).map_err(|_| Reason::Malformed)?;
    Ok(Value::TimestampTz(seconds * MICROS_PER_SECOND + i64::from(micros)))
}

/// Three bytes and the fraction as one number, of which half of what it can count is zero: hour (10 bits), minute (6),
/// second (6), fraction.
pub(super) fn time(bytes: &[u8]) -> Result<Value, Reason> {
    let fraction_bytes = bytes.len().checked_sub(3).ok_or(Reason::Short)?;
    let bits = u32::try_from(bytes.len() * 8).map_err(|_| Reason::Malformed)?;
    let zero = 1_u64.checked_shl(bits - 1).ok_or(Reason::Malformed)?;
    let number = big_endian(bytes);
    let packed = number.abs_diff(zero);
    let fraction_bits = u32::try_from(fraction_bytes * 8).map_err(|_| Reason::Malformed)?;
    let fraction = packed & ((1 << fraction_bits) - 1);
    let whole = u32::try_from(packed >> fraction_bits).map_err(|_| Reason::Malformed)?;
    let micros = u32::try_from(fraction * micros_per_unit(fraction_bytes));
    let micros = micros.map_err(|_| Reason::Malformed)?;
    duration(number < zero, whole >> 12, (whole >> 6) & 0x3f, whole & 0x3f, micros)
}

/// Bytes of the old forms by their fraction: without one as before MySQL 5.6, with one as MariaDB 5.3 to 10.0 wrote it.
pub(super) fn old_time_bytes(fraction: u8) -> usize {
    [3, 4, 4, 5, 5, 5, 6].get(usize::from(fraction)).copied().unwrap_or(6)
}

pub(super) fn old_date_time_bytes(fraction: u8) -> usize {
    [8, 6, 6, 7, 7, 7, 8].get(usize::from(fraction)).copied().unwrap_or(8)
}

pub(super) fn old_timestamp_bytes(fraction: u8) -> usize {
    4 + [0, 1, 1, 2, 2, 3, 3].get(usize::from(fraction)).copied().unwrap_or(3)
}

/// Millionths in the last of so many digits.
fn unit(fraction: u8) -> u64 {
    10_u64.pow(6_u32.saturating_sub(fraction.into()))
}

/// Without a fraction: hhmmss as a decimal number, little-endian, with a sign. With one: units since -838:59:59.999999
/// and one more, big-endian.
pub(super) fn old_time(bytes: &[u8], fraction: u8) -> Result<Value, Reason> {
    if fraction == 0 {
        let number = little_endian(bytes);
        let negative = number >= 1 << 23;
        let decimal = if negative { (1 << 24) - number } else { number };
        let decimal = u32::try_from(decimal).map_err(|_| Reason::Malformed)?;
        return duration(negative, decimal / 10_000, decimal / 100 % 100, decimal % 100, 0);
    }
    let zero = 839 * 3_600 * 1_000_000 / unit(fraction);
    let number = big_endian(bytes);
    let micros = number.abs_diff(zero) * unit(fraction);
    let seconds = u32::try_from(micros / 1_000_000).map_err(|_| Reason::Malformed)?;
    let micros = u32::try_from(micros % 1_000_000).map_err(|_| Reason::Malformed)?;
    duration(number < zero, seconds / 3_600, seconds / 60 % 60, seconds % 60, micros)
}

/// Without a fraction: YYYYMMDDhhmmss as a decimal number, little-endian. With one: the fields in a mixed base,
/// big-endian.
pub(super) fn old_date_time(bytes: &[u8], fraction: u8) -> Result<Value, Reason> {
    let mut rest = if fraction == 0 { little_endian(bytes) } else { big_endian(bytes) };
    let mut next = |base: u64| {
        let digit = rest % base;
        rest /= base;
        u32::try_from(digit).map_err(|_| Reason::Malformed)
    };
    let moment = if fraction == 0 {
        Moment {
            second: next(100)?,
            minute: next(100)?,
            hour: next(100)?,
            day: next(100)?,
            month: next(100)?,
            year: next(1_000_000)?,
            micros: 0,
        }
    } else {
        let units = u64::from(next(10_u64.pow(fraction.into()))?);
        Moment {
            micros: u32::try_from(units * unit(fraction)).map_err(|_| Reason::Malformed)?,
            second: next(60)?,
            minute: next(60)?,
            hour: next(24)?,
            day: next(32)?,
            month: next(13)?,
            year: next(1_000_000)?,
        }
    };
    moment.date_time(Zone::None, fraction)
}

pub(super) fn old_timestamp(bytes: &[u8], fraction: u8) -> Result<Value, Reason> {
    if fraction == 0 {
        return instant(little_endian(bytes), 0, 0);
    }
    let (seconds, units) = bytes.split_at_checked(4).ok_or(Reason::Short)?;
    let micros = u32::try_from(big_endian(units) * unit(fraction));
    instant(big_endian(seconds), micros.map_err(|_| Reason::Malformed)?, fraction)
}
