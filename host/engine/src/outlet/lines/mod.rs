//! Standard output and files: one JSON object a line, in the order of the log.
//!
//! Nothing is transactional here: a crash can leave half a source transaction in the file, and the restart writes it
//! again from the checkpoint on, flagged `redelivery`. What a line promises is that it is whole: one that a crash tore
//! is cut off when the file is opened again. The file only grows; `fdatasync` ends every group before anything of
//! it counts as durable. A consumer that wants each change once keeps the ids that it has seen.
//!
//! # A line
//! | member | |
//! |---|---|
//! | `op` | `read` (a row of the scan), `insert`, `update`, `delete`, `truncate`, `message`, `emit` (by a plugin) |
//! | `table` | as the configuration writes it: `public.t`, `public."T t"`; a message has none |
//! | `pos` | `commit`: the log position of the transaction's commit, of a binlog transaction its start (of a scanned row: the pin); `ordinal`: from 1 inside the transaction, 0 for a scanned row |
//! | `id` | the same whenever the same change is delivered again. `SYSTEM:DATABASE:COMMIT+ORDINAL` (of MySQL and MariaDB without a database); of a scanned row with a digest of its key; of an emission with `/N`, its number under its input. Absent for a scanned row of a table without a key, of which nothing tells two equal rows apart |
//! | `ts_us` | commit time in microseconds since 1970; of a scanned row the time of its view |
//! | `xid` | PostgreSQL: the transaction, 64 bits; absent where there is none |
//! | `transaction` | MySQL and MariaDB: its GTID, or its start where it has none, as a text |
//! | `redelivery` | `true`, or absent |
//! | `moved` | `true` on both halves of a key change, a delete and the next insert; otherwise absent |
//! | `key`, `before`, `after` | columns by name; `before` holds what the log has of the old row |
//! | `unavailable` | columns of `after` that were not in the log (unchanged TOAST). They are absent from `after`, which is not null |
//! | `prefix`, `content`, `transactional` | of a message |
//! | `topic`, `emitted_key`, `headers`, `payload`, `tombstone` | of an emission; one that is a row stands in `after` |
//!
//! # A value
//! | kind | JSON |
//! |---|---|
//! | null | `null` |
//! | bool | `true`, `false` |
//! | int, uint | a number with all its digits, also beyond 2^53 |
//! | float4, float8 | a number with the digits that read back exactly; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | everything else | a string: the text that PostgreSQL prints under `DateStyle` ISO, `TimeZone` UTC, `IntervalStyle` postgres and `bytea_output` hex. So numeric `"1.00"`, json its own text unparsed (big numbers and repeated keys survive), bytea `"\\x00ff"`, timestamptz `"2024-01-31 12:00:00.5+00"`, arrays `"{1,NULL}"` |
//!
//! Content, payload, headers and emitted keys, which are bytes, are written as bytea is.

mod encode;
mod held;
mod json;
mod sink;

use std::path::Path;

use super::{Delivery, Error, Landed, landed};
use crate::origin::Source;
use encode::Encoder;
use sink::Sink;

/// Lines are handed to the system in pieces of this size, whatever the group: smaller ones cost system calls, larger
/// ones memory and nothing gained.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct Lines {
    target: u16,
    encoder: Encoder,
    sink: Sink,
    buffer: Vec<u8>,
}

impl Lines {
    pub(in crate::outlet) fn stdout(source: &Source, target: u16) -> Self {
        Self::new(Sink::stdout(), source, target)
    }

    /// Opens or creates a file to append to, and cuts off what a crash left of its last line.
    pub(in crate::outlet) fn file(
        path: &Path,
        source: &Source,
        target: u16,
    ) -> Result<Self, Error> {
        Ok(Self::new(Sink::file(path)?, source, target))
    }

    fn new(sink: Sink, source: &Source, target: u16) -> Self {
        let buffer = Vec::with_capacity(PIECE_BYTES);
        Self { target, encoder: Encoder::new(source), sink, buffer }
    }

    pub(in crate::outlet) fn write(&mut self, group: &[Delivery]) -> Result<Vec<Landed>, Error> {
        self.buffer.clear();
        for delivery in group {
            for record in delivery.records_for(self.target) {
                self.encoder.write(record, &mut self.buffer);
                if self.buffer.len() >= PIECE_BYTES {
                    self.sink.write(&self.buffer)?;
                    self.buffer.clear();
                }
            }
        }
        self.sink.write(&self.buffer)?;
        self.sink.sync()?;
        Ok(group.iter().filter_map(|delivery| landed(delivery.closing)).collect())
    }
}
