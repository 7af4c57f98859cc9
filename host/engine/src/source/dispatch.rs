//! A source of any kind, as the driver sees it.
//!
//! Which kind it is was chosen by the configuration, and is chosen nowhere else: what comes from a source (a pin, a
//! view, a plan, a scan, a stream) is of its kind by construction, because each is made from the one before it and
//! consumes it. So there is no pair of kinds that could be mixed up, and the driver has no branch on them.
//!
//! The order that compiles is that of the seam: a pin is taken from a source, a view opened from the pin (or from the
//! source, later), rows planned in the view and scanned by the plan.

use std::sync::Arc;

use dovetail_core::fence::{Fence, Mark};
use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, RelationId, TableName};
use dovetail_core::seam::{Record, Recorded, Spool, Start};

use super::failure::{Failure, PinError, ScanError, ViewError};
use super::finding::Finding;
use super::piece::{Item, Options, Piece, Wanted};
use super::{mysql, postgres};
use crate::config::{self, SnapshotMode};
use crate::origin::Origin;
use crate::progress::Table as Progress;
use crate::spool::Kept;
use crate::state::Notes;

#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Source {
    Postgres(postgres::source::Source),
    MySql(mysql::source::Source),
}

impl Source {
    /// `notes` are those that it gave in earlier lives; `read` is the one of where the log was read to.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the login.
    pub async fn connect(
        config: &config::Source,
        notes: &Notes,
        read: Option<&str>,
    ) -> Result<Self, Failure> {
        match config {
            config::Source::Postgres(config) => {
                Ok(Self::Postgres(postgres::source::Source::connect(config, notes, read).await?))
            }
            config::Source::MySql(config) => {
                Ok(Self::MySql(mysql::source::Source::connect(config, notes, read).await?))
            }
        }
    }

    pub fn origin(&self, pipeline: &str) -> Origin {
        match self {
            Self::Postgres(source) => source.origin(pipeline),
            Self::MySql(source) => source.origin(pipeline),
        }
    }

    /// What `dovetail check` prints.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn findings(
        &self,
        record: &Record,
        mode: SnapshotMode,
    ) -> Result<Vec<Finding>, Failure> {
        match self {
            Self::Postgres(source) => Ok(source.findings(record, mode).await?),
            Self::MySql(source) => Ok(source.findings(record, mode).await?),
        }
    }

    /// Makes at the server what the operator consented to in the configuration.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn prepare(&self, record: &Record, mode: SnapshotMode) -> Result<(), Failure> {
        match self {
            Self::Postgres(source) => Ok(source.prepare_publication(record, mode).await?),
            Self::MySql(_) => Ok(()),
        }
    }

    /// What the seam has to know before anything is done.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn start(
        &mut self,
        mode: SnapshotMode,
        recorded: Recorded,
        spool: Spool,
        reading: bool,
    ) -> Result<Start, Failure> {
        let start = match self {
            Self::Postgres(source) => source.start(mode, recorded).await?,
            Self::MySql(source) => source.start(mode, recorded, reading).await?,
        };
        Ok(Start { spool, ..start })
    }

    /// Makes the server hold the log from a position on, and opens what a first view needs. Not cancel-safe: dropped, it
    /// can leave something at the server. That is why the intent is saved before.
    ///
    /// # Errors
    /// Each says whether anything is left.
    pub async fn take_pin(&mut self, wanted: &Wanted) -> Result<Pin, PinError> {
        match self {
            Self::Postgres(source) => {
                let pin = source.create_slot().await?;
                Ok(Pin::Postgres { pin, config: Box::new(source.config().clone()) })
            }
            Self::MySql(source) => Ok(Pin::MySql(source.take_pin(wanted).await?)),
        }
    }

    /// Takes away what an intent may have left at the server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn drop_pin(&mut self) -> Result<(), Failure> {
        match self {
            Self::Postgres(source) => Ok(source.drop_slot().await?),
            // The server keeps nothing for us.
            Self::MySql(_) => Ok(()),
        }
    }

    /// Waits until everything is visible that starts before this position, or that the pin leaves out of the stream.
    ///
    /// # Errors
    /// When that takes longer than the pin may.
    pub async fn settle(&mut self, before: Lsn) -> Result<Mark, Failure> {
        match self {
            Self::Postgres(source) => Ok(Mark::Xid(source.settle().await?)),
            Self::MySql(source) => Ok(source.settle(before).await?),
        }
    }

    /// A view of now.
    ///
    /// # Errors
    /// A stale one is no failure: another one may do.
    pub async fn view(&mut self, wanted: &Wanted) -> Result<View, ViewError> {
        match self {
            Self::Postgres(source) => {
                Ok(View::Postgres(source.view_of_now(&wanted.tables, wanted.workers).await?))
            }
            Self::MySql(source) => Ok(View::MySql(source.view(wanted).await?)),
        }
    }

    /// Where a stream gets to by itself, though nothing more is written.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn flushed(&self) -> Result<Lsn, Failure> {
        match self {
            Self::Postgres(source) => Ok(source.flushed().await?),
            Self::MySql(source) => Ok(source.flushed().await?),
        }
    }

    /// What has to be kept with a position to stream from there: the newest that is known before it.
    pub fn note_before(&self, from: Lsn) -> Option<String> {
        match self {
            Self::Postgres(source) => source.note(from),
            Self::MySql(source) => source.note_before(from),
        }
    }

    /// What has to be saved with the pin or the checkpoint at this position, for [`Self::connect`] to have it again. `None`
    /// leaves what was saved before.
    pub fn note(&self, at: Lsn) -> Option<String> {
        match self {
            Self::Postgres(source) => source.note(at),
            Self::MySql(source) => source.note(at),
        }
    }

    /// What has to take the place of the newest note before anything is read.
    pub fn renewed_note(&self) -> Option<String> {
        match self {
            Self::Postgres(source) => source.renewed_note(),
            Self::MySql(_) => None,
        }
    }

    /// Streams every transaction whose position is at or past `from`. `known` is what the state knows of the captured
    /// tables' ids.
    ///
    /// # Errors
    /// When the log cannot be had from there, or not now.
    pub async fn stream(
        &mut self,
        from: Lsn,
        known: &[(RelationId, TableName)],
    ) -> Result<Stream, Failure> {
        match self {
            Self::Postgres(source) => Ok(Stream::Postgres(source.stream(from, known).await?)),
            Self::MySql(source) => Ok(Stream::MySql(source.stream(from).await?)),
        }
    }
}

/// A position from which every later change will be streamed.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Pin {
    Postgres { pin: postgres::slot::Pin, config: Box<config::Postgres> },
    MySql(mysql::pin::Pin),
}

impl Pin {
    pub fn position(&self) -> Lsn {
        match self {
            Self::Postgres { pin, .. } => pin.position(),
            Self::MySql(pin) => pin.position(),
        }
    }

    /// Whether a view can be opened that holds exactly what is not streamed from there. Without one the position is a
    /// lower bound.
    pub fn has_view(&self) -> bool {
        match self {
            Self::Postgres { .. } => true,
            Self::MySql(pin) => pin.has_view(),
        }
    }

    /// The view that came with it.
    ///
    /// # Errors
    /// The pin is used up.
    pub async fn view(self, wanted: &Wanted) -> Result<View, ViewError> {
        match self {
            Self::Postgres { pin, config } => {
                let view =
                    postgres::view::View::pinned(pin, &config, &wanted.tables, wanted.workers)
                        .await?;
                Ok(View::Postgres(view))
            }
            Self::MySql(pin) => {
                Ok(View::MySql(mysql::view::View::pinned(pin, &wanted.tables).await?))
            }
        }
    }
}

/// An open, consistent read of some tables.
pub enum View {
    Postgres(postgres::view::View),
    MySql(mysql::view::View),
}

impl View {
    /// What the view contains; `None` for the pin's own, in which nothing of the stream is.
    pub fn fence(&self) -> Option<&Fence> {
        match self {
            Self::Postgres(view) => view.fence(),
            Self::MySql(view) => view.fence(),
        }
    }

    /// Every transaction that the view contains lies before this position.
    pub fn horizon(&self) -> Lsn {
        match self {
            Self::Postgres(view) => view.horizon(),
            Self::MySql(view) => view.horizon(),
        }
    }

    /// Microseconds since the Unix epoch, by the server's clock.
    pub fn opened_micros(&self) -> i64 {
        match self {
            Self::Postgres(view) => view.opened_micros(),
            Self::MySql(view) => view.opened_micros(),
        }
    }

    pub fn relations(&self) -> Box<dyn Iterator<Item = &Arc<Relation>> + Send + '_> {
        match self {
            Self::Postgres(view) => Box::new(view.relations()),
            Self::MySql(view) => Box::new(view.relations()),
        }
    }

    /// Cuts every table of the view into chunks of about so many rows.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn plan(self, chunk_rows: u32) -> Result<Plan, Failure> {
        match self {
            Self::Postgres(view) => {
                let plan = view.plan(chunk_rows).await?;
                Ok(Plan::Postgres { view, plan })
            }
            Self::MySql(view) => {
                let plan = view.plan(chunk_rows);
                Ok(Plan::MySql { view, plan })
            }
        }
    }
}

/// A view, and what will be read in it.
pub enum Plan {
    Postgres { view: postgres::view::View, plan: postgres::scan::Plan },
    MySql { view: mysql::view::View, plan: mysql::scan::Plan },
}

impl Plan {
    /// Each table with the number of its chunks: 0 for an empty one.
    pub fn tables(&self) -> Box<dyn Iterator<Item = (&Arc<Relation>, u32)> + Send + '_> {
        match self {
            Self::Postgres { plan, .. } => Box::new(plan.tables()),
            Self::MySql { plan, .. } => Box::new(plan.tables()),
        }
    }

    /// Reads the chunks. The view is held until the scan is dropped.
    ///
    /// # Errors
    /// Transient: open another view.
    pub async fn scan(self, options: Options) -> Result<Scan, Failure> {
        match self {
            Self::Postgres { view, plan } => Ok(Scan::Postgres(view.scan(plan, options))),
            Self::MySql { view, plan } => Ok(Scan::MySql(view.scan(plan, options).await?)),
        }
    }
}

/// A running scan. Dropped, it ends its workers, and the view.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Scan {
    Postgres(postgres::scan::Scan),
    MySql(mysql::scan::Scan),
}

impl Scan {
    /// The next piece; `None` once every chunk has been read. Cancel-safe.
    ///
    /// # Errors
    /// The scan is over then.
    pub async fn next(&mut self) -> Result<Option<Piece>, ScanError> {
        match self {
            Self::Postgres(scan) => Ok(scan.next().await?),
            Self::MySql(scan) => Ok(scan.next().await?),
        }
    }

    /// Counters in the order of the plan's tables.
    pub fn progress(&self) -> &[Arc<Progress>] {
        match self {
            Self::Postgres(scan) => scan.progress(),
            Self::MySql(scan) => scan.progress(),
        }
    }
}

/// A running stream. Dropped, it just ends.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Stream {
    Postgres(postgres::stream::Stream),
    MySql(mysql::stream::Stream),
}

impl Stream {
    /// The next item. Cancel-safe.
    ///
    /// # Errors
    /// The stream is over then.
    pub async fn next(&mut self) -> Result<Item, Failure> {
        match self {
            Self::Postgres(stream) => Ok(stream.next().await?),
            Self::MySql(stream) => Ok(stream.next().await?),
        }
    }

    /// What has to be kept with a position that the items have passed, to go on from there. Not asked for in any other
    /// order than the log's.
    pub fn note(&self, at: Lsn) -> Option<String> {
        match self {
            Self::Postgres(stream) => stream.note(at),
            Self::MySql(stream) => Some(stream.note(at)),
        }
    }

    /// What the server need not keep any more.
    pub fn acknowledge(&self, position: Kept) {
        match self {
            Self::Postgres(stream) => stream.acknowledge(position),
            Self::MySql(stream) => stream.acknowledge(position),
        }
    }

    /// Tells the server what was acknowledged, and ends.
    ///
    /// # Errors
    /// When the connection had ended before.
    pub async fn close(self) -> Result<(), Failure> {
        match self {
            Self::Postgres(stream) => Ok(stream.close().await?),
            Self::MySql(stream) => Ok(stream.close().await?),
        }
    }
}
