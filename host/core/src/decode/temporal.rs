//! Dates, times and intervals, as PostgreSQL's ISO style prints them.

use crate::schema::Kind;
use crate::value::{TemporalSpecial, Value};

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

pub(super) enum Parsed {
    Value(Value),
    /// Well formed, but no integer of the value holds it.
    OutOfRange,
}

/// `None` for text of another form.
pub(super) fn parse(kind: Kind, text: &[u8]) -> Option<Parsed> {
    let special = match text {
        b"infinity" => Some(TemporalSpecial::Infinity),
        b"-infinity" => Some(TemporalSpecial::NegativeInfinity),
        _ => None,
    };
    if let Some(special) = special {
        // No time of day is infinite.
        let endless = !matches!(kind, Kind::Time | Kind::TimeTz);
        return endless.then_some(Parsed::Value(Value::TemporalSpecial(special)));
    }
    let mut scanner = Scanner { rest: text };
    let value = match kind {
        Kind::Date => date(&mut scanner)?,
        Kind::Time => Some(Value::Time(scanner.time_of_day()?)),
        Kind::TimeTz => Some(Value::TimeTz {
            micros: scanner.time_of_day()?,
            offset_seconds: scanner.offset_seconds()?,
        }),
        Kind::Timestamp => timestamp(&mut scanner, false)?.map(Value::Timestamp),
        Kind::TimestampTz => timestamp(&mut scanner, true)?.map(Value::TimestampTz),
        Kind::Interval => interval(&mut scanner)?,
        _ => return None,
    };
    scanner.rest.is_empty().then_some(value.map_or(Parsed::OutOfRange, Parsed::Value))
}

/// The outer `None` is text of another form, the inner one a value out of range; likewise below.
fn date(scanner: &mut Scanner<'_>) -> Option<Option<Value>> {
    let date = scanner.date()?;
    let days = date.days(scanner.before_christ())?;
    Some(i32::try_from(days).ok().map(Value::Date))
}

fn timestamp(scanner: &mut Scanner<'_>, zone: bool) -> Option<Option<i64>> {
    let date = scanner.date()?;
    scanner.byte(b' ')?;
    let time = scanner.time_of_day()?;
    let offset = if zone { i64::from(scanner.offset_seconds()?) } else { 0 };
    let days = date.days(scanner.before_christ())?;
    let micros = i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(time)
        - i128::from(offset) * i128::from(MICROS_PER_SECOND);
    Some(i64::try_from(micros).ok())
}

/// `1 year 2 mons -3 days +04:05:06.789`: up to three counted units, then a signed time; each may be missing, but not
/// all.
fn interval(scanner: &mut Scanner<'_>) -> Option<Option<Value>> {
    let (mut months, mut days, mut micros) = (0_i128, 0_i128, 0_i128);
    loop {
        let negative = scanner.sign();
        let count = i128::from(scanner.digits(1, 19)?);
        let signed = if negative { -count } else { count };
        if scanner.byte(b':').is_some() {
            let rest = scanner.minutes_and_seconds()?;
            let whole = count * 3_600 * i128::from(MICROS_PER_SECOND) + i128::from(rest);
            micros = if negative { -whole } else { whole };
            break;
        }
        scanner.byte(b' ')?;
        match scanner.word() {
            b"year" | b"years" => months += signed * 12,
            b"mon" | b"mons" => months += signed,
            b"day" | b"days" => days += signed,
            _ => return None,
        }
        if scanner.rest.is_empty() {
            break;
        }
        scanner.byte(b' ')?;
    }
    let (Ok(months), Ok(days), Ok(micros)) =
        (i32::try_from(months), i32::try_from(days), i64::try_from(micros))
    else {
        return Some(None);
    };
    Some(Some(Value::Interval { months, days, micros }))
}

struct CalendarDate {
    year: i64,
    month: u8,
    day: u8,
}

impl CalendarDate {
    /// Days since 1970-01-01; `None` for a day that its month does not have.
    fn days(&self, before_christ: bool) -> Option<i64> {
        let year = if before_christ { 1 - self.year } else { self.year };
        if self.year == 0 || self.day == 0 || self.day > days_in_month(year, self.month)? {
            return None;
        }
        Some(days_from_civil(year, i64::from(self.month), i64::from(self.day)))
    }
}

fn days_in_month(year: i64, month: u8) -> Option<u8> {
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => return None,
    })
}

/// Proleptic Gregorian calendar with a year 0, counted in eras of 400 years from 0000-03-01
/// (<https://howardhinnant.github.io/date_algorithms.html>). Years have at most nine digits here, so nothing overflows.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year (with a year 0), month and day.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn byte(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        if *first != byte {
            return None;
        }
        self.rest = rest;
        Some(())
    }

    /// Takes a sign; true for a minus.
    fn sign(&mut self) -> bool {
        match self.rest.split_first() {
            Some((b'-', rest)) => {
                self.rest = rest;
                true
            }
            Some((b'+', rest)) => {
                self.rest = rest;
                false
            }
            _ => false,
        }
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<u64> {
        let mut number = 0_u64;
        let mut count = 0;
        while let Some((digit @ b'0'..=b'9', rest)) = self.rest.split_first() {
            count += 1;
            if count > most {
                return None;
            }
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.rest = rest;
        }
        (count >= least).then_some(number)
    }

    fn two_digits(&mut self) -> Option<u8> {
        u8::try_from(self.digits(2, 2)?).ok()
    }

    fn word(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_lowercase());
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn date(&mut self) -> Option<CalendarDate> {
        let year = i64::try_from(self.digits(4, 9)?).ok()?;
        self.byte(b'-')?;
        let month = self.two_digits()?;
        self.byte(b'-')?;
        let day = self.two_digits()?;
        Some(CalendarDate { year, month, day })
    }

    fn before_christ(&mut self) -> bool {
        match self.rest.strip_prefix(b" BC") {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Microseconds; 24:00:00 is a time of day of its own.
    fn time_of_day(&mut self) -> Option<i64> {
        let hours = i64::from(self.two_digits()?);
        self.byte(b':')?;
        let micros = hours * 3_600 * MICROS_PER_SECOND + self.minutes_and_seconds()?;
        (micros <= MICROS_PER_DAY).then_some(micros)
    }

    fn minutes_and_seconds(&mut self) -> Option<i64> {
        let minutes = i64::from(self.two_digits()?);
        self.byte(b':')?;
        let seconds = i64::from(self.two_digits()?);
        if minutes > 59 || seconds > 59 {
            return None;
        }
        Some((minutes * 60 + seconds) * MICROS_PER_SECOND + self.fraction()?)
    }

    /// Microseconds from up to six digits behind a point, of which trailing zeros are left out.
    fn fraction(&mut self) -> Option<i64> {
        if self.byte(b'.').is_none() {
            return Some(0);
        }
        let before = self.rest.len();
        let digits = i64::try_from(self.digits(1, 6)?).ok()?;
        let count = u32::try_from(before - self.rest.len()).ok()?;
        Some(digits * 10_i64.pow(6 - count))
    }

    /// Seconds east of UTC from `+01`, `-03:30` or `+01:02:03`.
    fn offset_seconds(&mut self) -> Option<i32> {
        if !matches!(self.rest.first(), Some(b'+' | b'-')) {
            return None;
        }
        let west = self.sign();
        let mut seconds = i32::from(self.two_digits()?) * 3_600;
        for unit in [60, 1] {
            if self.byte(b':').is_none() {
                break;
            }
            seconds += i32::from(self.two_digits()?) * unit;
        }
        Some(if west { -seconds } else { seconds })
    }
}
