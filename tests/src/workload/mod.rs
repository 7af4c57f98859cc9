//! Writers that know what they committed.
//!
//! A workload writes versioned rows from several sessions at once and records every transaction: its id, its changes in
//! order, and what became of it. Judged against that record, a delivery cannot be wrong by luck.
//!
//! On PostgreSQL this module's own [`table`], [`writer`] and [`witness`] do that, on MySQL and MariaDB those of [`mysql`].
//!
//! - A key has one owner among the writers (accounts excepted, where row locks serialise), and every write of a row
//!   carries a version that only grows. So the order of the versions of a key *is* the order in which its transactions
//!   committed, without asking the server's log.
//! - Transfers keep the sum of all balances. A replica that shows another sum shows half a transaction.
//! - When a connection breaks in a `COMMIT`, its outcome is unknown here; the server is asked afterwards.
//!
//! Everything random comes from one seed, `DOVETAIL_SEED` or drawn and printed. The interleaving of the writers is the
//! server's, so a seed repeats what is written, not when.

pub mod mysql;
mod record;
mod table;
pub mod witness;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio_postgres::Client;

pub use record::{Change, Outcome, Record, Transaction, What};
pub use table::TABLES;

use crate::mysql::Server as MySqlServer;
use crate::postgres::{PASSWORD, Server};
use crate::wait::{PATIENCE, until};
use writer::Writer;

/// How much is written, and of what kinds.
#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u64,
    pub writers: u16,
    /// Rows of `account` at the start; none is ever deleted.
    pub accounts: u32,
    /// Rows of `item` at the start.
    pub items: u32,
    /// Rows of `bulk` at the start: what a scan has to chew on.
    pub bulk: u32,
    /// Rows of a big transaction; 0 for none.
    pub big_rows: u32,
    /// Whether `scratch` is truncated from time to time. A truncate waits while the table is scanned.
    pub truncates: bool,
    /// Between two transactions of a writer; bounds what a test writes in its time.
    pub pace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self::seeded(seed())
    }
}

impl Options {
    /// The usual workload with a seed that was chosen elsewhere.
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            writers: 4,
            accounts: 200,
            items: 2_000,
            bulk: 20_000,
            big_rows: 0,
            truncates: true,
            pace: Duration::from_millis(2),
        }
    }
}

/// The seed of this run: `DOVETAIL_SEED`, else a new one. Printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("DOVETAIL_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    println!("DOVETAIL_SEED={seed}");
    seed
}

/// Shared by the writers of one workload.
#[derive(Debug)]
struct Shared {
    options: Options,
    database: Database,
    stop: AtomicBool,
    next_version: AtomicU64,
    committed: AtomicU64,
}

/// How a writer comes in.
#[derive(Debug)]
enum Database {
    Postgres { url: String },
    MySql { login: mysql_async::Opts, mariadb: bool },
}

impl Shared {
    fn new(options: Options, database: Database) -> Self {
        Self {
            options,
            database,
            stop: AtomicBool::new(false),
            // Above every version that the first rows and the accounts (which count by one) can have.
            next_version: AtomicU64::new(1_000_000_000),
            committed: AtomicU64::new(0),
        }
    }

    fn version(&self) -> i64 {
        let version = self.next_version.fetch_add(1, Ordering::Relaxed);
        i64::try_from(version).expect("a test writes less than 2^63 rows")
    }
}

/// Tables with their first rows, and nobody who writes yet.
#[derive(Debug)]
pub struct Workload {
    shared: Arc<Shared>,
    record: Record,
}

impl Workload {
    /// Creates the tables in the database `postgres` of `server` and fills them.
    pub async fn prepare(server: &Server, options: Options) -> Result<Self> {
        let client = server.connect().await?;
        let first = table::create(&client, &options).await?;
        let database = Database::Postgres { url: server.url("postgres") };
        Ok(Self::of(Shared::new(options, database), first))
    }

    /// Creates the tables in the database `trial` of `server` and fills them.
    pub async fn prepare_mysql(server: &MySqlServer, options: Options) -> Result<Self> {
        let mut connection = server.connect().await?;
        let mariadb = server.version().is_mariadb();
        let first = mysql::create(&mut connection, mariadb, &options).await?;
        let login = server.options_for("root", PASSWORD);
        Ok(Self::of(Shared::new(options, Database::MySql { login, mariadb }), first))
    }

    fn of(shared: Shared, first: Transaction) -> Self {
        Self { shared: Arc::new(shared), record: Record { transactions: vec![first] } }
    }

    /// Sum of all balances, at any time.
    pub fn sum(&self) -> i64 {
        table::sum(&self.shared.options)
    }

    /// Starts the writers. They go on, over restarts of the server too, until [`Running::stop`].
    pub fn start(self) -> Running {
        self.shared.stop.store(false, Ordering::Relaxed);
        let mut writers = JoinSet::new();
        for number in 0..self.shared.options.writers {
            let (shared, runtime) = (self.shared.clone(), tokio::runtime::Handle::current());
            // A thread each, so that writers go on writing while the test's own task is busy.
            writers.spawn_blocking(move || match &shared.clone().database {
                Database::Postgres { url } => {
                    runtime.block_on(Writer::new(number, shared).run(url.clone()))
                }
                Database::MySql { login, mariadb } => {
                    runtime.block_on(mysql::Writer::new(number, shared, login, *mariadb).run())
                }
            });
        }
        Running { workload: self, writers }
    }

    /// What was committed so far, every outcome known.
    pub async fn record(&mut self, client: &Client) -> Result<&Record> {
        self.record.resolve(client).await?;
        Ok(&self.record)
    }

    /// The same on MySQL and MariaDB.
    pub async fn record_mysql(&mut self, server: &MySqlServer) -> Result<&Record> {
        self.record.resolve_by_log(server).await?;
        Ok(&self.record)
    }
}

/// A workload whose writers are at work.
#[derive(Debug)]
pub struct Running {
    workload: Workload,
    writers: JoinSet<Result<Record>>,
}

impl Running {
    /// Transactions committed since [`Workload::start`], of all writers.
    pub fn committed(&self) -> u64 {
        self.workload.shared.committed.load(Ordering::Relaxed)
    }

    /// Waits until `count` more transactions are committed.
    pub async fn advance(&mut self, count: u64) -> Result<()> {
        let goal = self.committed() + count;
        until(format!("{count} more transactions"), PATIENCE, async || {
            if let Some(ended) = self.writers.try_join_next() {
                ended.context("a writer panicked")??;
                bail!("a writer ended by itself");
            }
            Ok((self.committed() >= goal).then_some(()))
        })
        .await
    }

    /// Lets every writer finish its transaction. The workload may be started again.
    pub async fn stop(mut self) -> Result<Workload> {
        self.workload.shared.stop.store(true, Ordering::Relaxed);
        while let Some(record) = self.writers.join_next().await {
            let record = record.context("a writer panicked")??;
            self.workload.record.transactions.extend(record.transactions);
        }
        Ok(self.workload)
    }
}
