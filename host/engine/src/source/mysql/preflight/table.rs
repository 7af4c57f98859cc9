//! The captured tables.

use std::collections::BTreeSet;

use dovetail_core::schema::TableName;

use super::super::catalog;
use super::super::connection::Session;
use super::super::failure::Failure;
use super::super::identifier::quote_table;
use super::super::server::Settings;
use super::{Finding, account, is_denied};
use crate::config::{MySql, nearest};

/// From here on MySQL runs cascades above the engine, and logs them.
const MYSQL_LOGS_CASCADES: (u16, u16, u16) = (9, 6, 0);

/// Returns the bytes of the tables that are `due`.
pub(super) async fn inspect(
    session: &mut Session,
    settings: &Settings,
    config: &MySql,
    due: &[TableName],
    findings: &mut Vec<Finding>,
) -> Result<u64, Failure> {
    let due: BTreeSet<&TableName> = due.iter().collect();
    let mut bytes: u64 = 0;
    for name in &config.tables {
        let Some(facts) = facts(session, name).await? else {
            findings.push(not_there(session, name).await?);
            continue;
        };
        if !judge(name, &facts, findings) {
            continue;
        }
        if due.contains(name) {
            bytes = bytes.saturating_add(facts.bytes);
            readable(session, name, findings).await?;
        }
        definition(session, name, findings).await?;
        cascades(session, settings, config, name, findings).await?;
    }
    filters(session, config, findings).await?;
    Ok(bytes)
}

struct Facts {
    name: String,
    kind: String,
    engine: String,
    transactional: bool,
    bytes: u64,
}

async fn facts(session: &mut Session, name: &TableName) -> Result<Option<Facts>, Failure> {
    const QUERY: &str = "SELECT t.TABLE_NAME, t.TABLE_TYPE, ifnull(t.ENGINE, ''), \
            ifnull(e.TRANSACTIONS, 'NO'), ifnull(t.DATA_LENGTH, 0) \
        FROM information_schema.TABLES t \
        LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE \
        WHERE t.TABLE_SCHEMA = ? AND t.TABLE_NAME = ?";
    let names = (name.namespace.as_str(), name.name.as_str());
    let rows: Vec<(String, String, String, String, u64)> =
        session.rows_with("look at the tables", QUERY, names).await?;
    Ok(rows.into_iter().next().map(|(name, kind, engine, transactions, bytes)| {
        let transactional = transactions == "YES";
        Facts { name, kind, engine, transactional, bytes }
    }))
}

/// Whether it is a table that can be captured.
fn judge(table: &TableName, facts: &Facts, findings: &mut Vec<Finding>) -> bool {
    if facts.kind == catalog::VERSIONED {
        findings.push(
            Finding::error(
                format!("table {table} is versioned by the system"),
                "its older rows stay in it and are logged among the others, where they would be taken for newer ones; leave it out of the configuration, or take its versioning, and with it its history, away",
            )
            .fix(format!("ALTER TABLE {} DROP SYSTEM VERSIONING", quote_table(table))),
        );
        return false;
    }
    if facts.kind != "BASE TABLE" {
        findings.push(Finding::error(
            format!("{table} is a {}", facts.kind.to_lowercase()),
            "the log only holds changes of plain tables; capture the tables behind it",
        ));
        return false;
    }
    if facts.name != table.name {
        findings.push(Finding::error(
            format!("table {table} is called {} by the server", facts.name),
            "the log names it as the server does; write it so in the configuration",
        ));
        return false;
    }
    if !facts.transactional {
        findings.push(
            Finding::warning(
                format!("table {table} is of engine {}, which has no transactions", facts.engine),
                "there is no consistent view of it: rows that are written while it is scanned may come twice, the newer state first, and a crash of the server may leave it and the log different",
            )
            .fix(format!("ALTER TABLE {} ENGINE = InnoDB", quote_table(table))),
        );
    }
    true
}

async fn readable(
    session: &mut Session,
    table: &TableName,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let quoted = quote_table(table);
    match session.run("look at the tables", &format!("SELECT * FROM {quoted} LIMIT 0")).await {
        Ok(()) => {}
        Err(failure) if is_denied(&failure) => {
            let account = account(session).await?;
            findings.push(
                Finding::error(
                    format!("account {account} may not read table {table}"),
                    "the scan needs SELECT on every table",
                )
                .fix(format!("GRANT SELECT ON {quoted} TO {account}")),
            );
        }
        Err(failure) if failure.is_transient() => return Err(failure),
        Err(failure) => findings.push(Finding::error(
            format!("table {table} cannot be read"),
            format!("the server says why: {}", chain(&failure)),
        )),
    }
    Ok(())
}

/// Types and keys.
async fn definition(
    session: &mut Session,
    name: &TableName,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let table = match catalog::table(session, name).await {
        Ok(Some(table)) => table,
        Ok(None) => return Ok(()),
        Err(failure) if failure.is_transient() => return Err(failure),
        Err(failure) => {
            findings
                .push(Finding::error(format!("table {name} cannot be captured"), chain(&failure)));
            return Ok(());
        }
    };
    if !table.relation.has_key() {
        findings.push(
            Finding::warning(
                format!("table {name} has no key"),
                "its rows are told apart as a whole, equal ones cannot be, and it is scanned in one pass",
            )
            .fix(format!(
                "ALTER TABLE {} ADD COLUMN id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY",
                quote_table(name)
            )),
        );
    } else if table.order.is_none() {
        findings.push(Finding::note(
            format!("table {name} is scanned in one pass"),
            "its key has no order in which ranges can be asked for",
        ));
    }
    Ok(())
}

/// Foreign keys whose changes to this table the server makes without writing them to the log.
async fn cascades(
    session: &mut Session,
    settings: &Settings,
    config: &MySql,
    name: &TableName,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    const QUERY: &str = "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS \
        WHERE CONSTRAINT_SCHEMA = ? AND TABLE_NAME = ? \
            AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')) \
        ORDER BY CONSTRAINT_NAME";
    let version = settings.version;
    let by_engine = settings.is_on("innodb_native_foreign_keys");
    if !version.maria_db && version.number >= MYSQL_LOGS_CASCADES && !by_engine {
        return Ok(());
    }
    let names = (name.namespace.as_str(), name.name.as_str());
    let keys: Vec<String> = session.rows_with("look at the foreign keys", QUERY, names).await?;
    if keys.is_empty() {
        return Ok(());
    }
    let title =
        format!("foreign keys of table {name} change its rows by themselves: {}", keys.join(", "));
    let detail = "the server does not write these changes to its log, so the outlets would keep rows that are gone";
    findings.push(match config.ignore_cascades {
        true => Finding::warning(title, detail),
        false => Finding::error(
            title,
            format!("{detail}; let the application delete the children itself and the keys RESTRICT, or set ignore_cascades"),
        ),
    });
    Ok(())
}

/// Databases that the server leaves out of its log.
async fn filters(
    session: &mut Session,
    config: &MySql,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let filters = match super::super::server::log_filters(session).await {
        Ok(filters) => filters,
        Err(failure) if failure.is_transient() => return Err(failure),
        // Said already: no log, or no privilege.
        Err(_) => return Ok(()),
    };
    let databases: BTreeSet<&str> =
        config.tables.iter().map(|table| table.namespace.as_str()).collect();
    for database in databases {
        if !filters.admits(database) {
            findings.push(Finding::error(
                format!("the server leaves database {database} out of its log"),
                "take binlog_do_db and binlog_ignore_db out of its configuration file, and restart it",
            ));
        }
    }
    Ok(())
}

async fn not_there(session: &mut Session, name: &TableName) -> Result<Finding, Failure> {
    /// As many names as are compared in a moment; where there are more, a hint less is no loss.
    const QUERY: &str = "SELECT concat(TABLE_SCHEMA, '.', TABLE_NAME) \
        FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' \
            AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') \
        LIMIT 10000";
    let there: Vec<String> = session.rows("look for tables with a similar name", QUERY).await?;
    let wanted = name.to_string();
    let same_letters = there.iter().find(|other| other.eq_ignore_ascii_case(&wanted));
    let similar = same_letters
        .cloned()
        .or_else(|| nearest(&wanted, there.iter().map(String::as_str)).map(Into::into));
    let detail = match similar {
        Some(similar) => {
            format!("did you mean {similar}? (the account has to be allowed to see it)")
        }
        None => "create it, grant SELECT on it, or take it out of the configuration".into(),
    };
    Ok(Finding::error(
        format!("table {name} does not exist, or the account may not see it"),
        detail,
    ))
}

fn chain(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut cause = std::error::Error::source(failure);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
