//! The one task that writes to the outlets.
//!
//! It joins the batches behind the lanes in their order, puts as many of them as are ready into one write, and reports
//! what became durable at *every* outlet. It never decides what may be saved: it only passes on what the outlets
//! proved.

use std::collections::HashMap;
use std::sync::Arc;

use dovetail_core::batch::ChunkId;
use dovetail_core::position::Lsn;
use dovetail_core::schema::Relation;
use dovetail_core::seam::Recorded;
use tokio::sync::mpsc;

use crate::lanes::{JoinError, Joined, Pending, Work};
use crate::outlet::{self, Delivery, Durable, Landed, Outlet};

/// Rows in one write: enough to amortize an outlet's commit, few enough that a first change is not kept waiting by the
/// thousandth.
const GROUP_ROWS_MAX: usize = 8_192;

/// Why delivery stopped. What had been joined before was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("outlet {name}")]
    Outlet {
        name: String,
        #[source]
        source: outlet::Error,
    },
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl Error {
    /// Whether another attempt may do better without anybody's help. An outcome that is not known counts: a
    /// transactional outlet says what it has when it is opened again.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Outlet { source, .. } => source.is_transient(),
            Self::Join(_) => false,
        }
    }
}

/// Writes until the lanes are closed and everything has been written. Not cancel-safe.
///
/// # Errors
/// As soon as one outlet fails or a plugin halts the pipeline.
pub async fn run(
    mut work: mpsc::Receiver<Work>,
    mut targets: Targets,
    landed: mpsc::UnboundedSender<Landed>,
) -> Result<(), Error> {
    while let Some(next) = work.recv().await {
        let mut follows = Some(next);
        while let Some(item) = follows.take() {
            match item {
                Work::Prepare { relations, fresh } => {
                    for relation in &relations {
                        targets.prepare(relation, fresh).await?;
                    }
                }
                Work::Batch(first) => {
                    follows = write_group(first, &mut work, &mut targets, &landed).await?;
                }
            }
        }
    }
    targets.close().await
}

/// Joins and writes one group. Returns what ended it without belonging to it.
async fn write_group(
    first: Pending,
    work: &mut mpsc::Receiver<Work>,
    targets: &mut Targets,
    landed: &mpsc::UnboundedSender<Landed>,
) -> Result<Option<Work>, Error> {
    let mut group = vec![first.join().await?];
    let mut rows = group.iter().map(|joined| joined.delivery.records.len()).sum::<usize>();
    let mut follows = None;
    let mut failed = None;
    while rows < GROUP_ROWS_MAX {
        match work.try_recv() {
            Ok(Work::Batch(pending)) => match pending.join().await {
                Ok(joined) => {
                    rows += joined.delivery.records.len();
                    group.push(joined);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            },
            Ok(other) => {
                follows = Some(other);
                break;
            }
            Err(_) => break,
        }
    }
    for landed_now in targets.write(group).await? {
        // The driver is gone only when the attempt has ended; what is durable then is found at the next start.
        landed.send(landed_now).ok();
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(follows),
    }
}

/// The outlets of a pipeline, in the order in which plugins name them by index.
pub struct Targets {
    outlets: Vec<Target>,
    progress: Progress,
}

struct Target {
    name: String,
    outlet: Outlet,
}

impl Targets {
    pub fn new(outlets: Vec<(String, Outlet)>) -> Self {
        let progress = Progress::new(outlets.len());
        let outlets =
            outlets.into_iter().map(|(name, outlet)| Target { name, outlet }).collect::<Vec<_>>();
        Self { outlets, progress }
    }

    /// What the outlets together know of the position, and the proof of it.
    ///
    /// The least of them counts. An outlet that keeps no record cannot be asked; then the others may not carry the
    /// pipeline past `saved`, but one that stands before `saved` has lost something, whatever the rest says.
    pub fn recorded(&self, saved: Option<Lsn>) -> (Recorded, Option<Durable<Lsn>>) {
        let recorded = || self.outlets.iter().map(|target| target.outlet.recorded());
        if recorded().any(|it| it == Recorded::Empty) {
            return (Recorded::Empty, None);
        }
        let unkept = recorded().any(|it| it == Recorded::Unkept);
        match self.outlets.iter().filter_map(|target| target.outlet.durable()).min() {
            Some(least) if !unkept || Some(least.get()) < saved => {
                (Recorded::At(least.get()), Some(least))
            }
            _ => (Recorded::Unkept, None),
        }
    }

    async fn prepare(&mut self, relation: &Arc<Relation>, fresh: bool) -> Result<(), Error> {
        for target in &mut self.outlets {
            let named = |source| Error::Outlet { name: target.name.clone(), source };
            target.outlet.prepare(relation, fresh).await.map_err(named)?;
        }
        Ok(())
    }

    async fn write(&mut self, group: Vec<Joined>) -> Result<Vec<Landed>, Error> {
        let (group, in_flight): (Vec<Delivery>, Vec<_>) =
            group.into_iter().map(Joined::into_parts).unzip();
        let group: Arc<[Delivery]> = group.into();
        let mut landed = Vec::new();
        for (index, target) in self.outlets.iter_mut().enumerate() {
            let named = |source| Error::Outlet { name: target.name.clone(), source };
            let now = target.outlet.write(&group).await.map_err(named)?;
            landed.extend(self.progress.advance(index, now));
        }
        // Only now may more be read: the limit covers what an outlet still holds.
        drop(in_flight);
        Ok(landed)
    }

    async fn close(self) -> Result<(), Error> {
        for target in self.outlets {
            let named = |source| Error::Outlet { name: target.name, source };
            target.outlet.close().await.map_err(named)?;
        }
        Ok(())
    }
}

/// What has landed where, until it has landed everywhere.
struct Progress {
    commits: Vec<Option<Durable<Lsn>>>,
    reported: Option<Durable<Lsn>>,
    chunks: HashMap<ChunkId, usize>,
}

impl Progress {
    fn new(targets: usize) -> Self {
        Self { commits: vec![None; targets], reported: None, chunks: HashMap::new() }
    }

    fn advance(&mut self, target: usize, landed: Vec<Landed>) -> Vec<Landed> {
        let mut everywhere = Vec::new();
        for item in landed {
            match item {
                Landed::Chunk(chunk) => {
                    let seen = self.chunks.entry(chunk.get()).or_default();
                    *seen += 1;
                    if *seen == self.commits.len() {
                        self.chunks.remove(&chunk.get());
                        everywhere.push(Landed::Chunk(chunk));
                    }
                }
                Landed::Commit(position) => {
                    if let Some(slot) = self.commits.get_mut(target) {
                        *slot = Some(position);
                    }
                    let least = self.commits.iter().copied().min().flatten();
                    if least > self.reported {
                        self.reported = least;
                        everywhere.extend(least.map(Landed::Commit));
                    }
                }
            }
        }
        everywhere
    }
}
