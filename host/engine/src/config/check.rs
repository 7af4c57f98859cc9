//! From a file's text to a checked pipeline, or to everything that is wrong with it.

use std::num::{NonZeroU16, NonZeroU32};
use std::ops::RangeInclusive;
use std::path::Path;

use super::environment::Environment;
use super::field::{Field, Reader, Section};
use super::problem::{Place, Problems};
use super::{Pipeline, Snapshot, SnapshotMode, outlet, plugin, source, spool, tree};

/// Each lane is a thread with an instance of every plugin, and each worker a connection to the source: more than this
/// is a slip of the finger.
const PARALLEL: RangeInclusive<u32> = 1..=256;
/// Two keep a small machine busy and leave a small server alone.
const PARALLEL_DEFAULT: NonZeroU16 = NonZeroU16::new(2).expect("two is not zero");
/// About a second of COPY: few enough chunks to count, small enough to see progress.
const CHUNK_ROWS: u32 = 100_000;

impl Pipeline {
    /// Checks the text of `file`. Relative paths in it are relative to the file.
    ///
    /// # Errors
    /// All problems of the file at once.
    pub fn check(file: &Path, text: &str, environment: &Environment) -> Result<Self, Problems> {
        let mut reader = Reader { environment, problems: Vec::new() };
        let directory = file.parent().unwrap_or(Path::new(""));
        let tree = tree::parse(text, &mut reader.problems);
        if tree.is_none() && reader.problems.is_empty() {
            reader.report(
                Place { line: 1, column: 1 },
                "",
                "the file is empty, expected a pipeline",
            );
        }
        let pipeline = tree.and_then(|tree| pipeline(&Field::root(&tree), &mut reader, directory));
        match pipeline {
            Some(pipeline) if reader.problems.is_empty() => Ok(pipeline),
            _ => Err(Problems::new(file.display().to_string(), reader.problems)),
        }
    }
}

fn pipeline(field: &Field<'_>, reader: &mut Reader<'_>, directory: &Path) -> Option<Pipeline> {
    let mut root = field.section(reader, "a map with the keys name, source, outlets and state")?;
    let expected = "a name for the pipeline: 1 to 40 of a-z, 0-9 and _";
    let name = root.required(reader, "name", expected).and_then(|field| {
        field.parsed(reader, expected, |text| {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            (text.len() <= 40 && text.chars().all(letters)).then(|| text.to_owned())
        })
    });
    let source = source::check(&mut root, reader, name.as_deref(), directory);
    let snapshot = match root.optional("snapshot") {
        Some(field) => snapshot(&field, reader),
        None => Some(Snapshot {
            mode: SnapshotMode::Initial,
            workers: PARALLEL_DEFAULT,
            chunk_rows: CHUNK_ROWS,
            max_rows_per_second: None,
        }),
    };
    let lanes = parallel(&mut root, reader, "lanes");
    let plugins = plugin::check(&mut root, reader, directory);
    let outlets = outlet::check(&mut root, reader, source.as_ref(), directory);
    let deliver = outlet::deliver(&mut root, reader, outlets.as_ref());
    let expected = "a directory for the state, such as ./state";
    let state = root
        .required(reader, "state", expected)
        .and_then(|field| field.text(reader, expected))
        .map(|state| directory.join(state));
    let spool = spool::check(&mut root, reader);
    root.finish(reader);
    Some(Pipeline {
        name: name?,
        source: source?,
        snapshot: snapshot?,
        lanes: lanes?,
        plugins: plugins?,
        outlets: outlets?,
        deliver: deliver?,
        state: state?,
        spool: spool?,
    })
}

fn snapshot(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Snapshot> {
    let expected = "{mode: ..., workers: ..., chunk_rows: ..., max_rows_per_second: ...}";
    let mut section = field.section(reader, expected)?;
    let mode = match section.optional("mode") {
        Some(field) => field.choice(
            reader,
            &[
                ("initial", SnapshotMode::Initial),
                ("always", SnapshotMode::Always),
                ("never", SnapshotMode::Never),
            ],
        ),
        None => Some(SnapshotMode::Initial),
    };
    let workers = parallel(&mut section, reader, "workers");
    let chunk_rows = match section.optional("chunk_rows") {
        Some(field) => field.number(reader, 1..=u32::MAX),
        None => Some(CHUNK_ROWS),
    };
    let max_rows_per_second = match section.optional("max_rows_per_second") {
        Some(field) => field.number(reader, 1..=u32::MAX).map(NonZeroU32::new),
        None => Some(None),
    };
    section.finish(reader);
    Some(Snapshot {
        mode: mode?,
        workers: workers?,
        chunk_rows: chunk_rows?,
        max_rows_per_second: max_rows_per_second?,
    })
}

fn parallel(
    section: &mut Section<'_>,
    reader: &mut Reader<'_>,
    key: &'static str,
) -> Option<NonZeroU16> {
    match section.optional(key) {
        Some(field) => {
            let number = field.number(reader, PARALLEL)?;
            u16::try_from(number).ok().and_then(NonZeroU16::new)
        }
        None => Some(PARALLEL_DEFAULT),
    }
}
