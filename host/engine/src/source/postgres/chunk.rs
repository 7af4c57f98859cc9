//! The chunks of a table: how its heap is cut.

use std::fmt::Write as _;

use dovetail_core::batch::ChunkId;
use dovetail_core::schema::Relation;

use super::catalog::{Heap, Table, get};
use super::connection::Session;
use super::failure::Failure;
use super::identifier::{quote, quote_table};

/// Rows a page for a table that was never analyzed: about 100 bytes a row. Wrong by a factor of ten it makes ten times
/// as many or as few chunks, none of which costs memory.
const ROWS_PER_PAGE_GUESS: f64 = 80.0;
/// More chunks than this of one table say nothing that fewer would not; their statements are all kept in memory.
const CHUNKS_MAX: u64 = 100_000;

/// A range of heap pages with the statement that reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub id: ChunkId,
    pub statement: String,
}

/// What the catalog says about the size of a heap.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    /// Now; the statistics may be old.
    pages: u64,
    /// At the time of the statistics.
    analyzed_pages: f64,
    /// Negative: never analyzed.
    analyzed_rows: f64,
}

/// The chunks of each table, in its heaps' order.
pub(super) async fn plan(
    session: &Session,
    tables: &[Table],
    chunk_rows: u32,
) -> Result<Vec<Vec<Chunk>>, Failure> {
    let ids: Vec<u32> =
        tables.iter().flat_map(|table| &table.heaps).map(|heap| heap.id.0).collect();
    let mut sizes = sizes(session, &ids).await?.into_iter();
    Ok(tables
        .iter()
        .map(|table| {
            let mut chunks = Vec::new();
            for (heap, size) in table.heaps.iter().zip(sizes.by_ref()) {
                cut(&table.relation, heap, size, chunk_rows, &mut chunks);
            }
            chunks
        })
        .collect())
}

/// In the order of `ids`.
async fn sizes(session: &Session, ids: &[u32]) -> Result<Vec<Size>, Failure> {
    const QUERY: &str = "\
        SELECT pg_relation_size(c.oid) / current_setting('block_size')::int8, c.relpages, \
            c.reltuples \
        FROM unnest($1::oid[]) WITH ORDINALITY AS wanted(id, place) \
        JOIN pg_class c ON c.oid = wanted.id ORDER BY wanted.place";
    let what = "read the sizes of the tables";
    let rows =
        session.client().query(QUERY, &[&ids]).await.map_err(|error| Failure::sql(what, error))?;
    if rows.len() != ids.len() {
        return Err(Failure::protocol(what));
    }
    rows.iter()
        .map(|row| {
            Ok(Size {
                pages: u64::try_from(get::<i64>(row, 0, what)?).unwrap_or(0),
                analyzed_pages: f64::from(get::<i32>(row, 1, what)?),
                analyzed_rows: f64::from(get::<f32>(row, 2, what)?),
            })
        })
        .collect()
}

/// Appends the chunks of one heap.
fn cut(relation: &Relation, heap: &Heap, size: Size, chunk_rows: u32, chunks: &mut Vec<Chunk>) {
    let step = pages_per_chunk(size, chunk_rows);
    let mut first = 0;
    while first < size.pages {
        let next = first.saturating_add(step);
        let last = next >= size.pages;
        let number = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        chunks.push(Chunk {
            id: ChunkId { table: relation.id, number },
            statement: statement(relation, heap, first, (!last).then_some(next)),
        });
        first = next;
    }
}

fn pages_per_chunk(size: Size, chunk_rows: u32) -> u64 {
    let analyzed = size.analyzed_rows > 0.0 && size.analyzed_pages > 0.0;
    let density = match analyzed {
        true => size.analyzed_rows / size.analyzed_pages,
        false => ROWS_PER_PAGE_GUESS,
    };
    let wanted = (f64::from(chunk_rows) / density).ceil().clamp(1.0, 4_294_967_295.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of u32 above"
    )]
    let wanted = wanted as u64;
    wanted.max(size.pages.div_ceil(CHUNKS_MAX))
}

/// The rows of the pages from `first` to before `end`, or to the end.
fn statement(relation: &Relation, heap: &Heap, first: u64, end: Option<u64>) -> String {
    let columns: Vec<String> = relation.columns.iter().map(|column| quote(&column.name)).collect();
    let (columns, table) = (columns.join(", "), quote_table(&heap.table));
    let mut statement =
        format!("COPY (SELECT {columns} FROM ONLY {table} WHERE ctid >= '({first},0)'");
    if let Some(end) = end {
        write!(statement, " AND ctid < '({end},0)'").expect("a string takes everything");
    }
    statement + ") TO STDOUT"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dovetail_core::schema::{RelationId, TableName};

    use super::*;

    fn statements(size: Size, chunk_rows: u32) -> Vec<String> {
        let table = TableName { namespace: "public".into(), name: "t".into() };
        let relation =
            Arc::new(Relation::new(RelationId(1), table.clone(), Vec::new(), Vec::new()));
        let heap = Heap::for_test(RelationId(1), table);
        let mut chunks = Vec::new();
        cut(&relation, &heap, size, chunk_rows, &mut chunks);
        chunks.into_iter().map(|chunk| chunk.statement).collect()
    }

    #[test]
    fn ranges_touch_and_the_last_has_no_end() {
        let size = Size { pages: 25, analyzed_pages: 10.0, analyzed_rows: 100.0 };
        let ranges: Vec<String> = statements(size, 100)
            .into_iter()
            .map(|text| text.split_once("WHERE ").expect("a range").1.to_owned())
            .collect();
        let expected = [
            "ctid >= '(0,0)' AND ctid < '(10,0)') TO STDOUT",
            "ctid >= '(10,0)' AND ctid < '(20,0)') TO STDOUT",
            "ctid >= '(20,0)') TO STDOUT",
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn an_empty_table_has_no_chunk_and_one_never_analyzed_has_some() {
        let empty = Size { pages: 0, analyzed_pages: 0.0, analyzed_rows: -1.0 };
        assert!(statements(empty, 1).is_empty());
        let fresh = Size { pages: 100, ..empty };
        assert_eq!(statements(fresh, 2_000).len(), 4);
        assert_eq!(statements(fresh, u32::MAX).len(), 1);
        let emptied_when_analyzed = Size { analyzed_pages: 3.0, analyzed_rows: 0.0, ..fresh };
        assert_eq!(statements(emptied_when_analyzed, 2_000).len(), 4);
    }

    #[test]
    fn chunks_of_a_huge_table_are_bounded_in_number() {
        let size = Size { pages: u64::from(u32::MAX), analyzed_pages: 1.0, analyzed_rows: 1.0 };
        assert!(u64::try_from(statements(size, 1).len()).expect("fits") <= CHUNKS_MAX);
    }
}
