//! What the engine costs, measured against PostgreSQL's own programs. See README.md beside this file.

mod bed;
mod figure;
mod life;
mod scan;
mod stream;

use anyhow::{Context, Result, bail};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) scan_rows: u64,
    pub(crate) stream_rows: u64,
    /// Of one row each, which cost the server three times as much.
    pub(crate) small_rows: u64,
    pub(crate) repetitions: u32,
}

impl Sizes {
    const USUAL: Self =
        Self { scan_rows: 10_000_000, stream_rows: 1_000_000, small_rows: 200_000, repetitions: 3 };

    /// Too little to mean anything: proves that everything still runs.
    const SMOKE: Self =
        Self { scan_rows: 20_000, stream_rows: 20_000, small_rows: 1_000, repetitions: 1 };
}

#[derive(Debug, Clone, Copy)]
enum Group {
    Scan,
    Stream,
    StreamSmall,
}

impl Group {
    const ALL: [Self; 3] = [Self::Scan, Self::Stream, Self::StreamSmall];

    fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Stream => "stream",
            Self::StreamSmall => "stream_small",
        }
    }

    fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Scan => &scan::FIGURES,
            Self::Stream => &stream::FIGURES,
            Self::StreamSmall => &stream::FIGURES_OF_SMALL,
        }
    }

    async fn run(self, sizes: &Sizes) -> Result<()> {
        match self {
            Self::Scan => scan::run(sizes).await,
            Self::Stream => stream::run(sizes).await,
            Self::StreamSmall => stream::run_small(sizes).await,
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
                    let rows = u64::from(number()?);
                    (sizes.scan_rows, sizes.stream_rows, sizes.small_rows) = (rows, rows, rows);
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
