//! What the engine costs, measured against the servers' own programs. See README.md beside this file.

mod bed;
mod binlog;
mod figure;
mod life;
mod mysql;
mod scan;
mod spool;
mod stream;

use anyhow::{Context, Result, bail};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) scan_rows: u64,
    pub(crate) stream_rows: u64,
    /// Of one row each, which cost the server three times as much.
    pub(crate) small_rows: u64,
    pub(crate) binlog_rows: u64,
    pub(crate) mysql_scan_rows: u64,
    pub(crate) latency_rows: u64,
    /// Of one transaction.
    pub(crate) mysql_transaction_rows: u64,
    pub(crate) repetitions: u32,
}

impl Sizes {
    const USUAL: Self = Self {
        scan_rows: 10_000_000,
        stream_rows: 1_000_000,
        small_rows: 200_000,
        binlog_rows: 1_000_000,
        mysql_scan_rows: 10_000_000,
        latency_rows: 300,
        mysql_transaction_rows: 5_000_000,
        repetitions: 3,
    };

    /// Too little to mean anything: proves that everything still runs.
    const SMOKE: Self = Self {
        scan_rows: 20_000,
        stream_rows: 20_000,
        small_rows: 1_000,
        binlog_rows: 20_000,
        mysql_scan_rows: 20_000,
        latency_rows: 5,
        mysql_transaction_rows: 20_000,
        repetitions: 1,
    };

    fn of(rows: u64) -> Self {
        Self {
            scan_rows: rows,
            stream_rows: rows,
            small_rows: rows,
            binlog_rows: rows,
            mysql_scan_rows: rows,
            mysql_transaction_rows: rows,
            ..Self::USUAL
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Group {
    Scan,
    Stream,
    StreamSmall,
    Spool,
    Binlog,
    MySqlScan,
    MySqlTransaction,
}

impl Group {
    const ALL: [Self; 7] = [
        Self::Scan,
        Self::Stream,
        Self::StreamSmall,
        Self::Spool,
        Self::Binlog,
        Self::MySqlScan,
        Self::MySqlTransaction,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Stream => "stream",
            Self::StreamSmall => "stream_small",
            Self::Spool => "spool",
            Self::Binlog => "binlog",
            Self::MySqlScan => "mysql_scan",
            Self::MySqlTransaction => "mysql_transaction",
        }
    }

    fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Scan => &scan::FIGURES,
            Self::Stream => &stream::FIGURES,
            Self::StreamSmall => &stream::FIGURES_OF_SMALL,
            Self::Spool => &spool::FIGURES,
            Self::Binlog => &binlog::FIGURES,
            Self::MySqlScan => &mysql::FIGURES_OF_SCAN,
            Self::MySqlTransaction => &mysql::FIGURES_OF_TRANSACTION,
        }
    }

    async fn run(self, sizes: &Sizes) -> Result<()> {
        match self {
            Self::Scan => scan::run(sizes).await,
            Self::Stream => stream::run(sizes).await,
            Self::StreamSmall => stream::run_small(sizes).await,
            Self::Spool => spool::run(sizes).await,
            Self::Binlog => binlog::run(sizes).await,
            Self::MySqlScan => mysql::scan(sizes).await,
            Self::MySqlTransaction => mysql::transaction(sizes).await,
        }
    }

    fn is_named(self, name: &str) -> bool {
        name == self.name() || self.figures().contains(&name)
    }
}

struct Arguments {
    sizes: Sizes,
    /// All without one.
    names: Vec<String>,
}

impl Arguments {
    fn parse() -> Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let (mut sizes, mut names) = (Sizes::USUAL, Vec::new());
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value =
                    arguments.next().with_context(|| format!("{argument} needs a value"))?;
                value.parse::<u32>().with_context(|| format!("{argument} takes a number"))
            };
            match argument.as_str() {
                "--smoke" => sizes = Sizes::SMOKE,
                "--rows" => {
                    let repetitions = sizes.repetitions;
                    sizes = Sizes { repetitions, ..Sizes::of(u64::from(number()?)) };
                }
                "--repetitions" => sizes.repetitions = number()?.max(1),
                name if Group::ALL.iter().any(|group| group.is_named(name)) => {
                    names.push(argument);
                }
                other => bail!(
                    "{other}: there are --smoke, --rows N, --repetitions N and {}",
                    Group::ALL.map(|group| group.figures().join(" ")).join(" ")
                ),
            }
        }
        Ok(Self { sizes, names })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { sizes, names } = Arguments::parse()?;
    for group in Group::ALL {
        if names.is_empty() || names.iter().any(|name| group.is_named(name)) {
            group.run(&sizes).await?;
        }
    }
    Ok(())
}
