//! How far a pipeline is, as its state says it; for people or for programs.

use std::fmt;

use dovetail_core::position::Lsn;
use dovetail_core::schema::TableName;
use dovetail_core::seam::{Pin, Record, Scan};
use serde::Serialize;

use crate::config::Pipeline;
use crate::spool::Look;
use crate::state::Content;

/// What `dovetail status` prints. The JSON form is this, key by key; positions are texts such as `16/B374D848`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    pub pipeline: String,
    /// The database whose log the positions are of; null until the first run.
    pub source: Option<Source>,
    /// Where the stream starts; null until the slot is there.
    pub pin: Option<String>,
    /// Everything before it is durable at every outlet.
    pub checkpoint: Option<String>,
    /// What the log was read to, into the spool; null where there is none.
    pub spooled: Option<String>,
    /// What the spool takes on the disk.
    pub spool_bytes: u64,
    /// Whether the hand-over from scan to stream is complete.
    pub finished: bool,
    /// Numbers of gaps that nobody has accepted or mended.
    pub open_gaps: Vec<i64>,
    /// The configured tables, then those that the state still knows.
    pub tables: Vec<Table>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The server's system identifier, or another name of it.
    pub system: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub database: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    pub table: String,
    pub scan: State,
    /// Scans of which rows may have reached an outlet.
    pub attempts: u32,
    pub configured: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Due,
    /// Begun and not ended: under way, or left over by a crash.
    Begun,
    Done,
    /// Not read, in mode `never`: only what is streamed is at the outlets.
    Skipped,
}

impl Status {
    /// `None` for a pipeline that has not run yet.
    pub fn new(pipeline: &Pipeline, content: Option<&Content>, spool: Option<&Look>) -> Self {
        let nothing = Record::default();
        let record = content.map_or(&nothing, |content| &content.record);
        let configured = pipeline.source.tables();
        let others = record.tables.keys().filter(|table| !configured.contains(table));
        let table = |name: &TableName| {
            let attempts = record.attempts(name);
            let scan = match record.tables.get(name) {
                Some(Scan::Done { .. }) => State::Done,
                Some(Scan::Skipped { .. }) => State::Skipped,
                _ if attempts > 0 => State::Begun,
                _ => State::Due,
            };
            let configured = configured.contains(name);
            Table { table: name.to_string(), scan, attempts, configured }
        };
        let pin = match record.pin {
            Pin::At(lsn) => Some(lsn),
            Pin::None | Pin::Intended => None,
        };
        Self {
            pipeline: pipeline.name.clone(),
            source: content.map(|content| Source {
                system: content.origin.source.system.clone(),
                database: content.origin.source.database.clone(),
            }),
            pin: pin.as_ref().map(Lsn::to_string),
            checkpoint: record.checkpoint.as_ref().map(Lsn::to_string),
            spooled: spool.map(|spool| spool.mark.position.to_string()),
            spool_bytes: spool.map_or(0, |spool| spool.bytes),
            finished: record.finished,
            open_gaps: content.iter().flat_map(|content| open_gaps(content)).collect(),
            tables: configured.iter().chain(others).map(table).collect(),
        }
    }

    /// One JSON object on one line.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("texts, numbers and lists have a JSON form");
        format!("{json}\n")
    }
}

fn open_gaps(content: &Content) -> impl Iterator<Item = i64> {
    content.gaps.iter().filter(|gap| gap.is_open()).map(|gap| gap.id)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none yet".to_owned());
        let done = self.tables.iter().filter(|table| table.scan == State::Done).count();
        writeln!(f, "pipeline    {}", self.pipeline)?;
        match &self.source {
            Some(Source { system, database }) if database.is_empty() => {
                writeln!(f, "source      server {system}")?;
            }
            Some(Source { system, database }) => {
                writeln!(f, "source      database {database} of system {system}")?;
            }
            None => {}
        }
        writeln!(f, "pin         {}", or_none(&self.pin))?;
        writeln!(f, "checkpoint  {}", or_none(&self.checkpoint))?;
        if let Some(spooled) = &self.spooled {
            writeln!(f, "spool       up to {spooled}, {} bytes", self.spool_bytes)?;
        }
        writeln!(f, "hand-over   {}", if self.finished { "finished" } else { "not finished" })?;
        if !self.open_gaps.is_empty() {
            let numbers: Vec<_> = self.open_gaps.iter().map(i64::to_string).collect();
            writeln!(f, "open gaps   {} (`dovetail gaps` says more)", numbers.join(", "))?;
        }
        writeln!(f, "scanned     {done} of {} tables", self.tables.len())?;
        for Table { table, scan, attempts, configured } in &self.tables {
            let state = match scan {
                State::Due => "due".to_owned(),
                State::Begun => format!("begun, attempt {attempts}"),
                State::Done => "done".to_owned(),
                State::Skipped => "skipped, streamed only".to_owned(),
            };
            let left = if *configured { "" } else { " (not in the configuration)" };
            writeln!(f, "  {table}: {state}{left}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use crate::origin::{self, Origin};
    use crate::state::Notes;
    use dovetail_core::envelope::Mark;
    use dovetail_core::schema::RelationId;
    use dovetail_core::seam::Step;
    use std::path::Path;

    fn pipeline() -> Pipeline {
        let text = "{name: shop, state: s, outlets: {o: {discard: {}}}, source: {postgres: \
                    {url: 'postgresql://u@localhost/d', tables: [a, b, c]}}}";
        Pipeline::check(Path::new("shop.yaml"), text, &Environment::default()).expect("sound")
    }

    fn name(name: &str) -> TableName {
        TableName { namespace: "public".into(), name: name.into() }
    }

    #[test]
    fn a_pipeline_that_has_not_run_is_all_due() {
        let status = Status::new(&pipeline(), None, None);
        assert_eq!(
            status.to_string(),
            "pipeline    shop\npin         none yet\ncheckpoint  none yet\n\
             hand-over   not finished\nscanned     0 of 3 tables\n  \
             public.a: due\n  public.b: due\n  public.c: due\n"
        );
    }

    #[test]
    fn the_states_of_tables_are_told_apart() {
        let steps = [
            Step::Intend,
            Step::Pin(Lsn::new(0x1_0000_0010)),
            Step::Attempt([name("a"), name("b"), name("z")].into()),
            Step::Scanned { table: name("a"), relation: RelationId(7), fenced: None },
            Step::Skip([(name("s"), RelationId(8))].into()),
            Step::Checkpoint(Lsn::new(0x1_0000_0020)),
        ];
        let record = steps.iter().fold(Record::default(), Record::with);
        let source = origin::Source {
            kind: origin::Kind::Postgres,
            system: "7".into(),
            database: "d".into(),
        };
        let origin = Origin { pipeline: "shop".into(), source };
        let content = Content { origin, record, notes: Notes::default(), gaps: Vec::new() };
        let mark = Mark { position: Lsn::new(0x1_0000_0030), last_event: None, note: None };
        let spool = Look { mark, bytes: 96 };
        let json = Status::new(&pipeline(), Some(&content), Some(&spool)).to_json();
        assert_eq!(
            json,
            concat!(
                r#"{"pipeline":"shop","source":{"system":"7","database":"d"},"pin":"1/10","checkpoint":"1/20","spooled":"1/30","spool_bytes":96,"finished":false,"open_gaps":[],"tables":["#,
                r#"{"table":"public.a","scan":"done","attempts":1,"configured":true},"#,
                r#"{"table":"public.b","scan":"begun","attempts":1,"configured":true},"#,
                r#"{"table":"public.c","scan":"due","attempts":0,"configured":true},"#,
                r#"{"table":"public.s","scan":"skipped","attempts":1,"configured":false},"#,
                r#"{"table":"public.z","scan":"begun","attempts":1,"configured":false}]}"#,
                "\n"
            )
        );
    }
}
