//! The frames inside the `CopyData` messages of a replication connection.
//!
//! The server sends log data and keepalives, the client status updates. Clocks on this wire count microseconds from
//! 2000-01-01; here they are of the Unix epoch. Source: "Streaming Replication Protocol" in PostgreSQL's manual.

use bytes::Bytes;

use super::reader::{Reader, Short};
use crate::position::Lsn;

/// What the server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Log {
        start: Lsn,
        /// The server's end of log when it sent this.
        end: Lsn,
        clock_micros: i64,
        /// One message of the output plugin.
        message: Bytes,
    },
    Keepalive {
        /// How far the server has decoded: every transaction that commits before has been sent. Inside a transaction
        /// it says nothing of what has been received.
        end: Lsn,
        clock_micros: i64,
        /// The server gives up soon unless it hears a status update.
        reply_requested: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFrame {
    #[error("replication frame of unknown kind {tag:#04x}; the server speaks a newer protocol")]
    Unknown { tag: u8 },
    #[error("replication frame of kind {tag:#04x} with {length} bytes")]
    Length { tag: u8, length: usize },
    #[error("empty replication frame")]
    Empty,
}

/// # Errors
/// When the payload is no frame that this protocol has.
pub fn frame(payload: &Bytes) -> Result<Frame, InvalidFrame> {
    let mut reader = Reader::new(payload);
    let tag = reader.u8().map_err(|Short| InvalidFrame::Empty)?;
    let read = match tag {
        b'w' => log(&mut reader),
        b'k' => keepalive(&mut reader),
        _ => return Err(InvalidFrame::Unknown { tag }),
    };
    match read {
        Ok(frame) if reader.left() == 0 => Ok(frame),
        _ => Err(InvalidFrame::Length { tag, length: payload.len() }),
    }
}

fn log(reader: &mut Reader<'_>) -> Result<Frame, Short> {
    let start = Lsn::new(reader.u64()?);
    let end = Lsn::new(reader.u64()?);
    let clock_micros = unix_micros(reader.i64()?);
    Ok(Frame::Log { start, end, clock_micros, message: reader.rest() })
}

fn keepalive(reader: &mut Reader<'_>) -> Result<Frame, Short> {
    Ok(Frame::Keepalive {
        end: Lsn::new(reader.u64()?),
        clock_micros: unix_micros(reader.i64()?),
        reply_requested: reader.u8()? != 0,
    })
}

/// A standby status update: `saved` is reported as written, flushed and applied, because the server may recycle
/// whatever lies before any of the three.
pub fn status_update(saved: Lsn, clock_micros: i64, reply_requested: bool) -> [u8; 34] {
    let mut update = [0; 34];
    let parts: [&[u8]; 6] = [
        b"r",
        &saved.offset().to_be_bytes(),
        &saved.offset().to_be_bytes(),
        &saved.offset().to_be_bytes(),
        &clock_micros.saturating_sub(EPOCH_MICROS).to_be_bytes(),
        &[u8::from(reply_requested)],
    ];
    for (to, from) in update.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    update
}

/// 2000-01-01 in microseconds since 1970-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Of a timestamp on this wire. Saturates: a clock at the end of time is no reason to stop.
pub(super) fn unix_micros(micros_since_2000: i64) -> i64 {
    micros_since_2000.saturating_add(EPOCH_MICROS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payload(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    #[test]
    fn log_data_and_keepalives_are_read() {
        let log = payload(&[b"w", &1_u64.to_be_bytes(), &2_u64.to_be_bytes(), &[0; 8], b"C..."]);
        let message = Bytes::from_static(b"C...");
        let (start, end) = (Lsn::new(1), Lsn::new(2));
        let clock_micros = EPOCH_MICROS;
        assert_eq!(frame(&log), Ok(Frame::Log { start, end, clock_micros, message }));

        let alive = payload(&[b"k", &9_u64.to_be_bytes(), &5_i64.to_be_bytes(), &[1]]);
        let clock_micros = EPOCH_MICROS + 5;
        let keepalive = Frame::Keepalive { end: Lsn::new(9), clock_micros, reply_requested: true };
        assert_eq!(frame(&alive), Ok(keepalive));
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(frame(&Bytes::new()), Err(InvalidFrame::Empty));
        assert_eq!(frame(&payload(&[b"p", &[0; 17]])), Err(InvalidFrame::Unknown { tag: b'p' }));
        for length in [0, 16, 18] {
            let short = payload(&[b"k", &vec![0; length]]);
            let length = length + 1;
            assert_eq!(frame(&short), Err(InvalidFrame::Length { tag: b'k', length }));
        }
    }

    #[test]
    fn a_status_update_reports_the_saved_position_three_times() {
        let update = status_update(Lsn::new(0x0102), EPOCH_MICROS + 7, true);
        let expected =
            [b"r", [0, 0, 0, 0, 0, 0, 1, 2].repeat(3).as_slice(), &7_i64.to_be_bytes(), &[1]]
                .concat();
        assert_eq!(update.to_vec(), expected);
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(mut payload in any::<Vec<u8>>(), tag in "[wk]?") {
            payload.splice(0..0, tag.into_bytes());
            let payload = Bytes::from(payload);
            if let Ok(Frame::Log { message, .. }) = frame(&payload) {
                prop_assert_eq!(message.len() + 25, payload.len());
            }
        }
    }
}
