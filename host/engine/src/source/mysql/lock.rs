//! Tables that nobody writes to for a moment: `FLUSH TABLES ... WITH READ LOCK`.
//!
//! The statement waits for transactions that wrote to one of the tables, and while it waits everybody who comes to these
//! tables waits behind it. So it waits for seconds at most, gives the tables free again, and tries a few times before it
//! gives up: an application that writes for longer than that is better served by another rung.

use std::time::Duration;

use dovetail_core::gtid::mysql::GtidSet;

use super::connection::Session;
use super::failure::{self, Failure, code};
use super::identifier::quote_table;
use super::server::{self, Place};
use super::snapshot;
use crate::config::MySql;

/// How long one attempt may hold up the application. Half of it would miss ordinary transactions of a second.
const WAIT_SECONDS: u32 = 2;
const ATTEMPTS: u32 = 3;
/// Lets those pass who queued behind the attempt.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct TableLocks {
    session: Session,
}

impl TableLocks {
    /// # Errors
    /// Transient when the tables are not to be had in time.
    pub(super) async fn take(config: &MySql) -> Result<Self, Failure> {
        let what = "lock the tables";
        let mut session = Session::open(&config.server).await?;
        session.run(what, &format!("SET SESSION lock_wait_timeout = {WAIT_SECONDS}")).await?;
        let tables: Vec<String> = config.tables.iter().map(quote_table).collect();
        let statement = format!("FLUSH TABLES {} WITH READ LOCK", tables.join(", "));
        let mut attempt = 1;
        loop {
            match session.run(what, &statement).await {
                Ok(()) => return Ok(Self { session }),
                Err(failure) if failure::number(&failure) == Some(code::LOCK_WAIT_TIMEOUT) => {
                    if attempt == ATTEMPTS {
                        return Err(Failure::transient(
                            format!(
                                "{what}: {ATTEMPTS} attempts of {WAIT_SECONDS} s each met transactions that write to them"
                            ),
                            "let these transactions end, or pin without a lock: grant BACKUP_ADMIN (MySQL), or set own_table and `pin: own_row`",
                        ));
                    }
                    attempt += 1;
                    tracing::warn!(
                        "transactions that write to the tables are in the way of their locks"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    pub(super) async fn log_end(&mut self) -> Result<Place, Failure> {
        server::log_end(&mut self.session).await
    }

    /// What has been executed; `None` where not every transaction has a GTID.
    pub(super) async fn gtids(&mut self) -> Result<Option<GtidSet>, Failure> {
        if self.session.version().maria_db {
            return Ok(None);
        }
        let what = "read the executed GTIDs under the locks";
        let query = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode";
        let sets = self.session.texts(what, query).await?;
        let row = sets.first().and_then(|rows| rows.first());
        let mode = row.and_then(|row| row.get(1)).and_then(Option::as_deref);
        if !mode.is_some_and(|mode| mode.eq_ignore_ascii_case("on")) {
            return Ok(None);
        }
        snapshot::gtids(&sets, 0, what).map(Some)
    }

    pub(super) async fn release(mut self) -> Result<(), Failure> {
        self.session.run("unlock the tables", "UNLOCK TABLES").await
    }
}
