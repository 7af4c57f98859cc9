//! What would make a pipeline impossible, or hurt, found before anything is touched.
//!
//! Everything that is wrong is reported at once, each with the SQL that mends it. The engine itself changes nothing.

mod grant;
mod retention;
mod server;
mod table;

use dovetail_core::schema::TableName;

use super::catalog;
use super::connection::Session;
use super::failure::{self, Failure, code};
use super::pin::{self, PinError};
use super::server::Settings;
use crate::config::{MySql, Rung};
use crate::source::finding::Finding;

/// Everything that is to be said, errors first. `due` are the tables of which rows will be scanned.
///
/// # Errors
/// When the server cannot be asked; what it answers is a finding.
pub async fn inspect(
    session: &mut Session,
    config: &MySql,
    due: &[TableName],
) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let settings = Settings::read(session).await?;
    // On a server that is too old the other questions would not even be understood.
    if server::is_new_enough(&settings, &mut findings) {
        server::inspect(session, &settings, &mut findings).await?;
        grant::inspect(session, config, &mut findings).await?;
        let sizes = table::inspect(session, &settings, config, due, &mut findings).await?;
        retention::judge(&settings, sizes, &mut findings);
        rung(session, config, &settings, due, &mut findings).await?;
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

/// Which rung will be used, and why.
async fn rung(
    session: &mut Session,
    config: &MySql,
    settings: &Settings,
    due: &[TableName],
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    if !settings.is_on("log_bin") {
        return Ok(());
    }
    match pin::choose(config, session).await {
        Ok(chosen) => {
            if chosen.rung == Rung::OwnRow {
                keyless(session, due, findings).await?;
            }
            findings.push(Finding::note(
                format!("the pin will be taken by {}", pin::name(chosen.rung)),
                chosen.reason,
            ));
        }
        Err(PinError::Failure(failure)) => return Err(failure),
        Err(error) => findings.push(
            Finding::error(error.to_string(), "any one of these is enough")
                .fix("GRANT BACKUP_ADMIN ON *.* TO CURRENT_USER()"),
        ),
    }
    Ok(())
}

/// Tables that a view with a lower bound cannot serve.
async fn keyless(
    session: &mut Session,
    due: &[TableName],
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    for name in due {
        // What else is wrong with it has been said.
        match catalog::table(session, name).await {
            Ok(Some(table)) if !table.relation.has_key() => findings.push(Finding::error(
                format!("table {name} has no key, and the pin own_row needs one"),
                "its views may hold more than is known; give the table a key, or what another pin needs",
            )),
            Err(failure) if failure.is_transient() => return Err(failure),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Whether the server refused for want of a privilege.
fn is_denied(failure: &Failure) -> bool {
    matches!(
        failure::number(failure),
        Some(
            code::DATABASE_ACCESS_DENIED
                | code::TABLE_ACCESS_DENIED
                | code::COLUMN_ACCESS_DENIED
                | code::SPECIFIC_ACCESS_DENIED
        )
    )
}

/// The account of the session, as SQL names it.
async fn account(session: &mut Session) -> Result<String, Failure> {
    let account: String = session.one("read the account", "SELECT CURRENT_USER()").await?;
    let (user, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
    let quoted = |text: &str| text.replace('\'', "''");
    Ok(format!("'{}'@'{}'", quoted(user), quoted(host)))
}
