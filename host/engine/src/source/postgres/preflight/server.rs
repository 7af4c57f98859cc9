//! The server, the role, and the slot.

use crate::config;
use crate::source::postgres::catalog::get;
use crate::source::postgres::connection::Session;
use crate::source::postgres::failure::Failure;
use crate::source::postgres::identifier::{literal, quote};
use crate::source::postgres::slot::{self, Slot};

use super::{Finding, SlotState};

/// TID range scans, by which chunks are read, and messages in pgoutput came with 14.
const VERSION_MIN: i32 = 140_000;

struct Facts {
    version_number: i32,
    version: String,
    wal_level: String,
    standby: bool,
    slots_max: i64,
    slots: i64,
    senders_max: i64,
    senders: i64,
    may_replicate: bool,
    role: String,
    keep_size: Option<String>,
    idle_timeout: Option<String>,
    longest_seconds: Option<i64>,
    prepared: i64,
    encoding: String,
}

/// Returns whether the server is new enough for the other questions.
pub(super) async fn inspect(
    session: &Session,
    source: &config::Postgres,
    state: SlotState,
    findings: &mut Vec<Finding>,
) -> Result<bool, Failure> {
    let facts = facts(session).await?;
    if facts.version_number < VERSION_MIN {
        findings.push(Finding::error(
            format!("PostgreSQL {} is too old", facts.version),
            "the engine needs PostgreSQL 14 or later",
        ));
        return Ok(false);
    }
    let slot = slot::inspect(session, &source.slot).await?;
    judge_server(&facts, slot.is_some(), findings);
    judge_slot(&source.slot, slot, state, findings);
    Ok(true)
}

async fn facts(session: &Session) -> Result<Facts, Failure> {
    const QUERY: &str = "\
        SELECT current_setting('server_version_num')::int4, current_setting('server_version'), \
            current_setting('wal_level'), pg_is_in_recovery(), \
            current_setting('max_replication_slots')::int8, \
            (SELECT count(*) FROM pg_replication_slots), \
            current_setting('max_wal_senders')::int8, (SELECT count(*) FROM pg_stat_replication), \
            r.rolsuper OR r.rolreplication OR EXISTS ( \
                SELECT FROM pg_roles managed WHERE managed.rolname = 'rds_replication' \
                    AND pg_has_role(managed.oid, 'MEMBER')), \
            r.rolname::text, \
            nullif(current_setting('max_slot_wal_keep_size', true), '-1'), \
            nullif(current_setting('idle_replication_slot_timeout', true), '0'), \
            (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::int8 \
                FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()), \
            (SELECT count(*) FROM pg_prepared_xacts), current_setting('server_encoding') \
        FROM pg_roles r WHERE r.rolname = current_user";
    let what = "read the settings of the server";
    let row =
        session.client().query_one(QUERY, &[]).await.map_err(|error| Failure::sql(what, error))?;
    Ok(Facts {
        version_number: get(&row, 0, what)?,
        version: get(&row, 1, what)?,
        wal_level: get(&row, 2, what)?,
        standby: get(&row, 3, what)?,
        slots_max: get(&row, 4, what)?,
        slots: get(&row, 5, what)?,
        senders_max: get(&row, 6, what)?,
        senders: get(&row, 7, what)?,
        may_replicate: get(&row, 8, what)?,
        role: get(&row, 9, what)?,
        keep_size: get(&row, 10, what)?,
        idle_timeout: get(&row, 11, what)?,
        longest_seconds: get(&row, 12, what)?,
        prepared: get(&row, 13, what)?,
        encoding: get(&row, 14, what)?,
    })
}

fn judge_server(facts: &Facts, slot_exists: bool, findings: &mut Vec<Finding>) {
    if facts.standby {
        findings.push(Finding::error(
            "the server is a hot standby",
            "views and slots are made on the primary; point the configuration at it",
        ));
    }
    if facts.encoding == "SQL_ASCII" {
        findings.push(Finding::error(
            "the encoding of the database is SQL_ASCII",
            "its texts may be in any encoding, and the server does not convert them to UTF-8; dump it, and restore it into a database with ENCODING 'UTF8'",
        ));
    }
    if facts.wal_level != "logical" {
        findings.push(
            Finding::error(
                format!("wal_level is {}", facts.wal_level),
                "the log only holds changes of rows with wal_level = logical; the server has to be restarted after the change",
            )
            .fix("ALTER SYSTEM SET wal_level = 'logical'"),
        );
    }
    if !slot_exists && facts.slots >= facts.slots_max {
        findings.push(
            Finding::error(
                format!("all {} replication slots are taken", facts.slots_max),
                "drop one that is not needed, or raise max_replication_slots and restart the server",
            )
            .fix(format!("ALTER SYSTEM SET max_replication_slots = {}", facts.slots_max + 5)),
        );
    }
    if facts.senders >= facts.senders_max {
        findings.push(
            Finding::error(
                format!("all {} WAL senders are taken", facts.senders_max),
                "raise max_wal_senders and restart the server",
            )
            .fix(format!("ALTER SYSTEM SET max_wal_senders = {}", facts.senders_max + 5)),
        );
    }
    if !facts.may_replicate {
        findings.push(
            Finding::error(
                format!("role {} may not replicate", facts.role),
                "it needs the attribute REPLICATION to create and read a slot",
            )
            .fix(format!("ALTER ROLE {} REPLICATION", quote(&facts.role))),
        );
    }
    if let Some(size) = &facts.keep_size {
        findings.push(Finding::note(
            format!("max_slot_wal_keep_size is {size}"),
            "if the engine falls behind by more than that, the server drops the log it needs, and everything has to be scanned again",
        ));
    }
    if let Some(timeout) = &facts.idle_timeout {
        findings.push(
            Finding::warning(
                format!("idle_replication_slot_timeout is {timeout}"),
                "the server invalidates the slot when the engine is stopped, or scans, for longer than that",
            )
            .fix("ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()"),
        );
    }
    if !slot_exists && facts.prepared > 0 {
        findings.push(Finding::warning(
            format!("{} prepared transactions are open", facts.prepared),
            "the creation of the slot waits for them, until pin_timeout; see pg_prepared_xacts",
        ));
    }
    if let Some(seconds) = facts.longest_seconds.filter(|seconds| !slot_exists && *seconds > 5) {
        findings.push(Finding::note(
            format!("a transaction has been open for {seconds} s"),
            "the creation of the slot waits for every transaction that is running, until pin_timeout",
        ));
    }
}

fn judge_slot(name: &str, slot: Option<Slot>, state: SlotState, findings: &mut Vec<Finding>) {
    match (slot, state) {
        (None, SlotState::Absent | SlotState::Intended) | (Some(_), SlotState::Intended) => {}
        (None, SlotState::Pinned) => findings.push(Finding::error(
            format!("replication slot {name} does not exist"),
            "changes since it was dropped are lost; `dovetail run` writes down what is missing, and how to go on",
        )),
        (Some(slot), SlotState::Pinned) if slot.is_lost() => findings.push(Finding::error(
            format!("replication slot {name} was invalidated"),
            format!(
                "the log that it needs is gone ({}); `dovetail run` writes down what is missing, and how to go on",
                slot.invalidation.as_deref().unwrap_or("max_slot_wal_keep_size")
            ),
        )),
        (Some(_), SlotState::Pinned) => {}
        (Some(slot), SlotState::Absent) => {
            let user = match slot.active_pid {
                Some(pid) => format!("pid {pid} streams from it"),
                None => "nothing streams from it now".into(),
            };
            findings.push(
                Finding::error(
                    format!("replication slot {name} exists, but the state directory knows nothing of it"),
                    format!("{user}; restore the state directory, or choose another slot name, or drop the slot if nothing needs it"),
                )
                .fix(format!("SELECT pg_drop_replication_slot({})", literal(name))),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::finding::Severity;

    fn slot(wal_status: &str) -> Slot {
        Slot {
            plugin: Some("pgoutput".into()),
            database: Some("shop".into()),
            active_pid: None,
            restart: None,
            confirmed: None,
            wal_status: Some(wal_status.into()),
            invalidation: None,
            streamed: false,
        }
    }

    #[test]
    fn a_slot_has_to_be_there_exactly_if_the_state_says_so() {
        let errors = |slot, state| {
            let mut findings = Vec::new();
            judge_slot("s", slot, state, &mut findings);
            findings.iter().filter(|finding| finding.severity == Severity::Error).count()
        };
        assert_eq!(errors(None, SlotState::Absent), 0);
        assert_eq!(errors(Some(slot("reserved")), SlotState::Absent), 1);
        assert_eq!(errors(Some(slot("reserved")), SlotState::Pinned), 0);
        assert_eq!(errors(Some(slot("lost")), SlotState::Pinned), 1);
        assert_eq!(errors(None, SlotState::Pinned), 1);
        assert_eq!(errors(None, SlotState::Intended), 0);
        assert_eq!(errors(Some(slot("reserved")), SlotState::Intended), 0);
    }
}
