//! Gaps: when they are found, and what `dovetail gaps` prints.
//!
//! Before a pipeline does anything it is asked whether it may go on from where it stands. If it may not because the log is
//! gone, that is written into the [ledger](crate::state::gaps) before the process ends, and the only way on is for an
//! operator to accept it: everything is scanned again from a new pin. If it may, whatever was open there is closed.

use std::fmt::{self, Write as _};

use dovetail_core::seam::{self, Pin, Start};
use tracing::{info, warn};

use crate::config::Pipeline;
use crate::error::Error;
use crate::source::Source;
use crate::source::failure::Failure;
use crate::source::finding::Finding;
use crate::state::gaps::Fate;
use crate::state::{Gap, Store};
use crate::telemetry::field;

/// What the seam begins with, if the pipeline may go on. `ready` is what preflight said: a log that is gone is one of the
/// things that it finds, so of a pipeline that has a pin it is heard last.
///
/// # Errors
/// [`Error::Gap`] with its number in the ledger, or as the source says.
pub async fn look(
    config: &Pipeline,
    source: &Source,
    store: &mut Store,
    start: Result<Start, Failure>,
    ready: Result<(), Error>,
) -> Result<Start, Error> {
    let start = match (start, &ready) {
        (Ok(start), _) => start,
        (Err(_), Err(_)) => {
            ready?;
            return Err(Error::Stopped);
        }
        (Err(failure), Ok(())) => return Err(failure.into()),
    };
    if let Err(refusal) = seam::examine(store.record(), &start) {
        let Some(gap) = refusal.gap() else {
            ready?;
            return Err(refusal.into());
        };
        if let Err(unready) = ready {
            warn!({ field::ERROR } = unready.chain(), "the source is not ready");
        }
        let tables = config.source.tables().to_vec();
        let id = store.enter_gap(gap, tables, refusal.to_string()).await?;
        return Err(Error::Gap { id, source: refusal });
    }
    ready?;
    if matches!(store.record().pin, Pin::At(_)) {
        store.close_gaps().await?;
    }
    if let Some(note) = source.renewed_note() {
        info!("the server has another timeline, which holds all that was read");
        store.renew_note(note).await?;
    }
    Ok(start)
}

/// What `dovetail check` says of those that are open.
pub fn findings(gaps: &[Gap]) -> impl Iterator<Item = Finding> {
    gaps.iter().filter(|gap| gap.is_open()).map(|gap| {
        Finding::warning(
            format!("gap {} is open ({})", gap.id, gap.loss),
            format!(
                "{}. Mend it and run, or accept it (`dovetail run --accept-gap {}`): the tables are copied again then",
                gap.reason, gap.id
            ),
        )
    })
}

/// The ledger, for people or for programs.
pub struct List<'a>(pub &'a [Gap]);

impl List<'_> {
    /// A JSON array on one line.
    pub fn to_json(&self) -> String {
        let json =
            serde_json::to_string(self.0).expect("texts, numbers and lists have a JSON form");
        format!("{json}\n")
    }
}

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return writeln!(f, "no gaps");
        }
        for gap in self.0 {
            let Gap { id, seen, loss, from, to, tables, reason, fate } = gap;
            let to = to.as_deref().unwrap_or("a position that is not known");
            writeln!(f, "gap {id}: {loss}, {}", word(fate))?;
            writeln!(f, "  seen    {seen}")?;
            writeln!(f, "  lost    from {from} to {to}")?;
            writeln!(f, "  tables  {}", tables.join(", "))?;
            writeln!(f, "  reason  {reason}")?;
            if gap.is_open() {
                writeln!(
                    f,
                    "  to do   as the reason says; or `dovetail run --accept-gap {id}`, which copies the tables again"
                )?;
            }
        }
        Ok(())
    }
}

fn word(fate: &Fate) -> String {
    match fate {
        Fate::Open => "open".to_owned(),
        Fate::Closed { closed } => format!("closed at {closed}: the log was there after all"),
        Fate::Accepted { accepted, pin } => {
            let mut text = format!("accepted at {accepted}");
            if let Some(pin) = pin {
                // Writing to a string cannot fail.
                _ = write!(text, ", tables copied again from the pin {pin}");
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(id: i64, fate: Fate) -> Gap {
        Gap {
            id,
            seen: "2026-01-02T03:04:05Z".into(),
            loss: "purged".into(),
            from: "000001:500".into(),
            to: Some("000003:4".into()),
            tables: vec!["shop.a".into(), "shop.b".into()],
            reason: "those changes are lost".into(),
            fate,
        }
    }

    #[test]
    fn the_ledger_is_told_with_what_became_of_each_gap() {
        let accepted = Fate::Accepted {
            accepted: "2026-01-03T00:00:00Z".into(),
            pin: Some("1.000004:9".into()),
        };
        let gaps = [gap(1, accepted), gap(2, Fate::Open)];
        assert_eq!(
            List(&gaps).to_string(),
            "gap 1: purged, accepted at 2026-01-03T00:00:00Z, tables copied again from the pin 1.000004:9\n  \
             seen    2026-01-02T03:04:05Z\n  lost    from 000001:500 to 000003:4\n  tables  shop.a, shop.b\n  \
             reason  those changes are lost\n\
             gap 2: purged, open\n  \
             seen    2026-01-02T03:04:05Z\n  lost    from 000001:500 to 000003:4\n  tables  shop.a, shop.b\n  \
             reason  those changes are lost\n  \
             to do   as the reason says; or `dovetail run --accept-gap 2`, which copies the tables again\n"
        );
        assert_eq!(
            List(&gaps[..1]).to_json(),
            concat!(
                r#"[{"id":1,"seen":"2026-01-02T03:04:05Z","loss":"purged","from":"000001:500","to":"000003:4","#,
                r#""tables":["shop.a","shop.b"],"reason":"those changes are lost","fate":"accepted","#,
                r#""accepted":"2026-01-03T00:00:00Z","pin":"1.000004:9"}]"#,
                "\n"
            )
        );
        assert_eq!(List(&[]).to_string(), "no gaps\n");
        assert_eq!(findings(&gaps).count(), 1);
    }
}
