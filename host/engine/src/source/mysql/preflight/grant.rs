//! What the account has to be allowed.

use super::super::connection::Session;
use super::super::failure::Failure;
use super::super::grants::Grants;
use super::super::server;
use super::{Finding, account, is_denied};
use crate::config::MySql;

pub(super) async fn inspect(
    session: &mut Session,
    config: &MySql,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let account = account(session).await?;
    match server::log_end(session).await {
        Ok(_) => {}
        Err(failure) if is_denied(&failure) => {
            let privilege = match session.version().maria_db {
                true => "BINLOG MONITOR",
                false => "REPLICATION CLIENT",
            };
            findings.push(
                Finding::error(
                    format!("account {account} may not see where the log ends"),
                    "the pin and the views are tied to it",
                )
                .fix(format!("GRANT {privilege} ON *.* TO {account}")),
            );
        }
        // Without a log there is a finding already.
        Err(failure) if !failure.is_transient() => {}
        Err(failure) => return Err(failure),
    }
    if !Grants::read(session).await?.may_stream() {
        let detail = "the log is streamed as to a replica";
        let fix = format!("GRANT REPLICATION SLAVE ON *.* TO {account}");
        findings.push(
            Finding::error(format!("account {account} may not stream the log"), detail).fix(fix),
        );
    }
    if let (Some(table), true) = (&config.own_table, config.uses_own_row()) {
        let query = format!(
            "SELECT id, touched FROM {} LIMIT 0",
            super::super::identifier::quote_table(table)
        );
        if session.run("look at the table of our own row", &query).await.is_err() {
            let quoted = super::super::identifier::quote_table(table);
            findings.push(
                Finding::error(
                    format!("own_table {table} does not exist, or has other columns"),
                    "a row of our own in it marks a place in the log",
                )
                .fix(format!(
                    "CREATE TABLE {quoted} (id int PRIMARY KEY, touched bigint NOT NULL);\nGRANT SELECT, INSERT, UPDATE ON {quoted} TO {account}"
                )),
            );
        }
    }
    Ok(())
}
