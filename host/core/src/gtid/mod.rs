//! Global transaction ids: the names by which servers of one group know a transaction, wherever it lies in their logs.
//!
//! A position (file and offset) belongs to one server's files; a GTID goes along with its transaction. So positions
//! order what one server sends, and GTIDs answer the two questions that positions cannot: whether a view that only says
//! which transactions had been executed contains this one, and where to go on at another server.
//!
//! MySQL and MariaDB share the word and nothing else. MySQL's are elements of a *set* ([`mysql::GtidSet`]): a server
//! commits them in any order, so holes are normal and only membership decides. MariaDB's are numbered along the log of a
//! *domain* ([`mariadb::GtidState`]): the latest one stands for all before it.
//!
//! Both are read from the servers' texts strictly. A set that was half understood would be a hole: transactions that
//! were skipped as known, or the whole log again.

pub mod mariadb;
pub mod mysql;

/// A text or an encoding that is not what a server writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {expected}")]
pub struct InvalidGtid {
    /// With its form.
    pub expected: &'static str,
}
