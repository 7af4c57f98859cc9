//! How the server writes its log.

use super::super::connection::{Session, Version};
use super::super::failure::Failure;
use super::super::server::Settings;
use super::{Finding, account};

/// Names of columns in the log came with these, and what else the engine asks for.
const MYSQL_MIN: (u16, u16, u16) = (8, 0, 1);
const MARIA_DB_MIN: (u16, u16, u16) = (10, 5, 0);

pub(super) fn is_new_enough(settings: &Settings, findings: &mut Vec<Finding>) -> bool {
    let Version { maria_db, number } = settings.version;
    let (name, least) = match maria_db {
        true => ("MariaDB", MARIA_DB_MIN),
        false => ("MySQL", MYSQL_MIN),
    };
    if number >= least {
        return true;
    }
    let (major, minor, patch) = number;
    findings.push(Finding::error(
        format!("{name} {major}.{minor}.{patch} is too old"),
        format!("the engine needs {name} {}.{} or later", least.0, least.1),
    ));
    false
}

pub(super) async fn inspect(
    session: &mut Session,
    settings: &Settings,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    if !settings.is_on("log_bin") {
        findings.push(Finding::error(
            "the server writes no binary log",
            "set log_bin and server_id in its configuration file, and restart it",
        ));
        return Ok(());
    }
    format(settings, findings);
    durability(settings, findings);
    if settings.get("server_id") == Some("0") {
        findings.push(
            Finding::error("server_id is 0", "a server without an id serves no replicas")
                .fix("SET GLOBAL server_id = 1"),
        );
    }
    let follows = settings.is_on("log_replica_updates") || settings.is_on("log_slave_updates");
    if settings.is_on("read_only") && !follows {
        findings.push(Finding::error(
            "the server is read-only and does not log what it replicates",
            "set log_replica_updates (log_slave_updates on MariaDB) in its configuration file and restart it, or point the pipeline at the primary",
        ));
    }
    if !settings.version.maria_db && !settings.has_gtids() {
        findings.push(Finding::note(
            "gtid_mode is not ON",
            "positions are of this server alone: when another one takes over, the tables have to be copied again",
        ));
    }
    prepared(session, findings).await?;
    statements(session, settings, findings).await
}

/// XA transactions, which the pin waits for.
async fn prepared(session: &mut Session, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    match super::super::prepared::list(session).await? {
        Some(0) => {}
        Some(count) => findings.push(Finding::warning(
            format!("{count} XA transactions are prepared"),
            "a pin waits until none is; commit them or roll them back (XA RECOVER names them)",
        )),
        None => {
            let account = account(session).await?;
            findings.push(
                Finding::note(
                    "the account may not see prepared XA transactions",
                    "one that is prepared while the pin is taken stops the pipeline when it is committed",
                )
                .fix(format!("GRANT XA_RECOVER_ADMIN ON *.* TO {account}")),
            );
        }
    }
    Ok(())
}

fn format(settings: &Settings, findings: &mut Vec<Finding>) {
    let is = |name: &str, value: &str| {
        settings.get(name).is_none_or(|found| found.eq_ignore_ascii_case(value))
    };
    let found = |name: &str| settings.get(name).unwrap_or_default().to_owned();
    if !is("binlog_format", "ROW") {
        findings.push(
            Finding::error(
                format!("binlog_format is {}", found("binlog_format")),
                "the log holds rows with binlog_format = ROW only; sessions that are open keep the old format until they reconnect",
            )
            .fix("SET GLOBAL binlog_format = 'ROW'"),
        );
    }
    if !is("binlog_row_image", "FULL") {
        findings.push(
            Finding::warning(
                format!("binlog_row_image is {}", found("binlog_row_image")),
                "what an update does not touch, and defaults that an insert takes, are not in the log and arrive as unavailable",
            )
            .fix("SET GLOBAL binlog_row_image = 'FULL'"),
        );
    }
    if !is("binlog_row_metadata", "FULL") {
        findings.push(
            Finding::warning(
                format!("binlog_row_metadata is {}", found("binlog_row_metadata")),
                "the log does not name the columns: a table that is redefined while the engine is down stops the pipeline, or, where only names of alike columns changed places, has its values under the wrong ones",
            )
            .fix("SET GLOBAL binlog_row_metadata = 'FULL'"),
        );
    }
    if settings.get("binlog_row_value_options").is_some_and(|options| !options.is_empty()) {
        findings.push(
            Finding::note(
                "binlog_row_value_options is PARTIAL_JSON",
                "documents are logged as differences; where the document before is not in the log, the pipeline stops",
            )
            .fix("SET GLOBAL binlog_row_value_options = ''"),
        );
    }
}

/// What a crash of the server's machine may take apart.
fn durability(settings: &Settings, findings: &mut Vec<Finding>) {
    for (name, meaning) in [
        ("sync_binlog", "the log may lack, after a crash, what was streamed from it"),
        (
            "innodb_flush_log_at_trx_commit",
            "the tables may lack, after a crash, what is in the log",
        ),
    ] {
        if settings.get(name).is_some_and(|value| value != "1") {
            findings.push(
                Finding::note(
                    format!("{name} is {}", settings.get(name).unwrap_or_default()),
                    meaning,
                )
                .fix(format!("SET GLOBAL {name} = 1")),
            );
        }
    }
    if !settings.orders_commits() {
        findings.push(
            Finding::note(
                "binlog_order_commits is OFF",
                "the pin by a row of our own is not allowed; the others are",
            )
            .fix("SET GLOBAL binlog_order_commits = ON"),
        );
    }
}

/// Sessions that were opened before the format was set, or that chose another one.
async fn statements(
    session: &mut Session,
    settings: &Settings,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    // MariaDB does not show other sessions' variables.
    if settings.version.maria_db {
        return Ok(());
    }
    let query = "SELECT count(*) FROM performance_schema.variables_by_thread \
        WHERE VARIABLE_NAME = 'binlog_format' AND VARIABLE_VALUE <> 'ROW'";
    match session.one::<u64>("look for sessions with another format", query).await {
        Ok(0) => {}
        Ok(sessions) => findings.push(Finding::warning(
            format!("{sessions} sessions do not log rows"),
            "a statement of theirs that changes a captured table stops the pipeline; let them reconnect",
        )),
        Err(failure) if super::is_denied(&failure) => {}
        Err(failure) => return Err(failure),
    }
    Ok(())
}
