//! A pipeline's configuration, checked. Nothing behind this module validates again.
//!
//! A file becomes a tree of nodes that know their places (`tree`), and is read key by key (`field`) by one module for each
//! section. All problems are reported at once ([`Problems`]), each with line, column, path, and what is expected.

mod check;
mod environment;
mod field;
mod mysql;
mod outlet;
mod plugin;
mod problem;
mod quantity;
mod server;
mod source;
mod spool;
mod table;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail_core::schema::TableName;
use dovetail_core::seam::Mode;

pub use environment::Environment;
pub(crate) use problem::nearest;
pub use problem::{Place, Problem, Problems};

/// Far more than a pipeline needs; a mistaken path to a large file must not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("read the configuration {}", file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("the configuration {} has more than {FILE_BYTES_MAX} bytes", file.display())]
    TooLarge { file: PathBuf },
    #[error("{count} in the configuration:\n{0}", count = .0.count())]
    Invalid(Problems),
}

impl Pipeline {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or all that is wrong with it.
    pub fn load(file: &Path, environment: &Environment) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { file: file.to_owned(), source };
        let mut text = String::new();
        let opened = File::open(file).map_err(unreadable)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
            return Err(Error::TooLarge { file: file.to_owned() });
        }
        Self::check(file, &text, environment).map_err(Error::Invalid)
    }

    /// The outlet of a name in `deliver`.
    ///
    /// # Panics
    /// The name is not in `deliver`.
    pub fn outlet(&self, name: &str) -> &Outlet {
        self.outlets.get(name).expect("names in `deliver` were checked to be outlets")
    }
}

/// One pipeline, from one YAML file.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Names the slot, the publication and the outlet's checkpoint where nothing else does. `[a-z0-9_]{1,40}`.
    pub name: String,
    pub source: Source,
    pub snapshot: Snapshot,
    /// How many calls into plugins run side by side; a key always takes the same lane.
    pub lanes: NonZeroU16,
    /// In the order of the chain.
    pub plugins: Vec<Plugin>,
    pub outlets: BTreeMap<String, Outlet>,
    /// Names of outlets; a plugin's route is an index into this list.
    pub deliver: Vec<String>,
    /// Directory of the state.
    pub state: PathBuf,
    /// `None`: the log is read when it is streamed, and the server has to keep it for as long as a scan takes.
    pub spool: Option<Spool>,
}

/// A secret. `Debug` hides it; only the code that sends it to its server reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Where a PostgreSQL server is and how to log in; of a source or of an outlet.
#[derive(Debug, Clone)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub database: String,
    pub user: String,
    pub password: Option<Secret>,
    pub tls: Tls,
}

impl Server {
    /// Whether both name one database, as far as their texts can tell.
    pub fn same_database(&self, other: &Self) -> bool {
        (&self.host, self.port, &self.database) == (&other.host, other.port, &other.database)
    }
}

/// Where a MySQL or MariaDB server is and how to log in.
#[derive(Debug, Clone)]
pub struct MySqlServer {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<Secret>,
    pub tls: Tls,
}

impl MySqlServer {
    /// Whether both name one server, as far as their texts can tell.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// libpq's `sslmode`, with its meanings; `allow` is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

#[derive(Debug, Clone)]
pub struct Tls {
    /// `verify-full` unless the host is a loopback address, where it is `prefer`.
    pub mode: SslMode,
    /// PEM file of the authorities to trust; the system's store without one.
    pub root_certificates: Option<PathBuf>,
}

/// Where changes come from.
#[derive(Debug, Clone)]
pub enum Source {
    Postgres(Postgres),
    MySql(MySql),
}

impl Source {
    /// Captured tables, without duplicates, in the order of the file.
    pub fn tables(&self) -> &[TableName] {
        match self {
            Self::Postgres(postgres) => &postgres.tables,
            Self::MySql(mysql) => &mysql.tables,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Postgres {
    pub server: Server,
    /// Captured tables, without duplicates, in the order of the file.
    pub tables: Vec<TableName>,
    pub slot: String,
    pub publication: String,
    /// The operator's consent to create the publication (and to add missing tables to it).
    pub create_publication: bool,
    /// How long the creation of the slot may wait for running transactions.
    pub pin_timeout: Duration,
}

/// Which of the two servers that speak one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MySqlKind {
    MySql,
    MariaDb,
}

/// How a position and a view are tied to each other on MySQL and MariaDB, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// MariaDB: the snapshot tells its own position in the log.
    Snapshot,
    /// MySQL: the set of committed transactions, read before the views are opened.
    Gtid,
    /// MySQL: `performance_schema.log_status`, read before the views are opened.
    LogStatus,
    /// The tables are locked for the moment in which position and views are taken.
    Lock,
    /// The log's position, a committed row of our own behind it, then the views.
    OwnRow,
}

/// Which rung is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinChoice {
    /// The best that server and account allow.
    Auto,
    Rung(Rung),
}

#[derive(Debug, Clone)]
pub struct MySql {
    pub kind: MySqlKind,
    pub server: MySqlServer,
    /// Captured tables, without duplicates, in the order of the file; the namespace is the database.
    pub tables: Vec<TableName>,
    /// As a replica; one is chosen by chance where none is given.
    pub server_id: Option<NonZeroU32>,
    pub pin: PinChoice,
    /// The table that [`Rung::OwnRow`] writes its row to.
    pub own_table: Option<TableName>,
    /// How long the pin may wait for locks and for transactions to become visible.
    pub pin_timeout: Duration,
    /// The scan pauses while the server runs more statements than this side by side.
    pub threads_running_max: u32,
    /// The operator's consent to miss what foreign keys change by themselves, where the server does not log it.
    pub ignore_cascades: bool,
}

impl MySql {
    /// Whether a row of our own may be written.
    pub fn uses_own_row(&self) -> bool {
        self.pin == PinChoice::Rung(Rung::OwnRow)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Scan what was not scanned yet.
    Initial,
    /// Scan every table again at every start, behind a truncate barrier.
    Always,
    /// Stream only.
    Never,
}

impl From<SnapshotMode> for Mode {
    fn from(mode: SnapshotMode) -> Self {
        match mode {
            SnapshotMode::Initial => Self::Initial,
            SnapshotMode::Always => Self::Always,
            SnapshotMode::Never => Self::Never,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Snapshot {
    pub mode: SnapshotMode,
    pub workers: NonZeroU16,
    /// Size of a chunk in rows, as the planner estimates them.
    pub chunk_rows: u32,
    /// Of all tables together; as fast as source and outlets go without one.
    pub max_rows_per_second: Option<NonZeroU32>,
}

/// The local copy of the log between the reader and the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spool {
    /// Bytes on the disk.
    pub limit: u64,
    pub at_limit: AtLimit,
}

/// What becomes of reading when the spool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// It waits until the outlets have taken something; the server keeps its log meanwhile.
    Wait,
    /// The pipeline stops, with an error.
    Stop,
}

#[derive(Clone)]
pub struct Plugin {
    pub name: String,
    pub file: PathBuf,
    /// A JSON document for the plugin's `init`. May hold secrets (a salt, a token): `Debug` hides it.
    pub config: String,
    pub on_failure: OnFailure,
    pub memory_bytes_max: u64,
    pub batch_timeout: Duration,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Stop the pipeline before the event.
    Halt,
    /// Leave the event out, counted and logged by position.
    Skip,
}

#[derive(Debug, Clone)]
pub enum Outlet {
    Stdout,
    File {
        path: PathBuf,
    },
    Sqlite {
        path: PathBuf,
    },
    Postgres {
        server: Server,
        /// Schema that receives the tables; `None` keeps the source's.
        schema: Option<String>,
    },
    MySql {
        server: MySqlServer,
        /// Receives the tables and the engine's own two.
        database: String,
    },
    /// Counts and forgets; for measurements.
    Discard,
}
