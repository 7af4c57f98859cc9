//! What rows come from at the moment, and what comes next of them.

use std::collections::HashMap;

use dovetail_core::position::Lsn;
use dovetail_core::schema::RelationId;
use dovetail_core::seam::Due;
use tokio::time::Instant;
use tracing::warn;

use crate::error::Error;
use crate::outlet::Landed;
use crate::source::failure::ScanError;
use crate::source::{Item, Piece, Pin, Scan, Stream, View};
use crate::spool::{Cursor, Next};
use crate::telemetry::field;

/// What a driver waits for.
pub(super) enum Happened {
    Landed(Landed),
    Piece(Piece),
    ScanEnded,
    ViewLost,
    Item(Item),
    /// What the source needs to go on from a position.
    Noted(Lsn, String),
    CheckpointDue,
    Stopping,
    DeliveryEnded,
}

/// What rows come from at the moment.
pub(super) enum Reading {
    Nothing,
    Pin(Pin),
    View(View),
    Scan {
        scan: Scan,
        due: HashMap<RelationId, Due>,
    },
    Stream(Stream),
    /// What the intake puts into the spool.
    Spool(Cursor),
}

impl Reading {
    /// Pending for ever where nothing is read; a scan goes on at `not_before`. Cancel-safe.
    pub(super) async fn next(&mut self, not_before: Instant) -> Result<Happened, Error> {
        match self {
            Self::Nothing | Self::Pin(_) | Self::View(_) => std::future::pending().await,
            Self::Scan { scan, .. } => match paced(not_before, scan).await {
                Ok(Some(piece)) => Ok(Happened::Piece(piece)),
                Ok(None) => Ok(Happened::ScanEnded),
                Err(ScanError::ViewLost(error)) => {
                    warn!({ field::ERROR } = %error, "the view was lost, unfinished tables are scanned again");
                    Ok(Happened::ViewLost)
                }
                Err(error) => Err(error.into()),
            },
            Self::Spool(cursor) => match cursor.next().await? {
                Next::Item(item) => Ok(Happened::Item(item)),
                Next::Noted(position, note) => Ok(Happened::Noted(position, note)),
            },
            Self::Stream(stream) => stream.next().await.map(Happened::Item).map_err(Error::Stream),
        }
    }
}

async fn paced(not_before: Instant, scan: &mut Scan) -> Result<Option<Piece>, ScanError> {
    tokio::time::sleep_until(not_before).await;
    scan.next().await
}
