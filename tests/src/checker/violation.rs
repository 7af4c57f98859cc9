//! What the checker found.

use std::fmt;
use std::sync::Arc;

use dovetail_core::position::{Lsn, Position};

use super::history::{Image, Operation, RowKey};

/// The invariants of the hand-over. The eighth, that a guest changes no position and no other pipeline, needs guests:
/// the suite of hostile guests feeds this same checker with the histories of the pipelines beside the hostile one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Invariant {
    NoLoss,
    NoGoingBack,
    NoInvention,
    Convergence,
    Atomicity,
    DurabilityOrder,
    HonestStop,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLoss => "I1 no loss",
            Self::NoGoingBack => "I2 no going back",
            Self::NoInvention => "I3 no invention",
            Self::Convergence => "I4 convergence",
            Self::Atomicity => "I5 atomicity",
            Self::DurabilityOrder => "I6 durability order",
            Self::HonestStop => "I7 honest stop",
        })
    }
}

/// What the violation is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    Row(RowKey),
    Table(Arc<str>),
    Pipeline,
}

/// One of the two things that cannot both be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// A transaction wrote this; `index` counts the writes of the key.
    Written {
        transaction: u64,
        commit: Option<Lsn>,
        index: usize,
    },
    /// A transaction truncated the table, or wrote anything at all.
    Committed {
        transaction: u64,
        commit: Option<Lsn>,
    },
    Delivered {
        life: usize,
        position: Position,
        operation: Operation,
        image: Option<Image>,
    },
    Truncated {
        life: usize,
        transaction: Option<u64>,
    },
    NotDelivered,
    NotFlagged,
    NeverWritten,
    RolledBack,
    InTheScan {
        index: usize,
    },
    Saved {
        life: usize,
        lsn: Lsn,
    },
    NotSaved,
    Spooled {
        life: usize,
        lsn: Lsn,
    },
    Acknowledged {
        life: usize,
        lsn: Lsn,
    },
    Shown {
        life: usize,
    },
    SourceHolds(Option<Image>),
    OutletHolds(Option<Image>),
    LogLost {
        life: usize,
    },
    Refused {
        life: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub invariant: Invariant,
    pub subject: Subject,
    /// What was to be expected of it.
    pub expected: Fact,
    pub found: Fact,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => row.fmt(f),
            Self::Table(table) => f.write_str(table),
            Self::Pipeline => f.write_str("pipeline"),
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |commit: &Option<Lsn>| {
            commit.map_or_else(String::new, |lsn| format!(" (commit {lsn})"))
        };
        let held = |image: &Option<Image>| {
            image.map_or_else(
                || "no row".to_owned(),
                |it| format!("version {} (digest {:x})", it.version, it.digest),
            )
        };
        match self {
            Self::Written { transaction, commit, index } => {
                write!(f, "write {index} of the key, by transaction {transaction}{}", at(commit))
            }
            Self::Committed { transaction, commit } => {
                write!(f, "transaction {transaction}{}", at(commit))
            }
            Self::Delivered { life, position, operation, image } => {
                let image = held(image);
                write!(f, "life {life} delivered {operation:?} at {position} with {image}")
            }
            Self::Truncated { life, transaction: Some(transaction) } => {
                write!(f, "life {life} delivered the truncate of transaction {transaction}")
            }
            Self::Truncated { life, transaction: None } => write!(f, "life {life} emptied it"),
            Self::NotDelivered => f.write_str("it was not delivered"),
            Self::NotFlagged => f.write_str("a repetition without its flag"),
            Self::NeverWritten => f.write_str("no committed transaction wrote that"),
            Self::RolledBack => f.write_str("that was rolled back"),
            Self::InTheScan { index } => write!(f, "a scanned row held the key's write {index}"),
            Self::Saved { life, lsn } => write!(f, "life {life} saved checkpoint {lsn}"),
            Self::NotSaved => f.write_str("that was not saved"),
            Self::Spooled { life, lsn } => {
                write!(f, "in life {life} the spool was durable up to {lsn}")
            }
            Self::Acknowledged { life, lsn } => write!(f, "life {life} acknowledged {lsn}"),
            Self::Shown { life } => write!(f, "life {life} showed a part of it alone"),
            Self::SourceHolds(image) => write!(f, "the source holds {}", held(image)),
            Self::OutletHolds(image) => write!(f, "the outlet holds {}", held(image)),
            Self::LogLost { life } => write!(f, "in life {life} the log was lost"),
            Self::Refused { life } => write!(f, "life {life} had stopped by itself"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, subject, expected, found } = self;
        write!(f, "{invariant}: {subject}: {expected}; but {found}")
    }
}
