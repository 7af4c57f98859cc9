//! The part of the driver that opens views and scans tables in them.

use std::collections::HashMap;
use std::time::Duration;

use dovetail_core::batch::{ChunkId, Closing};
use dovetail_core::change::{Change, Event};
use dovetail_core::position::Position;
use dovetail_core::schema::TableName;
use dovetail_core::seam::{Due, Input, View};
use tokio::time::Instant;
use tracing::{info, warn};

use super::reading::Reading;
use super::{Driver, lanes, unless_stopped};
use crate::error::Error;
use crate::source::failure::{PinError, ViewError};
use crate::source::{Options, Piece, Wanted};
use crate::telemetry::field;

impl Driver<'_> {
    pub(super) async fn take_pin(&mut self) -> Result<Input, Error> {
        let wanted = self.wanted();
        let pin = match unless_stopped(self.stop, self.source.take_pin(&wanted)).await? {
            Ok(pin) => pin,
            Err(PinError::NotTaken(failure)) => {
                self.failure = Some(Error::Pin(failure));
                return Ok(Input::NotPinned);
            }
            Err(PinError::Unknown(failure)) => return Err(Error::Pin(failure)),
        };
        let (at, view) = (pin.position(), pin.has_view());
        info!({ field::POSITION } = %at, "pinned");
        self.reading = if view { Reading::Pin(pin) } else { Reading::Nothing };
        Ok(Input::Pinned { at, view })
    }

    /// What the next view is for.
    fn wanted(&self) -> Wanted {
        let record = self.seam.record();
        let tables = self.config.source.tables().iter();
        let tables = tables.filter(|table| !record.is_done(table)).cloned().collect();
        Wanted { tables, workers: self.config.snapshot.workers }
    }

    pub(super) async fn open_view(&mut self, view: View) -> Result<Input, Error> {
        let wanted = self.wanted();
        let opened = match (view, std::mem::replace(&mut self.reading, Reading::Nothing)) {
            (View::Pinned, Reading::Pin(pin)) => pin.view(&wanted).await,
            (View::Pinned, _) => return Ok(Input::ViewLost),
            (View::Later, _) => self.source.view(&wanted).await,
        };
        let view = match opened {
            Ok(view) => view,
            Err(ViewError::Stale { table }) => {
                warn!({ field::TABLE } = %table, "the table changed while the view was opened, another one follows");
                return Ok(Input::ViewLost);
            }
            Err(error) => return Err(error.into()),
        };
        let input = match view.fence() {
            None => Input::PinnedViewOpened,
            Some(fence) => Input::LaterViewOpened { fence: fence.clone(), horizon: view.horizon() },
        };
        info!(tables = wanted.tables.len(), horizon = %view.horizon(), "view opened");
        self.reading = Reading::View(view);
        Ok(input)
    }

    /// Empties tables of which rows may be at the outlets, as a barrier before the rows that take their place.
    pub(super) async fn truncate(
        &mut self,
        again: impl Fn(&TableName) -> bool,
    ) -> Result<(), Error> {
        let Reading::View(view) = &self.reading else { return Ok(()) };
        let relations: Vec<_> =
            view.relations().filter(|relation| again(&relation.table)).cloned().collect();
        let position = Position { commit: self.pin(), ordinal: 0 };
        let commit_time_micros = view.opened_micros();
        let events = relations.iter().map(|relation| Event {
            position,
            commit_time_micros,
            transaction: None,
            redelivery: true,
            change: Change::Truncate { relation: relation.clone() },
        });
        let events = events.collect();
        let lanes = lanes(&mut self.lanes)?;
        lanes.prepare(relations, false).await?;
        lanes.dispatch(events, Closing::Rows).await?;
        Ok(())
    }

    pub(super) async fn scan(&mut self, due: Vec<Due>) -> Result<Vec<Input>, Error> {
        let Reading::View(view) = std::mem::replace(&mut self.reading, Reading::Nothing) else {
            return Ok(vec![Input::ViewLost]);
        };
        let by_name: HashMap<&TableName, &Due> = due.iter().map(|it| (&it.table, it)).collect();
        let fresh = view
            .relations()
            .filter(|relation| by_name.get(&relation.table).is_some_and(|it| !it.again))
            .cloned()
            .collect();
        lanes(&mut self.lanes)?.prepare(fresh, true).await?;
        let plan = view.plan(self.config.snapshot.chunk_rows).await?;
        let mut inputs = Vec::new();
        let mut by_relation = HashMap::new();
        for (relation, chunks) in plan.tables() {
            let Some(due) = by_name.get(&relation.table) else { continue };
            // An empty table has one empty chunk, so that it is done only after the outlets have made it.
            let (table, relation, count) = (due.table.clone(), relation.id, chunks.max(1));
            inputs.push(Input::ChunksPlanned { table, relation, count });
            by_relation.insert(relation, (*due).clone());
            if chunks == 0 {
                let chunk = ChunkId { table: relation, number: due.first_chunk };
                lanes(&mut self.lanes)?.dispatch(Vec::new(), Closing::Chunk(chunk)).await?;
            }
        }
        let options = Options { pin: self.pin(), redelivery: false };
        let scan = plan.scan(options).await?;
        self.progress.scan_started(scan.progress());
        self.reading = Reading::Scan { scan, due: by_relation };
        Ok(inputs)
    }

    pub(super) async fn dispatch_piece(&mut self, piece: Piece) -> Result<(), Error> {
        let Reading::Scan { due, .. } = &self.reading else { return Ok(()) };
        let Some(due) = due.get(&piece.relation.id) else { return Ok(()) };
        let mut events = piece.events;
        if let Some(rate) = self.config.snapshot.max_rows_per_second {
            let rows = u32::try_from(events.len()).unwrap_or(u32::MAX);
            let pause = Duration::from_secs(1).saturating_mul(rows) / rate.get();
            self.scan_not_before = self.scan_not_before.max(Instant::now()) + pause;
        }
        if due.again {
            for event in &mut events {
                event.redelivery = true;
            }
        }
        let closing = match piece.chunk {
            Some(chunk) => Closing::Chunk(ChunkId {
                number: chunk.number.saturating_add(due.first_chunk),
                ..chunk
            }),
            None => Closing::Rows,
        };
        Ok(lanes(&mut self.lanes)?.dispatch(events, closing).await?)
    }
}
