//! What the server is and how it is set: read once for each connection to it, and judged elsewhere.

use std::collections::BTreeMap;

use dovetail_core::position::Lsn;

use super::connection::{Session, Version};
use super::failure::Failure;

/// The first byte of a log file that an event can have.
pub const FIRST_OFFSET: u64 = 4;

/// Settings of a server, as its variables are now.
#[derive(Debug, Clone)]
pub struct Settings {
    pub version: Version,
    variables: BTreeMap<String, String>,
}

/// A place in the binary log, as the server names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `binlog.000042`
    pub file: String,
    pub offset: u64,
}

impl Place {
    /// `None` where the file has no number, or one that is no file's.
    pub fn lsn(&self, epoch: u32) -> Option<Lsn> {
        let (_, number) = self.file.rsplit_once('.')?;
        number.parse().ok().map(|number| Lsn::binlog(epoch, number, self.offset))
    }
}

impl Settings {
    /// # Errors
    /// When the server cannot be asked.
    pub async fn read(session: &mut Session) -> Result<Self, Failure> {
        const NAMES: &str = "'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', \
            'binlog_row_value_options', 'binlog_order_commits', 'binlog_expire_logs_seconds', \
            'binlog_transaction_compression', 'expire_logs_days', 'gtid_mode', 'server_id', 'server_uuid', \
            'server_uid', 'sync_binlog', 'lower_case_table_names', 'read_only', 'super_read_only', 'log_slave_updates', \
            'log_replica_updates', 'lock_wait_timeout', 'innodb_flush_log_at_trx_commit', \
            'gtid_domain_id', 'max_allowed_packet', 'encrypt_binlog', 'binlog_optimize_thread_scheduling', \
            'innodb_native_foreign_keys'";
        let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({NAMES})");
        let rows: Vec<(String, String)> =
            session.rows("read the settings of the server", &query).await?;
        let variables = rows.into_iter().map(|(name, value)| (name.to_lowercase(), value));
        Ok(Self { version: session.version(), variables: variables.collect() })
    }

    /// `None` where the server has none of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("on"))
    }

    /// Whether commits become visible in the order of the log. Servers without the setting have no other order.
    pub fn orders_commits(&self) -> bool {
        self.get("binlog_order_commits").is_none() || self.is_on("binlog_order_commits")
    }

    /// Whether the place of a snapshot is never ahead of what it shows. Servers without the setting tell no such place.
    pub fn shows_groups_whole(&self) -> bool {
        self.get("binlog_optimize_thread_scheduling").is_none()
            || self.is_on("binlog_optimize_thread_scheduling")
    }

    /// Whether every transaction has a GTID.
    pub fn has_gtids(&self) -> bool {
        self.get("gtid_mode").is_some_and(|mode| mode.eq_ignore_ascii_case("on"))
    }
}

/// Who the server is: MySQL's `server_uuid`. MariaDB makes one out of the machine and the port, from 10.10 on; before that
/// its server id, which a group of servers has to keep apart, is all that there is.
///
/// # Errors
/// When the server cannot be asked.
pub async fn identity(session: &mut Session) -> Result<String, Failure> {
    let what = "read the server's identity";
    let query =
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid', 'server_id')";
    let rows: Vec<(String, String)> = session.rows(what, query).await?;
    let value = |name: &str| {
        rows.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let id = value("server_id").ok_or_else(|| not_a_place(what))?;
    Ok(match (value("server_uuid"), value("server_uid")) {
        (Some(uuid), _) => uuid.clone(),
        (None, Some(unique)) => format!("{unique}/{id}"),
        (None, None) => id.clone(),
    })
}

/// Where the server writes its log now. Transactions before it may not be visible yet: beside a view it says what was
/// not in the log, never what is in the view.
///
/// # Errors
/// Definite without the privilege, or when there is no log.
pub async fn log_end(session: &mut Session) -> Result<Place, Failure> {
    let what = "read the end of the log";
    let row = status(session, what).await?;
    let file = row.get_opt::<String, _>("File").and_then(Result::ok);
    let offset = row.get_opt::<u64, _>("Position").and_then(Result::ok);
    match (file, offset) {
        (Some(file), Some(offset)) => Ok(Place { file, offset }),
        _ => Err(not_a_place(what)),
    }
}

/// Which databases are in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    only: Vec<String>,
    without: Vec<String>,
}

impl Filters {
    pub fn admits(&self, database: &str) -> bool {
        let has = |list: &[String]| list.iter().any(|name| name == database);
        (self.only.is_empty() || has(&self.only)) && !has(&self.without)
    }
}

/// # Errors
/// As [`log_end`].
pub async fn log_filters(session: &mut Session) -> Result<Filters, Failure> {
    let row = status(session, "read what is left out of the log").await?;
    let list = |column: &str| -> Vec<String> {
        let text = row.get_opt::<String, _>(column).and_then(Result::ok).unwrap_or_default();
        text.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
    };
    Ok(Filters { only: list("Binlog_Do_DB"), without: list("Binlog_Ignore_DB") })
}

async fn status(session: &mut Session, what: &str) -> Result<mysql_async::Row, Failure> {
    let rows: Vec<mysql_async::Row> =
        session.rows(what, status_statement(session.version())).await?;
    rows.into_iter().next().ok_or_else(|| {
        Failure::definite(
            format!("{what}: the server writes no binary log"),
            "start the server with log_bin; `dovetail check` says more",
        )
    })
}

fn status_statement(version: Version) -> &'static str {
    match version.maria_db || version.number < (8, 2, 0) {
        true => "SHOW MASTER STATUS",
        false => "SHOW BINARY LOG STATUS",
    }
}

/// The log's file of a number, as the server names it, by the name of another one.
pub(super) fn file_like(other: &str, number: u32) -> Option<String> {
    let (base, _) = other.rsplit_once('.')?;
    Some(format!("{base}.{number:06}"))
}

/// A place with its number.
pub(super) fn numbered(place: &Place, epoch: u32, what: &str) -> Result<Lsn, Failure> {
    place.lsn(epoch).ok_or_else(|| not_a_place(what))
}

pub(super) fn not_a_place(what: &str) -> Failure {
    Failure::definite(
        format!("{what}: the server does not name a numbered file"),
        "check that host and port are those of a MySQL or MariaDB server",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_left_out_by_either_list() {
        let filters = |only: &[&str], without: &[&str]| Filters {
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            without: without.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert!(filters(&[], &[]).admits("shop"));
        assert!(filters(&["shop"], &["other"]).admits("shop"));
        assert!(!filters(&["other"], &[]).admits("shop"));
        assert!(!filters(&[], &["shop"]).admits("shop"));
    }

    #[test]
    fn a_place_is_ordered_by_the_number_of_its_file() {
        let place = |file: &str, offset| Place { file: file.into(), offset }.lsn(0);
        assert_eq!(place("binlog.000042", 4), Some(Lsn::binlog(0, 42, 4)));
        assert!(place("a.b-bin.999999", 9) < place("a.b-bin.1000000", 4));
        assert_eq!(place("binlog", 4), None);
        assert_eq!(place("binlog.x", 4), None);
    }
}
