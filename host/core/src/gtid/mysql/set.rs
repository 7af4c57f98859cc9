//! Sets of MySQL's GTIDs, as intervals for each issuer.
//!
//! A set is in one form only (issuers in order, their intervals sorted, disjoint, not adjacent and not empty), so that
//! equal sets are equal values and print the same text. A server with many writers may hand out numbers out of order:
//! its set has as many intervals as holes, for moments or, after a purge by number, for ever. Membership is therefore a
//! binary search, the next number of a log is appended in place, and two sets are joined or compared in one pass.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Gtid, InvalidGtid, Issuer, NUMBER_MAX, number_from};

/// What `gtid_executed` says: `3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:reports:1-2,...`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GtidSet(BTreeMap<Issuer, Intervals>);

/// Numbers from `first` to `last`, both of them included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interval {
    first: u64,
    last: u64,
}

/// Never empty; sorted, with a hole between any two.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Intervals(Vec<Interval>);

const INVALID: InvalidGtid = InvalidGtid {
    expected: "set of MySQL GTIDs of the form 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7, with tags before their numbers if any",
};

impl Interval {
    /// `None` unless `1 <= first <= last <= NUMBER_MAX`.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (1 <= first && first <= last && last <= NUMBER_MAX).then_some(Self { first, last })
    }

    pub fn first(self) -> u64 {
        self.first
    }

    pub fn last(self) -> u64 {
        self.last
    }

    /// Neither overlaps nor touches what comes behind.
    fn is_apart_before(self, next: Self) -> bool {
        self.last.saturating_add(1) < next.first
    }
}

impl GtidSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By issuer and number.
    pub fn intervals(&self) -> impl Iterator<Item = (Issuer, Interval)> {
        self.0
            .iter()
            .flat_map(|(issuer, intervals)| intervals.0.iter().map(|interval| (*issuer, *interval)))
    }

    pub(super) fn issuers(&self) -> impl ExactSizeIterator<Item = (&Issuer, &[Interval])> {
        self.0.iter().map(|(issuer, intervals)| (issuer, intervals.0.as_slice()))
    }

    pub fn contains(&self, gtid: &Gtid) -> bool {
        self.0.get(&gtid.issuer).is_some_and(|intervals| intervals.contains(gtid.number))
    }

    /// # Panics
    /// When the number is none that a server issues; a [`Gtid`] that was read has been checked.
    pub fn insert(&mut self, gtid: Gtid) {
        let interval = Interval::new(gtid.number, gtid.number);
        self.insert_interval(gtid.issuer, interval.expect("checked when the GTID was read"));
    }

    pub fn insert_interval(&mut self, issuer: Issuer, interval: Interval) {
        match self.0.entry(issuer) {
            Entry::Occupied(mut intervals) => intervals.get_mut().insert(interval),
            Entry::Vacant(vacant) => {
                vacant.insert(Intervals(vec![interval]));
            }
        }
    }

    /// Adds all of the other set.
    pub fn union(&mut self, other: &Self) {
        for (issuer, theirs) in &other.0 {
            match self.0.entry(*issuer) {
                Entry::Occupied(mut ours) => ours.get_mut().union(theirs),
                Entry::Vacant(vacant) => {
                    vacant.insert(theirs.clone());
                }
            }
        }
    }

    /// Takes out all of the other set.
    pub fn subtract(&mut self, other: &Self) {
        for (issuer, theirs) in &other.0 {
            if let Entry::Occupied(mut ours) = self.0.entry(*issuer) {
                match ours.get().without(theirs) {
                    left if left.is_empty() => drop(ours.remove()),
                    left => ours.get_mut().0 = left,
                }
            }
        }
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.0
            .iter()
            .all(|(issuer, ours)| other.0.get(issuer).is_some_and(|theirs| theirs.covers(ours)))
    }
}

impl Intervals {
    fn contains(&self, number: u64) -> bool {
        let next = self.0.partition_point(|interval| interval.last < number);
        self.0.get(next).is_some_and(|interval| interval.first <= number)
    }

    fn insert(&mut self, new: Interval) {
        let from = self.0.partition_point(|interval| interval.is_apart_before(new));
        let touched = self.0.get(from..).unwrap_or_default();
        let count = touched.partition_point(|interval| !new.is_apart_before(*interval));
        let touched = touched.get(..count).unwrap_or_default();
        let first = touched.first().map_or(new.first, |interval| interval.first.min(new.first));
        let last = touched.last().map_or(new.last, |interval| interval.last.max(new.last));
        self.0.splice(from..from + count, [Interval { first, last }]);
    }

    fn union(&mut self, other: &Self) {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut joined: Vec<Interval> = Vec::with_capacity(self.0.len());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (None, None) => break,
                (Some(our), Some(their)) if their < our => theirs.next(),
                (Some(_), _) => ours.next(),
                (None, Some(_)) => theirs.next(),
            };
            let Some(next) = next else { break };
            match joined.last_mut() {
                Some(last) if !last.is_apart_before(*next) => last.last = last.last.max(next.last),
                _ => joined.push(*next),
            }
        }
        self.0 = joined;
    }

    fn without(&self, other: &Self) -> Vec<Interval> {
        let mut left = Vec::with_capacity(self.0.len());
        let mut theirs = other.0.as_slice();
        for our in &self.0 {
            let mut first = our.first;
            while let Some((their, behind)) = theirs.split_first() {
                if their.first > our.last {
                    break;
                }
                if first < their.first {
                    left.push(Interval { first, last: their.first - 1 });
                }
                first = first.max(their.last.saturating_add(1));
                if their.last > our.last {
                    // Reaches into the next of ours.
                    break;
                }
                theirs = behind;
            }
            if first <= our.last {
                left.push(Interval { first, last: our.last });
            }
        }
        left
    }

    fn covers(&self, other: &Self) -> bool {
        let mut ours = self.0.iter();
        let mut our = ours.next();
        other.0.iter().all(|their| {
            while our.is_some_and(|our| our.last < their.first) {
                our = ours.next();
            }
            our.is_some_and(|our| our.first <= their.first && their.last <= our.last)
        })
    }
}

impl FromIterator<Gtid> for GtidSet {
    fn from_iter<I: IntoIterator<Item = Gtid>>(gtids: I) -> Self {
        let mut set = Self::default();
        gtids.into_iter().for_each(|gtid| set.insert(gtid));
        set
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.first < self.last {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

/// As a server prints it, but on one line.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = None;
        for (issuer, intervals) in &self.0 {
            let comma = if before.is_some() { "," } else { "" };
            match &issuer.tag {
                Some(tag) if before == Some(issuer.uuid) => write!(f, ":{tag}")?,
                _ => write!(f, "{comma}{issuer}")?,
            }
            for interval in &intervals.0 {
                write!(f, ":{interval}")?;
            }
            before = Some(issuer.uuid);
        }
        Ok(())
    }
}

impl FromStr for GtidSet {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        let mut set = Self::default();
        if text.trim_ascii().is_empty() {
            return Ok(set);
        }
        for group in text.split(',') {
            let mut parts = group.trim_ascii().split(':');
            let uuid = parts.next().ok_or(INVALID)?.parse()?;
            let mut issuer = Issuer { uuid, tag: None };
            let mut is_complete = false;
            for part in parts {
                is_complete = part.starts_with(|character: char| character.is_ascii_digit());
                if is_complete {
                    set.insert_interval(issuer, interval_from(part).ok_or(INVALID)?);
                } else {
                    issuer.tag = Some(part.parse()?);
                }
            }
            if !is_complete {
                return Err(INVALID);
            }
        }
        Ok(set)
    }
}

fn interval_from(text: &str) -> Option<Interval> {
    match text.split_once('-') {
        None => number_from(text).and_then(|number| Interval::new(number, number)),
        Some((first, last)) => Interval::new(number_from(first)?, number_from(last)?),
    }
}

impl TryFrom<String> for GtidSet {
    type Error = InvalidGtid;

    fn try_from(text: String) -> Result<Self, InvalidGtid> {
        text.parse()
    }
}

impl From<GtidSet> for String {
    fn from(set: GtidSet) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests;
