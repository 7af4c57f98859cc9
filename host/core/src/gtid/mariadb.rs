//! MariaDB's GTIDs: a number in the log of a replication domain.
//!
//! A server orders the transactions of a domain and numbers them in the order of its log, so the latest GTID of each
//! domain says all that came before: a position is one GTID per domain. Domains are independent of each other. Under
//! `gtid_strict_mode` the numbers of a domain only grow; without it a server can be told to number backwards, and then
//! "contains" means what the server itself makes of it when it is asked to go on from there.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::InvalidGtid;

/// Printed `0-1-42`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gtid {
    pub domain: u32,
    /// The server that wrote it first.
    pub server: u32,
    pub sequence: u64,
}

/// The latest GTID of each domain, as `gtid_binlog_pos` or `BINLOG_GTID_POS()` say it: `0-1-42,1-2-7`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GtidState(BTreeMap<u32, Latest>);

/// Of one domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Latest {
    server: u32,
    sequence: u64,
}

impl GtidState {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One for each domain, by domain.
    pub fn gtids(&self) -> impl Iterator<Item = Gtid> {
        self.0.iter().map(|(domain, latest)| Gtid {
            domain: *domain,
            server: latest.server,
            sequence: latest.sequence,
        })
    }

    pub fn latest(&self, domain: u32) -> Option<Gtid> {
        let Latest { server, sequence } = *self.0.get(&domain)?;
        Some(Gtid { domain, server, sequence })
    }

    /// Whether the transaction is at or before the latest of its domain.
    pub fn contains(&self, gtid: Gtid) -> bool {
        self.0.get(&gtid.domain).is_some_and(|latest| gtid.sequence <= latest.sequence)
    }

    /// Whether everything in the other state is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        other.gtids().all(|gtid| self.contains(gtid))
    }

    /// Takes the next GTID of the log.
    pub fn advance(&mut self, gtid: Gtid) {
        let Gtid { domain, server, sequence } = gtid;
        self.0.insert(domain, Latest { server, sequence });
    }
}

/// In the order of a log, where the last of a domain is the latest.
impl FromIterator<Gtid> for GtidState {
    fn from_iter<I: IntoIterator<Item = Gtid>>(gtids: I) -> Self {
        let mut state = Self::default();
        gtids.into_iter().for_each(|gtid| state.advance(gtid));
        state
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

impl FromStr for Gtid {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        const INVALID: InvalidGtid = InvalidGtid { expected: "MariaDB GTID of the form 0-1-42" };
        let is_number =
            |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.split('-');
        let mut part = || parts.next().filter(is_number).ok_or(INVALID);
        let domain = part()?.parse().map_err(|_| INVALID)?;
        let server = part()?.parse().map_err(|_| INVALID)?;
        let sequence = part()?.parse().map_err(|_| INVALID)?;
        match parts.next() {
            None => Ok(Self { domain, server, sequence }),
            Some(_) => Err(INVALID),
        }
    }
}

impl fmt::Display for GtidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gtid) in self.gtids().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{gtid}")?;
        }
        Ok(())
    }
}

impl FromStr for GtidState {
    type Err = InvalidGtid;

    fn from_str(text: &str) -> Result<Self, InvalidGtid> {
        let mut state = Self::default();
        if text.trim_ascii().is_empty() {
            return Ok(state);
        }
        for gtid in text.split(',') {
            let gtid: Gtid = gtid.trim_ascii().parse()?;
            if state.latest(gtid.domain).is_some() {
                return Err(InvalidGtid {
                    expected: "MariaDB GTID position with one GTID a domain",
                });
            }
            state.advance(gtid);
        }
        Ok(state)
    }
}

impl TryFrom<String> for Gtid {
    type Error = InvalidGtid;

    fn try_from(text: String) -> Result<Self, InvalidGtid> {
        text.parse()
    }
}

impl From<Gtid> for String {
    fn from(gtid: Gtid) -> Self {
        gtid.to_string()
    }
}

impl TryFrom<String> for GtidState {
    type Error = InvalidGtid;

    fn try_from(text: String) -> Result<Self, InvalidGtid> {
        text.parse()
    }
}

impl From<GtidState> for String {
    fn from(state: GtidState) -> Self {
        state.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> GtidState {
        text.parse().unwrap()
    }

    #[test]
    fn a_state_reads_back_what_it_prints() {
        for text in ["", "0-1-42", "0-1-42,1-2-7", "4294967295-4294967295-18446744073709551615"] {
            assert_eq!(state(text).to_string(), text);
            let json = serde_json::to_string(&state(text)).unwrap();
            assert_eq!(serde_json::from_str::<GtidState>(&json).unwrap(), state(text));
        }
        assert_eq!(state("1-2-7,\n0-1-42").to_string(), "0-1-42,1-2-7");
    }

    #[test]
    fn what_is_not_a_state_is_refused() {
        for text in [
            "0",
            "0-1",
            "0-1-",
            "-1-2",
            "0-1-2-3",
            "0-1-+2",
            "a-1-2",
            "4294967296-1-1",
            "0-1-18446744073709551616",
            "0-1-1,",
            ",0-1-1",
            "0-1-1,0-2-2",
            "0 -1-1",
        ] {
            assert!(text.parse::<GtidState>().is_err(), "{text}");
        }
    }

    #[test]
    fn domains_are_independent_and_servers_share_the_numbers_of_one() {
        let state = state("0-1-42,1-2-7");
        for inside in ["0-1-42", "0-9-41", "1-1-7", "1-2-1"] {
            assert!(state.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["0-1-43", "1-2-8", "2-1-1"] {
            assert!(!state.contains(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn a_state_covers_what_lies_before_it() {
        let late = state("0-1-42,1-2-7");
        assert!(late.covers(&state("")) && late.covers(&state("0-3-40")) && late.covers(&late));
        assert!(!late.covers(&state("0-1-43")) && !late.covers(&state("2-1-1")));
    }

    #[test]
    fn the_latest_of_a_domain_replaces_the_one_before() {
        let mut state = state("0-1-42");
        state.advance("0-2-43".parse().unwrap());
        state.advance("5-2-1".parse().unwrap());
        assert_eq!(state.to_string(), "0-2-43,5-2-1");
    }
}
